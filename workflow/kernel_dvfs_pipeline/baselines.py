"""Plans that need no frontier: all clocks at their highest, one clock for all, one clock per stage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.curve import duration_ticks
from kernel_dvfs_pipeline.planner import Part, Plan, Planner
from kernel_dvfs_pipeline.stage_profile import Key
from kernel_dvfs_pipeline.study import ALL_MAX, PER_STAGE, UNIFORM

# what a stage runs at that has nothing but constant work without a clock
_ANY = (np.inf, np.inf)


def fixed(planner: Planner, rows: dict[Key, int], kind: str) -> Plan:
    """Return the plan in which (virtual stage, instruction) always runs at row rows[key] of its settings."""
    ticks, cost, parts = {}, {}, {}
    for key in planner.options:
        settings, row = planner.profile.of(*key), rows[key]
        ticks[key] = int(duration_ticks(settings.time_s[row]))
        cost[key] = cost_j_of(planner, key, row)
        parts[key] = (Part(*settings.clocks(row), 1.0, None),)
    durations = [ticks[key] for key in planner.keys]
    finish = planner.graph.finish_ticks(durations)
    return Plan(
        kind=kind,
        graph=planner.graph,
        promised_ticks=max(finish),
        time_ticks=max(finish),
        cost_j=sum(cost[key] for key in planner.keys),
        bound_j=None,
        blocking_w=planner.blocking_w,
        synchronising_w=planner.synchronising_w,
        transfer_j=planner.transfer_j,
        begin_ticks=np.array(finish) - np.array(durations),
        end_ticks=np.array(finish),
        parts=[parts[key] for key in planner.keys],
    )


def all_max(planner: Planner) -> Plan:
    """Return the plan of all instructions at their highest clocks: core first, then memory; auto is the highest."""
    rows = {}
    for key in planner.options:
        settings = planner.profile.of(*key)
        # auto is what a GPU does that nobody tells anything
        rank = [
            tuple(np.inf if mhz != mhz else mhz for mhz in pair) for pair in zip(settings.core_mhz, settings.mem_mhz)
        ]
        rows[key] = max(range(len(rank)), key=rank.__getitem__)
    return fixed(planner, rows, ALL_MAX)


def uniform(planner: Planner, limit_ticks: int) -> Plan:
    """Return the plan of one clock pair for everything, the least energy of those that keep the limit; all-max where
    none does."""
    keys = list(planner.options)
    tables = {key: _rows_by_clock(planner, key) for key in keys}
    shared = _shared(tables.values())
    plans = [fixed(planner, {key: tables[key][pair] for key in keys}, UNIFORM) for pair in sorted(shared)]
    within = [plan for plan in plans if plan.time_ticks <= limit_ticks]
    return min(within, key=Plan.energy_j) if within else all_max(planner)


def per_stage(planner: Planner, limit_ticks: int) -> Plan:
    """Return the plan of one clock pair per stage that keeps the limit: from all-max, the step that saves most while
    one fits; or one pair for all stages, where that is cheaper.

    Raises InputError where a stage's instructions share no clock.
    """
    best = replace(all_max(planner), kind=PER_STAGE)
    by_stage: dict[int, set[Key]] = {}
    chosen: dict[int, int] = {}  # position among the stage's clocks
    for operation in planner.graph.operations:
        by_stage.setdefault(operation.stage, set()).add((operation.virtual_stage, operation.instruction))
    tables = {key: _rows_by_clock(planner, key) for key in planner.options}
    clocks: dict[int, list] = {}
    counts = Counter(planner.keys)
    for stage, keys in by_stage.items():
        shared = _shared([tables[key] for key in keys])
        if not shared:
            raise InputError(
                f"{planner.profile.name}: the instructions of stage {stage} share no clock; profile them at the same "
                "clocks"
            )
        # a step always saves: pairs that cost more than a higher one are left out
        clocks[stage], least = [], np.inf
        for pair in sorted(shared, reverse=True):
            cost = _stage_cost(planner, counts, keys, tables, pair)
            if cost < least:
                clocks[stage].append(pair)
                least = cost
        chosen[stage] = 0

    def plan_of(positions: dict[int, int]) -> Plan:
        rows = {key: tables[key][clocks[stage][positions[stage]]] for stage, keys in by_stage.items() for key in keys}
        return fixed(planner, rows, PER_STAGE)

    ticks = {key: duration_ticks(planner.profile.of(*key).time_s).tolist() for key in planner.options}

    def lasts(key: Key, pair: tuple[float, ...]) -> int:
        return ticks[key][tables[key][pair]]

    saved = {
        stage: [_stage_cost(planner, counts, keys, tables, pair) for pair in clocks[stage]]
        for stage, keys in by_stage.items()
    }
    # where lower clocks are never faster, a step that does not fit never fits later
    is_for_good = all(
        lasts(key, high) <= lasts(key, low)
        for stage, keys in by_stage.items()
        for key in keys
        for high, low in pairwise(clocks[stage])
    )
    members: dict[int, list[int]] = {stage: [] for stage in chosen}
    for number, operation in enumerate(planner.graph.operations):
        members[operation.stage].append(number)
    durations = [
        lasts(key, clocks[operation.stage][0]) for key, operation in zip(planner.keys, planner.graph.operations)
    ]
    open_ = set(chosen)
    while True:
        steps = []
        for stage in open_:
            at = chosen[stage]
            if at + 1 < len(clocks[stage]):
                steps.append((saved[stage][at + 1] - saved[stage][at], stage))
        for _, stage in sorted(steps):
            tried = list(durations)
            for number in members[stage]:
                tried[number] = lasts(planner.keys[number], clocks[stage][chosen[stage] + 1])
            if max(planner.graph.finish_ticks(tried)) <= limit_ticks:
                break
            if is_for_good:
                open_.discard(stage)
        else:
            break
        chosen[stage] += 1
        durations = tried
    if any(chosen.values()):
        best = plan_of(chosen)
    same = replace(uniform(planner, limit_ticks), kind=best.kind)
    return same if same.time_ticks <= limit_ticks and same.cost_j < best.cost_j else best


def _stage_cost(
    planner: Planner, counts: Counter[Key], keys: set[Key], tables: dict[Key, dict], pair: tuple[float, ...]
) -> float:
    """Return the effective energy of a stage at one clock pair."""
    return sum(counts[key] * cost_j_of(planner, key, tables[key][pair]) for key in keys)


def cost_j_of(planner: Planner, key: Key, row: int) -> float:
    """Return the effective energy of an instruction at a row of its settings."""
    settings = planner.profile.of(*key)
    return float(settings.energy_j[row] - planner.stage_blocking_w * settings.time_s[row])


def _shared(tables: Iterable[dict]) -> set[tuple[float, ...]]:
    """Return the clock pairs that all instructions know; those that run at any do not count."""
    return set.intersection(*([set(table) for table in tables if table] or [{_ANY}]))


def _rows_by_clock(planner: Planner, key: Key) -> dict[tuple[float, ...], int]:
    """Return {(core, memory): row}, MHz; auto is the highest. Constant work without a clock has its row at any."""
    settings = planner.profile.of(*key)
    if settings.keeps_clocks:
        return defaultdict(int)
    pairs = zip(settings.core_mhz, settings.mem_mhz)
    return {tuple(np.inf if mhz != mhz else float(mhz) for mhz in pair): row for row, pair in enumerate(pairs)}
