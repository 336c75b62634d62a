"""The temperature that a board comes to under its heaviest load, kept beside its results, so that the next measuring
process need not look for it again: that takes more than a minute each time.

It is used for some hours, after the same boot, for the same kernels and settings. Where it no longer holds (the room
has become warmer), points are found disturbed, and it is looked for again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from kernel_dvfs.files import read_json, write_json
from kernel_dvfs.gpu.nvml.lease import boot_id

SCHEMA = "kernel-dvfs/plateau/1"
_FILE = "plateau.json"
_HOLDS_S = 6 * 3600


class Plateau:
    """The file in a GPU's results folder. of: what it was found with, in words."""

    def __init__(self, folder: str, of: str) -> None:
        self._path = os.path.join(folder, _FILE)
        self._about = {"schema": SCHEMA, "of": of, "boot_id": boot_id()}

    def known_c(self) -> float | None:
        """The temperature, C; None where none is known that still holds, or the file is none of ours."""
        try:
            content = read_json(self._path)
            hot_c, found_s = content.pop("hot_c"), content.pop("found_s")
            holds = content == self._about and 0 <= time.time() - found_s < _HOLDS_S and 0 < hot_c < 150
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return hot_c if holds else None

    def keep(self, hot_c: float) -> None:
        """Write it down."""
        write_json(self._path, self._about | {"hot_c": hot_c, "found_s": int(time.time())})

    def forget(self) -> None:
        """It does not hold any more."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
