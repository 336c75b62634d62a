"""An iteration schedule on disk: which pair each launch wants, when changes are to land, and for what it was chosen.

`kernel-dvfs sequence` writes it, deploy.player plays it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, cast, final

from kernel_dvfs.choice.schedule_file import ScheduleGpu, ScheduleWorkload
from kernel_dvfs.layout import ITERATION_SCHEDULE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import FILLED, Count, Is, NotNegative, Positive, Text, fields, read
from kernel_dvfs_deploy.sequence.changes import BEHAVIOURS, Spread, Timing
from kernel_dvfs_deploy.sequence.launches import Read
from kernel_dvfs_deploy.sequence.programme import Choice

if TYPE_CHECKING:
    from os import PathLike

    from kernel_dvfs_clocks.clocks import Clock

_REMEDY = "make it with kernel-dvfs sequence"


@final
class ClockPair(TypedDict):
    """A pair, MHz or "auto" each."""

    core_mhz: Positive | Literal["auto"]
    mem_mhz: Positive | Literal["auto"]


class Takes(TypedDict):
    """How long a change of one clock takes: changes.Spread."""

    median_s: Positive
    p99_s: Positive


class Switching(TypedDict):
    """What a change of clocks takes: changes.Timing, and where that is known from."""

    behaviour: Annotated[str, Is(f"one of {', '.join(BEHAVIOURS)}", BEHAVIOURS.__contains__)]
    latency_s: NotNegative
    jitter: Annotated[float, Is("a share from 0 to 1", lambda value: 0 <= value <= 1)]
    core_stall_s: NotRequired[NotNegative]
    mem_stall_s: NotRequired[NotNegative]
    core: NotRequired[Takes]  # where latencies are distributions
    mem: NotRequired[Takes]
    stall_power: NotRequired[str]  # of a stream that stands still, where that is from
    sources: NotRequired[dict[str, str]]  # of latency and stalls


class IterationScheduleFile(TypedDict):
    """What is read of an iteration schedule; what its totals are is of no concern to who plays it."""

    schema: str
    gpu: ScheduleGpu
    workload: ScheduleWorkload
    switching: Switching
    pairs: Annotated[list[ClockPair], FILLED]
    first: Count  # place in pairs
    kernels: Annotated[
        list[Text], Is("a list of at least one, each once", lambda value: value and len(set(value)) == len(value))
    ]
    launches: Annotated[list[tuple[Count, Count, Positive]], FILLED]  # kernel, pair that it is to run at, time there
    changes: list[tuple[Count, Count]]  # launch, pair


@dataclass(frozen=True, slots=True)
class IterationSchedule:
    """An iteration schedule as read."""

    path: str  # of the file
    gpu: ScheduleGpu
    workload: ScheduleWorkload
    timing: Timing
    pairs: list[tuple[Clock, Clock]]  # (core, memory), MHz or "auto" each
    first: int  # index of the pair at the begin
    names: list[str]  # kernel id of each launch
    wanted: list[int]  # index of the pair that each launch is to run at
    time_s: list[float]  # what each launch takes there
    changes: list[tuple[int, int]]  # (launch, index of its pair), ascending
    totals: dict[str, Any]  # everything else in the file

    def until_s(self) -> list[float]:
        """Return when the launches come to each boundary, s from the begin: (launches + 1,), stalls of changes
        included. A change that is to land at a boundary lands then; the GPU stands still right after."""
        until_s, now, to = [0.0], self.first, dict(self.changes)
        for launch, time_s in enumerate(self.time_s):
            next_pair = to.get(launch, now)
            stall_s = self.timing.stall_s(self.pairs[now], self.pairs[next_pair])
            until_s.append(until_s[-1] + stall_s + time_s)
            now = next_pair
        return until_s


def iteration_schedule(
    read: Read, timing: Timing, choice: Choice, slack_percent: float, stall: str, sources: dict[str, str]
) -> dict[str, Any]:
    """Return the schedule as a JSON-ready dict. stall: where the power of a stream that stands still is from, in words;
    sources: likewise of `latency` and `stalls`."""
    sequence = read.sequence
    kernels = list(dict.fromkeys(sequence.names))
    number = {name: place for place, name in enumerate(kernels)}
    wanted = choice.changes.pairs(len(sequence))
    used = sorted({choice.changes.first, *wanted})
    place = {pair: at for at, pair in enumerate(used)}
    base_s, base_j = sequence.baseline_time_s, sequence.baseline_energy_j
    return {
        "schema": ITERATION_SCHEDULE,
        "gpu": read.gpu,
        "workload": {key: value for key, value in read.workload.items() if key != "kernels"},
        "granularity": "iteration",
        "objective": "waste",
        "slack_percent": slack_percent,
        "switching": {
            "behaviour": timing.behaviour,
            "latency_s": timing.latency_s,
            "jitter": timing.jitter,
            "core_stall_s": timing.core_stall_s,
            "mem_stall_s": timing.mem_stall_s,
            **{name: spread._asdict() for name, spread in zip(("core", "mem"), timing.spreads or ())},
            "stall_power": stall,
            "sources": sources,
        },
        "baseline_time_s": base_s,
        "baseline_energy_j": base_j,
        "time_s": choice.time_s,
        "energy_j": choice.energy_j,
        "time_change_percent": 100 * (choice.time_s / base_s - 1),
        "energy_change_percent": 100 * (choice.energy_j / base_j - 1),
        "lower_bound_energy_j": choice.bound_j,
        "gap_points": 100 * choice.gap_j / base_j,
        "change_count": len(choice.changes),
        "pairs": [_clocks(sequence.pairs[pair]) for pair in used],
        "first": place[choice.changes.first],
        "kernels": kernels,
        "launches": [
            [number[name], place[pair], float(sequence.launch_time_s[launch, pair])]
            for launch, (name, pair) in enumerate(zip(sequence.names, wanted))
        ],
        "changes": [[at, place[to]] for at, to in zip(choice.changes.at, choice.changes.to)],
    }


def read_iteration(path: str | PathLike[str]) -> IterationSchedule:
    """Read and check an iteration schedule. Raises InputError naming file and field."""
    content = read(path, IterationScheduleFile, ITERATION_SCHEDULE, _REMEDY, "schedule", is_sealed=True)
    if wrong := _disagreement(content):
        raise InputError(f"schedule {path}: {wrong}; {_REMEDY}")
    return IterationSchedule(
        path=str(path),
        gpu=content["gpu"],
        workload=content["workload"],
        timing=_timing(content["switching"], path),
        pairs=cast("list[tuple[Clock, Clock]]", [(pair["core_mhz"], pair["mem_mhz"]) for pair in content["pairs"]]),
        first=content["first"],
        names=[content["kernels"][kernel] for kernel, _, _ in content["launches"]],
        wanted=[pair for _, pair, _ in content["launches"]],
        time_s=[time for _, _, time in content["launches"]],
        changes=[(launch, pair) for launch, pair in content["changes"]],
        totals={key: value for key, value in content.items() if key not in fields(IterationScheduleFile)},
    )


class _Switched(TypedDict):
    schema: str
    switching: Switching


def read_timing(path: str | PathLike[str]) -> Timing:
    """Return what changes take by an iteration schedule, whatever else it holds. Raises InputError naming file and
    field."""
    return _timing(read(path, _Switched, ITERATION_SCHEDULE, _REMEDY, "schedule", is_sealed=True)["switching"], path)


def _timing(switching: Switching, path: str | PathLike[str]) -> Timing:
    stalls_s = switching.get("core_stall_s", 0.0), switching.get("mem_stall_s", 0.0)
    if "core" not in switching or "mem" not in switching:
        return Timing(switching["behaviour"], switching["latency_s"], switching["jitter"], *stalls_s)
    try:
        return Timing.spread(Spread(**switching["core"]), Spread(**switching["mem"]), *stalls_s)
    except InputError as error:
        raise InputError(f"schedule {path}: {error}; {_REMEDY}") from None


def _disagreement(content: IterationScheduleFile) -> str:
    """Return what one field says against another, in words; "" where they agree."""
    count, size = len(content["launches"]), len(content["pairs"])
    for number, (kernel, pair, _) in enumerate(content["launches"]):
        if kernel >= len(content["kernels"]) or pair >= size:
            return f"launches[{number}] names a kernel or pair that is not listed"
    now, before = content["first"], -1
    if now >= size:
        return f"first is {now}, which is not among the {size} pairs listed"
    for number, (launch, pair) in enumerate(content["changes"]):
        if not before < launch < count or pair >= size or pair == now:
            return f"changes[{number}]: launches ascend below {count}, each to another of the {size} pairs"
        before, now = launch, pair
    if content["changes"] and now != content["first"]:
        return "changes: an iteration ends at the pair that it begins with"
    return ""


def _clocks(pair: tuple[float | None, float | None]) -> dict[str, float | str]:
    return dict(zip(("core_mhz", "mem_mhz"), (_plain(clock) for clock in pair)))


def _plain(clock: float | None) -> float | str:
    if clock is None or (isinstance(clock, float) and math.isnan(clock)):
        return "auto"
    return int(clock) if float(clock).is_integer() else clock
