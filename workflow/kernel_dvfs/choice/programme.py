"""Exact Pareto dynamic programme over the core, pruned by the LP bound of what is still to be decided.

A state is a partial choice: the groups so far decided, all others at their fastest option; (t, e) are its
totals. A state that another one matches in both t and e is dropped (dominance). The rest of the groups can
lower its energy at most by the value of their merged lower hull at the time left (their LP relaxation): a
state that so cannot get below the best known energy is dropped (bound). Following the hull only as far as
whole edges fit gives a feasible choice for every state at once, which keeps improving the best known one.
Groups with a wide spread of time come first, so that what remains is fine-grained and its bound tight. When
no state is left, the best known is optimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.choice.undecided import Core

WIDE = 2_000_000  # states made together at most; more are worked through in turns to bound the memory


@dataclass
class Search:
    """energy, time: totals of the best choice known. picks: its options, None if it came from outside.

    states: how many states were looked at. complete: nothing better exists.
    """

    energy: float
    time: float
    picks: np.ndarray | None = None
    states: int = 0
    complete: bool = False


def walk_back(trail: tuple | None, state: int, count: int) -> np.ndarray:
    """The options that led to a state; trail: (earlier trail, parent of each state, option of each)."""
    picks = np.zeros(count, dtype=np.intp)
    rank = count
    while trail is not None:
        rank -= 1
        trail, parent, option = trail
        picks[rank] = option[state]
        state = parent[state]
    return picks


def run(
    core: Core, energy: float, time: float, bound: float, margin: float, states: float, tolerance: float = 0.0
) -> Search:
    """Search for a choice with less energy (or as much in less time); give up after `states` states.

    bound: LP bound of the whole problem, for reduced-cost fixing on the way. margin: see Relaxation.
    tolerance: relative; above 0, "complete" means that nothing is better by more than that.
    """
    search = Search(energy, time)
    groups, edges = core.groups, core.edges
    walk = lru_cache(maxsize=64)(edges.walk)  # asked for again only where states take turns
    found = None  # (trail, state, decided groups, hull edges taken) of the best choice
    stack = [(0, np.array([core.t]), np.array([core.e]), None)]
    while stack:
        rank, t, e, trail = stack.pop()
        if rank == len(groups):
            continue
        group = groups[rank]
        option = np.flatnonzero(group.reduced <= search.energy - bound + margin)
        if len(t) > 1 and len(t) * len(option) > WIDE:
            walk_t, walk_e = walk(rank - 1)
            for part in _turns(e + np.interp(core.budget - t, walk_t, walk_e), max(1, WIDE // len(option))):
                stack.append((rank, t[part], e[part], (trail[0], trail[1][part], trail[2][part])))
            continue
        t = np.add.outer(t, group.dt[option]).ravel()
        e = np.add.outer(e, group.de[option]).ravel()
        search.states += len(t)
        walk_t, walk_e = walk(rank)
        left = core.budget - t
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
                found = (trail, i // len(option), rank, option[i % len(option)], steps[best])
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
    if found is not None:
        trail, state, rank, last, steps = found
        picks = edges.options_after(steps, len(groups), after=rank)
        picks[:rank] = walk_back(trail, state, rank)
        picks[rank] = last
        search.picks = picks
    return search


def _turns(bound: np.ndarray, size: int) -> list:
    """Index arrays of at most `size` states; the most promising last, since the last is worked on first."""
    order = np.argsort(bound, kind="stable")
    return [np.sort(order[i : i + size]) for i in range(0, len(order), size)][::-1]
