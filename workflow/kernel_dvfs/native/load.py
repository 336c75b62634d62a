"""Load a built extension from results/native/<backend>/ by its path, and say which backends exist.

Measurement jobs on real GPUs import it, so it needs the standard library only.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from typing import Annotated, Any, Literal, TypedDict

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import Is, checked, read

# "cpu": the C reference on NumPy arrays, "cuda": the kernels, "graph": captured graphs,
# "pipeline": clocks of a training pipeline; each native/bindings/<it>.cpp
BACKENDS = ("cpu", "cuda", "graph", "pipeline")
SCHEMA = "kernel-dvfs/build/1"
REMEDY = "run `kernel-dvfs build`"
CUBLAS_REMEDY = "make cuda, or pip install 'kernel-dvfs[cuda]' and run `kernel-dvfs build --cuda on`"


class BuiltLibrary(TypedDict):
    """A built library."""

    # in the record's folder
    file: Annotated[str, Is("the name of a file", lambda name: name and os.path.basename(name) == name)]
    sha256: str


class _Record(TypedDict):
    schema: str
    status: Literal["built", "unavailable"]
    reason: str | None  # why it is unavailable


class Build(_Record):
    """The record of a library that was built; build.py writes more."""

    library: BuiltLibrary


def load(backend: str, results_dir: str | os.PathLike[str] = "results") -> Any:
    """Return the extension module of `backend`.

    Raises InputError where it is not built, was built for another Python, or does not load.
    """
    if backend not in BACKENDS:
        raise InputError(f"native layer: no backend {backend!r}; there is {', '.join(BACKENDS)}")
    path, why = _find(backend, results_dir)
    if path is None:
        raise InputError(f"native layer: {backend} is {why}")
    # a name of its own for each file: pybind11 keeps modules by name and would hand out another folder's
    name = f"kernel_dvfs.native.{abs(hash((os.path.abspath(path), os.stat(path).st_mtime_ns)))}._{backend}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its suffix is that of an extension
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        remedy = CUBLAS_REMEDY if any(name in str(error) for name in ("libcublasLt", "libcudnn")) else REMEDY
        raise InputError(f"native layer: {path} does not load ({error}): {remedy}") from None
    return module


def backends(results_dir: str | os.PathLike[str] = "results") -> dict[str, str]:
    """Return for every backend "built", or why it cannot be loaded and what to do."""
    return {backend: _find(backend, results_dir)[1] or "built" for backend in BACKENDS}


def library_sha256(backend: str, results_dir: str | os.PathLike[str] = "results") -> str:
    """Return the checksum of the built library: what measurements with it depend on. Raises InputError where it is not
    built."""
    path, why = _find(backend, results_dir)
    if path is None:
        raise InputError(f"native layer: {backend} is {why}")
    return read_build(os.path.join(results_dir, "native", backend, "build.json"))["library"]["sha256"]


def read_build(path: str) -> Build:
    """Return the build record of a library that was built. Raises InputError: why there is none, and what to do."""
    if not os.path.exists(path):
        raise InputError(f"not built (no {path}): {REMEDY}")
    record = read(path, _Record, SCHEMA, REMEDY, "unknown: build record")
    if record["status"] != "built":
        raise InputError(f"unavailable: {record['reason']}")
    return checked(record, Build, f"unknown: build record {path}", REMEDY)


def _find(backend: str, results_dir: str | os.PathLike[str]) -> tuple[str | None, str]:
    """Return (path of the library, nothing), or (None, why not)."""
    folder = os.path.join(results_dir, "native", backend)
    try:
        name = read_build(os.path.join(folder, "build.json"))["library"]["file"]
    except InputError as error:
        return None, str(error)
    if not name.endswith(EXTENSION_SUFFIXES[0]):
        return None, f"built for another Python ({name}): {REMEDY}"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None, f"not whole (no {path}): {REMEDY}"
    return path, ""
