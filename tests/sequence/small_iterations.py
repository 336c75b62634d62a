"""Iterations small enough to look at every choice, and one of the size of a real one."""

import itertools

import numpy as np

from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.launches import Sequence
from kernel_dvfs_deploy.sequence.replay import replay

# two core clocks and two memory clocks, and a fifth pair with a clock of its own in each
_PAIRS = ((1400.0, None), (1000.0, 500.0), (1000.0, None), (1400.0, 500.0), (700.0, 300.0))


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
        pairs=_PAIRS[:pairs],
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


def played(sequence: Sequence, timing: Timing, changes: Changes) -> tuple[float, float] | None:
    """(time s, energy J) of a choice without jitter by playing it; None where its rules forbid it.

    The rules are written out here on the times of events, apart from the programme's: a request after the begin and
    after the last landing, and the last landing, with `ahead` a latency, before the end.
    """
    ran = replay(sequence, timing, changes)
    now, pair, place, free = 0.0, changes.first, 0, 0.0
    for at, to in zip(changes.at, changes.to):
        now += sequence.until_s[at, pair] - sequence.until_s[place, pair]
        stall_s = timing.stall_s(sequence.pairs[pair], sequence.pairs[to])
        if timing.behaviour == "ahead" and timing.latency_s:
            if now - timing.latency_s < free - 1e-12:
                return None
            now += stall_s
            free = now
        elif timing.behaviour == "lag" and timing.latency_s:
            # when the launches come here, and when they come to where it lands, at the clocks until then
            if any(at <= other < _lands(sequence, timing, at, pair) for other in changes.at if other != at):
                return None
            if _lands(sequence, timing, at, pair) > len(sequence):
                return None
        pair, place = to, at
    now += sequence.until_s[-1, pair] - sequence.until_s[place, pair]
    if timing.behaviour == "ahead" and timing.latency_s and changes and now - timing.latency_s < free - 1e-12:
        return None
    return ran.time_s, ran.energy_j


def _lands(sequence: Sequence, timing: Timing, at: int, pair: int) -> int:
    """The first boundary at or after the landing of a change that is asked for at a boundary."""
    left_s, launch = timing.latency_s, at
    while left_s > 1e-12 and launch < len(sequence):
        left_s -= sequence.launch_time_s[launch, pair]
        launch += 1
    return launch if left_s <= 1e-12 else len(sequence) + 1
