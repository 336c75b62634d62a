"""The linear relaxation of the global waste problem: a price of time, a lower bound, a first feasible choice.

For any price m >= 0 of time, sum_k min_j (e_kj + m * t_kj) - m * budget is a lower bound of the energy
(Lagrange); the best m gives the optimum of the LP relaxation, since one constraint couples the targets. It is
found by walking the lower convex hull of all totals: take the line through a vertex that is too slow and one that is
feasible, and look for a vertex below it. Each look is one pass over all options, without sorting. Any m gives a valid
bound, so float errors of m cost nothing.

The reduced cost r_kj = e_kj + m * t_kj - min_i (e_ki + m * t_ki) is what the bound rises by when target k
takes j: an option with r_kj > (energy of a known choice) - bound is in no better choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.integer_grid import IntegerGrid, highest_total, integer_grid_of
from kernel_dvfs.choice.problem import TOLERANCE, Problem, best_per_target

EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False, slots=True)
class Relaxation:
    """The solved relaxation; times and energies in units of the integer grid."""

    price: float  # of time: energy units per time unit
    bound: float  # lower bound of the energy
    reduced: np.ndarray  # (n,) reduced costs
    choice: np.ndarray  # (K,) positions of a feasible choice: the hull vertex within the budget
    margin: float  # what float errors of bound and reduced costs may amount to, plus half a unit (energies are whole)


def price_of_time(integer_grid: IntegerGrid) -> tuple[float, np.ndarray]:
    """Return the price at which the budget binds (0 if it does not) and the best feasible hull vertex."""
    slow = integer_grid.best(integer_grid.e)
    if integer_grid.t[slow].sum() <= integer_grid.budget:
        return 0.0, slow
    fast = integer_grid.best(integer_grid.t)
    for _ in range(200):  # finite: every turn finds a new vertex; the cap only guards against float cycling
        t_fast, e_fast = integer_grid.t[fast].sum(), integer_grid.e[fast].sum()
        t_slow, e_slow = integer_grid.t[slow].sum(), integer_grid.e[slow].sum()
        price = (e_fast - e_slow) / (t_slow - t_fast)
        vertex = integer_grid.best(integer_grid.e + price * integer_grid.t)
        t_vertex, e_vertex = integer_grid.t[vertex].sum(), integer_grid.e[vertex].sum()
        line = e_slow + price * t_slow
        if e_vertex + price * t_vertex >= line - 8 * EPSILON * line:
            break
        if t_vertex <= integer_grid.budget:
            fast = vertex
        else:
            slow = vertex
    return price, fast


def relax(integer_grid: IntegerGrid) -> Relaxation:
    """Solve the LP relaxation of a feasible problem."""
    price, choice = price_of_time(integer_grid)
    score = integer_grid.e + price * integer_grid.t
    low = np.minimum.reduceat(score, integer_grid.first)
    total, spent = low.sum(), price * integer_grid.budget
    return Relaxation(
        price=price,
        bound=float(total - spent),
        reduced=score - low[integer_grid.target],
        choice=choice,
        margin=0.5 + 64 * EPSILON * float(total + spent),
    )


def lower_bound(problem: Problem, limit: float, price: float | None = None) -> float | None:
    """Return the optimum of the LP relaxation in the problem's units: no global choice in `limit` uses less energy.

    The bound is over all options; that of `relax` is tighter, since an IntegerGrid holds only options that fit. None
    where no choice keeps the limit. price: of such an IntegerGrid's relaxation, in the problem's units; it spares the
    search for a price where it is right here too.
    """
    budget = min(limit * (1 + TOLERANCE), highest_total(problem, limit))
    if price is not None:
        score = problem.energy + price * problem.time
        best = best_per_target(score, problem.target, problem.first)
        fastest = np.minimum.reduceat(problem.time, problem.first)
        if not (problem.time[best] - fastest <= budget - fastest.sum()).all():
            price = None  # it is best for fewer options than there are
    if price is None:
        integer_grid = integer_grid_of(problem, limit, only_fitting=False)
        if integer_grid is None:
            return None
        price = price_of_time(integer_grid)[0] * integer_grid.energy_unit / integer_grid.time_unit
        score = problem.energy + price * problem.time
    return float(np.minimum.reduceat(score, problem.first).sum() - price * budget)
