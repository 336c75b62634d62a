"""The optimisation: how many instances of which column, for least power at given loads; all at once, or by levels.

Variables: instances n_j of each column j, servers s. Least sum p_j n_j + parked GPUs' power, so that the columns
carry the load, all instances fit on the servers' GPUs, and no more servers are on than there are. A class's load may be
divided (flows x) between all columns that serve it. Load that does not fit is shed at a price above any column's:
reported, never silent. Solved by OR-Tools (SCIP).

What deciding by levels costs is its difference to one decision on the same loads and the same columns. By levels:
servers per pool at full power (pools.size), then degrees within each pool's servers at the highest clock, then each
instance's clock. At once: one allocation over all classes, degrees and clocks. Loads are those of hindsight and changes
are free, so the difference is the hierarchy's alone; the joint optimum is a bound for the simulated systems in so far
as the profile describes an instance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.serving.columns import Column, Columns, undominated
from kernel_dvfs.serving.pools import PoolKind, size, spread
from kernel_dvfs.serving.requests import dominates
from kernel_dvfs.serving.resharding import SERVER_GPUS

if TYPE_CHECKING:
    import numpy as np

    from kernel_dvfs.serving.pools import Loads

# W per token/s: any instance that carries the load is cheaper
SHED_W_PER_TPS = 1000.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """Instances that carry a load for least power."""

    chosen: dict[Column, int]  # how many of each
    servers: int  # on
    gpus: int  # of the servers that are on, those that hold instances
    power_w: float  # of all, parked GPUs included
    shed_tps: dict[int, float]  # load not carried, tokens/s by class
    solve_s: float  # CPU seconds
    optimal: bool  # whether the solver proved it within its time


def allocate(
    columns: Sequence[Column],
    loads: dict[int, float],
    *,
    servers: int,
    parked_w: float,
    fixed_servers: bool = False,
    time_limit_s: float = 20.0,
) -> Allocation:
    """Least power for `loads`, {class: tokens/s}, on at most `servers` servers.

    fixed_servers: all of them are on (a pool's budget). parked_w: of a GPU without instance on a server that is on.
    """
    from ortools.linear_solver import pywraplp

    begun = time.process_time()
    # a column that another of its degree matches at less power is never needed
    columns = undominated(columns)
    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(1000 * time_limit_s))
    most = {column: servers * SERVER_GPUS // column.tp for column in columns}
    count = {column: solver.IntVar(0, most[column], "") for column in columns}
    on = solver.IntVar(servers if fixed_servers else 0, servers, "")
    groups: dict[tuple[int, frozenset[int]], list[Column]] = {}
    for column in columns:
        groups.setdefault((column.kind, column.served), []).append(column)
    shed, flows = {}, {}
    for kind, load in loads.items():
        shed[kind] = solver.NumVar(0, load, "")
        flows[kind] = {group: solver.NumVar(0, load, "") for group in groups if kind in group[1]}
        solver.Add(solver.Sum([*flows[kind].values(), shed[kind]]) == load)
    for group, own in groups.items():
        inflow = [flow[group] for flow in flows.values() if group in flow]
        solver.Add(solver.Sum([column.tps * count[column] for column in own]) >= solver.Sum(inflow))
    used = solver.Sum([column.tp * count[column] for column in columns])
    solver.Add(used <= SERVER_GPUS * on)
    objective = [column.power_w * count[column] for column in columns]
    objective += [SHED_W_PER_TPS * each for each in shed.values()]
    solver.Minimize(solver.Sum(objective) + parked_w * (SERVER_GPUS * on - used))
    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, 1e-9)
    status = solver.Solve(parameters)
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        raise RuntimeError(f"allocation of {len(columns)} columns: solver status {status}")
    chosen = {column: round(each.solution_value()) for column, each in count.items()}
    chosen = {column: number for column, number in chosen.items() if number}
    gpus = sum(column.tp * number for column, number in chosen.items())
    running = round(on.solution_value())
    power_w = sum(column.power_w * number for column, number in chosen.items())
    return Allocation(
        chosen,
        running,
        gpus,
        power_w + parked_w * (SERVER_GPUS * running - gpus),
        {kind: value for kind, each in shed.items() if (value := each.solution_value()) > 1e-6},
        time.process_time() - begun,
        status == pywraplp.Solver.OPTIMAL,
    )


def by_degree(allocation: Allocation) -> dict[int, int]:
    """{degree: instances}."""
    found: dict[int, int] = {}
    for column, number in allocation.chosen.items():
        found[column.tp] = found.get(column.tp, 0) + number
    return found


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
    loads: Loads,
    servers: int,
    parked_w: float,
    cluster_loads: Loads | None = None,
) -> Planned:
    """The three controllers in turn. cluster_loads: what servers are counted for; None: loads."""
    first = size(pools, columns, loads if cluster_loads is None else cluster_loads, servers)
    plan = spread(pools, columns, loads, first.servers)
    power_w, shed, solve_s = 0.0, plan.short_tps, 0.0
    open_columns = [column for offer in plan.offers for column in offer.columns]
    for offer, count, load in zip(plan.offers, plan.servers, plan.loads):
        if not count:
            continue
        found = allocate(offer.at_top(), {offer.kind: load}, servers=count, parked_w=parked_w, fixed_servers=True)
        solve_s += found.solve_s
        shed += sum(found.shed_tps.values())
        # the instance's clock: the least power of any that carries as much
        for column, number in found.chosen.items():
            slower = [each for each in offer.columns if each.tp == column.tp and each.tps >= column.tps * (1 - 1e-12)]
            power_w += number * min(each.power_w for each in slower)
        power_w += parked_w * (SERVER_GPUS * count - found.gpus)
    return Planned(power_w, shed, solve_s, sum(plan.servers), open_columns)


def at_once(columns: Columns, loads: Loads, servers: int, parked_w: float, also: Sequence[Column] = ()) -> Planned:
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
    parked_w: float,
) -> list[tuple[float, Planned, Planned]]:
    """[(start_s, by levels, at once)] for loads (slots of epoch_s, classes); servers are counted per cluster epoch."""
    slots = max(1, round(cluster_epoch_s / epoch_s))
    rows = []
    for slot in range(len(loads)):
        longer = loads[slot - slot % slots : slot - slot % slots + slots].max(0)
        levels = by_levels(pools, columns, loads[slot], servers, parked_w, longer)
        rows.append((slot * epoch_s, levels, at_once(columns, loads[slot], servers, parked_w, levels.columns)))
    return rows
