"""What is left to decide once a good choice and a bound are known: targets that keep more than one option.

Reduced-cost fixing: an option whose reduced cost exceeds (energy of the best known choice) - (LP bound) is in
no better choice. Targets left with one option are fixed; the others, without dominated options, are undecided. (The
literature on knapsacks calls them the core.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_dvfs.choice.dominance import Edges, pareto
from kernel_dvfs.choice.integer_grid import IntegerGrid
from kernel_dvfs.choice.relaxation import Relaxation


@dataclass(frozen=True, eq=False, slots=True)
class UndecidedTarget:
    """One undecided target, its m options by ascending time; times and energies in units of the integer grid."""

    position: np.ndarray  # (m,) in the integer grid
    dt: np.ndarray  # (m,) time more than the fastest option's, >= 0
    de: np.ndarray  # (m,) energy more than the fastest option's, <= 0
    reduced: np.ndarray  # (m,) reduced costs


# without slots, which leave a cached property no place
@dataclass(frozen=True, eq=False)
class Undecided:
    """The targets that are still to be decided, and the choice where each of them takes its fastest option."""

    groups: list[UndecidedTarget]  # one per undecided target, widest spread of time first
    fastest: np.ndarray  # (K,) positions: fixed targets at their option, undecided ones at their fastest
    t: float  # total time of `fastest`, units of the integer grid
    e: float  # its total energy
    budget: float  # the time limit in the same units
    gap: float  # energy of the known choice less the LP bound, which it was made for

    @cached_property
    def edges(self) -> Edges:
        """Hull edges of the groups."""
        return Edges([(group.dt, group.de) for group in self.groups])

    @property
    def options(self) -> int:
        """Return how many options all groups have together."""
        return sum(len(group.position) for group in self.groups)

    def choice(self, picks: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return (K,) positions when group i takes its option picks[i]; target: (n,) of each position."""
        choice = self.fastest.copy()
        for group, pick in zip(self.groups, picks):
            choice[target[group.position[0]]] = group.position[pick]
        return choice


def undecided_of(integer_grid: IntegerGrid, relaxation: Relaxation, energy: float) -> Undecided:
    """Return what is undecided against a known choice with `energy` (units of the integer grid)."""
    left = np.flatnonzero(relaxation.reduced <= energy - relaxation.bound + relaxation.margin)
    bounds = np.append(np.searchsorted(integer_grid.target[left], np.arange(len(integer_grid.first))), len(left))
    fastest = left[bounds[:-1]]
    groups = []
    for k in np.flatnonzero(np.diff(bounds) > 1):
        options = left[bounds[k] : bounds[k + 1]]
        t, e = integer_grid.t[options], integer_grid.e[options]
        front = pareto(t, e, integer_grid.other[options])
        options, t, e = options[front], t[front], e[front]
        fastest[k] = options[0]
        if len(options) > 1:
            groups.append(UndecidedTarget(options, t - t[0], e - e[0], relaxation.reduced[options]))
    groups.sort(key=lambda group: -group.dt[-1])
    return Undecided(
        groups=groups,
        fastest=fastest,
        t=float(integer_grid.t[fastest].sum()),
        e=float(integer_grid.e[fastest].sum()),
        budget=integer_grid.budget,
        gap=energy - relaxation.bound,
    )
