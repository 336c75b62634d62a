"""What is left to decide once a good choice and a bound are known: targets that keep more than one option.

Reduced-cost fixing: an option whose reduced cost exceeds (energy of the best known choice) - (LP bound) is in
no better choice. Targets left with one option are fixed; the others, without dominated options, are the core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_dvfs.choice.dominance import Edges, pareto
from kernel_dvfs.choice.integer_grid import Grid
from kernel_dvfs.choice.relaxation import Relaxation


@dataclass(frozen=True, eq=False)
class Group:
    """One undecided target, its options by ascending time.

    position: in the grid. dt >= 0, de <= 0: change of time and energy against the fastest option.
    reduced: reduced costs.
    """

    position: np.ndarray
    dt: np.ndarray
    de: np.ndarray
    reduced: np.ndarray


@dataclass(eq=False)
class Core:
    """groups: undecided targets, widest spread of time first. t, e: totals of the choice `fastest`.

    fastest: (K,) positions: fixed targets at their option, groups at their fastest. gap: what it was made
    for.
    """

    groups: list
    fastest: np.ndarray
    t: float
    e: float
    budget: float
    gap: float

    @cached_property
    def edges(self) -> Edges:
        """Hull edges of the groups."""
        return Edges([(group.dt, group.de) for group in self.groups])

    @property
    def options(self) -> int:
        """How many options the core has in all."""
        return sum(len(group.position) for group in self.groups)

    def choice(self, picks: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(K,) positions when group i takes its option picks[i]; target: (n,) of each grid position."""
        choice = self.fastest.copy()
        for group, pick in zip(self.groups, picks):
            choice[target[group.position[0]]] = group.position[pick]
        return choice


def core_of(grid: Grid, relaxation: Relaxation, energy: float) -> Core:
    """The core against a known choice with `energy` (grid units)."""
    left = np.flatnonzero(relaxation.reduced <= energy - relaxation.bound + relaxation.margin)
    bounds = np.append(np.searchsorted(grid.target[left], np.arange(len(grid.first))), len(left))
    fastest = left[bounds[:-1]]
    groups = []
    for k in np.flatnonzero(np.diff(bounds) > 1):
        own = left[bounds[k] : bounds[k + 1]]
        own = own[pareto(grid.t[own], grid.e[own], grid.other[own])]
        fastest[k] = own[0]
        if len(own) > 1:
            groups.append(
                Group(own, grid.t[own] - grid.t[own[0]], grid.e[own] - grid.e[own[0]], relaxation.reduced[own])
            )
    groups.sort(key=lambda group: -group.dt[-1])
    return Core(
        groups=groups,
        fastest=fastest,
        t=float(grid.t[fastest].sum()),
        e=float(grid.e[fastest].sum()),
        budget=grid.budget,
        gap=energy - relaxation.bound,
    )
