"""The graph of one iteration: what every operation waits for.

The graph is built in time linear in its size; an edge may take time (a transfer between stages). Operations have
neither durations nor energies here. schedules.py says in which order each stage runs its work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict, final

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import write_json
from kernel_dvfs_clocks.shape import FILLED, Count, Is, read
from kernel_dvfs_pipeline.curve import TICKS_PER_S, duration_ticks
from kernel_dvfs_pipeline.schedules import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    GRADIENT,
    OF_MICROBATCH,
    Item,
    Layout,
    layout,
    orders,
)

SCHEMA = "kernel-dvfs/pipeline-graph/1"
MOST_LAG_S = 3600  # of a transfer; whole picoseconds of long paths still fit

Waits = list[list[tuple[int, int]]]  # per operation: (other operation, time between them)


class Operation(NamedTuple):
    """One node of the graph."""

    stage: int  # the device, from 0
    virtual_stage: int  # chunk x stages + stage: profiles name the work by it
    instruction: str
    microbatch: int


class Graph:
    """Operations in topological order, and edges.

    operations: N of them. stages: S. tail, head: (E,) int, positions in `operations`, tail < head. lag_ticks: (E,)
    int64, the time from the end of the tail to the earliest start of the head. rounds: operations rounds[k] to
    rounds[k + 1] wait for none of each other, and each of them for one of the round before.
    """

    def __init__(
        self, operations: Sequence[Operation], edges: Sequence[tuple[int, int, float]] | np.ndarray, stages: int
    ) -> None:
        """edges: [(tail, head, lag_s)] or as rows of an array, positions in `operations`.

        Raises InputError where they close a circle or take no possible time.
        """
        count = len(operations)
        ends = np.array(edges, float).reshape(-1, 3)
        possible = (ends[:, 2] >= 0) & (ends[:, 2] <= MOST_LAG_S)
        known = (ends[:, :2] >= 0) & (ends[:, :2] < count)
        if len(wrong := np.flatnonzero(~(possible & known.all(axis=1)))):
            tail, head, lag_s = edges[wrong[0]]
            if not possible[wrong[0]]:
                raise InputError(
                    f"graph: edge {tail:.0f} -> {head:.0f} takes {lag_s} s: expected seconds from 0 to {MOST_LAG_S}"
                )
            end = head if known[wrong[0], 0] else tail
            raise InputError(f"graph: an edge names operation {end:.0f} of {count}; number them from 0")
        tails, heads = ends[:, :2].astype(np.int64).T
        order, self.rounds = _sorted(operations, tails, heads)
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        self.operations = [operations[number] for number in order.tolist()]
        self.stages = stages
        self.tail, self.head = place[tails], place[heads]
        self.lag_ticks = duration_ticks(ends[:, 2])
        # by head, for whole rounds at once
        by_head = np.argsort(self.head, kind="stable")
        self._first = np.searchsorted(self.head[by_head], np.arange(count + 1))
        self._tail, self._lag = self.tail[by_head], self.lag_ticks[by_head]

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def before(self) -> Waits:
        """Per operation what it waits for, for Python loops."""
        return _waits(len(self), self.head, self.tail, self.lag_ticks)

    @cached_property
    def after(self) -> Waits:
        """Per operation what waits for it."""
        return _waits(len(self), self.tail, self.head, self.lag_ticks)

    def finish_ticks(self, ticks: Sequence[float] | np.ndarray) -> list:
        """Return the earliest finish of each operation when they take `ticks`; the last one is the iteration's time."""
        finish = np.array(ticks)
        for begin, end in pairwise(self.rounds[1:]):
            first, last = self._first[begin], self._first[end]
            arrives = finish[self._tail[first:last]] + self._lag[first:last]
            finish[begin:end] += np.maximum.reduceat(arrives, self._first[begin:end] - first)
        return finish.tolist()


def _waits(count: int, operation: np.ndarray, other: np.ndarray, lag_ticks: np.ndarray) -> Waits:
    waits: Waits = [[] for _ in range(count)]
    for number, *wait in zip(operation.tolist(), other.tolist(), lag_ticks.tolist()):
        waits[number].append((wait[0], wait[1]))
    return waits


def finishes(before: Waits, durations: Sequence[float]) -> list:
    """Return the earliest ends of operations in topological order, in any unit; before: [(other, lag)] of each."""
    finish: list = []
    for duration, waits in zip(durations, before):
        finish.append(max((finish[other] + lag for other, lag in waits), default=0) + duration)
    return finish


def _sorted(operations: Sequence[Operation], tail: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return (topological order, where each round of it begins, and its end): the order of graphlib's static_order when
    edges are added by head. Raises InputError for a circle."""
    count, edges = len(operations), len(tail)
    by_tail = np.lexsort((head, tail))
    heads, first = head[by_tail], np.searchsorted(tail[by_tail], np.arange(count + 1))
    missing = np.bincount(head, minlength=count)
    # what waits for nothing comes where it is first named, as itself or by what waits for it
    named = np.arange(count) * (edges + 1)
    np.minimum.at(named, tail, head * (edges + 1) + 1 + np.arange(edges))
    ready = np.flatnonzero(missing == 0)
    ready = ready[np.argsort(named[ready])]
    rounds, starts = [ready], [0]
    while len(ready):
        starts.append(starts[-1] + len(ready))
        many = first[ready + 1] - first[ready]
        passed = heads[np.repeat(first[ready] - np.cumsum(many) + many, many) + np.arange(many.sum())]
        np.subtract.at(missing, passed, 1)
        # each is ready with the last of its edges
        reached, last = np.unique(passed[::-1], return_index=True)
        is_ready = missing[reached] == 0
        ready = reached[is_ready][np.argsort(-last[is_ready])]
        rounds.append(ready)
    if starts[-1] < count:
        waits: dict[int, list[int]] = {number: [] for number in range(count)}
        for before, after in zip(tail.tolist(), head.tolist()):
            waits[after].append(before)
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            circle = " -> ".join(str(operations[number]) for number in error.args[1][::-1])
            raise InputError(f"graph: operations wait for each other in a circle: {circle}; remove an edge") from None
    return np.concatenate(rounds), starts


def _words(item: Item) -> str:
    chunk = f" of chunk {item.chunk}" if item.chunk else ""
    return f"{item.instruction}{chunk}" + (f" of microbatch {item.microbatch}" if item.microbatch >= 0 else "")


def pipeline_graph(
    schedule: str,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    early_recompute: bool = False,
    transfer_s: float = 0.0,
    constant: Sequence[str] = (),
) -> Graph:
    """Return the graph of a pipeline schedule (schedules.NAMES).

    Edges: the order of each stage; F(v, m) -> F(v+1, m); B(v+1, m) -> B(v, m) over virtual stages v, where B is the
    backward pass or the part of it that makes the input's gradient; between different devices each takes transfer_s.
    The first B waits for the last forward of its microbatch, the weights' gradient for the input's.
    constant: names of instructions that every stage runs first ("load_data") or, with a leading "+", last
    ("+all_reduce"): work whose time no plan changes, profiled like any other.
    """
    first = [Item(name, 0, -1) for name in constant if not name.startswith("+")]
    last = [Item(name[1:], 0, -1) for name in constant if name.startswith("+")]
    stage_orders = orders(schedule, stages, microbatches, chunks, early_recompute)
    return ordered_graph(
        [[*first, *order, *last] for order in stage_orders], layout(schedule, stages, chunks), transfer_s
    )


def ordered_graph(stage_orders: Sequence[Sequence[Item]], placed: Layout | Recorded, transfer_s: float = 0.0) -> Graph:
    """Return the graph of stages that run the Items stage_orders[stage] in order, with the edges of pipeline_graph.

    Raises InputError for an item that comes twice, for one that waits for what no stage runs, for a backward pass of
    which the weights' gradient is missing, for a circle.
    """
    if not (math.isfinite(transfer_s) and transfer_s >= 0):
        raise InputError(f"pipeline: transfer time {transfer_s} s: expected seconds >= 0")
    items = [item for order in stage_orders for item in order]
    stage = np.repeat(np.arange(len(stage_orders)), [len(order) for order in stage_orders])
    names = {name: at for at, name in enumerate(dict.fromkeys([*OF_MICROBATCH, *(item.instruction for item in items)]))}
    kind = np.array([names[item.instruction] for item in items], np.int64)
    chunk, microbatch = (np.array([item[field] for item in items], np.int64) for field in (1, 2))
    virtual = _per_pair(placed.virtual, stage, chunk)
    # microbatches may be numbered with gaps
    which, same = np.unique(microbatch, return_inverse=True)
    chunks = 1 + chunk.max(initial=0)

    def code(stage: np.ndarray, kind: int | np.ndarray, chunk: np.ndarray, same: np.ndarray) -> np.ndarray:
        return ((stage * len(names) + kind) * chunks + chunk) * len(which) + same

    codes = code(stage, kind, chunk, same)
    by_code = np.argsort(codes, kind="stable")
    rising = codes[by_code]
    if (twice := rising[1:] == rising[:-1]).any():
        number = int(by_code[1:][twice].min())
        raise InputError(f"pipeline: stage {stage[number]} runs {_words(items[number])} twice")
    edges: list[np.ndarray] = []  # rows: where it comes, tail, head, lag_s

    def partner(numbers: np.ndarray, other: np.ndarray, chunk: np.ndarray, instructions: Sequence[str]) -> np.ndarray:
        """Return, for each of these operations, the one of the same microbatch that stage `other` runs."""
        matches = np.full(len(numbers), -1)
        for instruction in instructions:
            asked = code(other, names[instruction], chunk, same[numbers])
            at = np.minimum(np.searchsorted(rising, asked), len(rising) - 1)
            matches = np.where((matches < 0) & (rising[at] == asked), by_code[at], matches)
        if len(missing := np.flatnonzero(matches < 0)):
            number, at = numbers[missing[0]], missing[0]
            awaited = _words(Item(instructions[0], int(chunk[at]), items[number].microbatch))
            raise InputError(
                f"pipeline: stage {stage[number]} runs {_words(items[number])}, but stage {other[at]} does not run "
                f"{awaited}"
            )
        return matches

    def join(
        slot: int, numbers: np.ndarray, tail: np.ndarray, head: np.ndarray, lag_s: float | np.ndarray = 0.0
    ) -> None:
        edges.append(np.stack(np.broadcast_arrays(4 * numbers + slot, tail, head, lag_s), axis=1, dtype=float))

    chained = np.flatnonzero(stage[1:] == stage[:-1])
    join(0, chained - len(items), chained, chained + 1)
    runs = {name: np.flatnonzero(kind == at) for name, at in names.items()}
    gradients = np.sort(np.concatenate([runs[name] for name in GRADIENT]))
    split = runs[BACKWARD_INPUT]
    join(0, split, split, partner(split, stage[split], chunk[split], [BACKWARD_WEIGHT]))
    weights = runs[BACKWARD_WEIGHT]
    partner(weights, stage[weights], chunk[weights], [BACKWARD_INPUT])
    # a microbatch goes forward and back, whichever of the two is looked at
    for passes, others in ((runs[FORWARD], GRADIENT), (runs[BACKWARD], [FORWARD])):
        partner(passes, stage[passes], chunk[passes], others)
    last = runs[FORWARD][virtual[runs[FORWARD]] == placed.virtual_stages - 1]
    join(1, last, last, partner(last, stage[last], chunk[last], GRADIENT))
    for ways, kinds in ((runs[FORWARD], [FORWARD]), (gradients, GRADIENT)):
        for slot, step in ((2, -1), (3, 1)):
            linked = ways[(virtual[ways] + step >= 0) & (virtual[ways] + step < placed.virtual_stages)]
            other, at = _per_pair(placed.place, virtual[linked] + step, chunk[linked]).reshape(-1, 2).T
            partners = partner(linked, other, at, kinds)
            # forward passes hand on to the next part of the model, gradients to the one before
            if (step > 0) == (kinds == [FORWARD]):
                join(slot, linked, linked, partners, np.where(other != stage[linked], transfer_s, 0.0))
    ordered = np.concatenate(edges)
    ordered = ordered[np.argsort(ordered[:, 0], kind="stable"), 1:]
    # two reasons to wait for the same operation are one edge, the longer
    _, first, joined = np.unique(ordered[:, 0] * len(items) + ordered[:, 1], return_index=True, return_inverse=True)
    longest = np.zeros(len(first))
    np.maximum.at(longest, joined, ordered[:, 2])
    ordered[first, 2] = longest
    operations = list(
        map(Operation, stage.tolist(), virtual.tolist(), [item.instruction for item in items], microbatch.tolist())
    )
    return Graph(operations, ordered[np.sort(first)], placed.stages)


class Recorded(NamedTuple):
    """A layout that was seen: which virtual stages each device runs, in their order. Its chunks are numbered by it."""

    held: tuple[tuple[int, ...], ...]

    @property
    def stages(self) -> int:
        return len(self.held)

    @property
    def virtual_stages(self) -> int:
        return sum(map(len, self.held))

    def virtual(self, stage: int, chunk: int) -> int:
        """Return the virtual stage that a chunk of a stage is."""
        return self.held[stage][chunk]

    def place(self, virtual: int, chunk: int) -> tuple[int, int]:
        """Return (stage, chunk) of a virtual stage."""
        return next((stage, held.index(virtual)) for stage, held in enumerate(self.held) if virtual in held)


def recorded_graph(orders: Sequence[Sequence[tuple[str, int, int]]], transfer_s: float = 0.0) -> Graph:
    """Return the graph of what each device ran, (instruction, virtual stage, microbatch) in order, wherever the virtual
    stages lie. Raises InputError as ordered_graph does, and for a virtual stage that no device or more than one ran."""
    held = tuple(tuple(sorted({virtual for _, virtual, _ in order})) for order in orders)
    every = sorted(virtual for stages in held for virtual in stages)
    if every != list(range(len(every))):
        ran = ", ".join(map(str, every))
        raise InputError(f"pipeline: its devices ran the stages {ran}: expected each once, from 0")
    items = [
        [Item(instruction, held[device].index(virtual), microbatch) for instruction, virtual, microbatch in order]
        for device, order in enumerate(orders)
    ]
    return ordered_graph(items, Recorded(held), transfer_s)


def _per_pair(of: Callable[[int, int], Any], first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return what `of` gives for each pair, worked out once for equal ones."""
    known = {pair: of(*pair) for pair in set(zip(first.tolist(), second.tolist()))}
    return np.array([known[pair] for pair in zip(first.tolist(), second.tolist())], np.int64)


@final
class _Operation(TypedDict):
    stage: Count
    virtual_stage: Count
    instruction: str
    microbatch: Annotated[int, Is("a whole number >= 0 (-1: work of no microbatch)", lambda value: value >= -1)]


@final
class _GraphEdge(TypedDict):
    tail: Count
    head: Count
    lag_s: float


class _GraphFile(TypedDict):
    schema: str
    stages: Count
    operations: Annotated[list[_Operation], FILLED]
    edges: list[_GraphEdge]


def write_graph(path: Path | str, graph: Graph) -> None:
    """Write a graph as JSON: its operations in order, and its edges by their positions."""
    edges = zip(graph.tail.tolist(), graph.head.tolist(), graph.lag_ticks.tolist())
    write_json(
        path,
        {
            "schema": SCHEMA,
            "stages": graph.stages,
            "operations": [operation._asdict() for operation in graph.operations],
            "edges": [{"tail": tail, "head": head, "lag_s": lag / TICKS_PER_S} for tail, head, lag in edges],
        },
    )


def read_graph(path: Path | str) -> Graph:
    """Return the graph of a file, as write_graph writes it. Raises InputError, one line that names what is wrong."""
    content = read(path, _GraphFile, SCHEMA, "kernel_dvfs_pipeline.graph.write_graph writes one")
    operations = [Operation(**operation) for operation in content["operations"]]
    edges, stages = content["edges"], content["stages"]
    used = {operation.stage for operation in operations}
    if stages != len(used) or max(used) != stages - 1:
        shown = ", ".join(map(str, sorted(used)[:9])) + (", ..." if len(used) > 9 else "")
        raise InputError(f"{path}: stages = {stages!r}, its operations are on {shown}: number all from 0")
    if len(set(operations)) < len(operations):
        raise InputError(f"{path}: an operation is there twice; remove one")
    graph = Graph(operations, [(edge["tail"], edge["head"], edge["lag_s"]) for edge in edges], stages)
    _check_order(path, graph)
    return graph


def _check_order(path: Path | str, graph: Graph) -> None:
    """Raise InputError where two operations of a stage could run at once: a stage runs one after the other."""
    last: dict[int, int] = {}
    # per operation and stage: the last operation of that stage that is surely over
    over = np.full((len(graph), graph.stages), -1, np.int64)
    for number, operation in enumerate(graph.operations):
        for other, _ in graph.before[number]:
            np.maximum(over[number], over[other], out=over[number])
        before = last.get(operation.stage, -1)
        if over[number, operation.stage] != before:
            first, second = (graph.operations[at] for at in (before, number))
            raise InputError(
                f"{path}: stage {operation.stage} may run {first.instruction} of microbatch {first.microbatch} and "
                f"{second.instruction} of microbatch {second.microbatch} at once: add an edge between them"
            )
        over[number, operation.stage] = number
        last[operation.stage] = number
