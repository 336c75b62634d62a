"""Plans where a change of clocks takes time: across operations, and from kernel to kernel within one.

Our choice, and the pessimistic one: a GPU goes on at its old clocks until a change is through; here the stage stands
still for the latency, at the blocking power. So a change costs time, but no effective energy.

`with_switches`: a plan that keeps its promise in spite of its changes. A change begins when the stage's previous
operation ends: while a stage waits for another anyway, it is free. A plan that is late for its changes is mended:
operations on its critical path are made faster, the cheapest first, which also takes changes out. All clocks at their
highest and one clock per stage change nothing; the cheapest of the plans that keep the time counts.

`switched_kernel_level`: clocks per kernel. For a price x of time the best clocks of a sequence of launches minimise
sum(c + x t) + x latency (changes): one pass of dynamic programming (Viterbi) over the launches. All prices together
give the operation's options. Changes from one operation to the next are not counted there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernel_dvfs.choice.dominance import lower_hull, pareto
from kernel_dvfs.workload.passes import launch_order
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max, per_stage
from kernel_dvfs_pipeline.curve import TICKS_PER_S, OperationOptions, duration_ticks
from kernel_dvfs_pipeline.planner import KINDS, Plan, Planner
from kernel_dvfs_pipeline.rounding import Rounded
from kernel_dvfs_pipeline.stage_profile import (
    Clocks,
    InstructionSettings,
    KernelClocks,
    Key,
    StageProfile,
    known_clocks,
)
from kernel_dvfs_pipeline.stages_from_kernels import Kernels, Launches, launches, stage_profile

# prices of time that are tried per operation: as many, at even ranks among those of its kernels' hulls
_PRICES = 40


@dataclass(frozen=True, slots=True)
class Switched:
    """A plan as run with changes of clocks that take time."""

    plan: Plan
    switches: int  # changes in one iteration
    time_ticks: int  # of the iteration with them


def with_switches(planner: Planner, ticks: int, latency_s: float, kind: str) -> Switched:
    """Return the cheapest plan found that ends by `ticks` although each change of clocks takes `latency_s`."""
    still = [all_max(planner), per_stage(planner, ticks)]
    candidates = [Switched(plan, 0, plan.time_ticks) for plan in still if plan.time_ticks <= ticks]
    frontier = planner.frontier
    planned = min(max(ticks, frontier.fastest_ticks), frontier.slowest_ticks)
    for way in KINDS[: KINDS.index(kind) + 1]:
        mended = _Mending(planner, *planner.rounded(planned, way), int(duration_ticks(latency_s))).run(ticks)
        if mended is not None:
            candidates.append(mended)
    return min(candidates or [Switched(still[0], 0, still[0].time_ticks)], key=lambda candidate: candidate.plan.cost_j)


def in_time(planner: Planner, ticks: int, latency_s: float, kind: str) -> Plan:
    """Return the plan of with_switches, with a note that says what its changes take.

    Its begins and ends are those without changes. Raises InputError where no plan found is in time.
    """
    switched = with_switches(planner, ticks, latency_s, kind)
    taken_s = f"{switched.time_ticks / TICKS_PER_S:.9g} s"
    if switched.time_ticks > ticks:
        raise InputError(
            f"pipeline: with changes of clocks of {latency_s:g} s no plan found takes {ticks / TICKS_PER_S:.9g} s; the "
            f"fastest takes {taken_s}: ask for more time"
        )
    note = f"{switched.switches} changes of clocks of {latency_s:g} s: the iteration takes {taken_s}"
    return replace(switched.plan, promised_ticks=ticks, note=note)


class _Mending:
    """A choice of options, run with switches and made faster until it is in time."""

    def __init__(self, planner: Planner, kind: str, rounded: Rounded, latency: int) -> None:
        self.planner, self.kind, self.latency = planner, kind, latency
        self.choice: list[int] = rounded.choice.tolist()
        offered = planner.offered(kind)
        lists = {key: (options.ticks.tolist(), options.cost_j.tolist()) for key, options in offered.items()}
        self.ticks = [lists[key][0] for key in planner.keys]
        self.cost_j = [lists[key][1] for key in planner.keys]
        # per key and option: the clocks in the order in which it runs them
        clocks = {
            key: [self._clocks(key, options, at) for at in range(len(options.ticks))]
            for key, options in offered.items()
        }
        self.clocks = [clocks[key] for key in planner.keys]
        self.previous: list[int | None] = []
        last: dict[int, int] = {}
        for number, operation in enumerate(planner.graph.operations):
            self.previous.append(last.get(operation.stage))
            last[operation.stage] = number
        self.of_stage: dict[int, list[int]] = {}
        for number, operation in enumerate(planner.graph.operations):
            self.of_stage.setdefault(operation.stage, []).append(number)

    def _clocks(self, key: Key, options: OperationOptions, at: int) -> tuple:
        measured = self.planner.profile.of(*key)
        if measured.keeps_clocks:
            return ()
        rows = (options.setting[at], options.slower[at]) if options.share[at] else (options.setting[at],)
        # an option that sets clocks kernel by kernel has no pair: it is like no other
        return tuple(
            (key, int(row)) if key in self.planner.profile.kernel_clocks else measured.clocks(row) for row in rows
        )

    def run(self, limit: int) -> Switched | None:
        """Mend the plan until it is in time and return it; None where not even everyone's fastest option is."""
        while True:
            finish, waits, switches = self._times()
            if max(finish) <= limit:
                plan = self.planner.plan_of(self.choice, self._without_switches(), limit, self.kind)
                return Switched(plan, switches, max(finish))
            path = [number for number in self._critical(finish, waits) if self.choice[number]]
            if not path:
                return None
            self._hasten(path, max(finish) - limit)

    def _without_switches(self) -> list[int]:
        return self.planner.graph.finish_ticks([ticks[at] for ticks, at in zip(self.ticks, self.choice)])

    def _times(self) -> tuple[list[int], list[int | None], int]:
        """Return (ends, what each waited for, number of switches) of a run with switches."""
        graph, switches = self.planner.graph, 0
        finish: list[int] = []
        waits: list[int | None] = []
        now = {stage: self._first_clocks(numbers) for stage, numbers in self.of_stage.items()}
        for number, operation in enumerate(graph.operations):
            parts = self._in_order(number, now[operation.stage])
            entry = int(parts[:1] != (now[operation.stage],)) if parts else 0
            inside = max(len(parts) - 1, 0)
            switches += entry + inside
            now[operation.stage] = parts[-1] if parts else now[operation.stage]
            before = self.previous[number]
            begin, reason = ((finish[before] if before is not None else 0) + entry * self.latency), before
            for other, lag in graph.before[number]:
                if finish[other] + lag > begin:
                    begin, reason = finish[other] + lag, other
            finish.append(begin + self.ticks[number][self.choice[number]] + inside * self.latency)
            waits.append(reason)
        return finish, waits, switches

    def _in_order(self, number: int, now: tuple | None) -> tuple:
        """Return the clocks of an operation, those first that are set already; () where it keeps what is set."""
        parts = self.clocks[number][self.choice[number]]
        return parts[::-1] if len(parts) == 2 and now == parts[1] else parts

    def _first_clocks(self, numbers: list[int]) -> tuple | None:
        """Return what a stage runs at when an iteration begins: what the same iteration ends with.

        None where no clocks do: the first operation then changes them.
        """
        setting = [number for number in numbers if self.clocks[number][self.choice[number]]]
        for start in self.clocks[setting[-1]][self.choice[setting[-1]]][::-1] if setting else ():
            now = start
            for number in setting:
                now = self._in_order(number, now)[-1]
            if now == start:
                return start
        return None

    def _critical(self, finish: list[int], waits: list[int | None]) -> list[int]:
        number: int | None = max(range(len(finish)), key=finish.__getitem__)
        path = []
        while number is not None:
            path.append(number)
            number = waits[number]
        return path

    def _hasten(self, path: list[int], late: int) -> None:
        """Make one operation of `path` faster: by what is needed, or as fast as it can be where that also takes a
        change of clocks out; the one that loses least energy per time that is needed."""
        best: tuple[float, int, int] | None = None
        for number in path:
            ticks, cost_j, at = self.ticks[number], self.cost_j[number], self.choice[number]
            enough = bisect_right(ticks, ticks[at] - late, hi=at) - 1
            for to, less_latency in ((max(enough, 0), 0), (0, self.latency)):
                gained = min(ticks[at] - ticks[to] + less_latency, late)
                loss_w = (cost_j[to] - cost_j[at]) / gained
                if best is None or loss_w < best[0]:
                    best = (loss_w, number, to)
        assert best is not None
        self.choice[best[1]] = best[2]


def switched_kernel_level(kernels: Kernels, stages: int, blocking_w: float, latency_s: float) -> StageProfile:
    """Return a profile with a pair of clocks per launch, changes taking `latency_s`; options with one pair for all
    launches are among them."""

    def operation(launched: Launches) -> tuple[InstructionSettings, KernelClocks]:
        names = launch_order(launched)
        time_s = np.array([kernels.time_s[name] for name in names])
        cost = np.array([kernels.energy_j[name] for name in names]) - blocking_w * time_s
        rows = np.arange(len(names))
        choices = {(pair,) * len(names) for pair in range(len(kernels.pairs))}
        choices |= {tuple(cheapest(cost + x * time_s, x * latency_s)) for x in _prices(time_s, cost)}
        ordered = np.array(sorted(choices))
        changes = np.count_nonzero(np.diff(ordered, axis=1), axis=1)
        taken_s = np.array([time_s[rows, choice].sum() for choice in ordered]) + latency_s * changes
        spent = np.array([cost[rows, choice].sum() for choice in ordered])
        nothing = np.full(len(ordered), math.nan)
        settings = InstructionSettings(
            nothing, nothing, taken_s, spent + blocking_w * taken_s, [kernels.source] * len(ordered)
        )
        return settings, _LaunchClocks(kernels.pairs, names, ordered)

    name = f"{kernels.source}, {stages} stages, kernel level, changes take {latency_s:g} s"
    return stage_profile(launches(kernels, stages), operation, name)


def _prices(time_s: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return prices of time (W) among those of all segments of the launches' hulls; none without a choice."""
    segments = []
    for times, costs in zip(time_s, cost):
        keep = pareto(times, costs, np.arange(len(times)))
        hull = keep[lower_hull(times[keep], costs[keep])]
        segments.append(-np.diff(costs[hull]) / np.diff(times[hull]))
    prices = np.concatenate(segments)
    return np.quantile(prices, np.linspace(0, 1, _PRICES)) if len(prices) else prices


def cheapest(weight: np.ndarray, change: float) -> np.ndarray:
    """Return (launches,) the clocks of least sum of weight (launches, pairs) and `change` for each change of clocks."""
    count, pairs = weight.shape
    stay = np.arange(pairs)
    before = np.empty((count, pairs), np.int64)
    best = weight[0].copy()
    for launch in range(1, count):
        leader = int(best.argmin())
        moved = best[leader] + change
        before[launch] = np.where(best <= moved, stay, leader)
        best = np.minimum(best, moved) + weight[launch]
    choice = np.empty(count, np.int64)
    choice[-1] = best.argmin()
    for launch in range(count - 1, 0, -1):
        choice[launch - 1] = before[launch, choice[launch]]
    return choice


class _LaunchClocks:
    """Clocks of each launch at an option."""

    def __init__(self, pairs: Sequence[tuple], names: Sequence[str], choices: np.ndarray) -> None:
        self.pairs, self.names, self.choices = pairs, names, choices

    def at(self, option: int) -> dict[str, Clocks]:
        """Return {"<place>:<kernel id>": (core, memory)}, MHz, None = auto; only where the clocks change."""
        clocks: dict[str, Clocks] = {}
        now = None
        for place, (name, pair) in enumerate(zip(self.names, self.choices[option].tolist())):
            if pair != now:
                clocks[f"{place}:{name}"] = known_clocks(*self.pairs[pair])
                now = pair
        return clocks
