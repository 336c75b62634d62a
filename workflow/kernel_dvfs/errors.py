"""The exception for everything that a user can mend (bad input or configuration, missing files)."""


def one_line(text: str) -> str:
    """Text as one line that a terminal shows and does not obey: what cannot be printed stands escaped, as `\\x1b`."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


class InputError(Exception):
    """What is wrong, where, and the remedy, in one line. Commands print it and exit with code 2."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class CounterFault(InputError):
    """An energy counter froze or fell, so what it showed is no energy.

    fell: whether it went backwards, which makes everything before it void.
    """

    def __init__(self, message: str, fell: bool) -> None:
        super().__init__(message)
        self.fell = fell


def leaves(error: BaseException) -> list[BaseException]:
    """The error itself, or all errors of a group and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def lines(error: BaseException) -> list[str]:
    """One line for the user for each error in `error`."""
    return [one_line(str(each) or repr(each)) for each in leaves(error)]
