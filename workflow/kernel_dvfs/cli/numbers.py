"""Numbers on a command line."""

from kernel_dvfs.errors import InputError


def whole_number(flag: str, text: str, least: int = 0) -> int:
    """A whole number >= `least`. Raises InputError."""
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{flag} {text}: expected a whole number >= {least}")
    return int(text)


def auto_repeats(text: str) -> int:
    """The value of --auto-repeats, at least 1. Raises InputError, which argparse lets through."""
    return whole_number("--auto-repeats", text, 1)
