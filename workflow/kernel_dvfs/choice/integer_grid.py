"""The global waste problem on a grid of integers, so that sums are exact and a solver may prove on them.

Rounding bound. The unit of time is a power of two u with K * u <= 2^-35 * limit (3e-11 relative); times are
rounded up, the budget is (1 + 1e-9) * limit rounded down. So a choice within the budget keeps the limit
within 1e-9, and every choice that keeps the limit itself (indeed up to 9.7e-10 above it) is within the
budget: rounding cuts nothing off. Energies are rounded to the nearest multiple of v with K * v <= 2^-35 *
(sum of least energies), which is half a unit each: the optimum on the grid uses at most 3e-11 (relative) more than the
true one.

All values are whole numbers below 2^53 held as float64, so their sums are exact in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.problem import TOLERANCE, Problem, best_per_target

ROUNDING_BITS = 36  # K roundings of one unit each stay below 2^(1 - ROUNDING_BITS) of the total


@dataclass(frozen=True, eq=False, slots=True)
class IntegerGrid:
    """A problem of K targets in whole numbers, with n options. A "position" elsewhere is an index into its arrays."""

    option: np.ndarray  # (n,) flat index of each option into the problem
    t: np.ndarray  # (n,) time, whole numbers of time_unit
    e: np.ndarray  # (n,) energy, whole numbers of energy_unit
    other: np.ndarray  # (n,) bool, whether the option is not the baseline
    target: np.ndarray  # (n,) index of each option's target
    first: np.ndarray  # (K,) where each target's options begin
    budget: float  # the time limit, a whole number of time_unit
    time_unit: float  # in the problem's unit of time
    energy_unit: float  # in the problem's unit of energy

    def best(self, score: np.ndarray) -> np.ndarray:
        """(K,) position of each target's least score; ties: less time, less energy, the baseline."""
        return best_per_target(score, self.target, self.first, self.t, self.e, self.other)


def integer_grid_of(problem: Problem, limit: float, only_fitting: bool = True) -> IntegerGrid | None:
    """The problem in whole numbers for the time limit `limit`, without options that no feasible choice can hold.

    None where even the fastest choice breaks the limit. only_fitting=False keeps those options too.
    """
    count = len(problem.first)
    bits = ROUNDING_BITS + math.ceil(math.log2(count))
    time_exponent = math.frexp(limit)[1] - bits
    energy_exponent = math.frexp(float(np.minimum.reduceat(problem.energy, problem.first).sum()))[1] - bits
    t = np.ceil(np.ldexp(problem.time, -time_exponent))
    budget = float(math.floor(math.ldexp(limit * (1 + TOLERANCE), -time_exponent)))
    fastest = np.minimum.reduceat(t, problem.first)
    room = budget - fastest.sum()
    if room < 0:
        return None
    fits = t - fastest[problem.target] <= room
    option = np.flatnonzero(fits) if only_fitting else np.arange(len(t))
    target = problem.target[option]
    return IntegerGrid(
        option=option,
        t=t[option],
        e=np.rint(np.ldexp(problem.energy[option], -energy_exponent)),
        other=~problem.is_baseline[option],
        target=target,
        first=np.searchsorted(target, np.arange(count)),
        budget=budget,
        time_unit=2.0**time_exponent,
        energy_unit=2.0**energy_exponent,
    )
