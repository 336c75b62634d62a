"""Options that the serving commands share."""

from kernel_dvfs.errors import InputError


def whole_numbers(option: str, text: str) -> list:
    """`2,4,8` as numbers, each once, in order. Raises InputError."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise InputError(f"{option} {text}: expected different whole numbers of at least 1, separated by commas")
    return [int(word) for word in words]
