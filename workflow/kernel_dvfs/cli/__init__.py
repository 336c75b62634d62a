"""Commands: options in, library called, one line on stderr when something is wrong."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Any, TextIO

from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_clocks.files import parse_json

# help of an option that every command has, and of one that several have
LOG = "what is said goes to this file (of `study`, `measure` and `measure compare`, errors alone)"
THROUGH = "nvml, broker, zeusd, sudo, dcgm, or auto: the broker, else the first that works (auto)"


# the log of a command that is not alone in its process, where another thread may run another
LOG_OF_THIS: ContextVar[str] = ContextVar("log", default="")


def tell(*texts: str) -> None:
    """Print lines on stderr, each as one that a terminal shows and does not obey: names come from files of others."""
    _say(sys.stderr, *map(one_line, texts))


def answer(text: str) -> None:
    """Print a command's answer."""
    _say(sys.stdout, text)


def _say(stream: TextIO, *texts: str) -> None:
    if not (log := LOG_OF_THIS.get()):
        for line in texts:
            print(line, file=stream)
    elif texts:
        os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
        with open(log, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{line}\n" for line in texts)


def json_object(flag: str, text: str, example: str = "") -> dict[str, Any]:
    """Return the JSON object that an option holds. Raises InputError; example: what the message ends with."""
    try:
        given = parse_json(text)
    except ValueError as error:
        expected = f"; expected {example}" if example else ""
        raise InputError(f"{flag} {text}: not JSON ({error}){expected}") from None
    if not isinstance(given, dict):
        raise InputError(f"{flag} {text}: expected a JSON object{f', {example}' if example else ''}")
    return given
