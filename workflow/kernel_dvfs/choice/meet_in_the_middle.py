"""Two lists of partial choices, matched: the best pair within the budget, found by sorting.

`swap` improves a choice by at most one change in each half of the targets. `meet` decides all undecided targets: it
lists each half's choices by reduced cost. A choice better than the best known one (energy U) has a total
reduced cost of at most U - bound, hence at most that in each half; if both lists hold all such partial
choices, their best pair is optimal. Where a list is cut to its `beam` cheapest, everything cut costs at least
`lost`, and the proof still stands when U - bound < lost.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.choice.integer_grid import IntegerGrid
from kernel_dvfs.choice.programme import Search, Trail, walk_back
from kernel_dvfs.choice.relaxation import Relaxation
from kernel_dvfs.choice.undecided import Undecided, UndecidedTarget

SWAPS = 4000  # options with the least reduced cost that swap looks at


def match(
    t_a: np.ndarray, e_a: np.ndarray, t_b: np.ndarray, e_b: np.ndarray, room: float
) -> tuple[float, float, int, int] | None:
    """Return (energy, time, i, j) of the pair a[i], b[j] with least energy, then time, within `room`; or None."""
    front = pareto(t_b, e_b, np.arange(len(t_b)))
    last = np.searchsorted(t_b[front], room - t_a, side="right") - 1
    fits = np.flatnonzero(last >= 0)
    if not len(fits):
        return None
    partner = front[last[fits]]
    energy, time = e_a[fits] + e_b[partner], t_a[fits] + t_b[partner]
    best = np.lexsort((time, energy))[0]
    return float(energy[best]), float(time[best]), int(fits[best]), int(partner[best])


def swap(integer_grid: IntegerGrid, relaxation: Relaxation, choice: np.ndarray, turns: int = 4) -> np.ndarray:
    """Return `choice` after the best pairs of changes, one in each half of the targets, while any helps."""
    choice = choice.copy()
    target = integer_grid.target
    for turn in range(turns):
        energy = integer_grid.e[choice].sum()
        near = np.flatnonzero(relaxation.reduced <= energy - relaxation.bound + relaxation.margin)
        if len(near) > SWAPS:
            near = np.sort(near[np.argpartition(relaxation.reduced[near], SWAPS)[:SWAPS]])
        # position -1 stands for no change
        dt = np.append(integer_grid.t[near] - integer_grid.t[choice][target[near]], 0.0)
        de = np.append(integer_grid.e[near] - integer_grid.e[choice][target[near]], 0.0)
        # the halves differ from turn to turn: neighbours first, then pairs of neighbours
        odd = (target[near] >> (turn % 2)) % 2 == 1
        a, b = np.append(np.flatnonzero(odd), -1), np.append(np.flatnonzero(~odd), -1)
        better = match(dt[a], de[a], dt[b], de[b], integer_grid.budget - integer_grid.t[choice].sum())
        if better is None or better[0] >= 0:
            if turn % 2:
                break
            continue
        for i in (a[better[2]], b[better[3]]):
            if i >= 0:
                choice[target[near[i]]] = near[i]
    return choice


def _half(groups: list[UndecidedTarget], beam: int, most: float) -> tuple[np.ndarray, np.ndarray, Trail | None, float]:
    """Return the `beam` cheapest choices of `groups` with reduced cost <= most: (t, e, trail, least cost cut)."""
    t, e, cost, lost = np.zeros(1), np.zeros(1), np.zeros(1), np.inf
    trail: Trail | None = None
    for group in groups:
        option = np.flatnonzero(group.reduced <= most)
        total = np.add.outer(cost, group.reduced[option]).ravel()
        keep = np.flatnonzero(total <= most)
        if len(keep) > beam:
            part = np.argpartition(total[keep], beam)
            lost = min(lost, total[keep[part[beam]]])
            keep = keep[part[:beam]]
        parent, taken = keep // len(option), option[keep % len(option)]
        t, e, cost = t[parent] + group.dt[taken], e[parent] + group.de[taken], total[keep]
        trail = (trail, parent, taken)
    return t, e, trail, lost


def meet(undecided: Undecided, energy: float, time: float, bound: float, margin: float, beam: int) -> Search:
    """Search for a choice with less energy (or as much in less time) by two lists of `beam` each."""
    search = Search(energy, time)
    most = energy - bound + margin
    # alternating ranks give both halves a share of the wide and of the narrow groups
    ranks = np.arange(len(undecided.groups))[::2], np.arange(len(undecided.groups))[1::2]
    (t_a, e_a, trail_a, lost_a), (t_b, e_b, trail_b, lost_b) = (
        _half([undecided.groups[i] for i in half], beam, most) for half in ranks
    )
    search.states = len(t_a) + len(t_b)
    best = match(t_a, e_a, t_b, e_b, undecided.budget - undecided.t)
    if best is not None and (best[0] + undecided.e, best[1] + undecided.t) < (energy, time):
        search.energy, search.time = best[0] + undecided.e, best[1] + undecided.t
        search.picks = np.zeros(len(undecided.groups), dtype=np.intp)
        search.picks[ranks[0]] = walk_back(trail_a, best[2], len(ranks[0]))
        search.picks[ranks[1]] = walk_back(trail_b, best[3], len(ranks[1]))
    search.complete = search.energy - bound + margin < min(lost_a, lost_b)
    return search
