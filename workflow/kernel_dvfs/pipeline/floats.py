"""Earliest and latest times of operations, kept up to date while single ones are made longer.

A longer operation only ever takes away room from others, so what does not fit once never fits again.
"""

from __future__ import annotations

from kernel_dvfs.pipeline.graph import Graph


class Floats:
    """Times in ticks under the limit `limit`: finish[i] the earliest, latest[i] the latest end of operation i."""

    def __init__(self, graph: Graph, ticks: list, limit: int):
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
