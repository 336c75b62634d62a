"""Synthetic choice problems: physics-like, random, nearly tied. Seeded; every value is made up."""

import numpy as np

from kernel_dvfs.choice.problem import Problem


def roofline(rng, targets: int, options: int, noise: float = 0.01) -> Problem:
    """t = ((C/f)^3 + (M/b)^3)^(1/3) + t0, power convex in the core clock f; the baseline has the highest clocks."""
    memories = 5
    f, b = (g.ravel() for g in np.meshgrid(np.linspace(0.21, 2.1, options // memories), np.linspace(0.1, 1, 5)))
    size = np.exp(rng.normal(0, 1, (targets, 1)))
    bound = rng.uniform(0, 1, (targets, 1))
    core, memory = size * bound * 2, size * (1 - bound)
    t = ((core / f) ** 3 + (memory / b) ** 3) ** (1 / 3) + 0.1 * size
    voltage = 1 + 0.9 * np.maximum(f - 1.2, 0) ** 2
    p = 30 + 60 * b + 8.8 * voltage**2 * f + (100 * core / f * voltage**2 * f + 70 * memory / b) / t
    t = t * np.exp(0.3 * noise * rng.normal(size=t.shape))
    e = t * p * np.exp(noise * rng.normal(size=t.shape))
    return Problem.of(list(t), list(e), [t.shape[1] - 1] * targets)


def uniform(rng, targets: int, options: int) -> Problem:
    """Times and energies without any relation."""
    t, e = rng.uniform(0.5, 1.5, (2, targets, options))
    return Problem.of(list(t), list(e), [0] * targets)


def nearly_tied(rng, targets: int, options: int, noise: float = 0.03) -> Problem:
    """All options near one straight line of energy against time: reduced costs tell little."""
    size = np.exp(rng.normal(0, 1, (targets, 1)))
    t = rng.uniform(0.8, 1.6, (targets, options))
    e = 3 - t + noise * rng.uniform(size=t.shape)
    return Problem.of(list(size * t), list(100 * size * e), [0] * targets)


def collinear(rng, targets: int, options: int, counts: int | None = None) -> Problem:
    """Every option exactly on one straight line of energy against time, so that reduced costs tell nothing.

    counts: times to two decimals, each target launched up to `counts` times; None: any times and sizes.
    """
    if counts is None:
        size, t = np.exp(rng.normal(0, 1, (targets, 1))), rng.uniform(0.8, 1.6, (targets, options))
        t[:, 0] = 1.0
    else:
        size, t = rng.integers(1, counts, (targets, 1)), rng.integers(80, 160, (targets, options)) / 100
        t[:, 0] = 1.0
    return Problem.of(list(size * t), list(97.3 * size * (3 - t)), [0] * targets)
