"""The optimisation: how many instances of which degree, for least power at given loads; all at once, or by levels.

Variables: instances n of each degree and group of classes (whole numbers), servers s, and the share of those instances
at each column, a load and clock (u, continuous: an instance may divide its time between two columns, so power is linear
between the profiled loads, and the optimum is a bound). Least sum p u + parked GPUs' power, so that the columns carry
the load, all instances fit on the servers' GPUs, and no more servers are on than there are. A class's load may be
divided (flows x) between all groups that serve it. Load that does not fit is shed at a price above any column's:
reported, never silent. Solved by OR-Tools (SCIP) to a gap of 1e-4.

What deciding by levels costs is its difference to one decision on the same loads and the same columns. By levels:
servers per pool, then degrees within each pool's servers (both as pricing.py decides), then each instance's clock. At
once: one allocation over all classes, degrees and clocks. Loads are those of hindsight and changes are free, so the
difference is the hierarchy's alone; the joint optimum is a bound for the simulated systems in so far as the profile
describes an instance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs.serving.columns import Column, Columns, undominated
from kernel_dvfs.serving.pools import PoolKind, spread
from kernel_dvfs.serving.pricing import SHED_W_PER_TPS, Pricing, choose_servers, divide
from kernel_dvfs.serving.requests import dominates
from kernel_dvfs.serving.resharding import SERVER_GPUS

if TYPE_CHECKING:
    from kernel_dvfs.serving.columns import PoolColumns

MIP_GAP = 1e-4


@dataclass(frozen=True, slots=True)
class Allocation:
    """Instances that carry a load for least power."""

    chosen: dict[Column, float]  # instances at each, on average
    servers: int  # on
    power_w: float  # of all, parked GPUs included
    shed_tps: dict[int, float]  # load not carried, tokens/s by class
    solve_s: float  # CPU seconds
    optimal: bool  # whether the solver proved it, to MIP_GAP, within its time


def allocate(
    columns: Sequence[Column],
    loads: dict[int, float],
    *,
    servers: int,
    parked_w: float,
    time_limit_s: float = 20.0,
) -> Allocation:
    """Least power for `loads`, {class: tokens/s}, on at most `servers` servers.

    parked_w: of a GPU without instance on a server that is on.
    """
    from ortools.linear_solver import pywraplp

    begun = time.process_time()
    # a column that another of its degree matches at less power is never needed
    columns = undominated(columns)
    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(1000 * time_limit_s))
    kinds: dict[tuple[int, frozenset[int], int], list[Column]] = {}
    groups: dict[tuple[int, frozenset[int]], list[Column]] = {}
    for column in columns:
        kinds.setdefault((column.kind, column.served, column.tp), []).append(column)
        groups.setdefault((column.kind, column.served), []).append(column)
    count = {key: solver.IntVar(0, servers * SERVER_GPUS // key[2], "") for key in kinds}
    use = {column: solver.NumVar(0, servers * SERVER_GPUS, "") for column in columns}
    for key, own in kinds.items():
        solver.Add(solver.Sum([use[column] for column in own]) == count[key])
    on = solver.IntVar(0, servers, "")
    shed, flows = {}, {}
    for kind, load in loads.items():
        shed[kind] = solver.NumVar(0, load, "")
        flows[kind] = {group: solver.NumVar(0, load, "") for group in groups if kind in group[1]}
        solver.Add(solver.Sum([*flows[kind].values(), shed[kind]]) == load)
    for group, own in groups.items():
        inflow = [flow[group] for flow in flows.values() if group in flow]
        solver.Add(solver.Sum([column.tps * use[column] for column in own]) >= solver.Sum(inflow))
    used = solver.Sum([key[2] * number for key, number in count.items()])
    solver.Add(used <= SERVER_GPUS * on)
    objective = [column.power_w * use[column] for column in columns]
    objective += [SHED_W_PER_TPS * each for each in shed.values()]
    solver.Minimize(solver.Sum(objective) + parked_w * (SERVER_GPUS * on - used))
    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, MIP_GAP)
    status = solver.Solve(parameters)
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        raise RuntimeError(f"allocation of {len(columns)} columns: solver status {status}")
    chosen = {column: each.solution_value() for column, each in use.items() if each.solution_value() > 1e-9}
    gpus = sum(key[2] * round(number.solution_value()) for key, number in count.items())
    running = round(on.solution_value())
    power_w = sum(column.power_w * number for column, number in chosen.items())
    return Allocation(
        chosen,
        running,
        power_w + parked_w * (SERVER_GPUS * running - gpus),
        {kind: value for kind, each in shed.items() if (value := each.solution_value()) > 1e-6},
        time.process_time() - begun,
        status == pywraplp.Solver.OPTIMAL,
    )


# -- by levels, and all at once ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """One decision."""

    power_w: float  # of all servers that are on
    shed_tps: float  # load not carried
    solve_s: float  # CPU seconds
    servers: int  # on
    columns: list[Column]  # that were open to it


def by_levels(
    pools: list[PoolKind],
    columns: Columns,
    load: np.ndarray,
    servers: int,
    pricing: Pricing,
    cluster_loads: np.ndarray | None = None,
) -> Planned:
    """The three controllers in turn, for one load, of shape (classes,).

    cluster_loads: what servers are counted for, of shape (slots, classes); None: the load.
    """
    begun = time.process_time()
    first = choose_servers(pools, columns, load[None] if cluster_loads is None else cluster_loads, servers, pricing)
    plan = spread(pools, columns, load[None], first.servers)
    power_w, shed = 0.0, plan.short_tps
    for offer, count, (tps,) in zip(plan.offers, plan.servers, plan.loads):
        if not count:
            continue
        # what a pool cannot carry is counted as short, and is not its to price
        found = divide(offer, np.array([tps]), count, pricing)
        able = sum(offer.largest(tp) * number for tp, number in found.counts.items())
        kept = min(tps, able)
        power_w += pricing.parked_w * (SERVER_GPUS * count - sum(tp * number for tp, number in found.counts.items()))
        for tp, number in found.counts.items():
            power_w += number * _least_w(offer, tp, kept * offer.largest(tp) / able)
    open_columns = [column for offer in plan.offers for column in offer.columns]
    return Planned(power_w, shed, time.process_time() - begun, sum(plan.servers), open_columns)


def _least_w(offer: PoolColumns, tp: int, tps: float) -> float:
    """Power of an instance at a load, its time divided between the columns of its degree that take least, W."""
    points = sorted({(each.tps, each.power_w) for each in undominated(offer.columns) if each.tp == tp})
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return float(np.interp(tps, [x for x, _ in hull], [y for _, y in hull]))


def at_once(columns: Columns, loads: np.ndarray, servers: int, parked_w: float, also: Sequence[Column] = ()) -> Planned:
    """One optimisation over all classes, degrees and clocks.

    Open to it: instances for one class alone, instances for a class and all smaller ones, and what is given in `also`:
    the hierarchy's own pools, so that whatever it can do can be done here.
    """
    offers = []
    for kind in range(len(loads)):
        smaller = {each for each, load in enumerate(loads) if load > 0 and dominates(kind, each)}
        offers += [columns.pool(kind), columns.pool(kind, smaller)]
    offered = list(dict.fromkeys([*(column for offer in offers for column in offer.columns), *also]))
    own = {kind: float(load) for kind, load in enumerate(loads) if load > 0}
    found = allocate(offered, own, servers=servers, parked_w=parked_w)
    return Planned(found.power_w, sum(found.shed_tps.values()), found.solve_s, found.servers, offered)


def compare(
    pools: list[PoolKind],
    columns: Columns,
    loads: np.ndarray,
    epoch_s: float,
    cluster_epoch_s: float,
    servers: int,
    pricing: Pricing,
) -> list[tuple[float, Planned, Planned]]:
    """[(start_s, by levels, at once)] for loads (slots of epoch_s, classes); servers are counted per cluster epoch."""
    slots = max(1, round(cluster_epoch_s / epoch_s))
    rows = []
    for slot, load in enumerate(loads):
        longer = loads[slot - slot % slots : slot - slot % slots + slots]
        levels = by_levels(pools, columns, load, servers, pricing, longer)
        rows.append((slot * epoch_s, levels, at_once(columns, load, servers, pricing.parked_w, levels.columns)))
    return rows
