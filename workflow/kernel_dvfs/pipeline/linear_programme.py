"""The same frontier point by a linear-programme solver (HiGHS): the oracle that the parametric flow is checked with.

Knows nothing of the flow. One solve a time, so it is far slower.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from kernel_dvfs.pipeline.curve import Curve
from kernel_dvfs.pipeline.graph import Graph
from kernel_dvfs.pipeline.ticks import TICKS_PER_S


def least_cost_j(graph: Graph, curves: list[Curve], time_s: float) -> float:
    """min sum c_i over begins, durations t_i and costs c_i (s, J): every hull segment below c_i, the last end by T.

    curves: one per operation. Raises ArithmeticError where HiGHS finds no optimum.
    """
    n = len(graph)
    rows, columns, values, limits = [], [], [], []

    def at_most(terms: list, limit: float) -> None:
        for column, value in terms:
            rows.append(len(limits))
            columns.append(column)
            values.append(value)
        limits.append(limit)

    bounds = [(0.0, None)] * n
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
    cost = np.concatenate([np.zeros(2 * n), np.ones(n)])
    solved = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
    if solved.status:
        raise ArithmeticError(f"linear programme: {solved.message}")
    return float(solved.fun)
