"""What a training job asks while it runs: a pipeline straggles, which plan now? Answered from the solved frontier.

runtime = Runtime(planner)
plan = runtime.set_straggler(pipeline=3, t_iter_s=34.0)     # None: the plan in force stays
plan = runtime.clear(pipeline=3)
plan = runtime.next_iteration()                             # an iteration begins: who has lasted long enough?
plan = runtime.improve()                                    # there is time: the thorough search, where it saves

And what comes of the answers, replayed over many iterations of data-parallel pipelines in which several straggle, and
others do later. All pipelines end an iteration together: they wait for the slowest within the all-reduce of gradients.
A straggler is slowed in everything it does (a hot GPU, a shared one): it runs the plan without a straggler, stretched,
so its time and its energy grow by its slowdown, as in the artifact's emulation. The others run what the Runtime
answers. That a pipeline straggles, or no longer does, is known only some iterations later, so a plan may be too slow or
too fast for the iteration that it runs in: both is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernel_dvfs.profile.raw import exactly, quote, read_csv
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.planner import ONE_CLOCK, Plan, Planner

# iterations that a straggler lasts before it is followed: what a replay compares
LASTING = (0, 1, 3, 10)
_MOST_S = 10**6  # of an iteration
_COLUMNS = ["iteration", "pipeline", "slowdown"]
_MOST = 10**7  # cells of the table
_MOST_SLOWDOWN = 1e3


class Runtime:
    """Plans of the pipelines that do not straggle.

    planner: its frontier is solved here, before anyone waits. base_s: iteration time without a straggler (default:
    the fastest). hysteresis: clocks change where that saves more than this share of the energy until T', so that
    noise changes nothing; a time is never ignored where the plan in force would break it. lasting: a straggler is
    followed once it has lasted for so many iterations more (next_iteration counts them); one that ends earlier costs
    no time.

    To be called from one thread. Raises InputError.
    """

    def __init__(
        self,
        planner: Planner,
        base_s: float | None = None,
        hysteresis: float = 0.01,
        kind: str = ONE_CLOCK,
        lasting: int = 0,
    ) -> None:
        if type(lasting) is not int or lasting < 0:
            raise InputError(f"runtime: lasting {lasting!r} iterations: expected a whole number >= 0")
        if not (math.isfinite(hysteresis) and 0 <= hysteresis < 1):
            raise InputError(f"runtime: hysteresis = {hysteresis}: expected a share from 0 to below 1")
        self.planner, self.hysteresis, self.kind, self.lasting = planner, hysteresis, kind, lasting
        self.base_s = float(planner.frontier.time_s[-1]) if base_s is None else base_s
        self._straggling: dict[int, float] = {}
        self._waits: dict[int, int] = {}  # iterations that have to begin until a straggler is followed
        # without a straggler there is time for a thorough search; its plan is what comes back when all is clear
        self._base_plan = planner.plan(self.base_s, kind)
        self.plan: Plan = self._base_plan

    def set_straggler(self, pipeline: int, t_iter_s: float) -> Plan | None:
        """Note that pipeline `pipeline` now takes t_iter_s. Return the new plan of the others, or None where the old
        one stays, as it does until the straggler has lasted.

        Raises InputError; the plan in force stays then, too.
        """
        if not (isinstance(t_iter_s, (int, float)) and 0 < t_iter_s <= _MOST_S):
            raise InputError(
                f"runtime: pipeline {pipeline}: iteration time {t_iter_s!r} s: expected a number > 0, at most {_MOST_S}"
            )
        before = dict(self._straggling), dict(self._waits)
        self._straggling[pipeline] = float(t_iter_s)
        # the iteration that begins next is the first with it
        self._waits.setdefault(pipeline, self.lasting + 1 if self.lasting else 0)
        try:
            return self._answer()
        except InputError:
            self._straggling, self._waits = before
            raise

    def next_iteration(self) -> Plan | None:
        """Note that an iteration begins. Return the new plan where a straggler has lasted, else None."""
        has_lasted = 1 in self._waits.values()
        self._waits = {pipeline: max(0, left - 1) for pipeline, left in self._waits.items()}
        return self._answer() if has_lasted else None

    def improve(self) -> Plan | None:
        """Search thoroughly for the time that is followed. Return the new plan, or None where it saves nothing.

        set_straggler answers from the quick search, in 0.1 to 1.4 s; this one takes 0.3 to 5 s.
        """
        if self.iteration_s == self.base_s:
            return None  # the plan without a straggler is of that search
        plan = self.planner.plan_for_straggler(self.iteration_s, self.kind, thorough=True)
        return self._take(plan) if plan.energy_j(self.iteration_s) < self.plan.energy_j(self.iteration_s) else None

    def clear(self, pipeline: int) -> Plan | None:
        """Note that `pipeline` straggles no more; return the new plan or None. Raises InputError where it did not."""
        if pipeline not in self._straggling:
            known = ", ".join(map(str, sorted(self._straggling))) or "none"
            raise InputError(f"runtime: pipeline {pipeline} is no straggler; stragglers now: {known}")
        del self._straggling[pipeline], self._waits[pipeline]
        return self._answer()

    @property
    def followed(self) -> dict[int, float]:
        """{pipeline: seconds that its iteration takes} of the stragglers that have lasted."""
        return {pipeline: time_s for pipeline, time_s in self._straggling.items() if not self._waits[pipeline]}

    @property
    def iteration_s(self) -> float:
        """The time that the slowest pipeline takes, of those that are followed."""
        return max([self.base_s, *self.followed.values()])

    def _answer(self) -> Plan | None:
        asked_s = self.iteration_s
        if asked_s == self.base_s:
            return self._take(self._base_plan)
        if self.plan.time_s > asked_s:
            return self._take(self.planner.plan_for_straggler(asked_s, self.kind))
        enough_j = (1 - self.hysteresis) * self.plan.energy_j(asked_s)
        if self.planner.bound_j(asked_s) >= enough_j:
            return None
        plan = self.planner.plan_for_straggler(asked_s, self.kind)
        return self._take(plan) if plan.energy_j(asked_s) < enough_j else None

    def _take(self, plan: Plan) -> Plan | None:
        """Follow `plan` from now on; return None where it is in force already."""
        if plan is self.plan:
            return None
        self.plan = plan
        return plan


@dataclass(frozen=True, slots=True)
class StragglerIteration:
    """One iteration of all pipelines, with the plan that follows the stragglers, and with the one that does not."""

    iteration: int
    stragglers: int
    time_s: float
    energy_j: float
    still_time_s: float  # everyone always at the plan without a straggler
    still_energy_j: float
    changed: bool  # whether another plan begins here


def replay(runtime: Runtime, slowdowns: np.ndarray, known_after: int = 1) -> list[StragglerIteration]:
    """Return every iteration in turn. slowdowns: (iterations, pipelines), 1 or more: how much longer a pipeline takes.

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
    iterations = []
    for number, now in enumerate(slowdowns):
        seen = slowdowns[number - known_after] if number >= known_after else np.ones_like(now)
        before = runtime.plan
        # the slow ones first: clearing one before another is set would ask for a plan that nobody runs
        for pipeline in sorted(np.flatnonzero(seen != known).tolist(), key=lambda straggler: -seen[straggler]):
            if seen[pipeline] > 1:
                runtime.set_straggler(pipeline, float(seen[pipeline]) * base.time_s)
            else:
                runtime.clear(pipeline)
        runtime.next_iteration()
        known, followed = seen, np.isin(np.arange(len(seen)), list(runtime.followed))
        (time_s, energy_j), (still_s, still_j) = (_together(base, plan, now, followed) for plan in (runtime.plan, base))
        changed = runtime.plan is not before
        iterations.append(StragglerIteration(number, int((now > 1).sum()), time_s, energy_j, still_s, still_j, changed))
    return iterations


def _together(base: Plan, plan: Plan, now: np.ndarray, followed: np.ndarray) -> tuple[float, float]:
    """Return (seconds, joules) of one iteration. A straggler that is followed runs `base`, all others `plan`."""
    runs = [(base if slow else plan, stretch) for slow, stretch in zip(followed.tolist(), now.tolist())]
    time_s = max(run.time_s * stretch for run, stretch in runs)
    # a straggler's joules grow with its time; then it waits for the slowest at the synchronising power
    return time_s, sum(
        run.energy_j() * stretch + run.energy_j(run.time_s + time_s - run.time_s * stretch) - run.energy_j()
        for run, stretch in runs
    )


def summary(iterations: Sequence[StragglerIteration]) -> str:
    """Return one line: change of energy and time against the plan that does not follow the stragglers."""
    time_s, energy_j, still_s, still_j = (
        math.fsum(getattr(iteration, name) for iteration in iterations)
        for name in ("time_s", "energy_j", "still_time_s", "still_energy_j")
    )
    changes = sum(iteration.changed for iteration in iterations)
    return (
        f"{len(iterations)} iterations, emulated: energy {100 * (energy_j / still_j - 1):+.2f} %, time "
        f"{100 * (time_s / still_s - 1):+.2f} % against the plan without a straggler; {changes} changes of plan"
    )


def read_slowdowns(path: Path | str, pipelines: int, iterations: int | None = None) -> np.ndarray:
    """Return (iterations, pipelines) slowdowns from a CSV iteration,pipeline,slowdown; 1 where it has no row.

    iterations: None: up to the last row. Raises InputError, one line with file, line and column.
    """
    for what, count in (("pipelines", pipelines), ("iterations", iterations)):
        if count is not None and count < 1:
            raise InputError(f"replay: {count} {what}: expected a whole number >= 1")
    raw = read_csv(path, exactly(*_COLUMNS))
    if list(raw.columns) != _COLUMNS:
        raise raw.fault(f"expected {','.join(_COLUMNS)}")
    places = zip(raw.whole("iteration"), raw.whole("pipeline"), strict=True)
    cells: dict[tuple[int, int], float] = {}
    for row, (place, slowdown) in enumerate(zip(places, raw.numbers("slowdown"), strict=True)):
        if place[1] >= pipelines:
            raise raw.fault(f"pipeline {place[1]} of {pipelines}; they are numbered from 0", "pipeline", row)
        if place in cells:
            raise raw.fault(f"pipeline {place[1]} in iteration {place[0]} occurs twice", "pipeline", row)
        if slowdown is None or not 1 <= slowdown <= _MOST_SLOWDOWN:
            text = quote(raw.columns["slowdown"][row])
            raise raw.fault(f"{text} is not a number from 1 to {_MOST_SLOWDOWN:g}", "slowdown", row)
        cells[place] = slowdown
    last = max(iteration for iteration, _ in cells)
    count = last + 1 if iterations is None else iterations
    if last >= count:
        raise InputError(f"{path}: its last iteration is {last}, asked for {count}: give rows, or another number")
    # each cell of the table is small, but a far iteration makes it large
    if count * pipelines > _MOST:
        raise InputError(f"{path}: {count} iterations of {pipelines} pipelines; at most {_MOST} of both together")
    table = np.ones((count, pipelines))
    for place, slowdown in cells.items():
        table[place] = slowdown
    return table
