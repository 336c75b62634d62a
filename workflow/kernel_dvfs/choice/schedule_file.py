"""Schedules on disk, as whoever sets clocks or reports reads them. Light: measurement jobs and players import it.

`choice.schedule.choose` makes one; `sequence.schedule` has those of an iteration, launch by launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from kernel_dvfs.layout import SCHEDULE
from kernel_dvfs_clocks.clocks import AUTO, Clock, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import Count, Is, NotNegative, Positive, read

if TYPE_CHECKING:
    from os import PathLike

REMEDY = "make it with kernel-dvfs choose"
# {setting: number or "auto"}; in MHz where the setting is a clock
Clocks: TypeAlias = dict[str, float | str]


class ScheduleGpu(TypedDict):
    """The GPU that a schedule is for, as a profile has it."""

    kind: str  # simulated, nvml or table
    name: str
    slug: str
    forecast: NotRequired[Any]  # there where all of it comes from a model of the GPU


class CapturedStep(TypedDict):
    """The step that a study is of."""

    checksum: str
    file: NotRequired[str]


class ScheduleWorkload(TypedDict):
    """What a schedule is for, as a profile has it; a profile knows more of it."""

    name: NotRequired[str]
    setup: NotRequired[str | None]  # digest of the setup that it was measured under
    step: NotRequired[CapturedStep]


# so that its Student's t is none below the mean
Over: TypeAlias = Annotated[float, Is("a number from 0.001 to 50", lambda value: 0.001 <= value <= 50)]


class Walked(TypedDict):
    """What a walk has shown for one limit: the schedule that it passed last."""

    schedules: Count  # on the path
    passed: Count  # of them, from the fastest on; 0: all targets stay at the baseline
    pairs: dict[str, tuple[int | Literal["auto"], int | Literal["auto"]]]  # {target: (core, mem)}
    time_percent: list[float]  # change against the baseline in each block; none where nothing but it was on the path
    energy_percent: float  # change against the baseline; an estimate, not from the blocks alone
    energy_se_percent: NotNegative  # its standard error
    over_percent: Over  # chance, at most, that a schedule which passes is truly over its limit
    another_minute: NotNegative  # what another minute of measuring is worth, points of energy, at most


class Walk(TypedDict):
    """How a choice was shown to keep its time limit (search.walk); percent of the baseline's time or energy."""

    over_percent: float  # chance, at most, that it is truly over its limit
    blocks: int  # of sessions
    schedules: int  # on the path
    passed: int  # of them
    time_bound_percent: float  # its change of time is at most this, with that chance
    time_se_percent: float  # standard error over blocks
    energy_se_percent: float  # standard error of the estimate that the schedule claims
    reserve_percent: float  # how far it stays below its limit by the data that proposed it, the profile
    proposed_energy_percent: float  # its change of energy by the profile
    another_minute: NotNegative  # what another minute of measuring is worth, points of energy, at most


class Totals(TypedDict):
    """What a choice takes, against the baseline; None where nothing can be chosen."""

    status: Annotated[str, Is("one of optimal, infeasible", ("optimal", "infeasible").__contains__)]
    proof: str
    baseline_time: Positive
    baseline_energy: Positive
    time: NotNegative | None
    energy: NotNegative | None
    time_change_percent: float | None
    energy_change_percent: float | None
    edp_change_percent: float | None
    lower_bound_energy: NotNegative | None
    waste_j: float | None
    baseline_waste_j: float


class Schedule(Totals):
    """Clocks for every target of a profile, with totals, bounds and proof."""

    schema: str
    gpu: ScheduleGpu
    workload: ScheduleWorkload
    granularity: Annotated[str, Is("one of kernel, pass", ("kernel", "pass").__contains__)]
    scope: str  # single, local or global
    objective: str  # waste, edp or energy
    slack_percent: float | None  # None: of no waste
    weights: str
    ties: str
    walk: Walk | None  # None: the optimum of the profile as it is
    pooled: list[list[str]]
    apart: list[dict[str, Any]]
    targets: dict[str, Clocks]


class FrontierPoint(TypedDict):
    """The least energy at a tolerated slowdown; changes against the baseline, negative = less."""

    slack_percent: float
    scope: str  # local or global
    time_change_percent: float
    energy_change_percent: float


class FrontierFile(TypedDict):
    """What `choice.frontier.relaxed_frontier` makes."""

    schema: str
    points: list[FrontierPoint]


class _Schema(TypedDict):
    schema: Literal["kernel-dvfs/schedule/1", "kernel-dvfs/iteration-schedule/1"]


def read_schedule(
    path: str | PathLike[str], remedy: str = REMEDY, profile: str | PathLike[str] | None = None
) -> Schedule:
    """Return the schedule in a file. profile: what it must have been chosen from, where that is read with it. Raises
    InputError naming file and field."""
    inputs = {"profile": profile} if profile else None
    return read(path, Schedule, SCHEDULE, remedy, "schedule", is_sealed=True, inputs=inputs)


def schema_of(path: str | PathLike[str]) -> str:
    """Return the schema of a file that holds a schedule, or one of an iteration. Raises InputError where it holds
    neither."""
    return read(path, _Schema, "", REMEDY, "schedule")["schema"]


def pairs_of(path: str | PathLike[str], schedule: Schedule) -> dict[str, Pair]:
    """Return {target: pair} that a GPU is to be asked for. Raises InputError where nothing is chosen, or not clocks
    alone."""
    if schedule["status"] != "optimal":
        raise InputError(
            f"schedule {path}: status is {schedule['status']!r}, there is nothing to play; choose with more slack"
        )
    if not schedule["targets"]:
        raise InputError(f"schedule {path}: targets is empty; {REMEDY}")
    return {
        name: Pair(*(_clock_of(f"schedule {path}: targets.{name}", clocks, clock) for clock in ("core_mhz", "mem_mhz")))
        for name, clocks in schedule["targets"].items()
    }


def _clock_of(where: str, clocks: Clocks, name: str) -> Clock:
    if further := [setting for setting in clocks if setting not in ("core_mhz", "mem_mhz")]:
        raise InputError(f"{where}.{further[0]}: a setting that cannot be made here; {REMEDY} for clocks alone")
    clock = clocks.get(name)
    if clock == AUTO:
        return AUTO
    if not isinstance(clock, int | float) or not 0 < clock < 1e6 or clock != int(clock):
        raise InputError(f"{where}.{name} is {clock!r}, expected a number of MHz or auto; {REMEDY}")
    return int(clock)
