"""Every choice that could still be better than the best known one, looked at in order of launch.

A label is a partial choice: a boundary, the pair there, time and energy so far. Its reduced cost is what it costs at
the price of time above the best of all; whatever continues it costs at least that much more than the bound. Labels
above the gap are dropped, and of labels at one boundary and pair those that another one matches in time and energy.
What is left at the end is the optimum, unless there were too many and the dearest had to be dropped: then only the
bound from before is known.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.sequence.changes import Changes
from kernel_dvfs.sequence.mixing import thinned


def search(chain, price: float, first: int, limit_s: float, known_j: float, labels: int, effort: int) -> tuple:
    """(Changes or None, whether it was complete, effort spent): the least energy within the limit of all that begin
    with `first`, if less than `known_j`. labels: how many are kept at a boundary and pair."""
    values = chain.values(price, first)
    count = chain.count
    # nothing that ends at the limit with known_j costs less at the price
    most = known_j + price * limit_s
    least_s = chain.values_s(first)
    waiting = {0: [(np.array([first]), np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.intp))]}
    trail_at, trail_to, trail_from = [], [], []
    size, complete, spent_effort = 0, True, 0
    best = None
    for place in range(count + 1):
        own = waiting.pop(place, None)
        if own is None:
            continue
        pair, time, energy, number = (np.concatenate(each) for each in zip(*own))
        pair, time, energy, number, cut = _undominated(pair, time, energy, number, price, labels)
        complete &= not cut
        if place == count:
            fits = np.flatnonzero((time <= limit_s) & (energy < known_j))
            best = number[fits[np.lexsort((time[fits], energy[fits]))[0]]] if len(fits) else None
            break
        spent = energy + price * time
        spent_effort += len(pair) * chain.size
        if spent_effort > effort:
            return None, False, spent_effort
        for after, source, to, step_s, step_j in chain.steps(place, pair):
            total_s, total_j = time[source] + step_s, energy[source] + step_j
            keep = np.flatnonzero(
                (spent[source] + step_j + price * step_s + values[after, to] < most)
                & (total_s + least_s[after, to] <= limit_s)
            )
            if not len(keep):
                continue
            source, to = source[keep], to[keep]
            numbers = number[source].copy()
            moved = np.flatnonzero(to != pair[source])
            if len(moved):
                numbers[moved] = np.arange(size + 1, size + 1 + len(moved))
                size += len(moved)
                trail_at.append(np.full(len(moved), place))
                trail_to.append(to[moved])
                trail_from.append(number[source[moved]])
            after = np.broadcast_to(after, keep.shape) if np.ndim(after) == 0 else after[keep]
            for goal in np.unique(after).tolist():
                there = np.flatnonzero(after == goal)
                waiting.setdefault(goal, []).append(
                    (to[there], total_s[keep[there]], total_j[keep[there]], numbers[there])
                )
    if best is None:
        return None, complete, spent_effort
    at, to, back = (np.concatenate(each) for each in (trail_at, trail_to, trail_from))
    walked = []
    while best:
        walked.append((int(at[best - 1]), int(to[best - 1])))
        best = back[best - 1]
    places, pairs = zip(*walked[::-1]) if walked else ((), ())
    return Changes(first, places, pairs), complete, spent_effort


def _undominated(pair, time, energy, number, price: float, labels: int) -> tuple:
    kept, cut = [], False
    for own in np.unique(pair).tolist():
        here = np.flatnonzero(pair == own)
        if len(here) > 1:
            here = here[pareto(time[here], energy[here], number[here])]
        if len(here) > labels:
            cut = True
            here = thinned(here, time, energy + price * time, labels)
        kept.append(here)
    kept = np.concatenate(kept)
    return pair[kept], time[kept], energy[kept], number[kept], cut
