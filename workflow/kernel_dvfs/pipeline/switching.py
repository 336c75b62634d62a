"""What changes of clocks cost a plan, and a plan that keeps its promise in spite of them.

Our choice, and the pessimistic one: a GPU goes on at its old clocks until a change is through; here the stage stands
still for the latency, at the blocking power. So a change costs time, but no effective energy. It begins when the
stage's previous operation ends: while a stage waits for another anyway, it is free.

A plan that is late for its changes is mended: operations on its critical path are made faster, the cheapest first,
which also takes changes out. All clocks at their highest and one clock per stage change nothing; the cheapest of the
plans that keep the time counts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from kernel_dvfs.pipeline.baselines import all_max, per_stage
from kernel_dvfs.pipeline.plan import Plan
from kernel_dvfs.pipeline.planner import KINDS, Planner
from kernel_dvfs.pipeline.ticks import duration_ticks


@dataclass(frozen=True)
class Switched:
    """A plan as run with switches: how many in one iteration, and the time it takes with them, ticks."""

    plan: Plan
    switches: int
    time_ticks: int


def with_switches(planner: Planner, ticks: int, latency_s: float, kind: str) -> Switched:
    """The cheapest plan found that ends by `ticks` although each change of clocks takes `latency_s`."""
    still = [all_max(planner), per_stage(planner, ticks)]
    found = [Switched(plan, 0, plan.time_ticks) for plan in still if plan.time_ticks <= ticks]
    frontier = planner.frontier
    planned = min(max(ticks, frontier.fastest_ticks), frontier.slowest_ticks)
    for own in KINDS[: KINDS.index(kind) + 1]:
        mended = _Mending(planner, *planner.rounded(planned, own), duration_ticks(latency_s)).run(ticks)
        if mended is not None:
            found.append(mended)
    return min(found or [Switched(still[0], 0, still[0].time_ticks)], key=lambda each: each.plan.cost_j)


class _Mending:
    """A choice of options, run with switches and made faster until it is in time."""

    def __init__(self, planner: Planner, kind: str, rounded, latency: int):
        self.planner, self.kind, self.latency = planner, kind, int(latency)
        self.choice = rounded.choice.tolist()
        offered = planner.offered(kind)
        lists = {key: (own.ticks.tolist(), own.cost_j.tolist()) for key, own in offered.items()}
        self.ticks = [lists[key][0] for key in planner.keys]
        self.cost_j = [lists[key][1] for key in planner.keys]
        # per key and option: the clocks in the order in which it runs them
        clocks = {key: [self._clocks(key, own, at) for at in range(len(own.ticks))] for key, own in offered.items()}
        self.clocks = [clocks[key] for key in planner.keys]
        self.previous, last = [], {}
        for number, operation in enumerate(planner.graph.operations):
            self.previous.append(last.get(operation.stage))
            last[operation.stage] = number
        self.last = last

    def _clocks(self, key, own, at: int) -> tuple:
        measured = self.planner.profile.of(*key)
        rows = (own.setting[at], own.slower[at]) if own.share[at] else (own.setting[at],)
        # an option that sets clocks kernel by kernel has no pair: it is like no other
        return tuple(
            (key, int(row)) if key in self.planner.profile.kernel_clocks else measured.clocks(row) for row in rows
        )

    def run(self, limit: int) -> Switched | None:
        """The plan once it is in time; None where not even everyone's fastest option is."""
        while True:
            finish, waits, switches = self._times()
            if max(finish) <= limit:
                plan = self.planner.plan_of(self.choice, self._without_switches(), limit, self.kind)
                return Switched(plan, switches, max(finish))
            path = [number for number in self._critical(finish, waits) if self.choice[number]]
            if not path:
                return None
            self._hasten(path, max(finish) - limit)

    def _without_switches(self) -> list:
        return self.planner.graph.finish_ticks([own[at] for own, at in zip(self.ticks, self.choice)])

    def _times(self) -> tuple:
        """(ends, what each waited for, number of switches) of a run with switches."""
        graph, finish, waits, switches = self.planner.graph, [], [], 0
        # an iteration begins with the clocks that the one before it ended with
        now = {stage: self.clocks[number][self.choice[number]][-1] for stage, number in self.last.items()}
        for number, operation in enumerate(graph.operations):
            parts = self.clocks[number][self.choice[number]]
            if len(parts) == 2 and now[operation.stage] == parts[1]:
                parts = parts[::-1]
            entry = int(now[operation.stage] != parts[0])
            switches += entry + len(parts) - 1
            now[operation.stage] = parts[-1]
            before = self.previous[number]
            begin, reason = ((finish[before] if before is not None else 0) + entry * self.latency), before
            for other, lag in graph.before[number]:
                if finish[other] + lag > begin:
                    begin, reason = finish[other] + lag, other
            finish.append(begin + self.ticks[number][self.choice[number]] + (len(parts) - 1) * self.latency)
            waits.append(reason)
        return finish, waits, switches

    def _critical(self, finish: list, waits: list) -> list:
        number = max(range(len(finish)), key=finish.__getitem__)
        path = []
        while number is not None:
            path.append(number)
            number = waits[number]
        return path

    def _hasten(self, path: list, late: int) -> None:
        """Make one operation of `path` faster: by what is needed, or as fast as it can be where that also takes a
        change of clocks out; the one that loses least energy per time that is needed."""
        best = None
        for number in path:
            ticks, cost_j, at = self.ticks[number], self.cost_j[number], self.choice[number]
            enough = bisect_right(ticks, ticks[at] - late, hi=at) - 1
            for to, less_latency in ((max(enough, 0), 0), (0, self.latency)):
                gained = min(ticks[at] - ticks[to] + less_latency, late)
                loss_w = (cost_j[to] - cost_j[at]) / gained
                if best is None or loss_w < best[0]:
                    best = (loss_w, number, to)
        self.choice[best[1]] = best[2]
