"""Ways to search: guided, and what else one might do with as many measurements.

Each takes a Testbed and returns what it measured: a mask (K, P), the baselines included. None sees a point before it
has asked for it; none sees the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.searches.testbed import Testbed
from kernel_dvfs.errors import InputError
from kernel_dvfs.search.propose import Options, Proposal, price_of_time, propose

_LEAST_SHARE = 0.5  # of the highest core clock: below, time is lost and seldom energy saved
_RULE = (0.9, 0.7, 0.5)


def guided(testbed: Testbed, slack: float, options: Options) -> tuple[np.ndarray, Proposal, int]:
    """(mask, last proposal, rounds) of the guided search."""
    measured, rounds = np.zeros(testbed.candidates.offered.shape, dtype=bool), 0
    while True:
        proposal = propose(testbed.candidates, testbed.seen(measured, options.baseline_repeats), (slack,), options)
        if not proposal.points:
            return measured, proposal, rounds
        rounds += 1
        measured[tuple(np.array(proposal.points).T)] = True


def start(testbed: Testbed) -> np.ndarray:
    """The baselines alone."""
    measured = np.zeros(testbed.candidates.offered.shape, dtype=bool)
    measured[np.arange(len(measured)), testbed.candidates.baseline] = True
    return measured


def random(testbed: Testbed, budget: int, baselines: int, seed: int) -> np.ndarray:
    """Pairs at random, equally many of each target (within one)."""
    rng, measured = np.random.default_rng(seed), start(testbed)
    ways = [list(rng.permutation(np.flatnonzero(free))) for free in testbed.candidates.offered & ~measured]
    return _fill(testbed, measured, ways, budget, baselines, rng)


def grid(testbed: Testbed, budget: int, baselines: int, seed: int) -> np.ndarray:
    """The same two-dimensional grid for every target: core clocks evenly spaced between the highest and half of it, at
    the highest memory clocks. As many points as the budget holds, of equally many the more memory clocks (at most as
    many as core clocks); what is left is spent at random.
    """
    candidates, rng = testbed.candidates, np.random.default_rng(seed)
    each = (budget - candidates.spent(start(testbed), baselines)) // len(candidates.targets)
    shapes = [(cores, levels) for cores in range(1, each + 1) for levels in range(1, cores + 1)]
    best = start(testbed)
    for cores, levels in sorted((shape for shape in shapes if shape[0] * shape[1] <= each), key=lambda shape: shape[1]):
        shares = (np.arange(cores) + 0.5) / cores * (1 - _LEAST_SHARE) + _LEAST_SHARE
        tried = start(testbed)
        for target, own in enumerate(tried):
            for level in range(levels):
                own[_at(testbed, target, level, shares)] = True
        if tried.sum() >= best.sum():
            best = tried
    left = [list(rng.permutation(np.flatnonzero(free))) for free in candidates.offered & ~best]
    return _fill(testbed, best, left, budget, baselines, rng)


def rule(testbed: Testbed, budget: int, baselines: int, seed: int) -> np.ndarray:
    """What an engineer would do without a model: 90, 70 and 50 % of the highest core clock at the highest memory clock
    (1890, 1470, 1050 MHz on an RTX 3080 Ti), then 90 and 70 % at the next two lower memory clocks; at most the budget.
    """
    plan = [(0, share) for share in _RULE] + [(level, share) for share in _RULE[:2] for level in (1, 2)]
    ways = []
    for target in range(len(testbed.candidates.targets)):
        found = [pair for level, share in plan for pair in _at(testbed, target, level, [share])]
        ways.append(list(dict.fromkeys(pair for pair in found if pair != testbed.candidates.baseline[target])))
    return _fill(testbed, start(testbed), ways, budget, baselines, np.random.default_rng(seed))


def _at(testbed: Testbed, target: int, level: int, shares: Sequence[float] | np.ndarray) -> list[int]:
    """Pairs of a target nearest to these shares of the highest core clock, at its `level`-th highest memory clock.

    Nothing where it has fewer. Further settings are the baseline's, where it has other pairs with them.
    """
    candidates = testbed.candidates
    core = candidates.core_mhz
    known = candidates.offered[target] & ~np.isnan(core)
    if (known & candidates.beside_baseline(target)).any():
        known &= candidates.beside_baseline(target)
    mem = np.nan_to_num(candidates.mem_mhz, nan=0.0)  # the only one
    levels = np.unique(mem[known])[::-1]
    if level >= len(levels):
        return []
    here = np.flatnonzero(known & (mem == levels[level]))
    return [int(here[np.abs(core[here] / core[known].max() - share).argmin()]) for share in shares]


def around(testbed: Testbed, budget: int, baselines: int, optimum: np.ndarray, seed: int) -> np.ndarray:
    """The pairs nearest to the optimum of another specimen (K,), nearest first: the paper's way to carry it over."""
    candidates = testbed.candidates
    steps = candidates.steps * np.array([1.0] + [1.01] * (candidates.steps.shape[1] - 1))  # a core clock goes first
    measured, ways = start(testbed), []
    for target, best in enumerate(optimum):
        far = np.linalg.norm(steps - steps[best], axis=1)
        order = np.argsort(far, kind="stable")
        ways.append([pair for pair in order if candidates.offered[target, pair] and not measured[target, pair]])
    return _fill(testbed, measured, ways, budget, baselines, np.random.default_rng(seed))


def _fill(
    testbed: Testbed,
    measured: np.ndarray,
    ways: list[list],
    budget: int,
    baselines: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Measure from each target's list in turn until the budget is spent."""
    measured = measured.copy()
    room = budget - testbed.candidates.spent(measured, baselines)
    while any(ways):
        before = room
        for target in rng.permutation(len(ways)):
            if ways[target] and room > 0:
                measured[target, ways[target].pop(0)] = True
                room -= 1
        if room == before:
            break
    return measured


def bayesian(testbed: Testbed, slack: float, budget: int, baselines: int, seed: int) -> np.ndarray:
    """Plain Bayesian optimisation from scikit-learn: a Gaussian process per kernel, expected improvement.

    Each kernel by itself minimises energy + price x time over its clocks, the price being that at which the budget of
    time binds among the points measured so far; three pairs at random to begin with. No physics, nothing in common.
    """
    try:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel
    except ImportError:
        raise InputError(
            "the Bayesian baseline needs scikit-learn; pip install scikit-learn, or leave it out (--without bayesian)"
        ) from None
    import warnings

    from scipy.stats import norm

    candidates, rng = testbed.candidates, np.random.default_rng(seed)
    time, energy = testbed.shown(baselines)
    time, energy = candidates.weight[:, None] * time, candidates.weight[:, None] * energy
    first = min(budget, testbed.candidates.spent(start(testbed), baselines) + 3 * len(candidates.targets))
    measured = random(testbed, first, baselines, seed)
    x = candidates.steps / np.maximum(candidates.steps.max(0), 1)
    room = budget - testbed.candidates.spent(measured, baselines)
    kernel = Matern([0.4] + [0.6] * (x.shape[1] - 1), (0.05, 10), nu=2.5) + WhiteKernel(1e-4, (1e-6, 1e-1))
    while room > 0 and (candidates.offered & ~measured).any():
        known = np.where(measured, 0.0, np.inf)
        base = time[np.arange(len(time)), candidates.baseline].sum()
        price = price_of_time((time + known)[None], (energy + known)[None], (1 + slack) * base)[0][0]
        spent = 0
        for target in rng.permutation(len(time)):
            own, free = measured[target], candidates.offered[target] & ~measured[target]
            if not free.any() or room < 1:
                continue
            score = np.log(energy[target] + price * time[target])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of length scales at their bounds
                model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x[own], score[own])
                mean, sd = model.predict(x[free], return_std=True)
            better = score[own].min() - mean
            gain = better * norm.cdf(better / sd) + sd * norm.pdf(better / sd)
            measured[target, np.flatnonzero(free)[gain.argmax()]] = True
            room -= 1
            spent += 1
        if not spent:
            break
    return measured
