"""What root runs: files that nobody but root can change, each looked at before any of it is run.

To be called before anything else is imported. It imports only what every Python has loaded by then. What has run before
it, nothing in this process can undo: `-P` keeps the folder that Python starts in from its path.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

from kernel_dvfs_clocks import package

TYPE_CHECKING = False  # typing is imported by nothing before this has looked
if TYPE_CHECKING:
    from typing import Any

COMMANDS = ("broker", "reset")  # that root runs beside users, from epilogs and units
NVML = "libnvidia-ml.so.1"
_MOST_LINKS = 40  # on the way to a file, as the kernel has it (path_resolution(7))


class NotRoots(Exception):
    """What root was to run, and others can change; in one line. No ImportError: nothing may go on without it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: others than root can change it, and root is to run it; install kernel-dvfs where only root may "
            "write (docs/cluster.md says how)"
        )


def import_roots_own_alone(words: list[str]) -> None:
    """From here on this process and what it forks import only what is root's own, where root runs a command of COMMANDS
    from a copy that is: modules elsewhere are as if they were not there. words: the command line.

    Raises NotRoots, here for an NVML that the environment leads to, later for a module.
    """
    if os.geteuid() != 0 or not words or words[0] not in COMMANDS:
        return
    if not (is_roots_own(package.FOLDER) and is_roots_own(sys.executable)):
        return  # root runs what is another's by choice; the broker refuses that
    if folders := os.environ.get("LD_LIBRARY_PATH"):
        for folder in folders.split(":"):  # an empty one is the folder that this runs in
            path = os.path.join(folder or os.curdir, NVML)
            if os.path.lexists(path) and not is_roots_own(path):
                raise NotRoots(path)
    plain: tuple[Any, ...] = (BuiltinImporter, FrozenImporter)
    finders: list[Any] = [finder if finder in plain else _RootsOwn(finder) for finder in sys.meta_path]
    sys.meta_path[:] = finders


class _RootsOwn:
    """A finder of modules that sees only root's own folders, and refuses a file there that is not."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)  # of importlib.metadata: what is installed is only read

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As of importlib.abc.MetaPathFinder. Raises NotRoots."""
        if self._finder is PathFinder:
            path = [folder for folder in (sys.path if path is None else path) if is_roots_own(folder or os.curdir)]
        spec = self._finder.find_spec(name, path, target)
        if spec is not None and spec.has_location and spec.origin:
            # a compiled file, or a folder where one may be put, decides what runs as the source does
            compiled = [spec.cached, os.path.dirname(spec.cached)] if spec.cached else []
            for file in (spec.origin, *filter(os.path.lexists, compiled)):
                if not is_roots_own(file):
                    raise NotRoots(file)
        return spec


def is_roots_own(path: str) -> bool:
    """Return whether nobody but root can change or replace a file or folder: it, and every folder and link on the way
    to it, are root's and writable by no others. A folder above it may be like /tmp, where nobody can replace what is
    root's.
    """
    at, links = "/", 0
    ahead = ["/", *_names(os.path.join(os.getcwd(), path))]
    try:
        while ahead:
            name = ahead.pop(0)
            if name == "..":
                at = os.path.dirname(at)  # no link by now
                continue
            step = os.path.join(at, name)
            status = os.lstat(step)
            if status.st_uid != 0:
                return False
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    return False
                target = os.readlink(step)
                at = "/" if target.startswith("/") else at
                ahead = _names(target) + ahead
                continue
            at = step
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (ahead and status.st_mode & stat.S_ISVTX):
                return False
    except OSError:
        return False
    return True


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
