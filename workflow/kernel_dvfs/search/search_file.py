"""What a search asked for and which records it read, as a file. Light: the workflow reads it while it is parsed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

from kernel_dvfs.choice.schedule_file import Walked
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import CHECKSUM, checksum, write_text
from kernel_dvfs.layout import shortest
from kernel_dvfs.measurement.request import Request, Row, from_json, to_json
from kernel_dvfs.shape import FILLED
from kernel_dvfs.shape import read as read_file

SCHEMA = "kernel-dvfs/search/2"
# what rounds are for: a search other than the whole grid, finding what may be chosen, showing that it keeps its limit
STAGES = SEARCH, RACE, WALK = ("search", "race", "walk")
_REMEDY = "run snakemake again, which searches again"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a search: what it asked for, and from what that followed."""

    stage: str  # one of STAGES
    requests: list[Request]  # what was measured after this round; none: nothing was left to ask for
    # estimate: what a search left; left: {limit's name: Left} before this round
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """A search that has ended."""

    setup: str  # digest of the setup that the records were measured under
    options: dict[str, Any]  # what it followed from besides records
    rounds: list[Round]  # in order; the last one asks for nothing
    records: dict[str, str]  # {path below the records folder: SHA-256} of every record that was read, the sweep's too
    token: str = ""  # what the workflow asked for it with: another one where a record that it had read had changed
    walks: dict[str, Walked] = field(default_factory=dict)  # by name_of a granularity and a limit

    @property
    def requests(self) -> list[Request]:
        """What all rounds asked for beyond the sweep, in order."""
        return [each for found in self.rounds for each in found.requests]

    @property
    def pooled(self) -> list[Request]:
        """Those of them that a profile is pooled from: a choice must not rest on what shows that it keeps its limit."""
        return [each for found in self.rounds if found.stage != WALK for each in found.requests]

    @property
    def searched(self) -> list[Request]:
        """Those of a search in place of the sweep: neither race nor walk."""
        return [each for found in self.rounds if found.stage == SEARCH for each in found.requests]

    @property
    def walked(self) -> list[Request]:
        """Those of the walk."""
        return [each for found in self.rounds if found.stage == WALK for each in found.requests]


class _Round(TypedDict):
    stage: Literal["search", "race", "walk"]
    requests: list[Row]
    about: dict[str, Any]


class _File(TypedDict):
    schema: str
    setup: str
    options: dict[str, Any]
    rounds: Annotated[list[_Round], FILLED]
    records: dict[str, str]
    token: str
    walks: dict[str, Walked]
    sha256: str  # of all of this without it, see files.checksum


def name_of(granularity: str, limit_percent: float) -> str:
    """What a choice is called here: `kernel-slack0`."""
    return f"{granularity}-slack{shortest(limit_percent)}"


def write(path: str, search: Search) -> None:
    """Write a search, whole or not at all; the same search gives the same bytes."""
    content = {
        "schema": SCHEMA,
        "setup": search.setup,
        "options": search.options,
        "rounds": [
            {"stage": each.stage, "requests": to_json(each.requests), "about": each.about} for each in search.rounds
        ],
        "records": dict(sorted(search.records.items())),
        "token": search.token,
        "walks": search.walks,
    }
    write_text(path, json.dumps(content | {CHECKSUM: checksum(content)}, allow_nan=False) + "\n")


def read(path: str) -> Search:
    """The search in a file. Raises InputError naming it."""
    found = read_file(path, _File, SCHEMA, _REMEDY, "search", "run snakemake again")
    if found["sha256"] != checksum(found):
        raise InputError(f"search {path}: was changed: its checksum is not that of its content; {_REMEDY}")
    if found["rounds"][-1]["requests"]:
        raise InputError(f"search {path}: its last round asks for more; {_REMEDY}")
    rounds = [Round(each["stage"], from_json(each["requests"]), each["about"]) for each in found["rounds"]]
    return Search(found["setup"], found["options"], rounds, found["records"], found["token"], found["walks"])
