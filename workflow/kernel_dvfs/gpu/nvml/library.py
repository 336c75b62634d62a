"""NVML opened through nvidia-ml-py, and nothing else of that name; every call's failure becomes one of our errors.

A driver that hangs never comes back from a call, and nothing in this process can end that call. So a thread looks at
the calls that are under way, and ends the process, with a line, when one takes too long: whoever watches the process
(the janitor, a client, the user) learns of it.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import metadata
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.errors import translate

OLDEST = (12, 535, 108)  # before it, structures differ from the drivers'
PATIENCE = "KERNEL_DVFS_NVML_PATIENCE_S"  # names how long a call may take, seconds
_PATIENCE_S = 60.0  # a driver that is not kept loaded takes many seconds to come up
_LOOK_EVERY_S = 1.0
_REMEDY = "pip uninstall pynvml, then pip install 'nvidia-ml-py>=12.535.108'"


class Library:
    """NVML, open from entering the context to leaving it. A call that hangs ends the process: exit code 2, a line on
    stderr."""

    def __init__(self) -> None:
        self._nvml = _binding()
        self._patience_s = patience_s()
        self._calls: dict[int, tuple[str, str, float]] = {}  # under way, by thread: name, GPU, since when
        self._left = threading.Event()

    def __enter__(self) -> "Library":
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
        """What NVML's function returns; bytes of older bindings as text. gpu: UUID, for the message.

        Raises errors.NvmlError.
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
        """Whether the binding knows the call."""
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
        """The loaded libnvidia-ml, as ctypes has it."""
        return self._nvml.nvmlLib

    @property
    def versions(self) -> dict[str, str]:
        """Those of driver, nvml, binding and cuda, as a record has them."""
        cuda = self.call("nvmlSystemGetCudaDriverVersion_v2")
        return {
            "driver": self.call("nvmlSystemGetDriverVersion"),
            "nvml": self.call("nvmlSystemGetNVMLVersion"),
            "binding": metadata.version("nvidia-ml-py"),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        }


def patience_s() -> float:
    """How long whatever sets clocks may take to answer, seconds. Raises InputError."""
    text = os.environ.get(PATIENCE, "")
    try:
        seconds = float(text) if text else _PATIENCE_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise InputError(f"{PATIENCE}={text} is not possible; allowed: a number of seconds > 0")
    return seconds


def _binding() -> Any:
    """The module pynvml of the package nvidia-ml-py. Raises InputError: others have the same name and other layouts."""
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
    return pynvml
