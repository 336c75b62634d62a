"""Iterations small enough to look at every choice, and one of the size of a real one."""

import itertools

import numpy as np

from kernel_dvfs.sequence.changes import Changes
from kernel_dvfs.sequence.launches import Sequence


def small(seed: int, launches: int = 6, pairs: int = 3) -> Sequence:
    """Kernels that trade time for energy differently; pair 0, the fastest, is the baseline."""
    rng = np.random.default_rng(seed)
    kernels = 3
    slower = np.concatenate([np.zeros((kernels, 1)), rng.uniform(-0.05, 0.6, (kernels, pairs - 1))], axis=1)
    saves = np.concatenate([np.zeros((kernels, 1)), rng.uniform(-0.2, 0.5, (kernels, pairs - 1))], axis=1)
    size = np.exp(rng.normal(0, 1, (kernels, 1)))
    time_s, energy_j = 1e-3 * size * (1 + slower), 0.3 * size * (1 - saves)
    kernel = rng.integers(0, kernels, launches)
    return Sequence(
        names=tuple(f"k{each}" for each in kernel),
        kernel=kernel,
        time_s=time_s,
        energy_j=energy_j,
        pairs=tuple((float(1000 + pair), None) for pair in range(pairs)),
        baseline=0,
        stall_w=(energy_j / time_s).min(axis=0),
    )


def every_choice(sequence: Sequence):
    """All Changes of a sequence: every pair at every launch, begun and ended with the same."""
    pairs = range(len(sequence.pairs))
    for wanted in itertools.product(pairs, repeat=len(sequence)):
        for first in pairs:
            now, found = first, []
            for launch, pair in enumerate(wanted):
                if pair != now:
                    found.append((launch, pair))
                    now = pair
            if now == first:
                yield Changes(first, tuple(at for at, _ in found), tuple(to for _, to in found))
