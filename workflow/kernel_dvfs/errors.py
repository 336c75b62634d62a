"""The one exception for everything a user can mend: bad input, bad configuration, missing files."""


class InputError(Exception):
    """What is wrong, where, and the remedy, in one line. Commands print it and exit with code 2."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split())
