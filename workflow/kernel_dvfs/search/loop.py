"""A study by clock on records: visit after visit as by_clock asks for them, each measured once and kept as a file.

What is asked for next follows from the answers so far, so a study that was killed reads what it has and goes on with
the visit that it lacks, and ends with the same file. A record that answers another question than the one asked (another
setup, other kernels in its windows, another build) is measured again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypedDict, cast

import numpy as np

from kernel_dvfs.choice.schedule_file import Over, Walked
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement import visit as visits
from kernel_dvfs.measurement.campaign import new_session, open_visitor
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget, kernels_of
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.measurement.visit import OPENING_S, Visit, VisitMeasurement, Visitor
from kernel_dvfs.search import by_clock, study_file
from kernel_dvfs.search.by_clock import StudyOptions, StudyOutcome, VisitOutcome, WalkedChoice
from kernel_dvfs.search.parts import KERNEL, PASS, Space
from kernel_dvfs.search.study_file import ByClock, name_of
from kernel_dvfs_clocks.clocks import BASELINE, Pair, key_of, label, parse
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import FILLED, Count, NotNegative, Positive, Text, checked

_Clocks: TypeAlias = tuple[int | Literal["auto"], int | Literal["auto"]]


class _Options(TypedDict):
    pairs: Text
    limits_percent: Annotated[list[NotNegative], FILLED]
    minutes: Positive
    worth_percent: NotNegative
    over_percent: Over
    ties: Literal["tied", "untied"]
    seed: Count


def to_stderr(line: str) -> None:
    """Tell a line of progress at once."""
    print(line, file=sys.stderr, flush=True)


def run(
    setup_path: str,
    folder: str,
    options: Mapping[str, Any],
    output: str,
    kernels: str = "",
    token: str = "",
    say: Callable[[str], None] = to_stderr,
) -> ByClock:
    """Measure what a study by clock asks for, write what came of it to `output` (study_file), and return it.

    setup_path: the setup's file. folder: the records, with visit/ below it. options: pairs (labels of all that may be
    asked for, the baseline first), limits_percent, minutes, worth_percent, over_percent, ties, seed. kernels: SHA-256
    of the library whose kernels run now on a real GPU: visits of another build are measured again. token: kept in the
    file. say: told a line a visit, and a line a limit at the end. Raises InputError naming a record that is damaged.
    """
    given = checked(dict(options), _Options, "study by clock: options", "give those of config.yaml's by_clock")
    setup = setups.read(setup_path)
    space = space_of(setup, [parse(text, "-") for text in given["pairs"].split(",")])
    records = _Records(setup, setup_path, folder, kernels)
    spent_s = 0.0

    def answer(visit: Visit) -> VisitOutcome:
        nonlocal spent_s
        visited = records.get(visit)
        spent_s += visited["spent_s"]
        say(_line(visit, visited, spent_s + OPENING_S * (1 + visit.session)))
        return answer_of(setup, space, visit, visited)

    result = by_clock.answered(space, _options_of(given), answer)
    walks = {name_of(*key): _walked(shown) for key, shown in result.shown.items()}
    for name, walk in walks.items():
        say(_shown(name, walk))
    rows = rows_of(setup, space, result, records.reached)
    about = {"minutes": result.spent_s / 60, "visits": result.visits, "sessions": result.sessions}
    study = ByClock(setup.digest, dict(options), records.checksums, walks, rows, about, token)
    study_file.write(output, study)
    return study


def space_of(setup: Setup, pairs: list[Pair]) -> Space:
    """Return what a study of a setup may choose between. Raises InputError where nothing is locked."""
    kernels = setup.targets["kernel"]
    if len(pairs) < 2 or pairs[0] != BASELINE:
        raise InputError("study by clock: pairs: expected auto-auto first, then at least one pair of locked clocks")
    return Space(
        names=tuple(kernels),
        launches=np.array([about["launches_per_iteration"] for about in kernels.values()], dtype=float),
        groups=tuple(about["replicate_group"] for about in kernels.values()),
        passes={name: dict(kernels_of(setup, MeasurementTarget("pass", name))) for name in setup.targets["pass"]},
        pairs=tuple(pairs),
    )


def _options_of(given: Mapping[str, Any]) -> StudyOptions:
    return StudyOptions(
        limits_percent=tuple(sorted(given["limits_percent"])),
        minutes=given["minutes"],
        worth_percent=given["worth_percent"],
        over_percent=given["over_percent"],
        ties=given["ties"],
        seed=given["seed"],
        opening_s=OPENING_S,
    )


def _walked(shown: WalkedChoice) -> Walked:
    """Return what was shown for a limit, as a study's file has it."""
    return {
        "schedules": shown.schedules,
        "passed": shown.passed,
        "pairs": {name: cast("_Clocks", tuple(pair)) for name, pair in shown.pairs.items()},
        "time_percent": list(shown.time_percent),
        "energy_percent": shown.energy_percent,
        "energy_se_percent": shown.energy_se_percent,
        "over_percent": shown.over_percent,
        "another_minute": shown.worth_percent,
    }


def answer_of(setup: Setup, space: Space, visit: Visit, visited: VisitMeasurement) -> VisitOutcome:
    """Return the numbers of a visit as by_clock takes them."""
    time_us, power_mw = visited["passes"]["time_us"], visits.power_in_passes_mw(setup, visited)
    return VisitOutcome(
        time_s=np.array([time_us[name] for name in space.names]) * 1e-6,
        power_w=np.array([power_mw.get(names[0], np.nan) for names in visit.metered]) * 1e-3,
        spent_s=visited["spent_s"],
        is_usable=visited["verdict"] not in UNUSABLE,
        is_capped=visited["passes"]["is_capped"] and visit.pair != BASELINE,
        is_held=any(power["is_capped"] for power in visited["powers"]),
    )


class _Records:
    """The visits of a study: read where they are there, measured where not."""

    def __init__(self, setup: Setup, setup_path: str, folder: str, kernels: str) -> None:
        self._setup, self._path, self._folder, self._kernels = setup, setup_path, folder, kernels
        self._visitor: Visitor | None = None
        self._session = -1  # that the visitor is in
        self.checksums: dict[str, str] = {}
        self.reached: dict[Pair, list[tuple[float, float]]] = {}  # (core, memory) MHz of each visit

    def get(self, visit: Visit) -> VisitMeasurement:
        """Return a visit's record, measured if need be. Raises InputError naming one that is damaged."""
        name = visits.path(visit)
        file = f"{self._folder}/{name}"
        record = visits.read_visit(file, self._setup, visit) if os.path.lexists(file) else None
        if record is None or self._is_of_another_build(record):
            self._measure(visit, file)
            record = visits.read_visit(file, self._setup, visit)
            assert record, f"{file} was written for this visit"
        with open(file, "rb") as content:
            self.checksums[name] = hashlib.sha256(content.read()).hexdigest()
        if record["verdict"] not in UNUSABLE:
            reached = record["reached"]
            self.reached.setdefault(visit.pair, []).append((reached["core_mhz"], reached["mem_mhz"]))
        return record

    def _is_of_another_build(self, record: visits.VisitRecord) -> bool:
        library = record["device"].get("library_sha256")
        return bool(self._kernels and library and library != self._kernels)

    def _measure(self, visit: Visit, file: str) -> None:
        if self._visitor is None or visit.session != self._session:
            new_session(self._setup, self._path)
            self._visitor, self._session = open_visitor(self._setup, self._path), visit.session
        visits.write(file, self._setup, self._visitor, self._visitor.visit(visit))


def rows_of(
    setup: Setup, space: Space, result: StudyOutcome, reached: Mapping[Pair, list[tuple[float, float]]]
) -> dict[str, list[Any]]:
    """Return the columns of a profile (profile.store) of all kernels and passes at all pairs that they were metered at.

    Times and energies are those of a launch in the iteration; the baseline is the iteration at auto. A pass is the sum
    of its kernels.
    """
    table, kernels = result.table, setup.targets["kernel"]
    place = {name: row for row, name in enumerate(table.names)}
    launches: dict[str, dict[str, dict[str, int]]] = {
        KERNEL: {name: {name: 1} for name in table.names},
        PASS: {name: {kernel: int(count) for kernel, count in counts.items()} for name, counts in space.passes.items()},
    }
    rows: dict[str, list[Any]] = {}
    for level, targets in launches.items():
        for name, counts in targets.items():
            members = [place[kernel] for kernel in counts]
            weight = np.array(list(counts.values()), dtype=float)
            time_s, energy_j = weight @ table.time_s[members], weight @ table.energy_j[members]
            time_se_s, energy_se_j = (
                np.sqrt(weight**2 @ error[members] ** 2) for error in (table.time_se_s, table.energy_se_j)
            )
            about = kernels[name] if level == KERNEL else {"launches_per_iteration": 1, "replicate_group": None}
            for column in np.flatnonzero(np.isfinite(energy_j)).tolist():
                pair = space.pairs[table.pairs[column]]
                sessions = int(table.sessions[members, column].min())
                core_mhz, mem_mhz = np.array(reached[pair]).mean(0).tolist()
                row = {
                    "study": level,
                    "target": name,
                    "launches_per_iteration": about["launches_per_iteration"],
                    "replicate_group": about["replicate_group"],
                    **dict(zip(("core_mhz", "mem_mhz"), key_of(pair))),
                    "reached_core_mhz": core_mhz,
                    "reached_mem_mhz": mem_mhz,
                    "time_s": float(time_s[column]),
                    "time_sd_s": float(time_se_s[column] * sessions**0.5),
                    "time_se_s": float(time_se_s[column]),
                    "energy_j": float(energy_j[column]),
                    "energy_sd_j": float(energy_se_j[column] * sessions**0.5),
                    "energy_se_j": float(energy_se_j[column]),
                    "n": sessions,
                    "verdict": "ok",
                    "is_baseline": pair == BASELINE,
                }
                for field, value in row.items():
                    rows.setdefault(field, []).append(value)
    return rows


def _line(visit: Visit, visited: VisitMeasurement, spent_s: float) -> str:
    """Return what was visited and what it took so far, for the user."""
    windows = f", {len(visit.metered)} windows of power" if visit.metered else ""
    odd = "" if visited["verdict"] == "ok" else f" ({visited['verdict']})"
    return (
        f"session {visit.session + 1}: {label(visit.pair)}: {visited['passes']['n']} passes{windows}{odd}; "
        f"{spent_s / 60:.1f} minutes so far"
    )


def _shown(name: str, walked: Mapping[str, Any]) -> str:
    """Return what a walk has shown for a limit, for the user."""
    if not walked["passed"]:
        return f"walk: {name}: no schedule is shown to keep the limit; all stay at auto"
    blocks = walked["time_percent"]
    time = sum(blocks) / len(blocks)
    return (
        f"walk: {name}: energy {walked['energy_percent']:+.2f} %, time {time:+.3f} % over {len(blocks)} blocks; "
        f"another minute is worth {walked['another_minute']:.2g} points of energy at most"
    )
