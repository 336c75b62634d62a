"""Which launches can be repeated alone: each class is met in the step's order, run twice, looked at, and timed.

Walks the step so that every class is tried on the data that it meets there: torch's pool gives buffers to other
operations later. Needs no GPU itself: `LivingStep` and the watchdog are given.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kernel_dvfs_step.grouping import Launch
from kernel_dvfs_step.memory import changed_byte
from kernel_dvfs_step.nodes import Node

# so many launches of a class take turns: their weights are others, so caches are about as cold as in the step, and
# what they read is still the data of their kind
ROTATED = 4
# kernels that read integers from memory and go where these say: torch's pool gives the integers of an early launch to
# other tensors before the last launch is met, and what then lies there are no indices: a device assert, and the GPU's
# context is lost. These never take turns
_READ_INTEGERS = ("index", "gather", "scatter", "embedding", "nll_loss", "sort", "nonzero", "take", "cross_entropy")
# and whatever is handed integers by address, such as the segments of an embedding's backward
_OF_INTEGERS = re.compile(r"\b(?:long|int|unsigned|short)(?: const)?\*")
# collectives of NCCL: alone they would wait for the other ranks for ever
_OTHER_GPUS = ("ncclDevKernel", "ncclKernel")
_OF_ARITHMETIC = re.compile(r"[Ii]ndex_?[Tt](?:ype)?\b|index_t\b|IndexToOffset|_indexed|_with_index")
# what fails is tried again: without taking turns, then joined with the launch before it; then it is left
MOST_ERRORS = 3
# the longest that a trial takes where nothing hangs, s, beside the step itself, which is run up to the launch
LIMIT_S = 10.0
_GRAPH_MS, _TIMED_MS = 5.0, 15.0
_MOST_REPEATS = 1000
# beside others the GPU is shared in turns of some milliseconds: shorter graphs, so many of them, of which some meet no
# turn of another's
_SLICE_MS, _SHARED_TRIES = 0.5, 15
# alone and in the step a launch must take about as long, or it does something else
# (caches that are warm alone make it up to three times as fast; a kernel without its counters is 17 and more)
_FASTER, _SLOWER, _APART_US = 4.0, 2.0, 3.0


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of trying a class."""

    alone_us: float | None  # of one launch
    rotated: int
    repeatable: str
    reason: str
    moved_byte: int


class Living(Protocol):
    """What is asked of a captured step (living.LivingStep)."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def functions(self) -> Sequence[str]: ...
    @property
    def memory(self) -> Any: ...
    def loop(self, places: Sequence[int], repeat: int = 1) -> Any: ...
    def meet(self, place: int) -> None: ...


def most_turns(functions: Iterable[str]) -> int:
    """Return how many launches of a class may take turns. functions: demangled, of the nodes of one of them.

    Types of index arithmetic, convolutions over indexed tiles and kernels that count their elements read none.
    """
    return 1 if reads_integers(functions) else ROTATED


def reads_integers(functions: Iterable[str]) -> bool:
    """Return whether any of these reads integers from memory and goes where they say."""
    names = (_OF_ARITHMETIC.sub("", function) for function in functions)
    return any(_OF_INTEGERS.search(name) or any(mark in name.lower() for mark in _READ_INTEGERS) for name in names)


def turns(living: Living, launches: Sequence[Launch], members: Sequence[int]) -> int:
    """Return how many of a class's launches take turns."""
    return min(most_turns(living.functions[place] for place in launches[members[0]].nodes), len(members))


def unit(launches: Sequence[Launch], members: Sequence[int], rotated: int) -> tuple[list[int], int]:
    """Return (places of the nodes of the first `rotated` members, the place of the last one's first node).

    The step is run up to that place before they are repeated, so that all that they read has been written.
    """
    taken = [launches[member] for member in members[:rotated]]
    return [place for launch in taken for place in launch.nodes], min(taken[-1].nodes)


def walk(
    living: Living,
    launches: Sequence[Launch],
    classes: Sequence[Sequence[int]],
    times_us: Sequence[float | None],
    limit: Callable[[int, float], AbstractContextManager[None]],
    failed: Mapping[int, list[str]],
    known: Mapping[int, Tried],
    report: Callable[[int, Tried], object],
    neighbours: int = 0,
) -> list[Tried]:
    """Try every class, in the order in which the step meets them; results in the order of `classes`.

    times_us: of each launch in the step. limit: of that node and seconds: a context that ends this
    process after so many (watchdog.Watchdog.limit). failed: what went wrong with a class in earlier
    processes, by the main node of its first member; known: what came of others there, likewise. report: told each
    result as it is found. neighbours: so many other processes compute on the GPU; what they do makes a time longer,
    never shorter, so of several tries the shortest counts, and they are named where that is still another one.
    Raises InputError where a kernel fails: the GPU's context is lost then, and so is this process.
    """
    results: dict[int, Tried] = {}
    own_turns = {members[0]: turns(living, launches, members) for members in classes}
    for members in sorted(classes, key=lambda members: unit(launches, members, own_turns[members[0]])[1]):
        first = launches[members[0]].main
        if first in known:
            results[first] = known[first]
            continue
        # alone after it failed while taking turns: what later launches read may lie in memory that was reused
        errors = failed.get(first, [])
        rotated = own_turns[members[0]] if not errors else 1
        if any(living.nodes[place].is_host for place in launches[members[0]].nodes):
            result = Tried(None, 1, "no", "it copies from or to the host's memory", 0)
        elif any(living.functions[place].startswith(_OTHER_GPUS) for place in launches[members[0]].nodes):
            result = Tried(None, 1, "no", "it waits for other GPUs (NCCL)", 0)
        elif len(errors) == MOST_ERRORS:
            result = Tried(None, 1, "no", errors[-1], 0)
        else:
            times = [times_us[member] for member in members[:rotated]]
            in_step = [time for time in times if time is not None]
            result = _try(
                *(living, *unit(launches, members, rotated), rotated),
                statistics.fmean(in_step) if in_step else None,
                partial(limit, first),
                neighbours,
            )
        results[first] = result
        report(first, result)
    return [results[launches[members[0]].main] for members in classes]


def _try(
    living: Living,
    places: Sequence[int],
    start: int,
    rotated: int,
    in_step_us: float | None,
    limit: Callable[[float], AbstractContextManager[None]],
    neighbours: int = 0,
) -> Tried:
    with limit(LIMIT_S):
        living.meet(start)
        once = living.loop(places)
        once.run(1)
        before = living.memory.all_hashes()
        once.run(1)
        moved = changed_byte(before, living.memory.all_hashes())
    with limit(LIMIT_S):
        graph_ms, tries, of = (_SLICE_MS, _SHARED_TRIES, min) if neighbours else (_GRAPH_MS, 3, statistics.median)
        once_ms = min(once.time(1) for _ in range(3))
        repeat = max(1, min(_MOST_REPEATS, round(graph_ms / max(once_ms, 1e-4))))
        loop = living.loop(places, repeat)
        runs = 1 if neighbours else max(1, round(_TIMED_MS / 3 / max(loop.time(1), 1e-3)))
        alone_us = 1e3 * of([loop.time(runs) / runs for _ in range(tries)]) / repeat / rotated
    if in_step_us is not None and _is_other_work(alone_us, in_step_us):
        reason = f"alone it takes {alone_us:.1f} us, in the step {in_step_us:.1f} us: it does other work there"
        if neighbours:
            reason += f", or {neighbours} other process(es) on the GPU took the time: capture it again without them"
        return Tried(alone_us, rotated, "no", reason, moved)
    if moved:
        return Tried(alone_us, rotated, "restored", "it changes what it reads, or leaves other bits each time", moved)
    return Tried(alone_us, rotated, "yes", "", 0)


def _is_other_work(alone_us: float, in_step_us: float) -> bool:
    return abs(alone_us - in_step_us) > _APART_US and not 1 / _FASTER <= alone_us / in_step_us <= _SLOWER


def hung(seconds: float = LIMIT_S) -> str:
    """Return the reason of a class whose trial never came to its end."""
    return f"it hung: repeated alone, it had not ended after {seconds:g} s"
