"""The simulated GPU: the methods of the seam (measurement.seam.Gpu) on virtual time.

What is above the seam can tell it from a real GPU by its name only. A load is the model parameters of its kernels;
which row of the workload they come from makes no difference, but to what a pass draws: its kernels' offsets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.governor import GovernedLoad, OperatingPoint, is_governed
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, parameters
from kernel_dvfs.gpu.model import advance_c, static_w
from kernel_dvfs.gpu.noise import (
    Key,
    Reading,
    latency_s,
    mean_offsets,
    offsets,
    read_window,
    scatter,
    window_sds,
)
from kernel_dvfs_clocks import clocks
from kernel_dvfs_clocks.clocks import BASELINE, POWER_CAP

if TYPE_CHECKING:
    from kernel_dvfs.measurement.seam import Gpu
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.target import MeasurementTarget
    from kernel_dvfs.measurement.window import RecordDevice, Window
    from kernel_dvfs_clocks.clocks import Pair

# [(kernel, launches)] of one run, in order
Load = list[tuple[Kernel, int]]

# raise this when the model changes: it is part of every setup, so that old records are measured again
MODEL = "kernel-dvfs simulated GPU 4"


class SimulatedGpu:
    """A GPU of a spec (gpu.spec.resolve) on virtual time, cold when made; the methods are those of the seam.

    exact: no noise, no campaign offset, no steps of the counter: the *truth*, which is the mean of what is measured.
    """

    def __init__(self, spec: dict[str, Any], seed: int, exact: bool = False) -> None:
        self.spec = spec
        self.seed = seed
        self.exact = exact
        self.now_s = 0.0
        self.temperature_c = spec["thermal"]["ambient_c"]
        self.pair = BASELINE
        self._running: GovernedLoad | None = None  # what ran last
        self._kernels: dict[str, list[str]] = {}  # of each pass that was prepared, in order; not by its name alone

    def device(self) -> RecordDevice:
        """Return the record's `device` group."""
        sensor = self.spec["sensor"]
        return {
            "kind": "simulated",
            "name": self.spec["name"],
            "uuid": f"simulated-{self.spec['id']}",
            "driver": MODEL,
            "power_limit_mw": round(self.spec["governor"]["cap_w"] * 1000),
            "energy_scope": "board",
            "counter_period_ms": sensor["counter_period_s"] * 1000,
            "counter_read_ms": sensor["read_s"] * 1000,
        }

    def prepare(self, setup: Setup, target: MeasurementTarget) -> Load:
        """Return the load of a setup's target: whatever a setup holds can run here."""
        if target.study == "pass":
            self._kernels[_text(target)] = [name for name, _ in setup.targets["pass"][target.name]]
        return [(parameters(self.spec, work), count) for work, count in works(setup, target)]

    def locked(self, pair: Pair, key: tuple) -> _SimulatedClocksLocked:
        """Return a context in which a pair of clocks is requested; released however it ends. It gives the latency, s.

        Raises InputError for a clock that the GPU does not list.
        """
        clocks.check(self.spec["clocks"], pair)
        return _SimulatedClocksLocked(self, pair, key)

    def request(self, pair: Pair) -> dict[str, Any]:
        """Return what else the record's `request` group holds: nothing."""
        return {}

    def disturbances(self, windows: list[Window]) -> list[str]:
        """Return what came from outside while the windows ran, in words: nothing can."""
        return []

    def copy(self) -> SimulatedGpu:
        """Return another GPU in the same state."""
        other = SimulatedGpu(self.spec, self.seed, self.exact)
        other.__dict__.update(self.__dict__)
        return other

    def state(self, load: Load) -> OperatingPoint:
        """Return what `load` settles at now, at the clocks in force: the truth, with nothing drawn."""
        return self._of(load).settled(self.temperature_c)

    def launch_s(self, load: Load, state: OperatingPoint) -> list[float]:
        """Return the seconds of one launch of each kernel of `load` in a state, at the clocks in force."""
        return self._of(load).launch_s(state)

    def launch_j(self, load: Load, state: OperatingPoint) -> list[float]:
        """Return the joules of one launch of each, likewise."""
        return self._of(load).launch_j(state, self.temperature_c)

    def _of(self, load: Load) -> GovernedLoad:
        running = self._running
        if running is None or running.load is not load or running.pair != self.pair:
            running = self._running = GovernedLoad(self.spec, load, self.pair)
        return running

    def run(self, state: OperatingPoint, seconds: float) -> None:
        """Let seconds pass in a state: the board's temperature follows."""
        leakage = static_w(self.spec, state.mem_mhz, 1.0) - static_w(self.spec, state.mem_mhz, 0.0)
        thermal = self.spec["thermal"]
        self.temperature_c = advance_c(thermal, self.temperature_c, state.power_w, leakage, seconds)
        self.now_s += seconds

    def warm_up(self, load: Load, seconds: float) -> None:
        """Run `load` for a while at the clocks in force."""
        self.run(self.state(load), seconds)

    def condition(self, load: Load, step_s: float = 30.0, band_c: float = 1.0, limit_s: float = 300.0) -> None:
        """Run `load` at the clocks in force until the temperature moves at most `band_c` in `step_s`."""
        began_s = self.now_s
        while self.now_s - began_s < limit_s:
            before_c = self.temperature_c
            self.warm_up(load, step_s)
            if abs(self.temperature_c - before_c) <= band_c:
                return

    def window(self, load: Load, seconds: float, key: tuple, number: int) -> Window:
        """Run `load` between two edges of the energy counter; the record's `windows[]` entry, raw units.

        key: a gpu.noise.Key; any tuple where the GPU is exact and draws nothing.
        """
        before_c = self.temperature_c
        state = self.state(load)
        launches_per_run = sum(count for _, count in load)
        time_factor, power_factor = (1.0, 1.0)
        if not self.exact:
            launch_s = state.time_s / launches_per_run
            point = Key(*key)
            scattered = scatter(window_sds(self.spec["noise"], launch_s), self.seed, point, self.pair, number)
            time_factor, power_factor = (
                factor * shared for factor, shared in zip(scattered, self._offsets(load, state, point))
            )
        time_s = state.time_s * time_factor
        power_w = state.power_w * power_factor
        if self.exact:
            reading = Reading(seconds, power_w * seconds * 1000)
        else:
            draw = (self.seed, *key, *self.pair, number)
            reading = read_window(self.spec["sensor"], power_w, max(seconds, time_s), draw)
        self.run(state, reading.duration_s)
        dither = self.spec["governor"]["dither_mhz"] if state.capped else 0
        return {
            "duration_s": reading.duration_s,
            "energy_mj": reading.energy_mj,
            # of whole runs of the load; time_us is their mean
            # (a window of the truth may be shorter than one run of a long pass)
            "launches": max(1, math.floor(reading.duration_s / time_s)),
            "time_us": time_s * 1e6,
            "core_mhz": [
                state.core_mhz - dither,
                state.core_mhz,
                min(state.core_mhz + dither, state.ceiling_mhz),
            ],
            "mem_mhz": [state.mem_mhz] * 3,
            "temp_c": [round(before_c, 2), round(self.temperature_c, 2)],
            "cap_ns": round(reading.duration_s * 1e9) if state.capped else 0,
            "thermal_delta": 0,
            "reasons": {hex(POWER_CAP): 1.0} if state.capped else {},
            "processes": 0,
        }

    def _offsets(self, load: Load, state: OperatingPoint, key: Key) -> tuple[float, float]:
        """Return (time factor, power factor) of a target in a campaign; of a pass those of its kernels."""
        noise, governed = self.spec["noise"], is_governed(self.pair, state.core_mhz)
        names = self._kernels.get(key.target)
        if names is None:
            return offsets(noise, self.seed, key, self.pair, governed)
        seconds: dict[str, float] = {}
        for name, (_, count), launch_s in zip(names, load, self.launch_s(load, state), strict=True):
            seconds[name] = seconds.get(name, 0.0) + count * launch_s
        return mean_offsets(noise, self.seed, key, self.pair, seconds, governed)


def _text(target: MeasurementTarget) -> str:
    return f"{target.study}/{target.name}"


def works(setup: Setup, target: MeasurementTarget) -> list[tuple[LaunchWork, int]]:
    """Return [(work, launches)] of one run of a setup's target, in order."""
    kernels = setup.targets["kernel"]
    runs = [(target.name, 1)] if target.study == "kernel" else setup.targets["pass"][target.name]
    return [(LaunchWork(*kernels[name]["work"]), count) for name, count in runs]


class _SimulatedClocksLocked:
    def __init__(self, gpu: SimulatedGpu, pair: Pair, key: tuple) -> None:
        self.gpu, self.pair, self.key = gpu, pair, key

    def __enter__(self) -> float:
        gpu = self.gpu
        latency = latency_s(gpu.spec["switching"], gpu.seed, gpu.pair, self.pair, *self.key)
        gpu.now_s += latency
        gpu.pair = self.pair
        return latency

    def __exit__(self, *_: object) -> None:
        self.gpu.pair = BASELINE


if TYPE_CHECKING:
    _: type[Gpu[Load]] = SimulatedGpu  # mypy compares every signature
