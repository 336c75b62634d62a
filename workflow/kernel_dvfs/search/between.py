"""Clocks between those of a grid that are worth a look: what a grid misses is found by halving.

Works on choice problems, not on files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from kernel_dvfs.choice.problem import Problem


def halfway(problem: Problem, option: np.ndarray, supported: Callable, most: int) -> list[tuple]:
    """Return keys that the problem lacks, `most` at most: halfway between chosen clocks and their neighbours in it.

    option: (K,) the choice. supported(mem): the core clocks of a memory clock (None: left to the governor), MHz. Those
    next to the choices of the most time come first.
    """
    time = problem.time[problem.baseline]
    measured: dict[float | None, list[float]] = defaultdict(list)
    for core, mem in problem.keys:
        if core is not None:
            measured[mem].append(core)
    share: dict[tuple, float] = defaultdict(float)
    for target, (core, mem) in enumerate(problem.keys[key] for key in problem.key[option]):
        if core is not None:
            for between in _between(core, measured[mem], supported(mem)):
                share[between, mem] += time[target]
    return sorted(share, key=lambda key: -share[key])[:most]


def at_auto(problem: Problem, option: np.ndarray, supported: Callable, reached_mhz: np.ndarray) -> list[tuple]:
    """Return keys that the problem lacks: the core clock that auto reached under load, at each chosen memory clock.

    option, supported: as above. reached_mhz: (K,) at the baseline; half of its time is spent at the median or below.
    The next supported clock below is taken. There the baseline's time can be kept with less energy, if anywhere;
    halving might not come by. Only beside memory clocks at which core clocks were asked for: not every GPU can lock the
    core alone.
    """
    weight = problem.time[problem.baseline]
    order = np.argsort(reached_mhz)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    median_mhz = reached_mhz[order][middle]
    mems = {problem.keys[key][1] for key in problem.key[option]}
    mems &= {mem for core, mem in problem.keys if core is not None}
    found = []
    for mem in sorted(mems, key=lambda mhz: mhz or 0.0):
        below = [core for core in supported(mem) if core <= median_mhz + 0.5]
        if below and (float(max(below)), mem) not in problem.keys:
            found.append((float(max(below)), mem))
    return found


def _between(core: float, measured: Sequence[float], supported: Sequence[float]) -> list[float]:
    """Return the supported clocks halfway between `core` and the next measured ones below and above."""
    ends = [max((each for each in measured if each < core), default=core)]
    ends += [min((each for each in measured if each > core), default=core)]
    free = [sorted(each for each in supported if min(core, end) < each < max(core, end)) for end in ends]
    return [each[len(each) // 2] for each in free if each]
