"""Planners, plans and methods of a pipeline study: every number that its tables and figures show is worked out here.

steps.py writes them; tables and figures read what it wrote. What holds of a study's frontier and plans is checked on
the study: against a linear-programme solver, by replay. HiGHS solves the same linear programme as the parametric
flow and shares no code with it; it takes one solve a time, so it is far slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max, per_stage, uniform
from kernel_dvfs_pipeline.curve import TICKS_PER_S, TradeOffCurve, duration_ticks
from kernel_dvfs_pipeline.graph import Graph, pipeline_graph, read_graph
from kernel_dvfs_pipeline.planner import Plan, Planner
from kernel_dvfs_pipeline.published import (
    FILTERS,
    PublishedFrontier,
    UnitCurve,
    published_frontier,
    published_length,
    unit_curve,
)
from kernel_dvfs_pipeline.slow_changes import switched_kernel_level
from kernel_dvfs_pipeline.stage_profile import StageProfile
from kernel_dvfs_pipeline.stages_from_kernels import Kernels, kernel_level, read_kernels
from kernel_dvfs_pipeline.study import (
    ALL_MAX,
    BEST_PUBLISHED,
    BOUND,
    KINDS,
    MARKED_RATIO,
    ONE_CLOCK,
    PER_STAGE,
    PUBLISHED,
    REALISED,
    UNIFORM,
    Check,
    Method,
    PipelineStudy,
    RunnablePlan,
)

# so many plans are marked on the frontier; one clock for all is marked at so much more time than all-max
MARKS, UNIFORM_RATIO = 14, 1.1
# points of the published frontier that are replayed together: a matrix of them by operations
_POINTS_AT_ONCE = 512
POINTS = 20


@dataclass(frozen=True, slots=True)
class Realised:
    """A point of the published frontier at measured figures."""

    promised_s: float
    time_s: float
    cost_j: float  # effective energy


class Solver:
    """Planners and plans of a study, each solved once. Raises InputError for what its stages or kernels lack."""

    def __init__(self, study: PipelineStudy, joined: Sequence[str] = ()) -> None:
        """joined: files of all parts of the frontier, for the only number of microbatches that is asked then."""
        self.study, self.joined = study, joined
        self._planners: dict[int, Planner] = {}
        self._published: dict[tuple[int, str], tuple[list[UnitCurve], PublishedFrontier]] = {}
        self._realised: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
        self._plans: dict[tuple[int, int, str], Plan] = {}

    @cached_property
    def kernels(self) -> Kernels | None:
        """The kernels that the stages were made from, or None where they came from a CSV of stages."""
        source = str(self.study["source"])
        if not source.endswith(".parquet"):
            return None
        self.study.check_source()
        return read_kernels(source)

    def graph(self, microbatches: int) -> Graph:
        """Return the graph of one iteration."""
        study = self.study
        if str(study["schedule"]).endswith(".json"):
            graph = read_graph(study["schedule"])
            has = graph.stages, 1 + max(operation.microbatch for operation in graph.operations)
            if has != (study["stages"], microbatches):
                raise InputError(
                    f"{study['schedule']}: {has[0]} stages and {has[1]} microbatches, asked for {study['stages']} and "
                    f"{microbatches}: ask for what the graph has"
                )
            return graph
        return pipeline_graph(
            study["schedule"],
            study["stages"],
            microbatches,
            study["chunks"],
            study["early_recompute"],
            study["transfer_s"],
            tuple(study["constant"]),
        )

    def planner(self, microbatches: int) -> Planner:
        """Return the planner of one pair of clocks per operation, or two with a split."""
        if microbatches not in self._planners:
            planner = self._planners[microbatches] = self._planner(self.study.profile, microbatches)
            if self.joined:
                planner.join_frontier(self.joined, self.study.made_of)
        return self._planners[microbatches]

    def kernel_planner(self, microbatches: int, latency_s: float = 0.0) -> Planner:
        """Return the planner of a pair of clocks per kernel, changes within an operation taking latency_s.

        Raises InputError where only stages are known.
        """
        study = self.study
        if self.kernels is None:
            raise InputError(
                f"{study['name']}: a profile of stages knows no kernels; make the stages from a kernel profile"
            )
        shape = self.kernels, study["stages"] * study["chunks"], study.stage_blocking_w
        profile = switched_kernel_level(*shape, latency_s) if latency_s else kernel_level(*shape)
        return self._planner(profile, microbatches)

    def _planner(self, profile: StageProfile, microbatches: int) -> Planner:
        study = self.study
        powers = {"blocking_w": study.stage_blocking_w, "transfer_w": study["transfer_w"] * study["tensor_parallel"]}
        return Planner(profile, self.graph(microbatches), kernels=study["kernels"], **powers)

    def base(self, microbatches: int) -> Plan:
        """Return the plan of all clocks at their highest."""
        return all_max(self.planner(microbatches))

    def plan(self, microbatches: int, ticks: int, kind: str) -> Plan:
        """Return the plan of a kind that ends by `ticks`."""
        key = microbatches, ticks, kind
        if key not in self._plans:
            self._plans[key] = self.planner(microbatches).plan_ticks(ticks, kind)
        return self._plans[key]

    def published(self, microbatches: int, filter_on: str = "raw") -> tuple[list[UnitCurve], PublishedFrontier]:
        """Return (curves per operation, frontier) of the published algorithm."""
        key = microbatches, filter_on
        if key not in self._published:
            study, planner = self.study, self.planner(microbatches)
            of_key = {
                operation: unit_curve(
                    settings.time_s, settings.energy_j, study.stage_blocking_w, study["unit_time_s"], filter_on
                )
                for operation in planner.options
                for settings in [study.profile.of(*operation)]
            }
            curves = [of_key[operation] for operation in planner.keys]
            frontier = published_frontier(planner.graph, curves, study.stage_blocking_w, study["unit_time_s"])
            self._published[key] = curves, frontier
        return self._published[key]

    def realised(self, microbatches: int, point: int, filter_on: str = "raw") -> Realised:
        """Return what point `point` of the published frontier really takes: its options at their measured figures."""
        planner, (curves, frontier) = self.planner(microbatches), self.published(microbatches, filter_on)
        time_s, cost = [], 0.0
        for key, curve, units in zip(planner.keys, curves, frontier.units_at(point).tolist()):
            settings, row = self.study.profile.of(*key), curve.setting_at(units)
            time_s.append(float(settings.time_s[row]))
            cost += float(settings.energy_j[row] - self.study.stage_blocking_w * settings.time_s[row])
        ticks = duration_ticks(time_s).tolist()
        return Realised(float(frontier.time_s[point]), max(planner.graph.finish_ticks(ticks)) / TICKS_PER_S, cost)

    def realised_points(self, microbatches: int, filter_on: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (ticks, effective J) of all points of the published frontier, as `realised` does, slowest first."""
        key = microbatches, filter_on
        if key not in self._realised:
            planner, (curves, frontier) = self.planner(microbatches), self.published(*key)
            units, replayed = frontier.slowest.copy(), []
            for first in range(0, len(frontier.moves), _POINTS_AT_ONCE):
                rows = []
                for shorter, longer in frontier.moves[first : first + _POINTS_AT_ONCE]:
                    units[shorter] -= 1
                    units[longer] += 1
                    rows.append(units.copy())
                replayed.append(self._replayed(planner, curves, np.array(rows)))
            ticks, cost_j = zip(*replayed) if replayed else ([np.zeros(0, np.int64)], [np.zeros(0)])
            self._realised[key] = np.concatenate(ticks), np.concatenate(cost_j)
        return self._realised[key]

    def _replayed(self, planner: Planner, curves: list[UnitCurve], units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ticks (P,), effective J (P,)) of plans (P, N) in unit times, at measured figures."""
        cost_j = np.zeros(len(units))
        finish = np.empty(units.shape[::-1], np.int64)
        for number, (key, curve) in enumerate(zip(planner.keys, curves)):
            settings, rows = self.study.profile.of(*key), curve.settings_at(units[:, number])
            cost_j += settings.energy_j[rows] - self.study.stage_blocking_w * settings.time_s[rows]
            begin = np.zeros(len(units), np.int64)
            for other, lag in planner.graph.before[number]:
                np.maximum(begin, finish[other] + lag, out=begin)
            finish[number] = begin + duration_ticks(settings.time_s[rows])
        return finish.max(axis=0), cost_j

    def published_base(self, microbatches: int) -> tuple[float, float]:
        """Return (time s, energy J) of all-max as the artifact counts it: the time from floored durations."""
        curves, _ = self.published(microbatches)
        unit_s = self.study["unit_time_s"]
        fastest = [curve.fastest for curve in curves]
        time_s = published_length(self.planner(microbatches).graph, fastest, unit_s) * unit_s
        return time_s, self.base(microbatches).energy_j(time_s)

    def methods(self, microbatches: int, ratio: float = 1.0, simple: bool = True) -> Iterator[Method]:
        """Yield every method in an iteration that lasts `ratio` x the time of all-max.

        simple: also one clock for all and one clock per stage. The published algorithm comes thrice: as it promises
        (against its own floored base), and as its plan runs at measured times; it may then be late. At its best it
        is the plan of least energy of those that are in time as run, by either filter; without one it is left out.
        """
        planner, base = self.planner(microbatches), self.base(microbatches)
        ticks, until_s = int(base.time_ticks * ratio), base.time_s * ratio
        wait_j = base.energy_j(until_s)

        def entry(method: str, cost_j: float, time_s: float, lasts_s: float = until_s) -> Method:
            energy_j = cost_j + planner.transfer_j + planner.blocking_w * lasts_s
            return Method(ratio, method, time_s, cost_j, energy_j, base.time_s, wait_j)

        yield entry(ALL_MAX, base.cost_j, base.time_s)
        if simple:
            for name, plan in ((UNIFORM, uniform(planner, ticks)), (PER_STAGE, per_stage(planner, ticks))):
                yield entry(name, plan.cost_j, plan.time_s)
        _, frontier = self.published(microbatches)
        if len(frontier.time_s):
            yield (promised := self._promised(microbatches, ratio))
            run = self.realised(microbatches, frontier.cheapest_within(promised.base_time_s * ratio))
            yield entry(REALISED, run.cost_j, run.time_s, max(until_s, run.time_s))
        points = [self.realised_points(microbatches, filter_on) for filter_on in FILTERS]
        taken, cost_j = (np.concatenate(column) for column in zip(*points))
        in_time = np.flatnonzero(taken <= ticks)
        if len(in_time):
            best = in_time[np.argmin(cost_j[in_time])]
            yield entry(BEST_PUBLISHED, float(cost_j[best]), float(taken[best]) / TICKS_PER_S)
        used = min(ticks, planner.frontier.slowest_ticks)
        for kind in KINDS:
            plan = self.plan(microbatches, used, kind)
            yield entry(kind, plan.cost_j, plan.time_s)
        yield entry(BOUND, float(planner.frontier.cost_at(used)), used / TICKS_PER_S)

    def _promised(self, microbatches: int, ratio: float) -> Method:
        """Return what the published algorithm promises, by the artifact's lookup."""
        _, frontier = self.published(microbatches)
        planner = self.planner(microbatches)
        blocking_w, transfer_j = planner.blocking_w, planner.transfer_j
        time_s, energy_j = self.published_base(microbatches)
        until_s = time_s * ratio
        point = frontier.cheapest_within(until_s)
        promised_s, promised_j = float(frontier.time_s[point]), float(frontier.energy_j[point])
        return Method(
            straggler_ratio=ratio,
            method=PUBLISHED,
            time_s=promised_s,
            effective_energy_j=promised_j - blocking_w * promised_s,
            energy_j=promised_j + transfer_j + blocking_w * (until_s - promised_s),
            base_time_s=time_s,
            base_energy_j=energy_j + blocking_w * (until_s - time_s),
        )

    def runs(self, microbatches: int) -> Iterator[RunnablePlan]:
        """Yield plans that can be run, over time: ours, the published ones, and those that need no frontier."""
        planner, base = self.planner(microbatches), self.base(microbatches)
        last = min(int(base.time_ticks * MARKED_RATIO), planner.frontier.slowest_ticks)
        for ticks in np.linspace(base.time_ticks, last, MARKS).astype(np.int64).tolist():
            plan = self.plan(microbatches, ticks, ONE_CLOCK)
            yield RunnablePlan(ONE_CLOCK, plan.time_s, plan.energy_j())
        _, published = self.published(microbatches)
        reach = np.flatnonzero(published.time_s <= last / TICKS_PER_S)
        for point in reach[np.linspace(0, len(reach) - 1, MARKS).astype(int)].tolist() if len(reach) else []:
            run = self.realised(microbatches, point)
            energy_j = run.cost_j + planner.transfer_j + planner.blocking_w * run.time_s
            yield RunnablePlan(REALISED, run.time_s, energy_j)
        simple = {
            ALL_MAX: base,
            UNIFORM: uniform(planner, int(base.time_ticks * UNIFORM_RATIO)),
            PER_STAGE: per_stage(planner, base.time_ticks),
        }
        for name, plan in simple.items():
            yield RunnablePlan(name, plan.time_s, plan.energy_j())


def check(solver: Solver, microbatches: int) -> Check:
    """Check 20 times from the fastest to the slowest iteration: the bound against HiGHS, every plan against the bound
    and its promise, the published plans as run against theirs."""
    planner = solver.planner(microbatches)
    frontier, curves = planner.frontier, [planner.curves[key] for key in planner.keys]
    ticks = np.linspace(frontier.fastest_ticks, frontier.slowest_ticks, POINTS).astype(np.int64)
    differences, late, ordered = [], [], True
    gaps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for limit in ticks.tolist():
        # a hair later than the fastest: HiGHS works with tolerances
        truth = least_cost_j(planner.graph, curves, limit / TICKS_PER_S * (1 + 1e-9))
        differences.append(abs(float(frontier.cost_at(limit * (1 + 1e-9))) / truth - 1))
        plans = [planner.plan_ticks(limit, kind) for kind in KINDS]
        late += [(plan.time_ticks - limit) / TICKS_PER_S for plan in plans]
        one_clock, split = (plan.cost_j for plan in plans)
        least = float(frontier.cost_at(limit))
        ordered &= least <= split * (1 + 1e-9) and split <= one_clock
        bound_j = float(frontier.energy_at(limit))
        for kind, cost in zip(KINDS, (one_clock, split)):
            gaps[kind].append(100 * (cost - least) / bound_j)
    return Check(
        operations=len(planner.graph),
        records=len(frontier.cost_j),
        points=POINTS,
        lp_difference=max(differences),
        latest_s=max(late),
        ordered=ordered,
        gap_one_clock_percent=max(gaps[KINDS[0]]),
        gap_split_percent=max(gaps[KINDS[1]]),
        published_latest_percent=_published_latest(solver, microbatches),
    )


def _published_latest(solver: Solver, microbatches: int) -> float | None:
    _, frontier = solver.published(microbatches)
    if not len(frontier.time_s):
        return None
    points = np.unique(np.linspace(0, len(frontier.time_s) - 1, POINTS).astype(int))
    runs = [solver.realised(microbatches, int(point)) for point in points]
    return max(100 * (run.time_s / run.promised_s - 1) for run in runs)


def least_cost_j(graph: Graph, curves: list[TradeOffCurve], time_s: float) -> float:
    """Return min sum c_i over begins, durations t_i and costs c_i (s, J): hull segments below c_i, the last end by T.

    curves: one per operation. Raises ArithmeticError where HiGHS finds no optimum.
    """
    n = len(graph)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    limits: list[float] = []

    def at_most(terms: list[tuple[int, float]], limit: float) -> None:
        for column, value in terms:
            rows.append(len(limits))
            columns.append(column)
            values.append(value)
        limits.append(limit)

    bounds: list[tuple] = [(0.0, None)] * n
    for number, curve in enumerate(curves):
        t = curve.ticks / TICKS_PER_S
        bounds.append((t[0], t[-1]))
        slopes = np.diff(curve.cost_j) / np.diff(t)
        for slope, at, cost in zip(slopes, t, curve.cost_j):
            at_most([(n + number, slope), (2 * n + number, -1.0)], slope * at - cost)
        at_most([(number, 1.0), (n + number, 1.0)], time_s)
    for tail, head, lag in zip(graph.tail.tolist(), graph.head.tolist(), graph.lag_ticks.tolist()):
        at_most([(tail, 1.0), (n + tail, 1.0), (head, -1.0)], -lag / TICKS_PER_S)
    bounds += [(curve.cost_j[-1], None) for curve in curves]
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), 3 * n)).tocsr()
    weight = np.concatenate([np.zeros(2 * n), np.ones(n)])
    solved = linprog(weight, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
    if solved.status:
        raise ArithmeticError(f"linear programme: {solved.message}")
    return float(solved.fun)
