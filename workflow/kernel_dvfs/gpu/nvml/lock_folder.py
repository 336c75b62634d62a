"""The folder where runs on one machine find each other. Light: clients of a measuring process need it too."""

import os

VARIABLE = "KERNEL_DVFS_LOCK_DIR"


def folder() -> str:
    """The same for all users of the machine, on a local disk."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    # where everyone may make files and nobody delete others', else the one place that is so everywhere
    try:
        shared = os.stat("/run/lock").st_mode & 0o1777 == 0o1777
    except OSError:
        shared = False
    return "/run/lock" if shared else "/tmp"
