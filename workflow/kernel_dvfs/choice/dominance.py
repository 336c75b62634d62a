"""Options worth a look: the dominance (Pareto) filter, lower convex hulls, and their edges merged by slope.

It works on times and energies alone, without limits or solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kernel_dvfs.choice.problem import Problem


def pareto(time: np.ndarray, energy: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return indices of the options that no other one matches in both time and energy, by ascending time.

    Of options equal in both, the first with the least `other` stays. Energy falls strictly along the result.
    """
    order = np.lexsort((other, energy, time))
    sorted_energy = energy[order]
    keep = np.ones(len(order), dtype=bool)
    keep[1:] = sorted_energy[1:] < np.minimum.accumulate(sorted_energy)[:-1]
    return order[keep]


def lower_hull(time: np.ndarray, energy: np.ndarray) -> list[int]:
    """Return indices of the lower-left convex hull of a Pareto set (ascending time, falling energy)."""
    t, e = time.tolist(), energy.tolist()
    hull: list[int] = []
    for i in range(len(t)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (e[b] - e[a]) * (t[i] - t[a]) < (e[i] - e[a]) * (t[b] - t[a]):
                break
            hull.pop()
        hull.append(i)
    return hull


class Edges:
    """The hull edges of several Pareto sets, M in all, steepest fall of energy per time first.

    Walking them from everyone's fastest option visits every vertex of the lower-left convex hull of the sets'
    Minkowski sum: a vertex minimises e + m*t for some m > 0, and so does each of its parts in its own set.

    rank: (M,) which set; option: (M,) index within the set after the edge; dt > 0, de < 0: (M,) what the edge changes.
    """

    def __init__(self, sets: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """sets: (time, energy) of each, by ascending time and falling energy."""
        rank: list[int] = []
        option: list[int] = []
        time_steps, energy_steps = [np.zeros(0)], [np.zeros(0)]
        for k, (time, energy) in enumerate(sets):
            hull = lower_hull(time, energy)
            rank += [k] * (len(hull) - 1)
            option += hull[1:]
            time_steps.append(np.diff(time[hull]))
            energy_steps.append(np.diff(energy[hull]))
        dt, de = np.concatenate(time_steps), np.concatenate(energy_steps)
        order = np.argsort(de / dt, kind="stable")
        self.rank = np.array(rank, dtype=np.intp)[order]
        self.option = np.array(option, dtype=np.intp)[order]
        self.dt, self.de = dt[order], de[order]

    def walk(self, after: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Return cumulated time and energy changes, from (0, 0), over the edges of the sets with rank > `after`."""
        if after >= 0:
            later = self.rank > after
            dt, de = self.dt[later], self.de[later]
        else:
            dt, de = self.dt, self.de
        return np.concatenate(([0.0], np.cumsum(dt))), np.concatenate(([0.0], np.cumsum(de)))

    def options_after(self, steps: int, sets: int, after: int = -1) -> np.ndarray:
        """Return (sets,) where each set stands after the first `steps` edges of the same walk; 0 = its fastest."""
        where = np.flatnonzero(self.rank > after)[:steps]
        option = np.zeros(sets, dtype=np.intp)
        option[self.rank[where]] = self.option[where]  # edges of one set come in order, so its last one stays
        return option


def pareto_per_target(problem: Problem) -> list[np.ndarray]:
    """Return, per target, the flat indices of its undominated options by ascending time; a baseline wins exact ties."""
    other = ~problem.is_baseline
    bounds = np.append(problem.first, len(problem.time))
    return [a + pareto(problem.time[a:b], problem.energy[a:b], other[a:b]) for a, b in pairwise(bounds)]


def undominated(problem: Problem) -> Problem:
    """Return the problem without dominated options (baselines stay): optima of every scope but `single` are kept."""
    option = np.unique(np.concatenate([*pareto_per_target(problem), problem.baseline]))
    return problem.subset(option)
