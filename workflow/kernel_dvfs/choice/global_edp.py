"""Least (total energy) x (total time) over all combinations of options: exact, without a solver.

Why walking one hull suffices. On the positive quadrant E*T has convex superlevel sets {E*T >= c}, that is, it
is quasi-concave; over a polytope such a function is least at an extreme point. The totals (T, E) of all
combinations are the Minkowski sum of the targets' options, so the least E*T over the sum's convex hull is at
one of its vertices, which is itself a combination. E*T grows in both totals, so the vertex lies on the
lower-left part of the hull: it minimises E + m*T for some m > 0, and then each target by itself minimises e +
m*t, a vertex of its own lower hull. Merging the targets' hull edges by slope and walking them from everyone's
fastest option therefore meets the optimum.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.choice.dominance import Edges, pareto_per_target
from kernel_dvfs.choice.problem import Problem


def least_product(problem: Problem) -> tuple[np.ndarray, int]:
    """(option, vertices): (K,) flat indices of least E*T (then least T); vertices compared."""
    fronts = pareto_per_target(problem)
    edges = Edges([(problem.time[front], problem.energy[front]) for front in fronts])
    fastest = np.array([front[0] for front in fronts])
    dt, de = edges.walk()
    product = (problem.time[fastest].sum() + dt) * (problem.energy[fastest].sum() + de)
    picks = edges.options_after(int(product.argmin()), len(fronts))
    return np.array([front[pick] for front, pick in zip(fronts, picks)]), len(product)
