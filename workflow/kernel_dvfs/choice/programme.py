"""Exact Pareto dynamic programme over the undecided targets, pruned by the LP bound of those still to come.

A state is a partial choice: the groups decided so far, all others at their fastest option; (t, e) are its
totals. A state that another one matches in both t and e is dropped (dominance). The rest of the groups can
lower its energy at most by the value of their merged lower hull at the time left (their LP relaxation): a
state that cannot get below the best known energy in this way is dropped (bound). Following the hull only as far as
whole edges fit gives a feasible choice for every state at once, which keeps improving the best known one.
Groups with a wide spread of time come first, so that what remains is fine-grained and its bound tight. When
no state is left, the best known choice is optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.choice.undecided import Undecided

WIDE = 2_000_000  # states made together at most; more are worked through in turns, which bounds the memory

# how states came about: (trail before, parent of each state, option of each state); None before the first group
Trail = tuple[Any, np.ndarray, np.ndarray]


@dataclass(eq=False, slots=True)
class Search:
    """The best choice known while a search goes on, in units of the integer grid."""

    energy: float  # its totals
    time: float
    picks: np.ndarray | None = None  # its option in each group; None where it came from outside
    states: int = 0  # how many states were looked at
    complete: bool = False  # whether nothing better exists


def walk_back(trail: Trail | None, state: int, count: int) -> np.ndarray:
    """Return (count,) the options that led to a state."""
    picks = np.zeros(count, dtype=np.intp)
    rank = count
    while trail is not None:
        rank -= 1
        trail, parent, option = trail
        picks[rank] = option[state]
        state = parent[state]
    return picks


def run(
    undecided: Undecided, energy: float, time: float, bound: float, margin: float, states: float, tolerance: float = 0.0
) -> Search:
    """Search for a choice with less energy (or as much in less time); give up after `states` states.

    energy, time: totals of the best known choice. bound: LP bound of the whole problem, for reduced-cost fixing on the
    way. margin: see Relaxation. tolerance: relative; above 0, "complete" means that nothing is better by more than
    that.
    """
    search = Search(energy, time)
    groups, edges = undecided.groups, undecided.edges
    walk = lru_cache(maxsize=64)(edges.walk)  # asked for again only where states take turns
    best_end = None  # (trail, state, decided groups, last option, hull edges taken) of the best choice
    stack: list[tuple[int, np.ndarray, np.ndarray, Any]] = [(0, np.array([undecided.t]), np.array([undecided.e]), None)]
    while stack:
        rank, t, e, trail = stack.pop()
        if rank == len(groups):
            continue
        group = groups[rank]
        option = np.flatnonzero(group.reduced <= search.energy - bound + margin)
        if len(t) > 1 and len(t) * len(option) > WIDE:
            walk_t, walk_e = walk(rank - 1)
            for part in _turns(e + np.interp(undecided.budget - t, walk_t, walk_e), max(1, WIDE // len(option))):
                stack.append((rank, t[part], e[part], (trail[0], trail[1][part], trail[2][part])))
            continue
        t = np.add.outer(t, group.dt[option]).ravel()
        e = np.add.outer(e, group.de[option]).ravel()
        search.states += len(t)
        walk_t, walk_e = walk(rank)
        left = undecided.budget - t
        origin = np.flatnonzero(left >= 0)
        t, e, left = t[origin], e[origin], left[origin]
        if not len(t):
            continue
        steps = np.searchsorted(walk_t, left, side="right") - 1
        reach = e + walk_e[steps]
        low = reach.min()
        if low <= search.energy:
            ties = np.flatnonzero(reach == low)
            total = t[ties] + walk_t[steps[ties]]
            best = ties[total.argmin()]
            if (low, total.min()) < (search.energy, search.time):
                search.energy, search.time = float(low), float(total.min())
                i = origin[best]
                best_end = (trail, i // len(option), rank, option[i % len(option)], steps[best])
        keep = np.flatnonzero(e + np.interp(left, walk_t, walk_e) < search.energy * (1 - tolerance) + 0.5)
        t, e, origin = t[keep], e[keep], origin[keep]
        keep = pareto(t, e, origin)
        t, e, origin = t[keep], e[keep], origin[keep]
        if search.states > states:
            break
        if len(t):
            stack.append((rank + 1, t, e, (trail, origin // len(option), option[origin % len(option)])))
    else:
        search.complete = True
    if best_end is not None:
        trail, state, rank, last, steps = best_end
        picks = edges.options_after(steps, len(groups), after=rank)
        picks[:rank] = walk_back(trail, state, rank)
        picks[rank] = last
        search.picks = picks
    return search


def _turns(bound: np.ndarray, size: int) -> list[np.ndarray]:
    """Return index arrays of at most `size` states; the most promising last, since the last is worked on first."""
    order = np.argsort(bound, kind="stable")
    return [np.sort(order[i : i + size]) for i in range(0, len(order), size)][::-1]
