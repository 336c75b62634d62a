"""Configure, compile and install the CMake project; tell what failed in the failing tool's own words.

All output goes to one log.
"""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TextIO

from kernel_dvfs.errors import InputError
from kernel_dvfs.native.toolchain import Toolchain

SHOWN_LINES = 20
LANGUAGES = {".c": "c", ".cpp": "cxx", ".cu": "cuda"}


class StepFailed(InputError):
    """A step of the build failed; what the tool said about it was passed on."""


def run(
    source_dir: Path,
    build_dir: Path,
    install_dir: Path,
    tools: Toolchain,
    log_path: str | PathLike[str],
    say: Callable[[str], object],
) -> None:
    """Build `source_dir` in `build_dir` and install it into `install_dir`; all output is written to `log_path`.

    Raises StepFailed, after the telling part of the output was given to `say`.
    """
    definitions = {
        **tools.definitions,
        "CMAKE_MAKE_PROGRAM": tools.ninja,
        "CMAKE_INSTALL_PREFIX": str(install_dir.resolve()),
        "CMAKE_BUILD_TYPE": "Release",
    }
    steps: dict[str, list[str | PathLike[str]]] = {
        "configure": [
            *(tools.cmake, "-S", source_dir, "-B", build_dir, "-G", "Ninja"),
            *(f"-D{name}={value}" for name, value in definitions.items()),
        ],
        "compile": [tools.cmake, "--build", build_dir, "--verbose"],
        "install": [tools.cmake, "--install", build_dir, "--strip"],
    }
    environment = {**os.environ, **tools.environment}
    with open(log_path, "w", encoding="utf-8") as log:
        for name, command in steps.items():
            _step(name, [os.fspath(word) for word in command], environment, log, say)


def flags(build_dir: Path) -> dict[str, list[str]]:
    """{language: the flags that it was compiled with, in order, without the ones that name folders}."""
    commands = json.loads((build_dir / "compile_commands.json").read_text(encoding="utf-8"))
    found = {}
    for entry in commands:
        language = LANGUAGES[os.path.splitext(entry["file"])[1]]
        words = [word for word in shlex.split(entry["command"])[1:] if word.startswith("-")]
        found[language] = [word for word in words if "/" not in word and word not in ("-c", "-o", "-x", "-isystem")]
    return found


def _step(
    name: str, command: list[str], environment: dict[str, str], log: TextIO, say: Callable[[str], object]
) -> None:
    log.write(f"$ {shlex.join(command)}\n")
    log.flush()
    start = log.tell()
    done = subprocess.run(
        command, check=False, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        with open(log.name, encoding="utf-8", errors="replace") as written:
            written.seek(start)
            say(_telling(written.read().splitlines()))
        raise StepFailed(
            f"{name} failed (exit code {done.returncode}), its error stands above, all of its output in {log.name}"
        )


def _telling(lines: Sequence[str]) -> str:
    """The lines from the first error on, as many as fit a screen; the last ones where none is called an error."""
    failed = next((i for i, line in enumerate(lines) if line.startswith("FAILED: ")), None)
    if failed is not None:  # Ninja: this line, then the long command, then what the compiler said, then other files
        lines = lines[failed + 2 :]
        end = next((i for i, line in enumerate(lines) if re.match(r"\[\d+/\d+\] |ninja: ", line)), len(lines))
        lines = lines[:end]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), -SHOWN_LINES)
    return "\n".join(lines[first:][:SHOWN_LINES])
