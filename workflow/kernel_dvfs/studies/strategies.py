"""Ways to search: guided, and what else one might do with as many measurements.

Each takes a Testbed and returns what it measured: a mask (K, P), the baselines included. None sees a point before it
has asked for it; none sees the truth.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.search.propose import Options, Proposal, price_of_time, propose
from kernel_dvfs.studies.testbed import Testbed


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


def coarse(testbed: Testbed, budget: int, baselines: int, seed: int) -> np.ndarray:
    """The same coarse grid for every target: as many core clocks, evenly spaced, of each memory clock as can be."""
    candidates = testbed.candidates
    rng, measured = np.random.default_rng(seed), start(testbed)
    core, mem = candidates.core_mhz, candidates.mem_mhz
    levels = [np.flatnonzero((mem == level) & ~np.isnan(core)) for level in np.unique(mem[~np.isnan(mem)])]
    levels = [level[np.argsort(-core[level])] for level in levels][::-1] or [np.argsort(-core)]
    best = measured
    for count in range(1, 1 + max(map(len, levels))):
        for used in range(1, 1 + len(levels)):
            chosen = [pair for level in levels[:used] for pair in level[_even(len(level), count)]]
            tried = start(testbed)
            tried[:, chosen] = True
            tried &= candidates.offered
            if best.sum() < tried.sum() and testbed.candidates.spent(tried, baselines) <= budget:
                best = tried
    left = [list(rng.permutation(np.flatnonzero(free))) for free in candidates.offered & ~best]
    return _fill(testbed, best, left, budget, baselines, rng)


def _even(size: int, count: int) -> np.ndarray:
    """Indices of `count` of `size` things, evenly spaced, none twice."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).round().astype(int))


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
