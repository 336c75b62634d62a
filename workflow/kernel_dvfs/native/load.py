"""Load a built extension from results/native/<backend>/ by its path, and say which backends exist.

Measurement jobs on real GPUs import it, so it needs the standard library only.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from kernel_dvfs.errors import InputError

# "cpu": the C reference on NumPy arrays, "cuda": the kernels, "graph": captured graphs,
# "pipeline": clocks of a training pipeline; each native/bindings/<it>.cpp
BACKENDS = ("cpu", "cuda", "graph", "pipeline")
REMEDY = "run `kernel-dvfs build`"
CUBLAS_REMEDY = "make cuda, or pip install -r envs/cuda.lock and run `kernel-dvfs build --cuda on`"


def load(backend: str, results_dir: str | os.PathLike[str] = "results") -> Any:
    """The extension module of `backend`.

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
    """For every backend, "built", or why it cannot be loaded and what to do."""
    return {backend: _find(backend, results_dir)[1] or "built" for backend in BACKENDS}


def library_sha256(backend: str, results_dir: str | os.PathLike[str] = "results") -> str:
    """Checksum of the built library: what measurements with it depend on. Raises InputError where it is not built."""
    path, why = _find(backend, results_dir)
    if path is None:
        raise InputError(f"native layer: {backend} is {why}")
    with open(os.path.join(results_dir, "native", backend, "build.json"), encoding="utf-8") as file:
        return json.load(file)["library"]["sha256"]


def _find(backend: str, results_dir: str | os.PathLike[str]) -> tuple[str | None, str]:
    """(path of the library, nothing), or (None, why not)."""
    folder = os.path.join(results_dir, "native", backend)
    try:
        with open(os.path.join(folder, "build.json"), encoding="utf-8") as file:
            record = json.load(file)
        if record["status"] != "built":
            return None, f"unavailable: {record['reason']}"
        name = record["library"]["file"]
    except OSError:
        return None, f"not built (no {folder}/build.json): {REMEDY}"
    except (ValueError, KeyError, TypeError):
        return None, f"unknown ({folder}/build.json is not a build record): {REMEDY}"
    if not name.endswith(EXTENSION_SUFFIXES[0]):
        return None, f"built for another Python ({name}): {REMEDY}"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None, f"not whole (no {path}): {REMEDY}"
    return path, ""
