"""Where the kernels of a session come from: the native layer; or, for tests on a fake NVML alone, a simulation.

Either is a library with a build record beside it. The simulation is loaded only if HOOK names its record *and* the
NVML in use says itself that it is a fake: neither a forgotten variable on a real GPU nor a fake library alone can make
numbers up.
"""

import os

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import read_json
from kernel_dvfs.native.load import REMEDY

HOOK = "KERNEL_DVFS_TEST_LOAD"
NATIVE = os.path.join("results", "native", "cuda", "build.json")


def record() -> str:
    """The build record of the library whose kernels run."""
    return os.environ.get(HOOK) or NATIVE


def library_sha256() -> str:
    """Checksum of that library: other bytes measure anew, a build that gives the same ones does not.

    Raises InputError where there is none.
    """
    return _library()["sha256"]


def _library() -> dict:
    """Its file, as the record has it, and its checksum."""
    path = record()
    try:
        content = read_json(path)
        if content["status"] != "built":
            raise InputError(f"CUDA kernels: unavailable: {content['reason']}")
        return {name: str(content["library"][name]) for name in ("file", "sha256")}
    except OSError:
        raise InputError(f"CUDA kernels: not built (no {path}): {REMEDY}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"CUDA kernels: {path} is not a build record: {REMEDY}") from None


def open_loads(nvml, uuid: str):
    """The kernels on the GPU `uuid`: see native_loads.NativeLoads for what they offer. Raises InputError."""
    hook = os.environ.get(HOOK)
    is_fake = hasattr(nvml.shared_library, "fakenvml_now")
    if hook and not is_fake:
        raise InputError(f"{HOOK} is set, which is for tests on a fake NVML, but this NVML is a driver's; unset it")
    if is_fake and not hook:
        raise InputError(f"this NVML is a fake: no kernel can run on its GPUs; unset LD_LIBRARY_PATH, or set {HOOK}")
    if hook:
        return _simulation(os.path.join(os.path.dirname(hook), _library()["file"])).SimulatedLoads(nvml, uuid)
    from kernel_dvfs.measurement.real.native_loads import NativeLoads

    return NativeLoads(uuid)


def _simulation(path: str):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("kernel_dvfs_test_load", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
