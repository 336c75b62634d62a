"""A plan followed on one rank: which clocks its stage asks for when, worked out before training begins.

An operation of a stage begins and ends at marks. A change is asked for a while after the last mark that the plan has
before that moment, so that what a stage waits for others in between moves the request, too.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import checked
from kernel_dvfs_pipeline.schedules import OF_MICROBATCH
from kernel_dvfs_pipeline.spreads import LatencyDocument, Spreads, of_document
from kernel_dvfs_pipeline.study import PlanDocument, PlannedInstruction, read_plan

_REMEDY = "kernel-dvfs pipeline plan --latency writes one that can be played"


class PlayedPlan(PlanDocument):
    """What is relied on of a plan that is played: it knows how long changes of clocks take."""

    latency: LatencyDocument


class PlannedOperation(NamedTuple):
    """An operation, as plan and program name it."""

    instruction: str
    virtual_stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.instruction} of microbatch {self.microbatch} on stage {self.virtual_stage}"


class ClockChange(NamedTuple):
    """A change of clocks."""

    place: int  # of the operation that it is for; 0: the first one of the next iteration
    pair: Pair
    mark: int  # 2 x place of an operation, its begin, or 1 more, its end
    delay_s: float  # after the GPU passes the mark


class Following(NamedTuple):
    """What one stage does in an iteration."""

    works: list[PlannedOperation]  # in order
    pairs: list[Pair]  # of each
    requests: list[ClockChange]  # in order
    time_s: float  # of the iteration, as planned
    lands_s: float  # by when nearly every change has landed after its request


def read_played(path: str) -> PlayedPlan:
    """Return the plan of a file. Raises InputError where it is none that can be played."""
    return checked(read_plan(path), PlayedPlan, path, _REMEDY)


def following(plan: PlayedPlan, stage: int, where: str = "plan") -> Following:
    """Return a stage's Following. Raises InputError for a stage that is missing, and for clocks within operations."""
    known = of_document(plan["latency"])
    instructions = next((rank["instructions"] for rank in plan["ranks"] if rank["stage"] == stage), None)
    if instructions is None:
        raise InputError(f"{where}: has {len(plan['ranks'])} stages, this is stage {stage}; plan for as many ranks")
    planned = [instruction for instruction in instructions if instruction["instruction"] in OF_MICROBATCH]
    works = [
        PlannedOperation(instruction["instruction"], instruction["virtual_stage"], instruction["microbatch"])
        for instruction in planned
    ]
    pairs = [_pair(instruction, f"{where}: {work}") for instruction, work in zip(planned, works)]
    moments = [moment for instruction in planned for moment in (instruction["begin_s"], instruction["end_s"])]
    requests = [
        _request(place + 1, before, after, planned[place + 1]["begin_s"], moments, known)
        for place, (before, after) in enumerate(pairwise(pairs))
        if before != after
    ]
    # nothing is known of what comes between two iterations, so the next one's first clocks are asked for at once
    if pairs and pairs[0] != pairs[-1]:
        requests.append(ClockChange(0, pairs[0], len(moments) - 1, 0.0))
    return Following(works, pairs, requests, plan["time_s"], max(spread.at(0.99) for spread in known[:2]))


def _request(
    place: int, before: Pair, after: Pair, begin_s: float, moments: Sequence[float], known: Spreads
) -> ClockChange:
    mhz = [tuple(None if clock == AUTO else float(clock) for clock in pair) for pair in (before, after)]
    at_s = begin_s - known.lead_s(*mhz)  # type: ignore[arg-type]  # two clocks each
    mark = max(0, min(bisect.bisect_right(moments, at_s) - 1, 2 * place))
    return ClockChange(place, after, mark, max(0.0, at_s - moments[mark]))


def _pair(instruction: PlannedInstruction, where: str) -> Pair:
    (part, *more) = instruction["clocks"]
    if more or "kernel_setting" in part:
        raise InputError(f"{where}: changes clocks on its way; plan again without --split")
    core, mem = part.get("core_mhz"), part.get("mem_mhz")
    for mhz in (core, mem):
        if mhz is not None and mhz != int(mhz):
            raise InputError(f"{where}: {mhz} MHz is no clock that can be asked for; profile whole MHz")
    if core is None and mem is None:
        return BASELINE
    return Pair(AUTO if core is None else int(core), AUTO if mem is None else int(mem))
