"""Find a working C or C++ compiler, or say how to get one."""

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from kernel_dvfs.errors import InputError


class MissingTool(InputError):
    """A tool of the build is absent or does not work: what was found, what is missing, how to install it."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that works."""

    command: list[str]  # to run it
    id: str  # CMake's name of the vendor
    version: str
    name: str  # what it is called, without folders: they would differ between machines


# language -> its name, the variable that names a compiler, what compilers are called
LANGUAGES = {
    "c": ("C", "CC", ("cc", "gcc", "clang")),
    "cxx": ("C++", "CXX", ("c++", "g++", "clang++")),
}
REMEDY = (
    "install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install; conda: conda install cxx-compiler)"
)


def find(language: str) -> Compiler:
    """The compiler of `language` ("c", "cxx"). Raises MissingTool if there is none or it does not work."""
    spoken, variable, names = LANGUAGES[language]
    command = which(language)
    if not command:
        named = os.environ.get(variable)
        looked_for = f"${variable} = {named}" if named else f"${variable}, {', '.join(names)}"
        raise MissingTool(f"no {spoken} compiler (looked for {looked_for}): {REMEDY}")
    return identify(language, command)


def which(language: str) -> list[str] | None:
    """Command of the compiler that $CC or $CXX names (a launcher such as ccache may stand before it), else of
    the first on PATH under a usual name; None if there is none. Cheaper than `find`, asks nobody."""
    _, variable, names = LANGUAGES[language]
    named = shlex.split(os.environ.get(variable, ""))
    for command in [named] if named else [[name] for name in names]:
        path = shutil.which(command[0])
        if path:
            return [path, *command[1:]]
    return None


def identify(language: str, command: list[str]) -> Compiler:
    """Ask the preprocessor who it is, with a standard header included: a compiler that is there in name only
    (no libc headers; the stub of a bare macOS) is found out here, not by pages of CMake. Raises MissingTool."""
    spoken = LANGUAGES[language][0]
    answer = subprocess.run(
        [*command, "-x", spoken.lower(), "-dM", "-E", "-"],
        check=False,
        input="#include <stdlib.h>\n",
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    name = " ".join(os.path.basename(word) for word in command)
    if answer.returncode != 0:
        said = next((line for line in answer.stderr.splitlines() if line.strip()), "no message")
        raise MissingTool(f"the {spoken} compiler {name} does not work ({said.strip()}): {REMEDY}")
    words = (line.split(maxsplit=2) for line in answer.stdout.splitlines())
    macros = {line[1]: line[2] for line in words if len(line) == 3}
    if "__clang__" in macros:
        id_ = "AppleClang" if "__apple_build_version__" in macros else "Clang"
        parts = ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        id_ = "GNU"
        parts = ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return Compiler(command, id_, ".".join(macros.get(part, "?") for part in parts), name)
