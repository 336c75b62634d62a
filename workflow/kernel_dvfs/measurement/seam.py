"""What a GPU is to the measurement protocol: the one interface behind which simulated and real GPUs stand.

`measurement.simulated.SimulatedGpu` and `measurement.real.gpu.RealGpu` both satisfy `Gpu`: mypy checks it where each
class is defined, and tests/gpu/test_seam.py runs the same statements against both. The protocol (measurement.point)
knows nothing else of a GPU. Only annotations need this module, so no measurement job imports it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import MeasurementTarget
    from kernel_dvfs.measurement.window import RecordDevice, Window
    from kernel_dvfs_clocks.clocks import Pair

# what `prepare` returns: opaque to the protocol, understood by the GPU that made it
Load = TypeVar("Load")


class Gpu(Protocol[Load]):
    """One GPU, simulated or real, on which loads run and are measured.

    Seconds are the GPU's own: virtual on a simulated GPU, `time.monotonic` on a real one. A `key` is a tuple of words
    and numbers that says what a step belongs to (gpu.noise.Key for a point): a simulated GPU draws its random numbers
    by it, a real one ignores it. Every method of a real GPU may raise kernel_dvfs_clocks.nvml.library.NvmlError.
    """

    def device(self) -> RecordDevice:
        """Return the record's `device` group."""
        ...

    def prepare(self, setup: Setup, target: MeasurementTarget) -> Load:
        """Return the load of one run of a target: its kernels in order, ready to run.

        Raises errors.InputError where a real GPU cannot run it (no memory left, another workload than the setup's).
        """
        ...

    def copy(self) -> Self:
        """Return a GPU in the same state, on which a point may run without changing this one. There is only one of a
        real GPU, so that is its own copy."""
        ...

    def locked(self, pair: Pair, key: tuple) -> AbstractContextManager[float]:
        """Return a context in which the clocks of `pair` are requested; entering it yields the latency of the change,
        s.

        After an error nothing is locked. After a good end a real GPU may keep the clocks for the next point; the
        guard around it restores them in any case. Raises errors.InputError, before anything is
        requested, for a clock that the GPU does not list.
        """
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
        """Return what came from outside while the windows ran, each in words; none: empty."""
        ...

    def request(self, pair: Pair) -> dict[str, Any]:
        """Return what the record's `request` group holds besides policy, clocks and latency: how the driver was
        asked."""
        ...
