"""The temperature that a board comes to under its heaviest load, kept beside its results, so that the next measuring
process need not look for it again: that takes more than a minute each time.

It is used for some hours, after the same boot, for the same kernels and settings. Where it no longer holds (the room
has become warmer), points are found disturbed, and it is looked for again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Annotated, TypedDict

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.gpu.nvml.lease import boot_id
from kernel_dvfs.shape import Count, Is, read

SCHEMA = "kernel-dvfs/plateau/1"
_FILE = "plateau.json"
_HOLDS_S = 6 * 3600


class _File(TypedDict):
    schema: str
    of: str
    boot_id: str
    hot_c: Annotated[float, Is("a temperature in degrees C", lambda value: 0 < value < 150)]
    found_s: Count  # since 1970


class Plateau:
    """The file in a GPU's results folder. of: what it was found with, in words."""

    def __init__(self, folder: str, of: str) -> None:
        self._path = os.path.join(folder, _FILE)
        self._of, self._boot_id = of, boot_id()

    def known_c(self) -> float | None:
        """The temperature, C; None where none is known that still holds, or the file is none of ours."""
        try:
            found = read(self._path, _File, SCHEMA, "the plateau is looked for again")
        except InputError:
            return None
        is_same = (found["of"], found["boot_id"]) == (self._of, self._boot_id)
        return found["hot_c"] if is_same and 0 <= time.time() - found["found_s"] < _HOLDS_S else None

    def keep(self, hot_c: float) -> None:
        """Write it down."""
        about = {"schema": SCHEMA, "of": self._of, "boot_id": self._boot_id}
        write_json(self._path, about | {"hot_c": hot_c, "found_s": int(time.time())})

    def forget(self) -> None:
        """It does not hold any more."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)
