"""What a GPU is to the measurement protocol: the one interface behind which simulated and real GPUs stand.

`measurement.simulated.SimulatedGpu` and `measurement.real.gpu.RealGpu` both satisfy `Gpu`: mypy checks it where each
class is defined, and tests/gpu/test_seam.py runs the same statements against both. The protocol (measurement.point)
knows nothing else of a GPU. Only annotations need this module, so no measurement job imports it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Protocol, Self, TypeAlias, TypedDict, TypeVar

from kernel_dvfs.shape import AtLeastOne, Count, Is, NotNegative, Positive

if TYPE_CHECKING:
    from kernel_dvfs.gpu.clocks import Pair
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import Target

# what `prepare` returns: opaque to the protocol, understood by the GPU that made it
Load = TypeVar("Load")


# [lowest, typical, highest]
Spread: TypeAlias = Annotated[
    list[float], Is("[lowest, middle, highest]", lambda value: len(value) == 3 and value == sorted(value))
]
Ends: TypeAlias = Annotated[list[float], Is("two numbers", lambda value: len(value) == 2)]


class Raw(TypedDict):
    """What a window of a difference was measured as."""

    duration_s: Positive
    energy_mj: Positive
    time_us: Positive


class Window(TypedDict):
    """One window of a load, in raw units: the record's `windows[]` entry.

    Of the difference of a load and one of what each of its runs begins with: duration_s, energy_mj and time_us of both.
    """

    duration_s: Positive  # between the two edges of the energy counter that bound the window
    energy_mj: Positive  # difference of the energy counter between them
    launches: AtLeastOne  # whole runs of the load in the window
    time_us: Positive  # mean time of one run of the load
    core_mhz: Spread  # core clock that was seen
    mem_mhz: Spread  # the same of the memory clock
    temp_c: Ends  # [before, after] the window
    cap_ns: Count  # time in which the power cap held the clocks down
    thermal_delta: Count  # by how much the driver's thermal counter rose
    # {NVML event bit: share of the samples that showed it}
    reasons: dict[str, Annotated[float, Is("a share above 0, at most 1", lambda value: 0 < value <= 1)]]
    processes: Count | None  # compute processes that are not ours; None where the driver does not tell
    with_beginning: NotRequired[Raw]
    beginning: NotRequired[Raw]


class Device(TypedDict):
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


class Gpu(Protocol[Load]):
    """One GPU, simulated or real, on which loads run and are measured.

    Seconds are the GPU's own: virtual on a simulated GPU, `time.monotonic` on a real one. A `key` is a tuple of words
    and numbers that says what a step belongs to (gpu.noise.Key for a point): a simulated GPU draws its random numbers
    by it, a real one ignores it. Every method of a real GPU may raise gpu.nvml.library.NvmlError.
    """

    def device(self) -> Device:
        """The record's `device` group."""
        ...

    def prepare(self, setup: Setup, target: Target) -> Load:
        """The load of one run of a target: its kernels in order, ready to run.

        Raises errors.InputError where a real GPU cannot run it (no memory left, another workload than the setup's).
        """
        ...

    def copy(self) -> Self:
        """A GPU in the same state, on which a point may run without changing this one. There is only one of a real
        GPU, so that is its own copy."""
        ...

    def locked(self, pair: Pair, key: tuple) -> AbstractContextManager[float]:
        """A context in which the clocks of `pair` are requested; entering it yields the latency of the change, s.

        After an error nothing is locked. After a good end a real GPU may keep the clocks for the next point; the
        guard around it (gpu.guard) restores them in any case. Raises errors.InputError, before anything is
        requested, for a clock that the GPU does not list.
        """
        ...

    def condition(self, load: Load, step_s: float = 30.0, band_c: float = 1.0, limit_s: float = 300.0) -> None:
        """Run `load` at the clocks in force until the temperature moves at most `band_c` (C) within `step_s`, at most
        for `limit_s`."""
        ...

    def warm_up(self, load: Load, seconds: float) -> None:
        """Run `load` for at least `seconds` at the clocks in force; a real GPU goes on until they have settled."""
        ...

    def window(self, load: Load, seconds: float, key: tuple, number: int) -> Window:
        """Measure `load` for at least `seconds` between two edges of the energy counter. To be called after `warm_up`,
        within `locked`.

        number: of the window within its point, from 0. Raises errors.CounterFault where the energy counter fell or
        froze.
        """
        ...

    def disturbances(self, windows: list[Window]) -> list[str]:
        """What came from outside while the windows ran, each in words; none: empty."""
        ...

    def request(self, pair: Pair) -> dict[str, Any]:
        """What the record's `request` group holds besides policy, clocks and latency: how the driver was asked."""
        ...
