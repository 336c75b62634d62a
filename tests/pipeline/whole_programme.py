"""The choice of one clock per operation as one integer programme for HiGHS, which shares nothing with the planner."""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from kernel_dvfs_pipeline.curve import TICKS_PER_S


def least_energy_j(planner, limit_s=60.0):
    """(proven: no plan takes less, that of the best plan found or None), J of an iteration of any length."""
    options = [planner.options[key] for key in planner.keys]
    first = np.concatenate([[0], np.cumsum([len(own.ticks) for own in options])])
    count, n = int(first[-1]), len(options)
    # variables: each option, 0 or 1; begins; the last end
    end = count + n
    rows, least = [], []

    def add(terms, at_least):
        rows.append(terms)
        least.append(at_least)

    def duration(i):
        return [(first[i] + k, -ticks / TICKS_PER_S) for k, ticks in enumerate(options[i].ticks.tolist())]

    for i in range(n):
        add([(end, 1.0), (count + i, -1.0), *duration(i)], 0.0)
    graph = planner.graph
    for tail, head, lag in zip(graph.tail.tolist(), graph.head.tolist(), graph.lag_ticks.tolist()):
        add([(count + head, 1.0), (count + tail, -1.0), *duration(tail)], lag / TICKS_PER_S)
    for i in range(n):
        add([(first[i] + k, 1.0) for k in range(len(options[i].ticks))], 1.0)
    place = [(row, column) for row, terms in enumerate(rows) for column, _ in terms]
    matrix = csr_array(([factor for terms in rows for _, factor in terms], tuple(zip(*place))), (len(rows), end + 1))
    most = np.full(len(rows), np.inf)
    most[-n:] = 1.0
    cost = np.concatenate([*(own.cost_j for own in options), np.zeros(n), [planner.blocking_w]])
    found = milp(
        cost,
        constraints=LinearConstraint(matrix, least, most),
        integrality=np.concatenate([np.ones(count), np.zeros(n + 1)]),
        bounds=Bounds(0, np.concatenate([np.ones(count), np.full(n + 1, np.inf)])),
        options={"time_limit": limit_s, "mip_rel_gap": 0},
    )
    return float(found.mip_dual_bound), None if found.fun is None else float(found.fun)
