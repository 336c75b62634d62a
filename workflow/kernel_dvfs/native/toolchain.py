"""Find what a backend is built with, or say how to get it.

Tools that came with the running Python (pip packages cmake, ninja, pybind11) go before those of the system.
"""

import importlib
import os
import shlex
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kernel_dvfs.native import compilers, cuda_toolkit
from kernel_dvfs.native.compilers import Compiler, MissingTool


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What a backend is built with."""

    cmake: str  # path
    ninja: str  # path
    definitions: dict[str, str]  # what CMake is told
    environment: dict[str, str]  # variables that CMake is run with
    identity: dict[str, Any]  # for build.json: everything about the tools that decides the library's bytes
    summary: str  # the same in a few words


# definitions, environment, identity, summary of a Toolchain
_Found = tuple[dict[str, str], dict[str, str], dict[str, Any], str]

# code for each of these, and PTX that later ones compile for themselves; $CUDAARCHS replaces it
ARCHITECTURES = ("80-real", "86-real", "90-real", "90-virtual")
# settings that compilers read from the environment
VARIABLES = {
    "cpu": ("CFLAGS", "CXXFLAGS", "LDFLAGS"),
    "cuda": ("CXXFLAGS", "CUDAFLAGS", "LDFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    "graph": ("CXXFLAGS", "LDFLAGS"),
    "pipeline": ("CXXFLAGS", "LDFLAGS"),
}


def find(backend: str) -> Toolchain:
    """The tools on this machine for a backend. Raises MissingTool at the first that is absent or broken."""
    finder = {"cpu": _for_c, "cuda": _for_cuda, "graph": _for_cxx, "pipeline": _for_cxx}[backend]
    definitions, environment, identity, summary = finder()
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        raise MissingTool(
            f"no Python.h for {sys.executable} (looked for {header}): install Python's headers "
            "(Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel)"
        )
    pybind11 = _module("pybind11")
    definitions |= {"KDVFS_BACKEND": backend, "Python_EXECUTABLE": sys.executable}
    if pybind11:  # without it, CMake may find a system-wide one
        definitions["pybind11_DIR"] = pybind11.get_cmake_dir()
    return Toolchain(
        cmake=_program("cmake", "CMAKE_BIN_DIR"),
        ninja=_program("ninja", "BIN_DIR"),
        definitions=definitions,
        environment=environment,
        identity={
            "python": sysconfig.get_config_var("SOABI"),
            "pybind11": pybind11.__version__ if pybind11 else None,
            **identity,
            "environment": {name: os.environ[name] for name in VARIABLES[backend] if os.environ.get(name)},
        },
        summary=summary,
    )


def watched(backend: str) -> list[str | None]:
    """Where the tools lie that a user installs, None for those that are absent: what a workflow watches.

    Runs nothing, unlike `find`.
    """
    cxx = compilers.which("cxx")
    return [cxx[0] if cxx else None, *(cuda_toolkit.watched() if backend == "cuda" else ())]


def _for_c() -> _Found:
    c, cxx = compilers.find("c"), compilers.find("cxx")
    environment = {"CC": shlex.join(c.command), "CXX": shlex.join(cxx.command)}
    return {}, environment, {"compilers": {"c": _named(c), "cxx": _named(cxx)}}, f"{cxx.id} {cxx.version}"


def _for_cxx() -> _Found:
    cxx = compilers.find("cxx")
    return {}, {"CXX": shlex.join(cxx.command)}, {"compilers": {"cxx": _named(cxx)}}, f"{cxx.id} {cxx.version}"


def _for_cuda() -> _Found:
    toolkit = cuda_toolkit.find()
    cxx = compilers.find("cxx")
    host_path = cuda_toolkit.host_compiler(cxx.command)
    host = compilers.identify("cxx", [host_path])
    cuda_toolkit.check(toolkit, host_path)
    architectures = [name for name in os.environ.get("CUDAARCHS", "").split(";") if name] or ARCHITECTURES
    cublaslt = toolkit.cublaslt
    directory = os.path.dirname(os.path.abspath(cublaslt.library))
    definitions = {
        "CMAKE_CUDA_COMPILER": toolkit.nvcc,
        "CMAKE_CUDA_HOST_COMPILER": host_path,
        "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
        "CMAKE_CUDA_FLAGS_INIT": shlex.join(cuda_toolkit.link_flags(toolkit)),
        "KDVFS_CUBLASLT": os.path.abspath(cublaslt.library),
        "KDVFS_CUBLASLT_INCLUDE": cublaslt.include,
    }
    cudnn, of_cudnn = toolkit.cudnn, None
    if cudnn:
        folder = os.path.dirname(os.path.abspath(cudnn.library))
        definitions["KDVFS_CUDNN"] = os.path.abspath(cudnn.library)
        definitions["KDVFS_CUDNN_INCLUDE"] = f"{cudnn.include};{cudnn.frontend}"
        of_cudnn = {"version": cudnn.version, "frontend": cudnn.frontend_version, "directory": folder}
    identity = {
        "compilers": {
            "cxx": _named(cxx),
            "cuda": {"id": "NVIDIA", "version": toolkit.version, "name": os.path.basename(toolkit.nvcc)},
            "cuda_host": _named(host),
        },
        "architectures": list(architectures),
        # the only folders in the record: the library opens cublasLt and cuDNN there, and nowhere else first
        "cublaslt": {"version": cublaslt.version, "directory": directory},
        "cudnn": of_cudnn,
    }
    summary = (
        f"nvcc {toolkit.version} with {host.id} {host.version} for {' '.join(architectures)}, "
        f"cublasLt {cublaslt.version} of {directory}, "
        f"{f'cuDNN {cudnn.version}' if cudnn else 'without cuDNN (no fused attention)'}"
    )
    return definitions, {"CXX": shlex.join(cxx.command)}, identity, summary


def _named(compiler: Compiler) -> dict[str, str]:
    return {"id": compiler.id, "version": compiler.version, "name": compiler.name}


def _program(name: str, folder_attribute: str) -> str:
    module = _module(name)
    folder = getattr(module, folder_attribute, None)
    path = (folder and shutil.which(name, path=folder)) or shutil.which(name)
    if not path:
        raise MissingTool(f"no {name}: {sys.executable} -m pip install {name}")
    return path


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except (ImportError, AssertionError, OSError):
        # the package is absent, or (cmake and ninja check that on import) its program is; the system's may do
        return None
