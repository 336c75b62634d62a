"""NVML opened through nvidia-ml-py, and nothing else of that name; every call's failure becomes one of our errors."""

from contextlib import suppress
from importlib import metadata
from typing import Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.nvml.errors import translate

OLDEST = (12, 535, 108)  # before it, structures differ from the drivers'
_REMEDY = "pip uninstall pynvml, then pip install 'nvidia-ml-py>=12.535.108'"


class Library:
    """NVML, open from entering the context to leaving it."""

    def __init__(self) -> None:
        self._nvml = _binding()

    def __enter__(self) -> "Library":
        self.call("nvmlInit")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(self._nvml.NVMLError):  # where the GPU is lost there is nothing left to shut down
            self._nvml.nvmlShutdown()

    def call(self, name: str, *arguments: Any, gpu: str = "") -> Any:
        """What NVML's function returns; bytes of older bindings as text. gpu: UUID, for the message.

        Raises errors.NvmlError.
        """
        try:
            value = getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            raise translate(name, error.value, gpu) from None
        except AttributeError:
            # a binding older than the call
            raise translate(name, self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND, gpu) from None
        return value.decode() if isinstance(value, bytes) else value

    def has(self, name: str) -> bool:
        """Whether the binding knows the call."""
        return hasattr(self._nvml, name)

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
