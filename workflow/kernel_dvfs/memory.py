"""Whether an error is one of too little memory, and how to say so in a line."""

from __future__ import annotations

import os

from kernel_dvfs_clocks.errors import one_line

# what Python raises where memory is short: of itself, of a library that cannot be mapped, of a thread without a stack
SHORT = (MemoryError, ImportError, RuntimeError, SystemError)
_LEAST_BYTE = 64 << 20  # below that Python itself fails in ways that nobody can tell, and may hang
_SPARE_BYTE = 32 << 20  # a stack of a thread and what Python needs beside it


def why_too_little() -> str:
    """Return why no command can begin under the limit that there is on memory, in one line; "" where one can."""
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

    limit, _ = getrlimit(RLIMIT_AS)
    if limit == RLIM_INFINITY or limit >= _LEAST_BYTE:
        return ""
    return f"a limit of {limit >> 20} MiB on memory (ulimit -v) is too low: {_LEAST_BYTE >> 20} MiB at least; raise it"


def why_short(error: BaseException) -> str:
    """Return why there was too little memory, in one line; "" where nothing says that there was. error: one of SHORT.

    A library that cannot be loaded says so where memory is limited; any other error only with the limit nearly reached.
    """
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

    limit, _ = getrlimit(RLIMIT_AS)
    if limit == RLIM_INFINITY:
        return "no memory is left; end what else needs it, or work on less" if isinstance(error, MemoryError) else ""
    if not isinstance(error, (MemoryError, ImportError)) and limit - _mapped_byte() > _SPARE_BYTE:
        return ""
    while error.__cause__:  # a library wraps it in a page of advice
        error = error.__cause__
    reason = one_line(str(error)) or "none is left"
    return f"a limit of {limit >> 20} MiB on memory (ulimit -v) is too low here: {reason}; raise it"


def _mapped_byte() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
