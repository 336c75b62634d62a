"""Load a built extension from results/native/<backend>/ by its path, and say which backends exist.

Light enough for measurement jobs; builds nothing.
"""

import json
import os

# "cpu": the C reference on NumPy arrays, native/bindings/cpu.cpp; "cuda": the kernels, native/bindings/cuda.cpp
BACKENDS = ("cpu", "cuda")
REMEDY = "run `kernel-dvfs build`"
CUBLAS_REMEDY = "make cuda, or pip install -r envs/cuda.lock and run `kernel-dvfs build --cuda on`"


def load(backend, results_dir="results"):
    """The extension module of `backend`.

    Raises InputError where it is not built, was built for another Python, or does not load.
    """
    from kernel_dvfs.errors import InputError

    if backend not in BACKENDS:
        raise InputError(f"native layer: no backend {backend!r}; there is {', '.join(BACKENDS)}")
    path, why = _find(backend, results_dir)
    if why:
        raise InputError(f"native layer: {backend} is {why}")
    from importlib.util import module_from_spec, spec_from_file_location

    # a name of its own for each file: pybind11 keeps modules by name and would hand out another folder's
    name = f"kernel_dvfs.native.{abs(hash((os.path.abspath(path), os.stat(path).st_mtime_ns)))}._{backend}"
    spec = spec_from_file_location(name, path)
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        remedy = CUBLAS_REMEDY if "libcublasLt" in str(error) else REMEDY
        raise InputError(f"native layer: {path} does not load ({error}): {remedy}") from None
    return module


def backends(results_dir="results") -> dict:
    """For every backend, "built", or why it cannot be loaded and what to do."""
    return {backend: _find(backend, results_dir)[1] or "built" for backend in BACKENDS}


def library_sha256(backend, results_dir="results") -> str:
    """Checksum of the built library: what measurements with it depend on. Raises InputError where it is not built."""
    from kernel_dvfs.errors import InputError

    _, why = _find(backend, results_dir)
    if why:
        raise InputError(f"native layer: {backend} is {why}")
    with open(os.path.join(results_dir, "native", backend, "build.json"), encoding="utf-8") as file:
        return json.load(file)["library"]["sha256"]


def _find(backend, results_dir):
    """(path of the library, None), or (None, why not)."""
    from importlib.machinery import EXTENSION_SUFFIXES

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
    return path, None
