"""The global waste problem on a grid of integers, so that sums are exact and a solver may prove on them.

Rounding bound. The unit of time is a power of two u with K * u <= 2^-35 * limit (3e-11 relative); times are
rounded up, the budget is (1 + 1e-9) * limit rounded down. So a choice within the budget keeps the limit
within 1e-9, and every choice that keeps the limit itself (indeed up to 9.7e-10 above it) is within the
budget: rounding cuts nothing off. Energies are rounded to the nearest multiple of v with K * v <= 2^-35 *
(sum of least energies), which is half a unit each: the optimum on the grid uses at most 3e-11 (relative) more than the
true one.

Where all times are multiples of one quantum, as in a table with times to two decimals, so are all totals, and the
budget is lowered to the highest total that fits. That cuts nothing off and lifts the LP bound, which would else stay
below every choice by up to a quantum: on options along one straight line, with no hope of closing the gap.

All values are whole numbers below 2^53 held as float64, so their sums are exact in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.problem import TOLERANCE, Problem, best_per_target

_LEAST_QUANTUM = 1e-8  # of times, as a share of the limit, that is worth a look
_SAME = 1e-4  # share of the quantum below which a remainder is none
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
        """Return (K,) position of each target's least score; ties: less time, less energy, the baseline."""
        return best_per_target(score, self.target, self.first, self.t, self.e, self.other)


def integer_grid_of(problem: Problem, limit: float, only_fitting: bool = True) -> IntegerGrid | None:
    """Return the problem in whole numbers for the time limit `limit`, without options that no feasible choice can hold.

    None where even the fastest choice breaks the limit. only_fitting=False keeps those options too.
    """
    count = len(problem.first)
    bits = ROUNDING_BITS + math.ceil(math.log2(count))
    time_exponent = math.frexp(limit)[1] - bits
    energy_exponent = math.frexp(float(np.minimum.reduceat(problem.energy, problem.first).sum()))[1] - bits
    t = np.ceil(np.ldexp(problem.time, -time_exponent))
    budget = float(math.floor(math.ldexp(limit * (1 + TOLERANCE), -time_exponent)))
    # rounding up adds less than a unit to each time
    budget = min(budget, math.ldexp(highest_total(problem, limit), -time_exponent) // 1 + count + 1)
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


def highest_total(problem: Problem, limit: float) -> float:
    """Return the highest total time that a choice within the limit can take, in the problem's unit; inf where none is
    known.

    All differences from the fastest options are whole multiples of a quantum, within a small error that is counted in,
    or else nothing is known. The quantum is found by Euclid's algorithm on floats.
    """
    fastest = np.minimum.reduceat(problem.time, problem.first)
    steps = problem.time - fastest[problem.target]
    steps = steps[steps > _LEAST_QUANTUM * limit]
    if not len(steps):
        return math.inf
    quantum = float(steps.min())
    while quantum > _LEAST_QUANTUM * limit:
        many = np.rint(steps / quantum)
        left = np.abs(steps - many * quantum)
        rest = left[left > _SAME * quantum]
        if not len(rest):
            break
        quantum = float(rest.min())
    else:
        return math.inf
    quantum = float((steps * many).sum() / (many**2).sum())
    steps = problem.time - fastest[problem.target]
    error = len(fastest) * float(np.abs(steps - np.rint(steps / quantum) * quantum).max())
    room = limit * (1 + TOLERANCE) - float(fastest.sum())
    return float(fastest.sum()) + math.floor((room + error) / quantum) * quantum + error
