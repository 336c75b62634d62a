"""Schedules: in which order each stage of a pipeline runs its work, and which part of the model each chunk is.

1F1B, GPipe, interleaved 1F1B, ZB-H1 and DualPipe, each with or without early recomputation; or an order of one's own,
from a CSV. ZB-H1 and DualPipe split the backward pass: the gradient of a stage's input, for which the stage before
waits, and the gradient of its weights, for which nobody does, so that it fills what would be waiting.

Sources: 1F1B as in lowtime and Megatron-LM; interleaved after Megatron-LM's `schedules.py` (Narayanan et al., SC 2021);
GPipe, Huang et al., NeurIPS 2019; ZB-H1, Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024; DualPipe, DeepSeek-V3
(arXiv 2412.19437) and the eight steps of its published program.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kernel_dvfs.profile.raw import exactly, read_csv
from kernel_dvfs_clocks.errors import InputError

FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"
# the two parts of a backward pass that is split: gradients of a stage's input, and of its weights
BACKWARD_INPUT, BACKWARD_WEIGHT = "backward_input", "backward_weight"
# what belongs to a microbatch; all other names are constant work
OF_MICROBATCH = (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, RECOMPUTE)
# what hands a gradient to the stage before
GRADIENT = (BACKWARD, BACKWARD_INPUT)

_COLUMNS = ["stage", "instruction", "microbatch", "chunk"]


class Item(NamedTuple):
    """One piece of a stage's work."""

    instruction: str  # one of OF_MICROBATCH, or the name of constant work
    chunk: int  # which of the stage's chunks of the model
    microbatch: int  # -1: constant work


Orders = list[list[Item]]  # per stage, 0 = first, in the order in which it runs them


class Layout(NamedTuple):
    """Which part of the model, its virtual stage, a chunk of a stage is.

    The chunks of a stage follow each other round all stages (chunk c of stage s is virtual stage c S + s). both_ways: a
    stage holds two parts, s for the microbatches that enter at the first stage (chunk 0) and S - 1 - s for those that
    enter at the last (chunk 1), as in DualPipe.
    """

    stages: int
    chunks: int = 1
    both_ways: bool = False

    @property
    def virtual_stages(self) -> int:
        return self.stages if self.both_ways else self.stages * self.chunks

    def virtual(self, stage: int, chunk: int) -> int:
        """Return the virtual stage that a chunk of a stage is."""
        if self.both_ways:
            return self.stages - 1 - stage if chunk else stage
        return chunk * self.stages + stage

    def place(self, virtual: int, chunk: int) -> tuple[int, int]:
        """Return (stage, chunk) of a virtual stage, for what runs in `chunk` now."""
        if self.both_ways:
            return (self.stages - 1 - virtual if chunk else virtual), chunk
        return virtual % self.stages, virtual // self.stages


def layout(name: str, stages: int, chunks: int = 1) -> Layout:
    """Return the layout of a schedule."""
    return Layout(stages, 2, both_ways=True) if name == "dualpipe" else Layout(stages, chunks)


def orders(name: str, stages: int, microbatches: int, chunks: int = 1, early_recompute: bool = False) -> Orders:
    """Return the Items of each stage in their order.

    chunks: model chunks per stage, V of the interleaved schedule, 1 for the others. early_recompute: activations are
    computed again before the gradient arrives, on every virtual stage but the last, whose activations still exist.
    Raises InputError.
    """
    for what, count in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if type(count) is not int or count < 1:
            raise InputError(f"pipeline: {what} = {count!r}: expected a whole number >= 1")
    if name not in _ORDER_OF:
        raise InputError(f"pipeline: schedule '{name}' is unknown; allowed: {', '.join(NAMES)}")
    if name != "interleaved" and chunks != 1:
        raise InputError(f"pipeline: schedule {name} takes one chunk a stage, not {chunks}; use interleaved")
    if name == "interleaved" and microbatches % stages:
        raise InputError(f"pipeline: interleaved: {microbatches} microbatches are no multiple of {stages} stages")
    if name == "dualpipe" and stages % 2:
        raise InputError(f"pipeline: dualpipe: {stages} stages; expected an even number")
    if name == "dualpipe" and (microbatches % 2 or microbatches < 2 * stages):
        raise InputError(
            f"pipeline: dualpipe: {microbatches} microbatches; expected an even number, at least {2 * stages}, twice "
            "the stages"
        )
    stage_orders = [_ORDER_OF[name](stage, stages, microbatches, chunks) for stage in range(stages)]
    if early_recompute:
        placed = layout(name, stages, chunks)
        stage_orders = [_recomputed(order, stage, placed) for stage, order in enumerate(stage_orders)]
    return stage_orders


def _alternate(forwards: list[Item], backwards: list[Item], warm_up: int) -> list[Item]:
    """Return `warm_up` forwards, then a backward and a forward in turn, then the remaining backwards."""
    order = forwards[:warm_up]
    for number, backward in enumerate(backwards):
        order.append(backward)
        order += forwards[warm_up + number : warm_up + number + 1]
    return order


def _one_f_one_b(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    forwards, backwards = (_numbered(kind, microbatches) for kind in (FORWARD, BACKWARD))
    return _alternate(forwards, backwards, min(stages - stage, microbatches))


def _gpipe(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    return _numbered(FORWARD, microbatches) + _numbered(BACKWARD, microbatches)[::-1]


def _numbered(instruction: str, microbatches: int) -> list[Item]:
    return [Item(instruction, 0, m) for m in range(microbatches)]


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


def _zb_h1(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    """Return 1F1B in which stage s runs the weights' gradients s microbatches late: by so many fewer microbatches it
    holds activations of than the first stage, so that no stage holds more than 1F1B's first."""
    order: list[Item] = []
    done = 0
    for item in _one_f_one_b(stage, stages, microbatches, chunks):
        is_backward = item.instruction == BACKWARD
        order.append(item._replace(instruction=BACKWARD_INPUT) if is_backward else item)
        if is_backward and item.microbatch >= stage:
            order.append(Item(BACKWARD_WEIGHT, 0, done))
            done += 1
    return order + _numbered(BACKWARD_WEIGHT, microbatches)[done:]


def _dualpipe(stage: int, stages: int, microbatches: int, chunks: int) -> list[Item]:
    """Return DualPipe's order, in which half the microbatches enter at each end. What it runs at once, a forward pass
    of one direction and a backward pass of the other, runs here one after the other."""
    half, near = stages // 2, min(stage, stages - 1 - stage)
    is_second_half = stage >= half
    order: list[Item] = []
    run = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD) for chunk in (0, 1)}
    late: list[Item] = []  # gradients of weights that are still to be run

    def add(kind: str, phase: int) -> Item:
        chunk = phase ^ is_second_half
        microbatch = chunk * (microbatches // 2) + run[kind, chunk]
        run[kind, chunk] += 1
        return Item(kind, chunk, microbatch)

    def forward(phase: int) -> None:
        order.append(add(FORWARD, phase))

    def backward(phase: int, is_split: bool = False) -> None:
        item = add(BACKWARD, phase)
        if is_split:
            late.append(item._replace(instruction=BACKWARD_WEIGHT))
            item = item._replace(instruction=BACKWARD_INPUT)
        order.append(item)

    def weight() -> None:
        order.append(late.pop(0))

    for _ in range(2 * (half - near - 1)):
        forward(0)
    for _ in range(near + 1):
        forward(0)
        forward(1)
    for _ in range(half - near - 1):
        backward(1, is_split=True)
        weight()
        forward(1)
    for _ in range(microbatches // 2 - stages + near + 1):
        forward(0)
        backward(1)
        forward(1)
        backward(0)
    for _ in range(half - near - 1):
        backward(1)
        forward(1)
        backward(0)
    # of the last backward passes in both directions the second half is split
    for number in range(2 * (near + 1)):
        backward(1 - number % 2, is_split=number > near)
    for _ in range(half - near - 1):
        weight()
        backward(0, is_split=True)
    while late:
        weight()
    return order


_ORDER_OF = {
    "1f1b": _one_f_one_b,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
    "zb-h1": _zb_h1,
    "dualpipe": _dualpipe,
}
NAMES = tuple(_ORDER_OF)


def _recomputed(order: list[Item], stage: int, placed: Layout) -> list[Item]:
    items = []
    for item in order:
        is_last = placed.virtual(stage, item.chunk) == placed.virtual_stages - 1
        if item.instruction in GRADIENT and not is_last:
            items.append(item._replace(instruction=RECOMPUTE))
        items.append(item)
    return items


def read_schedule(path: Path | str) -> tuple[Orders, int]:
    """Return (per stage its Items in the order in which they run, chunks) from a CSV:
    stage,instruction,microbatch[,chunk].

    The rows of a stage are in its order; an empty microbatch: work of no microbatch. Raises InputError, one line with
    file, line and column.
    """
    raw = read_csv(path, exactly(*_COLUMNS))
    if list(raw.columns) not in (_COLUMNS[:3], _COLUMNS):
        raise raw.fault(f"expected {','.join(_COLUMNS[:3])}, or also {_COLUMNS[3]}")
    instructions = raw.texts("instruction")
    for row, (instruction, microbatch) in enumerate(zip(instructions, raw.texts("microbatch"), strict=True)):
        if not instruction:
            raise raw.fault("empty; expected forward, backward, ...", "instruction", row)
        if not microbatch:
            if instruction in OF_MICROBATCH:
                raise raw.fault(f"empty; {instruction} needs one", "microbatch", row)
            raw.columns["microbatch"][row] = "-1"
    stages, microbatches = raw.whole("stage"), raw.whole("microbatch", least=-1)
    chunks = raw.whole("chunk") if "chunk" in raw.columns else [0] * raw.rows
    stage_orders: dict[int, list[Item]] = {}
    for stage, instruction, chunk, number in zip(stages, instructions, chunks, microbatches, strict=True):
        stage_orders.setdefault(stage, []).append(Item(instruction, chunk, number))
    if sorted(stage_orders) != list(range(len(stage_orders))):
        raise InputError(f"{path}: stages {', '.join(map(str, sorted(stage_orders)))}: number all of them from 0")
    return [stage_orders[stage] for stage in range(len(stage_orders))], 1 + max(chunks)
