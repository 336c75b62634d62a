"""One run at a time in a folder: a lock of the operating system, which dies with its holder however that dies.

Snakemake's own lock outlives a killed run and has to be lifted by hand; that is why the default profile turns it off.
"""

import fcntl
import os

from kernel_dvfs.errors import InputError

_held = []


def hold(path: str) -> None:
    """Hold the lock at `path` until this process ends. Raises InputError while another process holds it."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - kept open: closing it would let go of the lock
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
