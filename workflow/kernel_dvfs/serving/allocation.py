"""The optimisation: how many instances of which column, for least power at given loads.

Variables: instances n_j of each column j, servers s. Least sum p_j n_j + parked GPUs' power, so that the columns
carry the load, all instances fit on the servers' GPUs, and no more servers are on than there are. A class's load may be
divided (flows x) between all columns that serve it. Load that does not fit is shed at a price above any column's:
reported, never silent. Solved by OR-Tools (SCIP).
"""

import time
from collections import namedtuple

from kernel_dvfs.serving.columns import undominated
from kernel_dvfs.serving.resharding import SERVER_GPUS

Allocation = namedtuple("Allocation", "chosen servers gpus power_w shed_tps solve_s optimal")
Allocation.__doc__ = """chosen: {column: count}. servers: on; gpus: of theirs that hold instances. power_w: of all,
parked GPUs included. shed_tps: load not carried. optimal: whether the solver proved it within its time."""

# W per token/s: any instance that carries the load is cheaper
SHED_W_PER_TPS = 1000.0


def allocate(
    columns: list,
    loads: dict,
    *,
    servers: int,
    parked_w: float,
    fixed_servers: bool = False,
    one_clock: bool = False,
    time_limit_s: float = 20.0,
) -> Allocation:
    """Least power for `loads`, {class: tokens/s}, on at most `servers` servers.

    fixed_servers: all of them are on (a pool's budget).
    one_clock: at most one clock per pool and degree. parked_w: of a GPU without instance on a server that is on.
    """
    from ortools.linear_solver import pywraplp

    begun = time.process_time()
    # with a free choice of clocks a column that another of its degree matches at less power is never needed
    columns = list(columns) if one_clock else undominated(columns)
    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(1000 * time_limit_s))
    most = {column: servers * SERVER_GPUS // column.tp for column in columns}
    count = {column: solver.IntVar(0, most[column], "") for column in columns}
    on = solver.IntVar(servers if fixed_servers else 0, servers, "")
    groups = {}
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
    if one_clock:
        _one_clock(solver, columns, count, most)
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


def _one_clock(solver, columns, count, most) -> None:
    pairs = {}
    for column in columns:
        pairs.setdefault((column.kind, column.served, column.tp), {}).setdefault(column.clock, []).append(column)
    for clocks in pairs.values():
        used = {clock: solver.BoolVar("") for clock in clocks}
        solver.Add(solver.Sum(list(used.values())) <= 1)
        for clock, own in clocks.items():
            for column in own:
                solver.Add(count[column] <= most[column] * used[clock])


def by_degree(allocation: Allocation, kind: int | None = None) -> dict:
    """{degree: instances}, of one class or of all."""
    found = {}
    for column, number in allocation.chosen.items():
        if kind is None or column.kind == kind:
            found[column.tp] = found.get(column.tp, 0) + number
    return found
