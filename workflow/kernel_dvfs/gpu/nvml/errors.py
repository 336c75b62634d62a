"""NVML's error codes as our errors: the one place that says what each means and what to do about it."""

import os

from kernel_dvfs.errors import InputError

NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, LOST, UNKNOWN = 3, 4, 10, 15, 999
_NO_SYMBOL = 13
_LONGEST = 300  # characters of what another program said

PERMISSION_REMEDY = (
    "run as root, or in a container started with --cap-add=SYS_ADMIN; or ask your administrator for another way to set "
    "them (kernel-dvfs devices says which and what to ask; docs/clocks-without-root.md); or have Slurm set them with "
    "clocks: external; or measure at auto alone with clocks: auto-only"
)
NO_DRIVER_REMEDY = (
    "install NVIDIA's driver, in a container start it with --gpus, on a cluster ask for a GPU node; without one, "
    "configure a simulated GPU such as gpu: h200_sxm"
)
# code -> (what it means, what to do)
_MEANINGS = {
    1: ("NVML is not initialised", "this is a fault of kernel-dvfs, please report it"),
    2: ("the driver refuses an argument", "this is a fault of kernel-dvfs, please report it"),
    NOT_SUPPORTED: ("not supported on this GPU", "kernel-dvfs devices shows what it can do"),
    NO_PERMISSION: ("no permission", PERMISSION_REMEDY),
    6: ("no such GPU", "kernel-dvfs devices lists those that are here"),
    9: ("no NVIDIA driver is loaded", NO_DRIVER_REMEDY),
    TIMEOUT: ("the driver cannot be reached in time", "reset the GPU or reboot"),
    12: ("no NVIDIA driver: libnvidia-ml.so.1 is not found", NO_DRIVER_REMEDY),
    _NO_SYMBOL: ("the driver is too old to have this call", "install a newer driver"),
    LOST: ("the GPU is lost: it has fallen off the bus", "reset the GPU or reboot; kernel-dvfs reset --all afterwards"),
    16: ("the GPU needs a reset", "nvidia-smi --gpu-reset, or reboot"),
    17: ("the system refuses the driver's files", "in a container, start it with --gpus"),
    18: ("driver and NVML library differ in version", "reboot after the driver's update"),
    19: ("the GPU is in use", "wait for who uses it, or stop it"),
}


class NvmlError(InputError):
    """A call that NVML refused, or another way of setting clocks. code: NVML's, or the one that says the same; call:
    its name."""

    def __init__(self, message: str, code: int, call: str) -> None:
        super().__init__(message)
        self.code, self.call = code, call


class Denied(NvmlError):
    """No permission: verdict `denied`."""


class Unsupported(NvmlError):
    """The GPU or its driver lacks the call: verdict `unsupported`."""


class Lost(NvmlError):
    """The GPU is gone: verdict `lost`."""


_CLASSES = {NOT_SUPPORTED: Unsupported, _NO_SYMBOL: Unsupported, NO_PERMISSION: Denied, LOST: Lost, 16: Lost}


def translate(call: str, code: int, gpu: str = "") -> NvmlError:
    """The error of a failed call, in one line: what, on which GPU (UUID), as whom, and the remedy."""
    meaning, remedy = _MEANINGS.get(code, ("an unknown fault of the driver", "see dmesg for Xid messages"))
    on = f" on {gpu}" if gpu else ""
    who = f" for user {os.geteuid()}" if code == NO_PERMISSION else ""
    return _CLASSES.get(code, NvmlError)(f"{call}{on}: {meaning}{who} (NVML code {code}); {remedy}", code, call)


def refused(call: str, gpu: str, said: str, remedy: str, code: int = UNKNOWN) -> NvmlError:
    """The error of another way of setting clocks than NVML, in one line. said: its own words; code: the one of NVML
    that means the same."""
    return _CLASSES.get(code, NvmlError)(f"{call} on {gpu}: {said[:_LONGEST]}; {remedy}", code, call)
