"""The least energy that keeps a total time although times are only known within their errors.

    sum_k T_k(x_k) + z * sd(x) <= (1 + slack) * sum_k T_auto,k

sd(x)^2 sums, over targets, the variance of T_k(x_k) - (1 + slack) * T_auto,k; a target left at its baseline
contributes slack^2 of the baseline's alone, the same data standing on both sides. A margin on the total, not on every
target: errors of targets are independent, so they average.

The constraint is a second-order cone. For every s > 0, sd <= (sd^2 + s^2) / (2 s), with equality at s = sd; so

    sum_k [T_k(x_k) + z * var_k(x_k) / (2 s)] <= (1 + slack) * sum_k T_auto,k - z * s / 2

is a linear constraint that never allows more. Solve exactly, set s to the sd of the answer, solve again: each answer
keeps the cone, none has more energy than the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernel_dvfs.choice.global_waste import Optimum, least_energy
from kernel_dvfs.choice.problem import Problem

TURNS = 4
# how often s is halved where its linear constraint leaves nothing
HALVES = 6


@dataclass(frozen=True, eq=False)
class Guarded:
    """option: (K,) flat indices into the problem. sd: of the total time less its budget, in the problem's unit.

    problem, limit: the linear problem that `option` is the optimum of. optimum: its proof; None where all stay at the
    baseline because nothing else keeps the margin.
    """

    option: np.ndarray
    sd: float
    problem: Problem
    limit: float
    optimum: Optimum | None

    @property
    def options(self) -> int:
        """How many options there were to choose from."""
        return len(self.problem.time)


def guarded(problem: Problem, slack: float, z: float, effort: float | None = None) -> Guarded | None:
    """The choice of least energy within slack (a fraction of the baseline's time) less a margin of z sd.

    problem.time_se must be known. z = 0: without a margin. None where no choice keeps the limit even without one.
    """
    variance = _variance(problem, slack)
    limit = (1 + slack) * problem.baseline_time
    plain = least_energy(problem, limit, effort)
    if plain is None:
        return None
    sd = float(np.sqrt(variance[plain.option].sum()))
    if not z * sd:
        return Guarded(plain.option, sd, problem, limit, plain)
    best, turns, halves = None, 0, 0
    while turns < TURNS and halves < HALVES:
        linear = replace(problem, time=problem.time + z * variance / (2 * sd), time_se=None)
        within = limit - z * sd / 2
        found = least_energy(linear, within, effort)
        if found is None:
            sd, halves = sd / 2, halves + 1
            continue
        turns += 1
        again = float(np.sqrt(variance[found.option].sum()))
        same = best is not None and np.array_equal(found.option, best.option)
        if best is None or _energy(problem, found.option) <= _energy(problem, best.option):
            best = Guarded(found.option, again, linear, within, found)
        if same or not again:
            break
        sd = again
    stay = problem.baseline
    if best is None or (slack >= 0 and _energy(problem, stay) < _energy(problem, best.option)):
        own = float(np.sqrt(variance[stay].sum()))
        if problem.baseline_time + z * own > limit:
            return None
        return Guarded(stay, own, problem, limit, None)
    return best


def _energy(problem: Problem, option: np.ndarray) -> float:
    return float(problem.energy[option].sum())


def _variance(problem: Problem, slack: float) -> np.ndarray:
    """(N,) of an option's time less (1 + slack) of its target's baseline."""
    own = np.nan_to_num(problem.time_se) ** 2
    baseline = own[problem.baseline]
    variance = own + (1 + slack) ** 2 * baseline[problem.target]
    variance[problem.baseline] = slack**2 * baseline
    return variance
