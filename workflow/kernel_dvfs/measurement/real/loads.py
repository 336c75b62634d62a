"""Where the kernels of a session come from: the native layer; or, for tests on a fake NVML alone, a simulation.

The simulation is loaded only if HOOK names its file *and* the NVML in use says itself that it is a fake: neither a
forgotten variable on a real GPU nor a fake library alone can make numbers up.
"""

import os
from importlib.util import module_from_spec, spec_from_file_location

from kernel_dvfs.errors import InputError

HOOK = "KERNEL_DVFS_TEST_LOAD"
NATIVE = os.path.join("results", "native", "cuda", "build.json")


def source() -> str:
    """The file whose content decides what the kernels are: a change of it measures anew."""
    return os.environ.get(HOOK) or NATIVE


def open_loads(nvml, uuid: str):
    """The kernels on the GPU `uuid`: see native_loads.NativeLoads for what they offer. Raises InputError."""
    hook = os.environ.get(HOOK)
    is_fake = hasattr(nvml.shared_library, "fakenvml_now")
    if hook and not is_fake:
        raise InputError(f"{HOOK} is set, which is for tests on a fake NVML, but this NVML is a driver's; unset it")
    if is_fake and not hook:
        raise InputError(f"this NVML is a fake: no kernel can run on its GPUs; unset LD_LIBRARY_PATH, or set {HOOK}")
    if hook:
        spec = spec_from_file_location("kernel_dvfs_test_load", hook)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.SimulatedLoads(nvml, uuid)
    from kernel_dvfs.measurement.real.native_loads import NativeLoads

    return NativeLoads(uuid)
