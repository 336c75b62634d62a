"""Numbers on a command line."""

from kernel_dvfs.errors import InputError


def whole_number(flag: str, text: str) -> int:
    """A whole number >= 0. Raises InputError."""
    if not text.isdecimal():
        raise InputError(f"{flag} {text}: expected a whole number >= 0")
    return int(text)
