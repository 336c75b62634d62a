"""What a search asked for and which records it read, as a file. Light: the workflow reads it while it is parsed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.measurement.request import Request, Row, from_json, to_json
from kernel_dvfs.shape import FILLED
from kernel_dvfs.shape import read as read_file

SCHEMA = "kernel-dvfs/search/1"
# what rounds are for: a search other than the whole grid, measuring again what might be chosen, checking what is
STAGES = SEARCH, REFINE, CHECK = ("search", "refine", "check")
_REMEDY = "delete it and run snakemake again"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a search: what it asked for, and from what that followed."""

    stage: str  # one of STAGES
    requests: list[Request]  # what was measured after this round; none: nothing was left to ask for
    # choice: {name: {target: [core, mem] MHz or auto}} so far; gain: what another round is expected to save;
    # estimate: what a search left; stay: [kind, target] of those that a check may leave at auto
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """A search that has ended."""

    setup: str  # digest of the setup that the records were measured under
    options: dict[str, Any]  # what it followed from besides records
    rounds: list[Round]  # in order; the last one asks for nothing
    records: dict[str, str]  # {path below the records folder: SHA-256} of every record that was read, the sweep's too
    token: str = ""  # what the workflow asked for it with: another one where a record that it had read had changed

    @property
    def requests(self) -> list[Request]:
        """What all rounds asked for beyond the sweep, in order."""
        return [each for found in self.rounds for each in found.requests]

    @property
    def checks(self) -> list[Request]:
        """Those of them that check what the others propose."""
        return [each for found in self.rounds if found.stage == CHECK for each in found.requests]

    @property
    def stay(self) -> set[tuple[str, str]]:
        """(kind, target) of those that auto is proposed for."""
        return {(kind, target) for found in self.rounds for kind, target in found.about.get("stay", ())}


class _Round(TypedDict):
    stage: Literal["search", "refine", "check"]
    requests: list[Row]
    about: dict[str, Any]


class _File(TypedDict):
    schema: str
    setup: str
    options: dict[str, Any]
    rounds: Annotated[list[_Round], FILLED]
    records: dict[str, str]
    token: str


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
    }
    write_text(path, json.dumps(content, allow_nan=False) + "\n")


def read(path: str) -> Search:
    """The search in a file. Raises InputError naming it."""
    found = read_file(path, _File, SCHEMA, _REMEDY, "search", "run snakemake again")
    if found["rounds"][-1]["requests"]:
        raise InputError(f"search {path}: its last round asks for more; {_REMEDY}")
    rounds = [Round(each["stage"], from_json(each["requests"]), each["about"]) for each in found["rounds"]]
    return Search(found["setup"], found["options"], rounds, found["records"], found["token"])
