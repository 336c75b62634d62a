"""The linear relaxation of the global waste problem: a price of time, a lower bound, a first feasible choice.

For any price m >= 0 of time, sum_k min_j (e_kj + m * t_kj) - m * budget is a lower bound of the energy
(Lagrange); the best m gives the optimum of the LP relaxation, since one constraint couples the targets. It is
found by walking
the lower convex hull of all totals: cut the line through a too slow and a feasible vertex, look for a vertex
below it. Each look is one pass over all options; no sorting. Any m is valid, so float errors of m cost
nothing.

The reduced cost r_kj = e_kj + m * t_kj - min_i (e_ki + m * t_ki) is what the bound rises by when target k
takes j: an option with r_kj > (energy of a known choice) - bound is in no better choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.integer_grid import Grid, grid_of
from kernel_dvfs.choice.problem import TOLERANCE, Problem, best_per_target

EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """price: energy units per time unit. bound: lower bound of energy, grid units. reduced: (n,) costs.

    choice: (K,) positions of a feasible choice (the hull vertex within the budget). margin: what float errors
    of bound and reduced costs may amount to, plus half a unit (energies are whole numbers).
    """

    price: float
    bound: float
    reduced: np.ndarray
    choice: np.ndarray
    margin: float


def price_of_time(grid: Grid) -> tuple[float, np.ndarray]:
    """The price at which the budget binds (0 if it does not) and the best feasible hull vertex."""
    slow = grid.best(grid.e)
    if grid.t[slow].sum() <= grid.budget:
        return 0.0, slow
    fast = grid.best(grid.t)
    price = 0.0
    for _ in range(200):  # finite: every turn finds a new vertex; the cap only guards against float cycling
        t_fast, e_fast = grid.t[fast].sum(), grid.e[fast].sum()
        t_slow, e_slow = grid.t[slow].sum(), grid.e[slow].sum()
        price = (e_fast - e_slow) / (t_slow - t_fast)
        found = grid.best(grid.e + price * grid.t)
        t_found, e_found = grid.t[found].sum(), grid.e[found].sum()
        line = e_slow + price * t_slow
        if e_found + price * t_found >= line - 8 * EPSILON * line:
            break
        if t_found <= grid.budget:
            fast = found
        else:
            slow = found
    return price, fast


def relax(grid: Grid) -> Relaxation:
    """Solve the LP relaxation of a feasible grid."""
    price, choice = price_of_time(grid)
    score = grid.e + price * grid.t
    low = np.minimum.reduceat(score, grid.first)
    total, spent = low.sum(), price * grid.budget
    return Relaxation(
        price=price,
        bound=float(total - spent),
        reduced=score - low[grid.target],
        choice=choice,
        margin=0.5 + 64 * EPSILON * float(total + spent),
    )


def lower_bound(problem: Problem, limit: float, price: float | None = None) -> float | None:
    """Optimum of the LP relaxation in the problem's units: no global choice in `limit` uses less energy.

    Over all options; `relax` of a Grid is tighter, since a Grid has only options that fit. None where no choice
    keeps the limit. price: of such a Grid, in the problem's units; it spares the search where it is right here.
    """
    budget = limit * (1 + TOLERANCE)
    if price is not None:
        score = problem.energy + price * problem.time
        best = best_per_target(score, problem.target, problem.first)
        room = budget - np.minimum.reduceat(problem.time, problem.first).sum()
        fits = problem.time[best] - np.minimum.reduceat(problem.time, problem.first) <= room
    if price is None or not fits.all():
        grid = grid_of(problem, limit, only_fitting=False)
        if grid is None:
            return None
        price = price_of_time(grid)[0] * grid.energy_unit / grid.time_unit
        score = problem.energy + price * problem.time
    return float(np.minimum.reduceat(score, problem.first).sum() - price * budget)
