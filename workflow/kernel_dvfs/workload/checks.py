"""One-line refusals of impossible settings of a workload; knows nothing of what the settings mean."""

from kernel_dvfs.errors import InputError


def whole_number(key, value):
    """`value` if it is an int >= 1. Raises InputError naming `key`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{key} must be a whole number of at least 1, not {value!r}")
    return value


def one_of(key, value, allowed):
    """`value` if it is in `allowed`. Raises InputError naming `key` and what is allowed."""
    if value not in allowed:
        raise InputError(f"{key} {value!r} is unknown: allowed are {', '.join(allowed)}")
    return value
