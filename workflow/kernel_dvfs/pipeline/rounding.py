"""From the linear programme's durations to options that exist, never past the promised time.

Two starts, both within the promise: (A) each operation takes the slowest option within its own planned duration;
(B) in order of the graph, the slowest option that ends by its planned end, so that time lost by one is handed on. Then
repair: while some operation's next slower option fits its float, take the one that saves most, in all or per second.
The cheapest of the four results counts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from kernel_dvfs.pipeline.curve import Options
from kernel_dvfs.pipeline.floats import Floats
from kernel_dvfs.pipeline.graph import Graph


@dataclass(frozen=True, eq=False)
class Rounded:
    """choice: (N,) positions in each operation's Options. cost_j: their sum of effective energies. finish: (N,) ends,
    ticks; time_ticks: the realised time of the iteration, the greatest of them."""

    choice: np.ndarray
    cost_j: float
    finish: np.ndarray
    time_ticks: int


class Lists:
    """Options of all operations as Python lists (fast to index); equal Options share one list."""

    def __init__(self, options: list[Options]):
        shared = {id(own): (own.ticks.tolist(), own.cost_j.tolist()) for own in options}
        self.ticks = [shared[id(own)][0] for own in options]
        self.cost_j = [shared[id(own)][1] for own in options]


def round_to_options(graph: Graph, lists: Lists, begin: np.ndarray, end: np.ndarray, limit: int) -> Rounded:
    """Options for planned begins and ends (ticks, (N,)) that keep `limit` ticks.

    The plan must leave every operation the time of its fastest option; then so does every start.
    """
    starts = (_by_duration(lists, begin, end), _by_end(graph, lists, end))
    best = None
    for start in starts:
        for per_second in (False, True):
            choice, floats = _repaired(graph, lists, start, limit, per_second)
            cost = sum(own[at] for own, at in zip(lists.cost_j, choice))
            if best is None or cost < best.cost_j:
                best = Rounded(np.array(choice), cost, np.array(floats.finish), max(floats.finish))
    if best.time_ticks > limit:
        raise ArithmeticError(f"a plan takes {best.time_ticks} ticks, more than the promised {limit}")
    return best


def _by_duration(lists: Lists, begin, end) -> list:
    durations = (np.asarray(end) - np.asarray(begin)).tolist()
    return [max(bisect_right(own, duration) - 1, 0) for own, duration in zip(lists.ticks, durations)]


def _by_end(graph: Graph, lists: Lists, end) -> list:
    choice, finish = [], []
    for number, (own, until) in enumerate(zip(lists.ticks, np.asarray(end).tolist())):
        start = max((finish[other] + lag for other, lag in graph.before[number]), default=0)
        choice.append(max(bisect_right(own, until - start) - 1, 0))
        finish.append(start + own[choice[-1]])
    return choice


def _repaired(graph: Graph, lists: Lists, start: list, limit: int, per_second: bool) -> tuple:
    choice = list(start)
    floats = Floats(graph, [own[at] for own, at in zip(lists.ticks, choice)], limit)

    def candidate(number):
        own, cost, at = lists.ticks[number], lists.cost_j[number], choice[number]
        longer = own[at + 1] - own[at]
        gain = cost[at] - cost[at + 1]
        return (-gain / longer if per_second else -gain), number, longer

    # room only ever shrinks: a candidate that does not fit is dropped for good
    waiting = [
        candidate(number)
        for number in range(len(choice))
        if choice[number] + 1 < len(lists.ticks[number]) and floats.room(number) > 0
    ]
    heapify(waiting)
    while waiting:
        _, number, longer = heappop(waiting)
        if longer > floats.room(number):
            continue
        floats.lengthen(number, longer)
        choice[number] += 1
        if choice[number] + 1 < len(lists.ticks[number]):
            heappush(waiting, candidate(number))
    return choice, floats
