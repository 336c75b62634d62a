"""Plans whose clocks can be reached: each change lands before the next is asked for, as its latency says.

A change is asked for ahead of its operation, one to faster clocks so early that it is nearly always in time, one to
slower clocks so late that it is nearly never too early: neither makes an operation slower than it was planned. Where a
pair would be kept for less time than that takes, it is not asked for; those operations run at their neighbours' clocks,
of those at which none is slower than planned. So the plan's time is kept, and what is lost is energy. Which changes are
kept is exact, by dynamic programming over a stage's operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max, cost_j_of, per_stage
from kernel_dvfs_pipeline.curve import TICKS_PER_S, duration_ticks
from kernel_dvfs_pipeline.planner import Part, Plan, Planner
from kernel_dvfs_pipeline.spreads import Spreads, height
from kernel_dvfs_pipeline.stage_profile import Clocks, Key


def reachable(planner: Planner, plan: Plan, known: Spreads) -> Plan:
    """Return the cheapest plan found that is not slower than `plan` and asks only for clocks that can be reached.

    Of `plan` without the others, one pair per stage, and all clocks at their highest.

    Raises InputError where a plan gives single kernels clocks of their own.
    """
    rows: list[int] = [-1] * len(plan.graph)
    for numbers in plan.by_stage().values():
        for number, row in zip(numbers, _reachable_rows(planner, plan, numbers, known), strict=True):
            rows[number] = row
    ticks, cost_j = [], 0.0
    parts: list[tuple[Part, ...]] = []
    for key, row in zip(planner.keys, rows):
        settings = planner.profile.of(*key)
        ticks.append(int(duration_ticks(settings.time_s[row])))
        cost_j += cost_j_of(planner, key, row)
        parts.append((Part(*settings.clocks(row), 1.0, None),))
    end = np.array(plan.graph.finish_ticks(ticks))
    before, after = (sum(_changes(plan.graph.stages, clocks, plan.by_stage())) for clocks in (plan.parts, parts))
    note = f"{after} of {before} changes of clocks can be reached in time"
    if plan.note:
        note = f"{plan.note}; {note}"
    reached = replace(
        plan, time_ticks=int(end.max()), cost_j=cost_j, begin_ticks=end - ticks, end_ticks=end, parts=parts, note=note
    )
    still = [
        replace(
            baseline, promised_ticks=plan.promised_ticks, bound_j=plan.bound_j, search=plan.search, note=baseline.kind
        )
        for baseline in (all_max(planner), per_stage(planner, plan.promised_ticks))
        if baseline.time_ticks <= plan.promised_ticks
    ]
    return min([reached, *still], key=lambda candidate: candidate.cost_j)


def _changes(stages: int, parts: Sequence[tuple[Part, ...]], by_stage: dict[int, list[int]]) -> list[int]:
    """Return the changes of clocks of each stage in an iteration, the one to its first clocks included."""
    changes = []
    for stage in range(stages):
        pairs = [pair for number in by_stage[stage] if (pair := parts[number][0][:2]) != (None, None)]
        changes.append(sum(pair != pairs[place - 1] for place, pair in enumerate(pairs)))
    return changes


def _reachable_rows(planner: Planner, plan: Plan, numbers: Sequence[int], known: Spreads) -> list[int]:
    """Return the row of its settings at which each operation of a stage runs."""
    begin_s = plan.begin_ticks[numbers] / TICKS_PER_S
    limit_s = (plan.end_ticks[numbers] - plan.begin_ticks[numbers]) / TICKS_PER_S
    by_pair: dict[Key, dict[Clocks, int]] = {}
    for key in {planner.keys[number] for number in numbers}:
        settings = planner.profile.of(*key)
        by_pair[key] = {settings.clocks(row): row for row in range(len(settings.time_s))}
    chosen = []
    for number in numbers:
        if len(plan.parts[number]) != 1 or plan.parts[number][0].setting is not None:
            raise InputError("pipeline: what is played has one pair of clocks per operation: plan without splits")
        chosen.append(by_pair[planner.keys[number]][plan.parts[number][0][:2]])
    keeps = [planner.profile.of(*planner.keys[number]).keeps_clocks for number in numbers]
    pairs = sorted({pair for rows in by_pair.values() for pair in rows} - {(None, None)}, key=height)
    if not pairs:
        return chosen
    row_of = np.full((len(numbers), len(pairs)), -1)
    cost = np.full((len(numbers), len(pairs)), math.inf)
    for place, number in enumerate(numbers):
        key = planner.keys[number]
        if keeps[place]:
            row_of[place], cost[place] = chosen[place], 0.0
            continue
        for at, pair in enumerate(pairs):
            row = by_pair[key].get(pair, -1)
            if row >= 0 and planner.profile.of(*key).time_s[row] <= limit_s[place]:
                row_of[place, at], cost[place, at] = row, cost_j_of(planner, key, row)
    if not np.isfinite(cost).any(axis=1).all():
        return chosen  # of auto alone
    # from the last operation's end to the first one's begin in the next iteration
    rest_s = begin_s[0] + plan.time_s - plan.end_ticks[numbers[-1]] / TICKS_PER_S
    answers = [
        answer
        for first in range(len(pairs))
        if (answer := _cheapest(begin_s, cost, pairs, known, first, rest_s)) is not None
    ]
    if not answers:
        return chosen
    best = min(answers, key=lambda answer: answer[0])[1]
    return row_of[np.arange(len(numbers)), best].tolist()


def _cheapest(
    begin_s: np.ndarray, cost: np.ndarray, pairs: Sequence[Clocks], known: Spreads, first: int, rest_s: float
) -> tuple[float, np.ndarray] | None:
    """Return (J, pair of each operation) of least cost where the first pair is `first`; None where there is none.

    best[j, c]: the least cost of all operations before j, where pair c is changed to at j. A pair is kept from there on
    for as long as its change takes; the first one, which is asked for as the last iteration ends, likewise.
    """
    count = len(begin_s)
    total = np.vstack([np.zeros(len(pairs)), np.cumsum(np.where(np.isfinite(cost), cost, 0.0), axis=0)])
    # the first operation from which on a pair can be kept until (not with) each place
    since = np.zeros((count + 1, len(pairs)), int)
    for place in range(count):
        since[place + 1] = np.where(np.isfinite(cost[place]), since[place], place + 1)
    keeps_s = np.array([[known.keeps_s(before, after) for after in pairs] for before in pairs])
    longest_s = keeps_s.max(axis=0)  # of the change to a pair
    best, back = np.full((count + 1, len(pairs)), math.inf), np.zeros((count + 1, len(pairs), 2), int)
    best[0, first] = 0.0
    for place in range(1, count + 1):
        for held in range(len(pairs)):  # kept until here
            # where it was changed to, so that it has been kept for long enough
            starts = np.arange(since[place, held], place)
            if place < count:
                starts = starts[begin_s[place] - begin_s[starts] >= longest_s[held]]
            if not len(starts):
                continue
            values = best[starts, held] - total[starts, held]
            at = int(np.argmin(values))
            value = values[at] + total[place, held]
            for other in range(len(pairs)) if place < count else [held]:
                if (other != held or place == count) and value < best[place, other]:
                    best[place, other], back[place, other] = value, (starts[at], held)
    ends = [
        held
        for held in range(len(pairs))
        if math.isfinite(best[count, held]) and (held == first or rest_s >= known.lead_s(pairs[held], pairs[first]))
    ]
    if not ends:
        return None
    last = min(ends, key=lambda held: best[count, held])
    chosen, place, at = np.empty(count, int), count, last
    while place:
        start, held = back[place, at]
        chosen[start:place] = held
        place, at = start, held
    return float(best[count, last]), chosen
