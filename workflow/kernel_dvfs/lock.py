"""One run at a time in a folder: a lock of the operating system, which ends with its holder however that ends.

Snakemake's own lock outlives a killed run and has to be removed by hand, so the default profile turns it off.
"""

import fcntl
import os
from typing import TextIO

from kernel_dvfs.errors import InputError

# open files of the locks that this process holds: closing one would release its lock
_held: list[TextIO] = []


def hold(path: str) -> None:
    """Hold the lock at `path` until this process ends. Raises InputError while another process holds it."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - kept open in _held
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise InputError(f"another run (process {owner}) is at work in {os.getcwd()}; wait for it or stop it") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _held.append(file)
