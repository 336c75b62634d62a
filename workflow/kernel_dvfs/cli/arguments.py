"""Arguments on a command line: types for argparse, and the list of what a command takes.

Numbers have the bounds within which they mean anything. These are those of the configuration
(workflow/schemas/config.schema.yaml, which gives the reasons), so that what a rule hands over is what a user may type.
"""

import math
import re
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import Any, cast

from kernel_dvfs.command import Command
from kernel_dvfs_clocks.errors import InputError, meant

# the option of every command that measures
SESSION = "of a real GPU: one measuring process for all of a name, another one for the next name"


def one_of(words: Iterable[str], metavar: str = "") -> dict[str, Any]:
    """Return what `add_argument` needs for one of these words: type and metavar. Unlike `choices`, it says what was
    meant."""
    words = list(words)

    def read(text: str) -> str:
        if text in words:
            return text
        raise ArgumentTypeError(f"invalid choice: {text!r}{meant(text, words)}; choose from {', '.join(words)}")

    return {"type": read, "metavar": metavar or "{" + ",".join(words) + "}"}


class Arguments:
    """What a command takes. Stands in for its parser, and for the groups of one.

    actions: each argument, in the order of the help. epilog: the end of the help, None where there is none.
    """

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.epilog: str | None = None
        self._parser = ArgumentParser(add_help=False)

    def add_argument(self, *names: str, **about: Any) -> Action:
        """As a parser has it."""
        self.actions.append(self._parser.add_argument(*names, **about))
        return self.actions[-1]

    def add_argument_group(self, *_: Any, **__: Any) -> "Arguments":
        """As a parser has it, but that its title is lost."""
        return self

    add_mutually_exclusive_group = add_argument_group


def arguments_of(command: Command) -> Arguments:
    """Return what a command takes."""
    taken = Arguments()
    command.add_arguments(cast(ArgumentParser, taken))
    return taken


def named_words(option: str, words: Iterable[str], expected: str) -> dict[str, str]:
    """Return {name: value} of words such as `core_mhz=khz`. Raises InputError."""
    values = {}
    for word in words:
        name, _, value = (part.strip() for part in word.partition("="))
        if not name or not value:
            raise InputError(f"{option} {word}: expected {expected}")
        values[name] = value
    return values


def columns_of(words: Iterable[str]) -> dict[str, str]:
    """Return {column: its heading in a file} of `--columns`, separated by commas or blanks. Raises InputError."""
    parts = (part for word in words for part in _NEXT_COLUMN.split(word))
    return named_words("--columns", parts, "COLUMN=HEADING, such as core_mhz=coreF")


_NEXT_COLUMN = re.compile(r",(?=\s*\w+=)")  # a heading may hold a comma


def units_of(words: Iterable[str]) -> dict[str, str]:
    """Return {column, or its heading: unit} of `--units`, separated by commas or blanks. Raises InputError."""
    # a heading may hold a comma, a unit may not; no word of a command line holds a NUL
    parts = (part for word in words for part in re.sub("(=[^,=]*),", "\\1\0", word).split("\0"))
    return named_words("--units", parts, "COLUMN=UNIT, such as core_mhz=khz")


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number from `least` to `most`, both included."""

    def read(text: str) -> int:
        # 30 digits are past every bound, and Python refuses to read thousands of them
        if text.isascii() and text.isdecimal() and len(text) <= 30 and least <= int(text) <= most:
            return int(text)
        raise ArgumentTypeError(f"expected a whole number from {least} to {most}, not {text!r}")

    return read


def number(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Return what reads a number from `least` to `most`, both included. unit: of it, for the message."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if least <= value <= most:
            return value
        raise ArgumentTypeError(f"expected a number{unit and f' of {unit}'} from {least:g} to {most:g}, not {text!r}")

    return read


PERCENT = number(-100, 1000, "percent")  # of a tolerated slowdown
SHARE = number(0, 1)
SECONDS = number(0, 3600, "seconds")
WATTS = number(0, 1e5, "W")
SCALE = number(1e-6, 1e6)
COUNT = whole(1, 1000)  # of measurements, studies, stages
REPEAT = whole(0, 1_000_000)  # the number that a repeat goes by
SIZE = whole(1, 65536)  # of a model's input: sequences, microbatches
SEED = whole(0, 2**53)
