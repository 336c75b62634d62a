"""NVML opened through nvidia-ml-py, and nothing else of that name; every call's failure becomes one of our errors.

A driver that hangs never comes back from a call, and nothing in this process can end that call. So a thread looks at
the calls that are under way, and ends the process, with a line, when one takes too long: whoever watches the process
(who asked it, the user) learns of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID, NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, LOST, UNKNOWN = 2, 3, 4, 10, 15, 999
_NO_LIBRARY, _NO_SYMBOL = 12, 13
_LONGEST = 300  # characters of what another program said

PERMISSION_REMEDY = (
    "run as root, or in a container started with --cap-add=SYS_ADMIN; or ask your administrator for another way to set "
    "them (kernel-dvfs devices says which and what to ask; docs/cluster.md); or have Slurm set them with "
    "clocks: external; or measure at auto alone with clocks: auto-only"
)
NO_DRIVER_REMEDY = (
    "install NVIDIA's driver, in a container start it with --gpus, on a cluster ask for a GPU node; without one, "
    "configure a simulated GPU such as gpu: h200_sxm"
)
_NO_NVML_REMEDY = (
    "its device nodes are here, so this is a container without NVML: start it with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility (a pod's env; Docker's --env)"
)
_NODES = "/dev/nvidiactl"  # is there where a container runtime brought a GPU
# code -> (what it means, what to do)
_MEANINGS = {
    1: ("NVML is not initialised", "this is a fault of kernel-dvfs, please report it"),
    INVALID: ("the driver refuses an argument", "this is a fault of kernel-dvfs, please report it"),
    NOT_SUPPORTED: ("not supported on this GPU", "kernel-dvfs devices shows what it can do"),
    NO_PERMISSION: ("no permission", PERMISSION_REMEDY),
    6: ("no such GPU", "kernel-dvfs devices lists those that are here"),
    9: ("no NVIDIA driver is loaded", NO_DRIVER_REMEDY),
    TIMEOUT: ("the driver cannot be reached in time", "reset the GPU or reboot"),
    _NO_LIBRARY: ("no NVIDIA driver: libnvidia-ml.so.1 is not found", NO_DRIVER_REMEDY),
    _NO_SYMBOL: ("the driver is too old to have this call", "install a newer driver"),
    LOST: ("the GPU is lost: it has fallen off the bus", "reset the GPU or reboot; kernel-dvfs reset --all afterwards"),
    16: ("the GPU needs a reset", "nvidia-smi --gpu-reset, or reboot"),
    17: ("the system refuses the driver's files", "in a container, start it with --gpus"),
    18: ("driver and NVML library differ in version", "reboot after the driver's update"),
    19: ("the GPU is in use", "wait for who uses it, or stop it"),
}
_UNKNOWN = "an unknown fault of the driver", "see dmesg for Xid messages"
OLDEST = (12, 535, 108)  # before it, structures differ from the drivers'
PATIENCE = "KERNEL_DVFS_NVML_PATIENCE_S"  # names how long a call may take, seconds
_PATIENCE_S = 60.0  # a driver that is not kept loaded takes many seconds to come up
_LOOK_EVERY_S = 1.0
_REMEDY = "pip uninstall pynvml, then pip install 'nvidia-ml-py>=12.535.108'"


class NvmlError(InputError):
    """A call that NVML refused, or another way of setting clocks. code: NVML's, or the one that says the same; call:
    its name. wait: waits for the end of what may still be carried out, None where nothing tells it."""

    wait: Callable[[], object] | None = None

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


def meaning(code: int) -> str:
    """Return what an NVML code means, in words."""
    return _MEANINGS.get(code, _UNKNOWN)[0]


def translate(call: str, code: int, gpu: str = "") -> NvmlError:
    """Return the error of a failed call, in one line: what, on which GPU (UUID), as whom, and the remedy."""
    means, remedy = _MEANINGS.get(code, _UNKNOWN)
    if code == _NO_LIBRARY and os.path.exists(_NODES):
        remedy = _NO_NVML_REMEDY
    on = f" on {gpu}" if gpu else ""
    who = f" for user {os.geteuid()}" if code == NO_PERMISSION else ""
    return failure(f"{call}{on}: {means}{who} (NVML code {code}); {remedy}", code, call)


def refused(call: str, gpu: str, reason: str, remedy: str, code: int = UNKNOWN) -> NvmlError:
    """Return the error of another way of setting clocks than NVML, in one line. reason: in its own words; code: the one
    of NVML that means the same."""
    return failure(f"{call} on {gpu}: {reason[:_LONGEST]}; {remedy}", code, call)


def failure(message: str, code: int, call: str) -> NvmlError:
    """Return the error of a call, of the class that its code stands for."""
    return _CLASSES.get(code, NvmlError)(message, code, call)


class Library:
    """NVML, open from entering the context to leaving it. A call that hangs ends the process: exit code 2, a line on
    stderr."""

    def __init__(self) -> None:
        self._nvml, self._version = _binding()
        self._patience_s = patience_s()
        self._calls: dict[int, tuple[str, str, float]] = {}  # under way, by thread: name, GPU, since when
        self._left = threading.Event()

    def __enter__(self) -> Library:
        # signals are the main thread's: one that it has blocked must not end the process here
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._watch, name="NVML watchdog", daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        try:
            self.call("nvmlInit")
        except BaseException:
            self._left.set()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(InputError):  # where the GPU is lost there is nothing left to shut down
            self.call("nvmlShutdown")
        self._left.set()

    def call(self, name: str, *arguments: Any, gpu: str = "") -> Any:
        """Call a function of NVML, and return what it returns; bytes of older bindings as text. gpu: UUID, for the
        message.

        Raises nvml.library.NvmlError.
        """
        thread = threading.get_ident()
        self._calls[thread] = name, gpu, time.monotonic()
        try:
            value = getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            raise translate(name, error.value, gpu) from None
        except AttributeError:
            # a binding older than the call
            raise translate(name, self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND, gpu) from None
        finally:
            del self._calls[thread]
        return value.decode() if isinstance(value, bytes) else value

    def has(self, name: str) -> bool:
        """Return whether the binding knows the call."""
        return hasattr(self._nvml, name)

    def _watch(self) -> None:
        """End the process when a call does not come back."""
        while not self._left.wait(min(_LOOK_EVERY_S, self._patience_s / 4)):
            for name, gpu, since_s in list(self._calls.values()):
                if time.monotonic() - since_s > self._patience_s:
                    on = f" on {gpu}" if gpu else ""
                    try:
                        print(
                            f"error: {name}{on} has not come back for {self._patience_s:g} s: the driver hangs; see "
                            "dmesg for Xid messages, reset the GPU or reboot, then look at its clocks (kernel-dvfs "
                            "devices)",
                            file=sys.stderr,
                            flush=True,
                        )
                    finally:  # whether or not anybody can be told
                        os._exit(2)

    @property
    def shared_library(self) -> Any:
        """Return the loaded libnvidia-ml, as ctypes has it."""
        return self._nvml.nvmlLib

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of driver, nvml, binding and cuda, as a record has them."""
        cuda = self.call("nvmlSystemGetCudaDriverVersion_v2")
        return {
            "driver": self.call("nvmlSystemGetDriverVersion"),
            "nvml": self.call("nvmlSystemGetNVMLVersion"),
            "binding": self._version,
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        }


def patience_s() -> float:
    """Return how long whatever sets clocks may take to answer, seconds. Raises InputError."""
    text = os.environ.get(PATIENCE, "")
    try:
        seconds = float(text) if text else _PATIENCE_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise InputError(f"{PATIENCE}={text} is not possible; allowed: a number of seconds > 0")
    return seconds


@cache
def _binding() -> tuple[Any, str]:
    """Return the module pynvml of the package nvidia-ml-py, and its version. Raises InputError: others have the same
    name and other layouts."""
    from importlib import metadata  # 7 ms, and most that need this module open no library

    try:
        import pynvml
    except ImportError:
        raise InputError(f"Python package nvidia-ml-py is missing; {_REMEDY}") from None
    try:
        version = metadata.version("nvidia-ml-py")
        numbers = tuple(int(part) for part in version.split(".")[:3])
    except (metadata.PackageNotFoundError, ValueError):
        version, numbers = "none", ()
    # nvidia-ml-py is one file; the package `pynvml` was a folder of that name
    if not pynvml.__file__.endswith("pynvml.py") or numbers < OLDEST:
        raise InputError(f"Python package nvidia-ml-py >= 12.535.108 is needed, found {version} at import; {_REMEDY}")
    return pynvml, version
