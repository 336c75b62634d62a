"""What a study by clock visited, chose and showed, as a file. Light: the workflow reads it while it is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from kernel_dvfs.choice.schedule_file import Walked
from kernel_dvfs.layout import shortest
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import change_of, sealed_json, write_text
from kernel_dvfs_clocks.shape import FILLED
from kernel_dvfs_clocks.shape import read as read_file

SCHEMA = "kernel-dvfs/by-clock/1"
_REMEDY = "run snakemake again, which makes it again"


@dataclass(frozen=True, slots=True)
class ByClock:
    """A study by clock that has ended."""

    setup: str  # digest of the setup that the visits were measured under
    options: dict[str, Any]  # what it followed from besides records
    records: dict[str, str]  # {path below the records folder: SHA-256} of every visit, in their order
    walks: dict[str, Walked]  # by name_of a level and a limit
    rows: dict[str, list[Any]]  # {column of a profile: values} of all that was visited, sessions pooled
    about: dict[str, float]  # minutes of the board, visits, sessions
    token: str = ""  # what the workflow asked for it with: another one where a record that it had read had changed


class _ByClockFile(TypedDict):
    schema: str
    setup: str
    options: dict[str, Any]
    records: Annotated[dict[str, str], FILLED]
    walks: dict[str, Walked]
    rows: dict[str, list[Any]]
    about: dict[str, float]
    token: str
    sha256: str  # of all of this without it, see files.checksum


def name_of(level: str, limit_percent: float) -> str:
    """Return what a choice is called here: `kernel-slack0`."""
    return f"{level}-slack{shortest(limit_percent)}"


def write(path: str, study: ByClock) -> None:
    """Write a study by clock, whole or not at all; the same study gives the same bytes."""
    content = {
        "schema": SCHEMA,
        "setup": study.setup,
        "options": study.options,
        "records": study.records,
        "walks": study.walks,
        "rows": study.rows,
        "about": study.about,
        "token": study.token,
    }
    write_text(path, sealed_json(content) + "\n")


def read(path: str) -> ByClock:
    """Return the study by clock in a file. Raises InputError naming it."""
    content = read_file(path, _ByClockFile, SCHEMA, _REMEDY, "study by clock", "run snakemake again")
    if what := change_of(content):
        raise InputError(f"study by clock {path}: {what}; {_REMEDY}")
    return ByClock(
        content["setup"],
        content["options"],
        content["records"],
        content["walks"],
        content["rows"],
        content["about"],
        content["token"],
    )
