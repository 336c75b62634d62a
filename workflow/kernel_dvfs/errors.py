"""The exception for everything a user can mend (bad input, bad configuration, missing files), and its kin."""


class InputError(Exception):
    """What is wrong, where, and the remedy, in one line. Commands print it and exit with code 2."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


class CounterFault(InputError):
    """An energy counter froze or fell: what it showed is no energy. fell: it went backwards, so all before is void."""

    def __init__(self, message: str, fell: bool):
        super().__init__(message)
        self.fell = fell


def leaves(error: BaseException) -> list:
    """The error itself, or all that a group holds."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def lines(error: BaseException) -> list:
    """A line for the user for each error."""
    return [" ".join((str(each) or repr(each)).split()) for each in leaves(error)]
