"""Where the kernels of a session come from: our native layer, a captured step of the user's, or, in tests on a fake
NVML, a simulation.

Each is a library with a build record beside it. The simulation is loaded only if HOOK names its record *and* the
NVML in use says itself that it is a fake, so neither a forgotten variable on a real GPU nor a fake library alone can
make numbers up.
"""

from __future__ import annotations

import os
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Protocol

from kernel_dvfs.extensions import part
from kernel_dvfs.native.load import BuiltLibrary, read_build
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import MeasurementTarget
    from kernel_dvfs_clocks.nvml.library import Library

HOOK = "KERNEL_DVFS_TEST_LOAD"
NATIVE = os.path.join("results", "native", "cuda", "build.json")
STEP = os.path.join("results", "native", "graph", "build.json")


class RunningLoad(Protocol):
    """A load that runs on the GPU, over and over (native.steady.Steady)."""

    def feed(self) -> None:
        """Queue enough work that the GPU does not run dry; to be called every few milliseconds."""
        ...

    def run_for(self, duration_s: float) -> None:
        """Run for so long, then forget what ran until then."""
        ...

    def between(self, start_s: float, end_s: float) -> dict[str, Any]:
        """Return what ran between two moments: time_us and launches of the load, sm_mhz by the device's count of
        cycles."""
        ...

    def own_mhz(self) -> float | None:
        """Return the clock of a load that rests between its runs, apart from the rests, while it runs; None of any
        other."""
        ...

    def stop(self) -> None:
        """Let what is queued come to its end."""
        ...


class Load(Protocol):
    """A target made ready to run (native_loads.NativeLoad). run_s: about how long one run takes."""

    run_s: float

    @property
    def less(self) -> Load | None:
        """What each run begins with that is not the target's: it is measured as well, and taken off. None: nothing."""
        ...

    @property
    def about(self) -> dict[str, Any]:
        """The record's `kernel` group, besides the names."""
        ...

    def start(self) -> RunningLoad:
        """Start to run it over and over."""
        ...

    def check(self) -> None:
        """Raise InputError where running it has changed what it computes."""
        ...


class RunningIteration(Protocol):
    """An iteration that runs over and over, with a stamp between its kernels (native.passing.Passing)."""

    def feed(self) -> None:
        """Queue enough work that the GPU does not run dry; to be called every few milliseconds."""
        ...

    def stay(self, seconds: float) -> None:
        """Have it run on for so long from now, beyond the passes that count: a window of power beside them must see no
        idle GPU."""
        ...

    def settles(self) -> bool:
        """Return whether what runs is not counted yet."""
        ...

    def is_over(self) -> bool:
        """Return whether all passes that count have ended."""
        ...

    def passes(self) -> dict[str, Any]:
        """Return of the passes that count: n, iteration_us, time_us {kernel: of one launch}, sm_mhz."""
        ...

    def stop(self) -> None:
        """Let what is queued come to its end."""
        ...


class IterationLoad(Protocol):
    """The whole iteration of a setup, ready to run (native_loads.NativeIteration)."""

    def start(self, settle_s: float, pass_s: float) -> RunningIteration:
        """Start to run it: until it has run for settle_s, then as many whole passes as come nearest to pass_s, one at
        least."""
        ...

    def round(self, counts: Mapping[str, int]) -> Load:
        """Return some of its kernels as a load: one run is so many launches of each (visit.round_of)."""
        ...

    def check(self) -> None:
        """Raise InputError where running it has changed what it computes."""
        ...


class Stamper(Protocol):
    """A kernel that stays on the GPU and stamps what its clocks have done (measurement.stamps)."""

    def start(self) -> None:
        """Forget earlier stamps and run."""
        ...

    def mark(self, number: int) -> None:
        """Have stamps carry this number from now on."""
        ...

    def stamps(self, first: int) -> NDArray[np.int64]:
        """Return the stamps from the first-th on that are there by now, (n, 4); first < 0 counts from the last."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Stamping(Protocol):
    """What can stamp on one GPU (native_loads.NativeLoads), and the clock that requests are timed by."""

    @property
    def facts(self) -> dict[str, Any]:
        """Versions and checksum of the library."""
        ...

    def now_s(self) -> float:
        """Return the time, s."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def stamper(self, step_s: float, room: int, reads: bool) -> Stamper:
        """Return a kernel that stamps each step_s, with room for so many. reads: keep the memory busy beside it, else
        only the cores."""
        ...


class Loads(Protocol):
    """All loads of one GPU (native_loads.NativeLoads), and the clock that their windows are timed by."""

    @property
    def facts(self) -> dict[str, Any]:
        """Versions and checksum for the record's `device` group."""
        ...

    def now_s(self) -> float:
        """Return the time, s."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def chooses(self, setup: Setup, target: MeasurementTarget) -> bool:
        """Return whether to prepare a target means to choose an algorithm, which is to be done at default clocks."""
        ...

    def prepare(self, setup: Setup, target: MeasurementTarget) -> Load:
        """Return the load of a target. Raises InputError where it does not fit into memory."""
        ...

    def iteration(self, setup: Setup) -> IterationLoad:
        """Return the whole iteration of a setup, prepared once. Raises InputError where it does not fit into memory."""
        ...

    def move(self) -> bool:
        """Have what is prepared from now on lie elsewhere in memory. Returns whether that is ours to say."""
        ...

    def clock_mhz(self, until_mhz: float) -> float:
        """Return the core clock under next to no load (clock_probe.probe_mhz). Raises InputError."""
        ...


class Probing(Loads, Protocol):
    """What also has the probes of memory (native_loads.NativeLoads)."""

    def probe(self, kind: str) -> tuple[Load, int]:
        """Return the probe of a kind, dram_copy or dram_read, and the DRAM bytes of one run. Raises InputError where it
        does not fit into memory."""
        ...


def record(is_step: bool = False) -> str:
    """Return the path of the build record of the library whose kernels run, or that runs those of a captured step."""
    return os.environ.get(HOOK) or (STEP if is_step else NATIVE)


def library_sha256(is_step: bool = False) -> str:
    """Return the checksum of that library, which records depend on. Raises InputError where no library has been
    built."""
    return _library(is_step)["sha256"]


def _library(is_step: bool) -> BuiltLibrary:
    what = "what reads captured graphs" if is_step else "CUDA kernels"
    try:
        return read_build(record(is_step))["library"]
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def open_loads(nvml: Library, uuid: str, step: dict[str, str] | None = None) -> Loads:
    """Return the kernels on the GPU `uuid`. step: `workload["step"]` of a setup whose workload is a captured step.

    Raises InputError where there is no library, a mix of real and fake, or a step that is not the setup's.
    """
    simulated = _simulated(nvml, uuid)
    if simulated:
        return simulated
    if step:
        if not (of_step := part("step loads")):
            raise InputError("a captured step: no package that measures one is here; install kernel-dvfs again")
        loads: Loads = of_step(uuid, step)
        return loads
    from kernel_dvfs.measurement.real.native_loads import NativeLoads

    return NativeLoads(uuid)


def open_stamping(nvml: Library, uuid: str) -> Stamping:
    """Return the kernel that stamps, on the GPU `uuid`. Raises InputError as open_loads does."""
    return _own(nvml, uuid)


def open_probing(nvml: Library, uuid: str) -> Probing:
    """Return the probes of memory, on the GPU `uuid`. Raises InputError as open_loads does."""
    return _own(nvml, uuid)


def _own(nvml: Library, uuid: str) -> Any:
    simulated = _simulated(nvml, uuid)
    if simulated:
        return simulated
    from kernel_dvfs.measurement.real.native_loads import NativeLoads

    return NativeLoads(uuid)


def _simulated(nvml: Library, uuid: str) -> Any:
    """Return the simulation where hook and NVML both are of a test; None where neither is. Raises InputError for a
    mix."""
    hook = os.environ.get(HOOK)
    is_fake = hasattr(nvml.shared_library, "fakenvml_now")
    if hook and not is_fake:
        raise InputError(f"{HOOK} is set, which is for tests on a fake NVML, but this NVML is a driver's; unset it")
    if is_fake and not hook:
        raise InputError(f"this NVML is a fake: no kernel can run on its GPUs; unset LD_LIBRARY_PATH, or set {HOOK}")
    if not hook:
        return None
    return _simulation(os.path.join(os.path.dirname(hook), _library(False)["file"])).SimulatedLoads(nvml, uuid)


def _simulation(path: str) -> ModuleType:
    spec = spec_from_file_location("kernel_dvfs_test_load", path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
