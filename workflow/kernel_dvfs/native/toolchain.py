"""Find what a build needs (compilers, CMake, Ninja, pybind11, Python's headers), or say how to get it.

Tools that came with the running Python (pip packages cmake, ninja, pybind11) go before those of the system.
Knows nothing of our sources.
"""

import importlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections import namedtuple

from kernel_dvfs.errors import InputError

Compiler = namedtuple("Compiler", "command id version name")
Compiler.__doc__ = """command: list of str, to run it; id: CMake's name of the vendor; version: str;
name: what it is called, without folders (a folder would differ between machines)."""

Toolchain = namedtuple("Toolchain", "c cxx cmake ninja pybind11_dir pybind11_version python")
Toolchain.__doc__ = """c, cxx: Compiler; cmake, ninja: paths; pybind11_dir, pybind11_version: None where only
CMake itself may find a system-wide pybind11; python: tag of the running Python, as in the library's name."""

C_NAMES = ("cc", "gcc", "clang")
CXX_NAMES = ("c++", "g++", "clang++")
COMPILER_REMEDY = (
    "install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install; conda: conda install cxx-compiler)"
)


class MissingTool(InputError):
    """A tool of the build is absent or does not work: what, and how to install it."""


def find() -> Toolchain:
    """The tools on this machine. Raises MissingTool at the first that is absent or does not work."""
    c = _compiler("C", "CC", C_NAMES)
    cxx = _compiler("C++", "CXX", CXX_NAMES)
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        raise MissingTool(
            f"no Python.h for {sys.executable} (looked for {header}): install Python's headers "
            "(Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel)"
        )
    pybind11 = _module("pybind11")
    return Toolchain(
        c=c,
        cxx=cxx,
        cmake=_program("cmake", "CMAKE_BIN_DIR"),
        ninja=_program("ninja", "BIN_DIR"),
        pybind11_dir=pybind11.get_cmake_dir() if pybind11 else None,
        pybind11_version=pybind11.__version__ if pybind11 else None,
        python=sysconfig.get_config_var("SOABI"),
    )


def cxx_path() -> str | None:
    """Where the C++ compiler lies, None without one: what a workflow watches, cheaper than `find`."""
    command = _which("CXX", CXX_NAMES)
    return command and command[0]


def _which(variable, names):
    """Command of the compiler that $CC or $CXX names (a launcher such as ccache may stand before it), else of
    the first of `names` on PATH; None if there is none."""
    named = shlex.split(os.environ.get(variable, ""))
    for command in [named] if named else [[name] for name in names]:
        path = shutil.which(command[0])
        if path:
            return [path, *command[1:]]
    return None


def _compiler(language, variable, names) -> Compiler:
    command = _which(variable, names)
    if not command:
        named = os.environ.get(variable)
        looked_for = f"${variable} = {named}" if named else f"${variable}, {', '.join(names)}"
        raise MissingTool(f"no {language} compiler (looked for {looked_for}): {COMPILER_REMEDY}")
    return _identify(language, command)


def _identify(language, command) -> Compiler:
    """Ask the preprocessor who it is, with a standard header included: a compiler that is there in name only
    (no libc headers; the stub of a bare macOS) is found out here, not by pages of CMake."""
    answer = subprocess.run(
        [*command, "-x", language.lower(), "-dM", "-E", "-"],
        check=False,
        input="#include <stdlib.h>\n",
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    name = " ".join(os.path.basename(word) for word in command)
    if answer.returncode != 0:
        said = next((line for line in answer.stderr.splitlines() if line.strip()), "no message")
        raise MissingTool(f"the {language} compiler {name} does not work ({said.strip()}): {COMPILER_REMEDY}")
    words = (line.split(maxsplit=2) for line in answer.stdout.splitlines())
    macros = {line[1]: line[2] for line in words if len(line) == 3}
    if "__clang__" in macros:
        id_ = "AppleClang" if "__apple_build_version__" in macros else "Clang"
        parts = ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        id_ = "GNU"
        parts = ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return Compiler(command, id_, ".".join(macros.get(part, "?") for part in parts), name)


def _program(name, folder_attribute) -> str:
    module = _module(name)
    folder = getattr(module, folder_attribute, None)
    path = (folder and shutil.which(name, path=folder)) or shutil.which(name)
    if not path:
        raise MissingTool(f"no {name}: {sys.executable} -m pip install {name}")
    return path


def _module(name):
    try:
        return importlib.import_module(name)
    except (ImportError, AssertionError, OSError):
        # the package is absent, or (cmake and ninja check that on import) its program is; the system's may do
        return None
