"""The graph of one iteration: in which order each stage runs its work, and what every operation waits for.

Schedules: 1F1B, GPipe, interleaved 1F1B, each with or without early recomputation. The graph is built in time linear
in its size; an edge may take time (a transfer between stages). Operations have neither durations nor energies here.
Sources: 1F1B as in lowtime and Megatron-LM; interleaved after Megatron-LM's `schedules.py` (Narayanan et al., SC
2021); GPipe, Huang et al., NeurIPS 2019.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.curve import duration_ticks

FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"
NAMES = ("1f1b", "gpipe", "interleaved")

_SCHEDULE = ["stage", "instruction", "microbatch", "chunk"]

Waits = list[list[tuple[int, int]]]  # per operation: (other operation, time between them)


class Item(NamedTuple):
    """One piece of a stage's work."""

    instruction: str  # forward, backward or recompute, or the name of constant work
    chunk: int  # which of the stage's chunks of the model
    microbatch: int  # -1: constant work


class Operation(NamedTuple):
    """One node of the graph."""

    stage: int  # the device, from 0
    virtual_stage: int  # chunk x stages + stage: profiles name the work by it
    instruction: str
    microbatch: int


def orders(
    name: str, stages: int, microbatches: int, chunks: int = 1, early_recompute: bool = False
) -> list[list[Item]]:
    """Per stage (0 = first) the Items in the order in which they run.

    chunks: model chunks per stage, V of the interleaved schedule, 1 for the others. early_recompute: activations are
    computed again before the gradient arrives, on every virtual stage but the last, whose activations still exist.
    Raises InputError.
    """
    for what, count in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if type(count) is not int or count < 1:
            raise InputError(f"pipeline: {what} = {count!r}: expected a whole number >= 1")
    if name not in NAMES:
        raise InputError(f"pipeline: schedule '{name}' is unknown; allowed: {', '.join(NAMES)}")
    if name != "interleaved" and chunks != 1:
        raise InputError(f"pipeline: schedule {name} has one chunk a stage, not {chunks}; use interleaved")
    if name == "interleaved" and microbatches % stages:
        raise InputError(f"pipeline: interleaved: {microbatches} microbatches are no multiple of {stages} stages")
    make = {"1f1b": _one_f_one_b, "gpipe": _gpipe, "interleaved": _interleaved}[name]
    made = [make(stage, stages, microbatches, chunks) for stage in range(stages)]
    if early_recompute:
        made = [_recomputed(order, stage, stages, chunks) for stage, order in enumerate(made)]
    return made


def _alternate(forwards: list[Item], backwards: list[Item], warm_up: int) -> list[Item]:
    """`warm_up` forwards, then a backward and a forward in turn, then the remaining backwards."""
    order = forwards[:warm_up]
    for number, backward in enumerate(backwards):
        order.append(backward)
        order += forwards[warm_up + number : warm_up + number + 1]
    return order


def _one_f_one_b(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    forwards, backwards = _numbered(microbatches)
    return _alternate(forwards, backwards, min(stages - stage, microbatches))


def _gpipe(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    forwards, backwards = _numbered(microbatches)
    return forwards + backwards[::-1]


def _numbered(microbatches: int) -> tuple[list[Item], list[Item]]:
    """(forwards, backwards) of a stage with one chunk."""
    return [Item(FORWARD, 0, m) for m in range(microbatches)], [Item(BACKWARD, 0, m) for m in range(microbatches)]


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    round_ = stages * chunks
    forwards, backwards = [], []
    for k in range(microbatches * chunks):
        chunk, microbatch = k % round_ // stages, k // round_ * stages + k % stages
        forwards.append(Item(FORWARD, chunk, microbatch))
        backwards.append(Item(BACKWARD, chunks - 1 - chunk, microbatch))
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, len(forwards))
    # after the warm-up a forward comes first
    return _alternate(forwards, backwards, min(warm_up + 1, len(forwards)))


def _recomputed(order: list[Item], stage: int, stages: int, chunks: int) -> list[Item]:
    made = []
    for item in order:
        is_last = stage == stages - 1 and item.chunk == chunks - 1
        if item.instruction == BACKWARD and not is_last:
            made.append(item._replace(instruction=RECOMPUTE))
        made.append(item)
    return made


class Graph:
    """Operations in topological order, and edges.

    operations: N of them. stages: S. tail, head: (E,) int, positions in `operations`, tail < head. lag_ticks: (E,)
    int64, the time from the end of the tail to the earliest start of the head. before, after: per operation
    [(other, lag)], for Python loops.
    """

    def __init__(self, operations: Sequence[Operation], edges: Sequence[tuple[int, int, float]], stages: int) -> None:
        """edges: [(tail, head, lag_s)], positions in `operations`.

        Raises InputError where they close a circle or take no possible time.
        """
        for tail, head, lag_s in edges:
            if not (math.isfinite(lag_s) and lag_s >= 0):
                raise InputError(f"graph: edge {tail} -> {head} takes {lag_s} s: expected seconds >= 0")
        order = _sorted(operations, edges)
        place = np.empty(len(operations), np.int64)
        place[order] = np.arange(len(operations))
        self.operations = [operations[number] for number in order]
        self.stages = stages
        self.tail = place[[edge[0] for edge in edges]] if edges else np.zeros(0, np.int64)
        self.head = place[[edge[1] for edge in edges]] if edges else np.zeros(0, np.int64)
        self.lag_ticks = duration_ticks([edge[2] for edge in edges])
        self.before: Waits = [[] for _ in operations]
        self.after: Waits = [[] for _ in operations]
        for tail, head, lag in zip(self.tail.tolist(), self.head.tolist(), self.lag_ticks.tolist()):
            self.before[head].append((tail, lag))
            self.after[tail].append((head, lag))

    def __len__(self) -> int:
        return len(self.operations)

    def finish_ticks(self, ticks: Sequence[float]) -> list:
        """Earliest finish of each operation when they take `ticks`; the last one is the iteration's time."""
        return finishes(self.before, ticks)


def finishes(before: Waits, durations: Sequence[float]) -> list:
    """Earliest ends of operations in topological order, in any unit of time; before: per operation [(other, lag)]."""
    finish: list = []
    for own, waits in zip(durations, before):
        finish.append(max((finish[other] + lag for other, lag in waits), default=0) + own)
    return finish


def _sorted(operations: Sequence[Operation], edges: Sequence[tuple[int, int, float]]) -> list[int]:
    waits: dict[int, list[int]] = {number: [] for number in range(len(operations))}
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


def _words(item: Item) -> str:
    chunk = f" of chunk {item.chunk}" if item.chunk else ""
    return f"{item.instruction}{chunk}" + (f" of microbatch {item.microbatch}" if item.microbatch >= 0 else "")


def read_schedule(path: Path | str) -> tuple[list[list[Item]], int]:
    """(per stage its Items in the order in which they run, chunks) from a CSV: stage,instruction,microbatch[,chunk].

    The rows of a stage are in its order; an empty microbatch: work of no microbatch. Raises InputError, one line with
    file, line and column.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"schedule {path}: {error}; name a CSV file") from None
    header = [column.strip() for column in rows[0]] if rows else []
    if header not in (_SCHEDULE[:3], _SCHEDULE):
        raise InputError(f"{path}: line 1: expected {','.join(_SCHEDULE[:3])}, or also {_SCHEDULE[3]}")
    found: dict[int, list[Item]] = {}
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise InputError(f"{path}: line {line}: {len(row)} cells under {len(header)} columns")
        cells = {column: cell.strip() for column, cell in zip(header, row)}
        if not cells["instruction"]:
            raise InputError(f"{path}: line {line}, column instruction: empty; expected forward, backward, ...")
        if not cells["microbatch"]:
            if cells["instruction"] in (FORWARD, BACKWARD, RECOMPUTE):
                raise InputError(f"{path}: line {line}, column microbatch: empty; {cells['instruction']} needs one")
            cells["microbatch"] = "-1"
        for column in ("stage", "microbatch", "chunk"):
            text = cells.get(column, "0")
            if not text.isdecimal() and (column, text) != ("microbatch", "-1"):
                raise InputError(f"{path}: line {line}, column {column}: '{text}' is not a whole number >= 0")
        item = Item(cells["instruction"], int(cells.get("chunk", "0")), int(cells["microbatch"]))
        found.setdefault(int(cells["stage"]), []).append(item)
    if sorted(found) != list(range(len(found))) or not found:
        raise InputError(f"{path}: stages {', '.join(map(str, sorted(found))) or 'none'}: number all of them from 0")
    return [found[stage] for stage in range(len(found))], 1 + max(item.chunk for own in found.values() for item in own)


def pipeline_graph(
    schedule: str,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    early_recompute: bool = False,
    transfer_s: float = 0.0,
    constant: Sequence[str] = (),
) -> Graph:
    """The graph of a pipeline schedule.

    Edges: the order of each stage; F(v, m) -> F(v+1, m); B(v+1, m) -> B(v, m) over virtual stages v; between
    different devices each takes transfer_s. The first backward waits for the last forward of its microbatch.
    constant: names of instructions that every stage runs first ("load_data") or, with a leading "+", last
    ("+optimizer"): work whose time no plan changes, profiled like any other.
    """
    first = [Item(name, 0, -1) for name in constant if not name.startswith("+")]
    last = [Item(name[1:], 0, -1) for name in constant if name.startswith("+")]
    made = orders(schedule, stages, microbatches, chunks, early_recompute)
    return ordered_graph([[*first, *order, *last] for order in made], chunks, transfer_s)


def ordered_graph(made: Sequence[Sequence[Item]], chunks: int = 1, transfer_s: float = 0.0) -> Graph:
    """The graph of stages that run the Items made[stage] in order, with the edges of pipeline_graph.

    Raises InputError for an item that comes twice, for one that waits for what no stage runs, for a circle.
    """
    stages = len(made)
    if not (math.isfinite(transfer_s) and transfer_s >= 0):
        raise InputError(f"pipeline: transfer time {transfer_s} s: expected seconds >= 0")
    operations: list[Operation] = []
    edges: list[tuple[int, int, float]] = []
    place: dict[tuple[int, Item], int] = {}

    def put(stage: int, item: Item) -> int:
        if (stage, item) in place:
            raise InputError(f"pipeline: stage {stage} runs {_words(item)} twice")
        place[stage, item] = len(operations)
        operations.append(Operation(stage, item.chunk * stages + stage, item.instruction, item.microbatch))
        return place[stage, item]

    def partner(stage: int, item: Item, other: int, awaited: Item) -> int:
        found = place.get((other, awaited))
        if found is None:
            raise InputError(
                f"pipeline: stage {stage} runs {_words(item)}, but stage {other} does not run {_words(awaited)}"
            )
        return found

    for stage, order in enumerate(made):
        numbers = [put(stage, item) for item in order]
        edges += [(tail, head, 0.0) for tail, head in pairwise(numbers)]
    for (stage, item), number in place.items():
        if item.instruction not in (FORWARD, BACKWARD):
            continue
        virtual = item.chunk * stages + stage + (1 if item.instruction == FORWARD else -1)
        if 0 <= virtual < chunks * stages:
            other = virtual % stages
            lag = transfer_s if other != stage else 0.0
            edges.append((number, partner(stage, item, other, item._replace(chunk=virtual // stages)), lag))
        elif virtual == chunks * stages:
            edges.append((number, partner(stage, item, stage, item._replace(instruction=BACKWARD)), 0.0))
    # two reasons to wait for the same operation are one edge, the longer
    longest: dict[tuple[int, int], float] = {}
    for tail, head, lag in edges:
        longest[tail, head] = max(lag, longest.get((tail, head), 0.0))
    return Graph(operations, [(*ends, lag) for ends, lag in longest.items()], stages)
