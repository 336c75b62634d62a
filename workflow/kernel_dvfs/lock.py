"""Locks of the operating system on files: they end with their holder, however that ends.

Snakemake's own lock outlives a killed run and has to be removed by hand, so the default profile turns it off.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from kernel_dvfs_clocks.errors import InputError

# open files of the locks that this process holds: closing one would release its lock
_held: list[TextIO] = []


def hold(path: str) -> None:
    """Hold the lock at `path` until this process ends: one run at a time in a folder.

    Raises InputError while another process holds it, or where nothing can be locked there.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        # it is emptied: in a folder from others a link could lead to any file
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise InputError(f"{path}: is no file; delete it, or work in another folder")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path}: is a link; delete it, or work in another folder") from None
        raise InputError(f"{error.filename}: {error.strerror}; make it writable, or work in another folder") from None
    file = os.fdopen(opened, "r+", encoding="utf-8", errors="replace")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise InputError(f"another run (process {owner}) is at work in {os.getcwd()}; wait for it or stop it") from None
    except OSError as error:
        with suppress(OSError):  # it tries once more to write what did not fit
            file.close()
        raise InputError(f"{path}: cannot be locked: {error.strerror}; work on a local disk with room left") from None
    _held.append(file)


@contextmanager
def passing(path: str, remedy: str) -> Iterator[None]:
    """Hold the lock at `path` for a while, and leave no file; waits while another process holds it.

    Follows no link. Raises InputError, ending in `remedy`, where nothing can be locked there.
    """
    file = -1
    try:
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # its last holder deleted it: what is locked here must still be what others find
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
                    break
            os.close(file)
            file = -1
    except OSError as error:
        if file >= 0:
            os.close(file)
        raise InputError(f"{path}: cannot be locked: {error.strerror}; {remedy}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(file)
