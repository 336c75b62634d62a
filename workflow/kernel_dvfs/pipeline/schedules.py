"""In which order a stage runs its work: 1F1B, GPipe, interleaved 1F1B, each with or without early recomputation.

Knows no times and no energies. Sources: 1F1B as in lowtime and Megatron-LM; interleaved after Megatron-LM's
`schedules.py` (Narayanan et al., SC 2021); GPipe, Huang et al., NeurIPS 2019.
"""

from collections import namedtuple

from kernel_dvfs.errors import InputError

FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"
NAMES = ("1f1b", "gpipe", "interleaved")


class Item(namedtuple("Item", "instruction chunk microbatch")):
    """One operation of a stage: forward, backward or recompute of a microbatch, on one of the stage's chunks."""

    __slots__ = ()


def orders(name: str, stages: int, microbatches: int, chunks: int = 1, early_recompute: bool = False) -> list:
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


def _alternate(forwards: list, backwards: list, warm_up: int) -> list:
    """`warm_up` forwards, then a backward and a forward in turn, then the remaining backwards."""
    order = forwards[:warm_up]
    for number, backward in enumerate(backwards):
        order.append(backward)
        order += forwards[warm_up + number : warm_up + number + 1]
    return order


def _one_f_one_b(stage, stages, microbatches, chunks) -> list:
    forwards, backwards = _numbered(microbatches)
    return _alternate(forwards, backwards, min(stages - stage, microbatches))


def _gpipe(stage, stages, microbatches, chunks) -> list:
    forwards, backwards = _numbered(microbatches)
    return forwards + backwards[::-1]


def _numbered(microbatches: int) -> tuple:
    return tuple([Item(kind, 0, m) for m in range(microbatches)] for kind in (FORWARD, BACKWARD))


def _interleaved(stage, stages, microbatches, chunks) -> list:
    round_ = stages * chunks
    forwards, backwards = [], []
    for k in range(microbatches * chunks):
        chunk, microbatch = k % round_ // stages, k // round_ * stages + k % stages
        forwards.append(Item(FORWARD, chunk, microbatch))
        backwards.append(Item(BACKWARD, chunks - 1 - chunk, microbatch))
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, len(forwards))
    # after the warm-up a forward comes first
    return _alternate(forwards, backwards, min(warm_up + 1, len(forwards)))


def _recomputed(order: list, stage: int, stages: int, chunks: int) -> list:
    made = []
    for item in order:
        is_last = stage == stages - 1 and item.chunk == chunks - 1
        if item.instruction == BACKWARD and not is_last:
            made.append(item._replace(instruction=RECOMPUTE))
        made.append(item)
    return made
