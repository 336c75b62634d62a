"""The graph of one iteration: operations and what each waits for. Built in time linear in its size.

Knows no durations of operations and no energies; an edge may take time (a transfer between stages).
"""

from collections import namedtuple
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.schedules import BACKWARD, FORWARD, Item, orders
from kernel_dvfs.pipeline.ticks import duration_ticks


class Operation(namedtuple("Operation", "stage virtual_stage instruction microbatch")):
    """stage: the device, 0-based; virtual_stage: chunk x stages + stage, by which profiles name the work."""

    __slots__ = ()


class Graph:
    """Operations in topological order, and edges.

    operations: list of Operation (N). stages: S. tail, head: (E,) int, positions in `operations`, tail < head.
    lag_ticks: (E,) int64, the time from the end of the tail to the earliest start of the head.
    before, after: per operation [(other, lag)], for Python loops.
    """

    def __init__(self, operations: list, edges: list, stages: int):
        """edges: [(tail, head, lag_s)], positions in `operations`. Raises InputError where they close a circle."""
        order = _sorted(operations, edges)
        place = np.empty(len(operations), np.int64)
        place[order] = np.arange(len(operations))
        self.operations = [operations[number] for number in order]
        self.stages = stages
        self.tail = place[[edge[0] for edge in edges]] if edges else np.zeros(0, np.int64)
        self.head = place[[edge[1] for edge in edges]] if edges else np.zeros(0, np.int64)
        self.lag_ticks = duration_ticks([edge[2] for edge in edges])
        self.before = [[] for _ in operations]
        self.after = [[] for _ in operations]
        for tail, head, lag in zip(self.tail.tolist(), self.head.tolist(), self.lag_ticks.tolist()):
            self.before[head].append((tail, lag))
            self.after[tail].append((head, lag))

    def __len__(self) -> int:
        return len(self.operations)

    def finish_ticks(self, ticks: list) -> list:
        """Earliest finish of each operation when they take `ticks`; the last one is the iteration's time."""
        return finishes(self.before, ticks)


def finishes(before: list, durations: list) -> list:
    """Earliest ends of operations in topological order, in any unit of time; before: per operation [(other, lag)]."""
    finish = []
    for own, waits in zip(durations, before):
        finish.append(max((finish[other] + lag for other, lag in waits), default=0) + own)
    return finish


def _sorted(operations: list, edges: list) -> list:
    waits = {number: [] for number in range(len(operations))}
    for tail, head, _ in edges:
        for end in (tail, head):
            if end not in waits:
                raise InputError(f"graph: an edge names operation {end} of {len(operations)}; number them from 0")
        waits[head].append(tail)
    try:
        return list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        circle = " -> ".join(str(operations[number]) for number in error.args[1][::-1])
        raise InputError(f"graph: operations wait for each other in a circle: {circle}; remove an edge") from None


def pipeline_graph(
    schedule: str,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    early_recompute: bool = False,
    transfer_s: float = 0.0,
    constant: tuple = (),
) -> Graph:
    """The graph of a pipeline schedule.

    Edges: the order of each stage; F(v, m) -> F(v+1, m); B(v+1, m) -> B(v, m) over virtual stages v; between
    different devices each takes transfer_s. The first backward waits for the last forward of its microbatch.
    constant: names of instructions that every stage runs first ("load_data") or, with a leading "+", last
    ("+optimizer"): work whose time no plan changes, profiled like any other.
    """
    operations, edges, place = [], [], {}

    def put(stage, item):
        place[stage, item] = len(operations)
        operations.append(Operation(stage, item.chunk * stages + stage, item.instruction, item.microbatch))
        return place[stage, item]

    for stage, order in enumerate(orders(schedule, stages, microbatches, chunks, early_recompute)):
        first = [Item(name, 0, -1) for name in constant if not name.startswith("+")]
        last = [Item(name[1:], 0, -1) for name in constant if name.startswith("+")]
        numbers = [put(stage, item) for item in (*first, *order, *last)]
        edges += [(tail, head, 0.0) for tail, head in pairwise(numbers)]
    for (stage, item), number in place.items():
        if item.instruction not in (FORWARD, BACKWARD):
            continue
        virtual = item.chunk * stages + stage + (1 if item.instruction == FORWARD else -1)
        if 0 <= virtual < chunks * stages:
            other = virtual % stages
            lag = transfer_s if other != stage else 0.0
            edges.append((number, place[other, item._replace(chunk=virtual // stages)], lag))
        elif virtual == chunks * stages:
            edges.append((number, place[stage, item._replace(instruction=BACKWARD)], 0.0))
    # two reasons to wait for the same operation are one edge, the longer
    longest = {}
    for tail, head, lag in edges:
        longest[tail, head] = max(lag, longest.get((tail, head), 0.0))
    return Graph(operations, [(*ends, lag) for ends, lag in longest.items()], stages)
