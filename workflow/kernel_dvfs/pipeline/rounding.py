"""Rounds the linear programme's durations to options that exist, never past the promised time.

Two starts, both within the promise: (A) each operation takes the slowest option within its own planned duration;
(B) in order of the graph, the slowest option that ends by its planned end, so that time lost by one is handed on. Then
repair: while some operation's next slower option fits its float, take the one that saves most, in all or per second.
The cheapest of the four results counts. A heuristic: the bound (frontier.py) says how much it can lose.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from kernel_dvfs.pipeline.curve import Options
from kernel_dvfs.pipeline.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """Options chosen for all operations, and what they come to."""

    choice: np.ndarray  # (N,) positions in each operation's Options
    cost_j: float  # sum of their effective energies
    finish: np.ndarray  # (N,) ends, ticks
    time_ticks: int  # the realised time of the iteration, the greatest of them


class Lists:
    """Options of all operations as Python lists (fast to index); equal Options share one list."""

    def __init__(self, options: list[Options]) -> None:
        shared = {id(own): (own.ticks.tolist(), own.cost_j.tolist()) for own in options}
        self.ticks = [shared[id(own)][0] for own in options]
        self.cost_j = [shared[id(own)][1] for own in options]


def round_to_options(graph: Graph, lists: Lists, begin: np.ndarray, end: np.ndarray, limit: int) -> Rounded:
    """Options for planned begins and ends (ticks, (N,)) that keep `limit` ticks.

    The plan must leave every operation the time of its fastest option; then so does every start.
    """
    starts = (_by_duration(lists, begin, end), _by_end(graph, lists, end))
    best: Rounded | None = None
    for start in starts:
        for per_second in (False, True):
            choice, floats = _repaired(graph, lists, start, limit, per_second)
            cost = sum(own[at] for own, at in zip(lists.cost_j, choice))
            if best is None or cost < best.cost_j:
                best = Rounded(np.array(choice), cost, np.array(floats.finish), max(floats.finish))
    assert best is not None
    if best.time_ticks > limit:
        raise ArithmeticError(f"a plan takes {best.time_ticks} ticks, more than the promised {limit}")
    return best


def _by_duration(lists: Lists, begin: np.ndarray, end: np.ndarray) -> list[int]:
    durations = (np.asarray(end) - np.asarray(begin)).tolist()
    return [max(bisect_right(own, duration) - 1, 0) for own, duration in zip(lists.ticks, durations)]


def _by_end(graph: Graph, lists: Lists, end: np.ndarray) -> list[int]:
    choice: list[int] = []
    finish: list[int] = []
    for number, (own, until) in enumerate(zip(lists.ticks, np.asarray(end).tolist())):
        start = max((finish[other] + lag for other, lag in graph.before[number]), default=0)
        choice.append(max(bisect_right(own, until - start) - 1, 0))
        finish.append(start + own[choice[-1]])
    return choice


def _repaired(graph: Graph, lists: Lists, start: list[int], limit: int, per_second: bool) -> tuple[list[int], Floats]:
    """(choice, its times): slower options taken while they fit; the one that saves most first, in all or per second."""
    choice = list(start)
    floats = Floats(graph, [own[at] for own, at in zip(lists.ticks, choice)], limit)

    def candidate(number: int) -> tuple[float, int, int]:
        own, cost, at = lists.ticks[number], lists.cost_j[number], choice[number]
        longer = own[at + 1] - own[at]
        gain = cost[at] - cost[at + 1]
        return (-gain / longer if per_second else -gain), number, longer

    # room only ever shrinks, so a candidate that does not fit is dropped for good
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


class Floats:
    """Earliest and latest times of operations, kept up to date while single ones are made longer.

    finish[i]: the earliest, latest[i]: the latest end of operation i under `limit`, ticks. A longer operation only
    ever takes room away from others, so what does not fit once never fits later.
    """

    def __init__(self, graph: Graph, ticks: list[int], limit: int) -> None:
        self.graph, self.ticks, self.limit = graph, list(ticks), limit
        self.finish = graph.finish_ticks(self.ticks)
        self.latest = [limit] * len(graph)
        for number in range(len(graph) - 1, -1, -1):
            for other, lag in graph.after[number]:
                bound = self.latest[other] - self.ticks[other] - lag
                if bound < self.latest[number]:
                    self.latest[number] = bound

    def room(self, number: int) -> int:
        """By how much an operation may become longer without breaking the limit; negative where it is broken."""
        return self.latest[number] - self.finish[number]

    def lengthen(self, number: int, by: int) -> None:
        """Make an operation longer by `by` <= its room."""
        before, after, ticks, finish, latest = (
            self.graph.before,
            self.graph.after,
            self.ticks,
            self.finish,
            self.latest,
        )
        ticks[number] += by
        finish[number] += by
        moved = [number]
        while moved:
            tail = moved.pop()
            for head, lag in after[tail]:
                end = finish[tail] + lag + ticks[head]
                if end > finish[head]:
                    finish[head] = end
                    moved.append(head)
        moved = [number]
        while moved:
            head = moved.pop()
            begin = latest[head] - ticks[head]
            for tail, lag in before[head]:
                if begin - lag < latest[tail]:
                    latest[tail] = begin - lag
                    moved.append(tail)
