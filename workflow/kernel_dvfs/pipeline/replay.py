"""Data-parallel pipelines over many iterations in which several of them straggle, and others do later.

All pipelines end an iteration together: they wait for the slowest within the all-reduce of gradients. A straggler is
slowed in everything it does (a hot GPU, a shared one): it runs the plan without a straggler, stretched, so its time
and its energy grow by its slowdown, as in the artifact's emulation. The others run what the Runtime answers. That a
pipeline straggles, or no longer does, is known only some iterations later, so a plan may be too slow or too fast for
the iteration that it runs in: both is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.csv_rows import read_rows
from kernel_dvfs.pipeline.planner import Plan
from kernel_dvfs.pipeline.runtime import Runtime

_COLUMNS = ["iteration", "pipeline", "slowdown"]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of all pipelines, with the plan that follows the stragglers, and with the one that does not."""

    iteration: int
    stragglers: int
    time_s: float
    energy_j: float
    still_time_s: float  # everyone always at the plan without a straggler
    still_energy_j: float
    changed: bool  # whether another plan begins here


def replay(runtime: Runtime, slowdowns: np.ndarray, known_after: int = 1) -> list[Iteration]:
    """Every iteration in turn. slowdowns: (iterations, pipelines), 1 or more: how much longer a pipeline takes.

    known_after: iterations until the runtime knows of a change; 0: at once. Raises InputError.
    """
    slowdowns = np.asarray(slowdowns, float)
    if slowdowns.ndim != 2 or not slowdowns.size or not ((slowdowns >= 1) & (slowdowns <= _MOST_SLOWDOWN)).all():
        raise InputError(
            f"replay: slowdowns: expected numbers from 1 to {_MOST_SLOWDOWN:g}, a row for each iteration and a column "
            "for each pipeline"
        )
    if type(known_after) is not int or known_after < 0:
        raise InputError(f"replay: known after {known_after!r} iterations: expected a whole number >= 0")
    base = runtime.plan
    known = np.ones(slowdowns.shape[1])
    made = []
    for number, now in enumerate(slowdowns):
        seen = slowdowns[number - known_after] if number >= known_after else np.ones_like(now)
        before = runtime.plan
        # the slow ones first: clearing one before another is set would ask for a plan that nobody runs
        for pipeline in sorted(np.flatnonzero(seen != known).tolist(), key=lambda own: -seen[own]):
            if seen[pipeline] > 1:
                runtime.set_straggler(pipeline, float(seen[pipeline]) * base.time_s)
            else:
                runtime.clear(pipeline)
        known = seen
        (time_s, energy_j), (still_s, still_j) = (_together(base, own, now, seen) for own in (runtime.plan, base))
        changed = runtime.plan is not before
        made.append(Iteration(number, int((now > 1).sum()), time_s, energy_j, still_s, still_j, changed))
    return made


def _together(base: Plan, plan: Plan, now: np.ndarray, known: np.ndarray) -> tuple[float, float]:
    """(seconds, joules) of one iteration. A pipeline that is known to straggle runs `base`, every other one `plan`."""
    own = [(base if slow > 1 else plan, stretch) for slow, stretch in zip(known.tolist(), now.tolist())]
    time_s = max(each.time_s * stretch for each, stretch in own)
    # a straggler's joules grow with its time; then it waits for the slowest at the synchronising power
    return time_s, sum(
        each.energy_j() * stretch + each.energy_j(each.time_s + time_s - each.time_s * stretch) - each.energy_j()
        for each, stretch in own
    )


def summary(iterations: Sequence[Iteration]) -> str:
    """One line: change of energy and time against the plan that does not follow the stragglers."""
    time_s, energy_j, still_s, still_j = (
        math.fsum(getattr(own, name) for own in iterations)
        for name in ("time_s", "energy_j", "still_time_s", "still_energy_j")
    )
    changes = sum(own.changed for own in iterations)
    return (
        f"{len(iterations)} iterations, emulated: energy {100 * (energy_j / still_j - 1):+.2f} %, time "
        f"{100 * (time_s / still_s - 1):+.2f} % against the plan without a straggler; {changes} changes of plan"
    )


def read_slowdowns(path: Path | str, pipelines: int, iterations: int | None = None) -> np.ndarray:
    """(iterations, pipelines) slowdowns from a CSV iteration,pipeline,slowdown; 1 where it has no row.

    iterations: None: up to the last row. Raises InputError, one line with file, line and column.
    """
    for what, count in (("pipelines", pipelines), ("iterations", iterations)):
        if count is not None and count < 1:
            raise InputError(f"replay: {count} {what}: expected a whole number >= 1")
    header, rows = read_rows(path, "stragglers")
    if header != _COLUMNS:
        raise InputError(f"{path}: line 1: expected {','.join(_COLUMNS)}")
    found: dict[tuple[int, int], float] = {}
    for line, row in rows:
        place = tuple(_number(f"{path}: line {line}, column {column}", text) for column, text in zip(_COLUMNS, row[:2]))
        if place[1] >= pipelines:
            raise InputError(f"{path}: line {line}: pipeline {place[1]} of {pipelines}; they are numbered from 0")
        if place in found:
            raise InputError(f"{path}: line {line}: pipeline {place[1]} in iteration {place[0]} occurs twice")
        found[place[0], place[1]] = _slowdown(f"{path}: line {line}, column slowdown", row[2])
    last = max((own for own, _ in found), default=-1)
    count = last + 1 if iterations is None else iterations
    if not last < count or not count:
        raise InputError(f"{path}: its last iteration is {last}, asked for {count}: give rows, or another number")
    # each cell of the table is small, but a far iteration makes it large
    if count * pipelines > _MOST:
        raise InputError(f"{path}: {count} iterations of {pipelines} pipelines; at most {_MOST} of both together")
    made = np.ones((count, pipelines))
    for own, slowdown in found.items():
        made[own] = slowdown
    return made


_MOST = 10**7  # cells of the table
_MOST_SLOWDOWN = 1e3


def _slowdown(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _MOST_SLOWDOWN:
        raise InputError(f"{where}: '{text}' is not a number from 1 to {_MOST_SLOWDOWN:g}")
    return value


def _number(where: str, text: str) -> int:
    if not text.strip().isdecimal() or len(text.strip()) > 9:
        raise InputError(f"{where}: '{text}' is not a whole number >= 0")
    return int(text)
