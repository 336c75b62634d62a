"""The exception for everything that a user can mend (bad input or configuration, missing files)."""


class InputError(Exception):
    """What is wrong, where, and the remedy, in one line. Commands print it and exit with code 2."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


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
    return [" ".join((str(each) or repr(each)).split()) for each in leaves(error)]
