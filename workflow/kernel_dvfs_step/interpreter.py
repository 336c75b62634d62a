"""Whose Python runs a captured step, and what it lacks, told before anything is compiled or imported.

A step is the user's own code, so it runs where torch is: in the Python of the command, which may be another one than
the user trains with.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

from kernel_dvfs_clocks.errors import InputError

OLDEST_TORCH = (2, 8)
_WITHOUT_CUDA = "which was built without CUDA"


def release_of(version: str) -> tuple[int, ...]:
    """Return (2, 8) of 2.8.0a0+cu130."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def lacks() -> str:
    """Return what this Python lacks to run a step, in words; "" where nothing speaks against it. Imports nothing."""
    if importlib.util.find_spec("torch") is None:
        return "has no torch"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # a build of its own: torch itself will tell
        return ""
    if release_of(version) < OLDEST_TORCH:
        return f"has torch {version}, older than {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}, which keeps a graph's nodes"
    if version.endswith("+cpu"):
        return f"has torch {version}, {_WITHOUT_CUDA}"
    return ""


def check(source: str) -> str:
    """Return which Python runs the step `source`, in a line. Raises InputError where it lacks torch."""
    who = f"{sys.executable} (Python {platform.python_version()})"
    if lacking := lacks():
        pip = f"{sys.executable} -m pip"
        # pip takes a build without CUDA for a torch that is new enough
        remove = f"{pip} uninstall --yes torch && " if lacking.endswith(_WITHOUT_CUDA) else ""
        raise InputError(
            f"{source}: is run by the Python of this command, {who}, which {lacking}: {remove}{pip} install "
            "'torch>=2.8', or install kernel-dvfs where you train and start it there (docs/your-step.md)"
        )
    return f"{source}: run by {who}"
