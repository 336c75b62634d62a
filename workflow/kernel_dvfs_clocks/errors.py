"""The exception for everything that a user can mend (bad input or configuration, missing files)."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_dvfs_clocks.package import remedy


def one_line(text: str) -> str:
    """Return text as one line that a terminal shows and does not obey: what cannot be printed stands escaped, as
    `\\x1b`."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


class InputError(Exception):
    """What is wrong, where, and the remedy, in one line. Commands print it and exit with code 2."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class Missing(InputError):
    """What is not there, and was not made yet: nobody has damaged it."""


def meant(given: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'choose'?)` for a word that is nearly one of those known, or how one begins; else
    nothing."""
    from difflib import get_close_matches

    known = list(known)
    # nearer than difflib's own 0.6, by which rtx3090 is rtx_3080_ti, and slack is lock
    close = get_close_matches(given, known, 1, 0.7) or [word for word in known if given and word.startswith(given)]
    return f" (did you mean '{close[0]}'?)" if close else ""


def unread(content: object, expected: str) -> str:
    """Return what is wrong with the content of a file whose schema is not the expected one, as messages have it."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if isinstance(schema, str) and schema.rpartition("/")[0] == expected.rpartition("/")[0]:
        return f"of another version of kernel-dvfs (schema {schema}, this one reads {expected})"
    return f"not a {expected} file"


class CounterFault(InputError):
    """An energy counter froze or fell, so what it showed is no energy.

    fell: whether it went backwards, which makes everything before it void.
    """

    def __init__(self, message: str, fell: bool) -> None:
        super().__init__(message)
        self.fell = fell


def leaves(error: BaseException) -> list[BaseException]:
    """Return the error itself, or all errors of a group and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in leaves(member)]
    return [error]


def lines(error: BaseException) -> list[str]:
    """Return one line for the user for each error in `error`; of a package that is missing, how to install it."""
    return [one_line(_text_of(leaf)) for leaf in leaves(error)]


def _text_of(error: BaseException) -> str:
    return (isinstance(error, ModuleNotFoundError) and remedy(error)) or str(error) or repr(error)
