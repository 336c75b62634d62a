"""What holds of a study's frontier and plans, checked on the study: against a linear-programme solver, by replay.

HiGHS solves the same linear programme as the parametric flow and shares no code with it; it takes one solve a time, so
it is far slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from kernel_dvfs.pipeline.curve import TICKS_PER_S, Curve
from kernel_dvfs.pipeline.graph import Graph
from kernel_dvfs.pipeline.study import KINDS, Check

if TYPE_CHECKING:
    from kernel_dvfs.pipeline.solver import Solver

POINTS = 20


def check(solver: Solver, microbatches: int) -> Check:
    """20 times from the fastest to the slowest iteration: the bound against HiGHS, every plan against the bound and
    its promise, the published plans as run against theirs."""
    planner = solver.planner(microbatches)
    frontier, curves = planner.frontier, [planner.curves[key] for key in planner.keys]
    ticks = np.linspace(frontier.fastest_ticks, frontier.slowest_ticks, POINTS).astype(np.int64)
    differences, late, ordered = [], [], True
    gaps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for own in ticks.tolist():
        # a hair later than the fastest: HiGHS works with tolerances
        truth = least_cost_j(planner.graph, curves, own / TICKS_PER_S * (1 + 1e-9))
        differences.append(abs(float(frontier.cost_at(own * (1 + 1e-9))) / truth - 1))
        plans = [planner.plan_ticks(own, kind) for kind in KINDS]
        late += [(plan.time_ticks - own) / TICKS_PER_S for plan in plans]
        one, split = (plan.cost_j for plan in plans)
        least = float(frontier.cost_at(own))
        ordered &= least <= split * (1 + 1e-9) and split <= one
        bound_j = float(frontier.energy_at(own))
        for kind, cost in zip(KINDS, (one, split)):
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
    found = [solver.realised(microbatches, int(point)) for point in points]
    return max(100 * (each.time_s / each.promised_s - 1) for each in found)


def least_cost_j(graph: Graph, curves: list[Curve], time_s: float) -> float:
    """min sum c_i over begins, durations t_i and costs c_i (s, J): every hull segment below c_i, the last end by T.

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
