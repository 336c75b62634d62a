"""The walk: which of a path's schedules are shown to keep their limit, by data that did not choose them.

Path: the exact choice at many time limits, from the fastest schedule there is to a little beyond the last limit; fixed
before the walk begins.

Walk: fresh blocks, a session each, time auto and the path's pairs. Going from the fastest schedule on, a step is taken
while the change of time, plus Student's t times its standard error over blocks, keeps the limit. The last schedule
passed is the choice. It is over its limit with a chance of at most `over`, whatever the search did: to end beyond the
first schedule that is truly over, that one must have passed its own test (fixed-sequence testing; Maurer, Hothorn and
Lehmacher 1995).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_dvfs.choice.global_waste import least_energy
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.student import t_quantile

LEAST_BLOCKS, MOST_BLOCKS = 4, 60  # of fewer a standard error says little
AHEAD = 4  # times as many blocks as were walked, that a walk's worth looks ahead
SCHEDULES = 61  # of a path, evenly spaced
_NEAR, _BEYOND = 0.35, 0.05  # percent of time below and beyond a limit, where another half as many lie


def path(time: np.ndarray, energy: np.ndarray, pairs: Sequence[int], limits: Sequence[float]) -> np.ndarray:
    """Return (N, J) pairs: the exact choices at many limits, fastest first, each once.

    time, energy: (J, C) in percent of auto's iteration. pairs: that may be chosen. limits: of added time, percent.
    """
    if not len(pairs):
        return np.zeros((0, len(time)), dtype=int)
    places = np.array(pairs)
    times, energies = time[:, places], energy[:, places]
    problem = Problem.of(list(times), list(energies), times.argmin(1).tolist(), [places.tolist()] * len(times))
    low = float(times.min(1).sum()) - 100
    wanted = np.concatenate(
        [np.linspace(low, max(limits) + _BEYOND, SCHEDULES)]
        + [np.linspace(limit - _NEAR, limit + _BEYOND, SCHEDULES // 2) for limit in limits]
    )
    paths: list[np.ndarray] = []
    for limit in np.unique(wanted[wanted >= low]):
        choice = least_energy(problem, 100 + float(limit), effort=0)
        if choice is not None:
            keys = np.array([problem.keys[key] for key in problem.key[choice.option]])
            if not paths or not np.array_equal(keys, paths[-1]):
                paths.append(keys)
    return np.array(paths) if paths else np.zeros((0, len(times)), dtype=int)


def furthest(changes: np.ndarray, limit: float, over: float) -> int:
    """Return how many schedules of a path are passed: each keeps `limit` with a confidence of 1 - over, as do all
    before it.

    changes: (B, N) change of time of each schedule in each block, in the unit of `limit`.
    """
    if len(changes) < LEAST_BLOCKS:
        return 0
    return _passed(changes.mean(0) + margin(len(changes), over) * changes.std(0, ddof=1), limit)


def _passed(bounds: np.ndarray, limit: float) -> int:
    late = bounds > limit + 1e-12
    return int(late.argmax()) if late.any() else len(bounds)


def margin(blocks: int, over: float) -> float:
    """Return what a walk of so many blocks keeps free of its limit, in standard deviations of one block."""
    return t_quantile(blocks - 1, 1 - over) / float(np.sqrt(blocks))


def worth_of_block(changes: np.ndarray, energy: np.ndarray, limit: float, over: float) -> float:
    """Return what each further block would save at a limit, by as many as pay best, if means and scatter stay as they
    are.

    energy: (N,) change of each schedule; 0 where none is passed. A schedule's scatter is taken
    to be that of the usual one, where its own is less.
    """
    blocks = len(changes)
    if blocks < LEAST_BLOCKS or not changes.size:
        return 0.0
    mean, scatter = changes.mean(0), changes.std(0, ddof=1)
    sd = np.maximum(scatter, np.median(scatter))
    saved = np.append(np.minimum(energy, 0.0), 0.0)  # the last: of none that is passed
    now = saved[furthest(changes, limit, over) - 1]
    worths = [0.0]
    for more in range(1, min(AHEAD * blocks, MOST_BLOCKS - blocks) + 1):
        then = saved[_passed(mean + margin(blocks + more, over) * sd, limit) - 1]
        worths.append(float(now - then) / more)
    return max(worths)
