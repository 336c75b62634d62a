"""The least energy that keeps a total time although times are only known within their errors.

    sum_k T_k(x_k) + z * sd(x) <= (1 + slack) * sum_k T_auto,k

sd(x)^2 sums, over targets, the variance of T_k(x_k) - (1 + slack) * T_auto,k. A target left at its baseline
contributes only slack^2 of the baseline's variance, because the same data are on both sides. The margin is on the total
and not on every target: errors of targets are independent, so they average out.

The constraint is a second-order cone. For every s > 0, sd <= (sd^2 + s^2) / (2 s), with equality at s = sd; so

    sum_k [T_k(x_k) + z * var_k(x_k) / (2 s)] <= (1 + slack) * sum_k T_auto,k - z * s / 2

is a linear constraint that never allows more than the cone does. Solve exactly, set s to the sd of the answer, and
solve again: each answer keeps the cone, and none has more energy than the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernel_dvfs.choice.global_waste import Optimum, least_energy
from kernel_dvfs.choice.integer_grid import integer_grid_of
from kernel_dvfs.choice.problem import TOLERANCE, Problem
from kernel_dvfs.choice.relaxation import relax

TURNS = 4
# of the bootstrap of `flattery`
DRAWS = 400
# how often s is halved where its linear constraint leaves no choice
HALVES = 6


@dataclass(frozen=True, eq=False, slots=True)
class Guarded:
    """A choice that keeps its limit by a margin, and the linear problem that it is the optimum of."""

    option: np.ndarray  # (K,) flat indices into the problem
    sd: float  # standard error of the total time less its limit, in the problem's unit of time
    problem: Problem  # the linear problem
    limit: float  # its time limit
    optimum: Optimum | None  # its proof; None where all stay at the baseline because nothing else keeps the margin
    bias: float = 0.0  # time that was taken off the limit because choosing flatters (decide)

    @property
    def options(self) -> int:
        """How many options there were to choose from."""
        return len(self.problem.time)


def guarded(problem: Problem, slack: float, z: float, effort: float | None = None) -> Guarded | None:
    """The choice of least energy whose total time stays z standard errors below (1 + slack) x that of the baseline.

    slack: fraction of the baseline's time. problem.time_se must be known. z = 0: no margin. effort: as in
    global_waste.least_energy. None where no choice keeps the limit even without a margin.
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
        own = float(np.sqrt(variance[found.option].sum()))
        same = best is not None and np.array_equal(found.option, best.option)
        if best is None or _energy(problem, found.option) <= _energy(problem, best.option):
            best = Guarded(found.option, own, linear, within, found)
        if same or not own:
            break
        sd = own
    stay = problem.baseline
    if best is None or (slack >= 0 and _energy(problem, stay) < _energy(problem, best.option)):
        own = float(np.sqrt(variance[stay].sum()))
        if problem.baseline_time + z * own > limit:
            return None
        return Guarded(stay, own, problem, limit, None)
    return best


def decide(problem: Problem, slack: float, z: float, effort: float | None = None) -> Guarded | None:
    """The last choice of a refined profile: as `guarded`, but only among options that were checked.

    Data that proposed an option flatter it; those of a check, made afterwards, do not. A baseline that was not proposed
    is taken only where nothing else keeps the limit: the fewer options, the less is left to luck. What choosing among
    the checked options flatters the total time by is estimated (flattery) and taken off the limit. Without a check,
    among options measured more than once: one lucky measurement must not make a choice. Where nothing was measured more
    than once either, every option may be chosen. The result's `option` counts in `problem`.
    Raises ValueError where problem.n is unknown.
    """
    if problem.n is None:
        raise ValueError("how often options were measured is unknown; give problem.n")
    others = ~problem.is_baseline
    if problem.is_checked is not None and problem.is_checked.any():
        return _of_checked(problem, np.flatnonzero(problem.is_checked | problem.is_baseline), slack, z, effort)
    trusted = others & (problem.n > 1)
    if not trusted.any():
        return guarded(problem, slack, z, effort)
    option = np.flatnonzero(trusted | problem.is_baseline)
    found = guarded(problem.subset(option), slack, z, effort)
    return found and replace(found, option=option[found.option])


def _of_checked(problem: Problem, option: np.ndarray, slack: float, z: float, effort: float | None) -> Guarded | None:
    """As `decide`, among the options `option` of a check, all baselines included."""
    among = problem.subset(option)
    assert among.is_checked is not None, "a check says which options it is of"
    # a price that nothing is worth, so that as few of these baselines are taken as can be
    unproposed = among.baseline[~among.is_checked[among.baseline]]
    penalty = np.zeros(len(option))
    penalty[unproposed] = among.baseline_energy
    priced = replace(among, energy=among.energy + penalty)
    found, bias = None, 0.0
    for _ in range(TURNS):
        tighter = guarded(priced, slack - bias / among.baseline_time, z, effort)
        if tighter is None:
            # not even the baselines keep what is left of the limit; they keep the limit itself
            found = guarded(among.subset(among.baseline), slack, z, effort)
            return found and replace(found, option=problem.baseline)
        found = replace(tighter, option=option[tighter.option], bias=bias)
        bias = flattery(among, price_of_time(tighter), penalty)
        if abs(bias - found.bias) <= TOLERANCE * among.baseline_time:
            break
    return found


def price_of_time(found: Guarded) -> float:
    """Price of time, in the problem's units, at which the limit of a choice binds; 0 where it does not."""
    # nothing but the baseline keeps the margin: any other option would have to save time first
    grid = integer_grid_of(found.problem, found.limit, only_fitting=False)
    return relax(grid).price * grid.energy_unit / grid.time_unit if grid else 0.0


def flattery(problem: Problem, price: float, penalty: np.ndarray) -> float:
    """Time by which choosing each target's least energy + penalty + price x time flatters the total, in its unit.

    A parametric bootstrap: the problem's numbers stand for the truth, are drawn about it with their standard errors
    (energy is power x time, of independent errors), and each draw chooses by what it shows. The mean over DRAWS of true
    less shown time of what is chosen; the same problem gives the same number.
    """
    if problem.time_se is None or problem.energy_se is None:
        raise ValueError("standard errors are unknown; give problem.time_se and problem.energy_se")
    time_se, energy_se = np.nan_to_num(problem.time_se), np.nan_to_num(problem.energy_se)
    power = problem.energy / problem.time
    rest_se = np.sqrt(np.maximum(energy_se**2 - (power * time_se) ** 2, 0))
    draw = np.random.default_rng(0)
    time = time_se * draw.standard_normal((DRAWS, len(time_se)))
    energy = power * time + rest_se * draw.standard_normal(time.shape)
    score = problem.energy + penalty + energy + price * (problem.time + time)
    chosen = score == np.minimum.reduceat(score, problem.first, axis=1)[:, problem.target]
    return -float((time * chosen).sum()) / DRAWS


def _energy(problem: Problem, option: np.ndarray) -> float:
    return float(problem.energy[option].sum())


def _variance(problem: Problem, slack: float) -> np.ndarray:
    """(N,) of an option's time less (1 + slack) of its target's baseline."""
    if problem.time_se is None:
        raise ValueError("standard errors of the times are unknown; give problem.time_se")
    own = np.nan_to_num(problem.time_se) ** 2
    baseline = own[problem.baseline]
    variance = own + (1 + slack) ** 2 * baseline[problem.target]
    variance[problem.baseline] = slack**2 * baseline
    return variance
