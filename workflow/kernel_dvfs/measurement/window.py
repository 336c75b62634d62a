"""What a GPU tells of itself and of one window of a load, in raw units: as records hold it."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

from kernel_dvfs_clocks.shape import AtLeastOne, Count, Is, NotNegative, Positive

# [lowest, typical, highest]
Spread: TypeAlias = Annotated[
    list[float], Is("[lowest, middle, highest]", lambda value: len(value) == 3 and value == sorted(value))
]
Ends: TypeAlias = Annotated[list[float], Is("two numbers", lambda value: len(value) == 2)]


class RawWindow(TypedDict):
    """What a window of a difference was measured as."""

    duration_s: Positive
    energy_mj: Positive
    time_us: Positive


class Watched(TypedDict):
    """What was seen of the board while something ran on it."""

    core_mhz: Spread  # core clock that was seen
    mem_mhz: Spread  # the same of the memory clock
    temp_c: Ends  # [before, after] the window
    cap_ns: Count  # time in which the power cap held the clocks down
    thermal_delta: Count  # by how much the driver's thermal counter rose
    # {NVML event bit: share of the samples that showed it}
    reasons: dict[str, Annotated[float, Is("a share above 0, at most 1", lambda value: 0 < value <= 1)]]
    processes: Count | None  # compute processes that are not ours; None where the driver does not tell


class Window(Watched):
    """One window of a load, in raw units: the record's `windows[]` entry.

    Of the difference of a load and one of what each of its runs begins with: duration_s, energy_mj and time_us of both.
    """

    duration_s: Positive  # between the two edges of the energy counter that bound the window
    energy_mj: Positive  # difference of the energy counter between them
    launches: AtLeastOne  # whole runs of the load in the window
    time_us: Positive  # mean time of one run of the load
    with_beginning: NotRequired[RawWindow]
    beginning: NotRequired[RawWindow]


class ClockProbe(TypedDict):
    """The core clock under next to no load, where no clock is locked: a record's `run.probe`."""

    core_mhz: Positive  # the highest that was seen
    top_mhz: Positive  # the highest that the driver lists


class RecordDevice(TypedDict):
    """A board: the record's `device` group. Of a real board it holds more (measurement.record)."""

    kind: str  # simulated or nvml
    name: str
    uuid: str
    driver: str
    power_limit_mw: Positive | None
    energy_scope: str  # what the energy counter counts: board or module
    counter_period_ms: Positive
    counter_read_ms: NotNegative
    cuda_runtime: NotRequired[Count]
    cublaslt: NotRequired[Count]
    library_sha256: NotRequired[str]  # of the library that the kernels came from


def is_measured(answer: dict[str, Any] | None) -> bool:
    """Return whether an answer holds what was asked for: it has none of a process that ends."""
    return answer is not None and "device" in answer
