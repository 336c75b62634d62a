"""The simulated GPU: the seam's methods on virtual time.

A GPU behind the seam offers: `device()`, `prepare(works)`, `locked(pair, key)`, `condition(load)`,
`warm_up(load, seconds)`, `window(load, seconds, key, number)`, `disturbances(windows)`, `request(pair)`. Above it
nobody can tell a simulated from a real board, but by its name. It knows no kernel names: a load is work.
"""

import math

from kernel_dvfs.gpu import clocks, draws
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import parameters
from kernel_dvfs.gpu.noise import factors
from kernel_dvfs.gpu.power import static_w
from kernel_dvfs.gpu.sensor import Reading, read_window
from kernel_dvfs.gpu.switching import latency_s
from kernel_dvfs.gpu.thermal import advance_c

# raise this when the model changes: it is part of every setup, so that old records are measured again
MODEL = "kernel-dvfs simulated GPU 1"

POWER_CAP_BIT = "0x4"  # NVML's event reason "software power cap"


class SimulatedGpu:
    """One board of a spec (gpu.spec.resolve) on virtual time, cold when made.

    exact: no noise, no campaign offset, no counter grid: the *truth* that measurements scatter around.
    """

    def __init__(self, spec: dict, seed: int, exact: bool = False):
        self.spec = spec
        self.seed = seed
        self.exact = exact
        self.now_s = 0.0
        self.temperature_c = spec["thermal"]["ambient_c"]
        self.pair = BASELINE
        self.top_mhz = clocks.mean_top_core_mhz(spec["clocks"])

    def device(self) -> dict:
        """The record's `device` group."""
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

    def prepare(self, works: list) -> list:
        """A load from [(gpu.kernel.Work, launches)], in order."""
        return [(parameters(self.spec, work), count) for work, count in works]

    def locked(self, pair, key):
        """A context in which a pair of clocks is requested; released however it ends. Yields the latency, s."""
        clocks.check(self.spec["clocks"], pair)
        return _Locked(self, pair, key)

    def request(self, pair) -> dict:
        """More of the record's `request` group: nothing here."""
        return {}

    def disturbances(self, windows: list) -> list:
        """What came from outside while the windows ran, in words: nothing can."""
        return []

    def copy(self) -> "SimulatedGpu":
        """Another board in the same state."""
        other = SimulatedGpu(self.spec, self.seed, self.exact)
        other.__dict__.update(self.__dict__)
        return other

    def _state(self, load):
        return settle(self.spec, load, self.pair, self.temperature_c, self.top_mhz)

    def _run(self, state, seconds: float) -> None:
        leakage = static_w(self.spec, state.mem_mhz, 1.0) - static_w(self.spec, state.mem_mhz, 0.0)
        thermal = self.spec["thermal"]
        self.temperature_c = advance_c(thermal, self.temperature_c, state.power_w, leakage, seconds)
        self.now_s += seconds

    def warm_up(self, load, seconds: float) -> None:
        """Run `load` for a while at the clocks in force."""
        self._run(self._state(load), seconds)

    def condition(self, load, step_s: float = 30.0, band_c: float = 1.0, limit_s: float = 300.0) -> None:
        """Run `load` at the clocks in force until the temperature moves at most `band_c` in `step_s`."""
        began_s = self.now_s
        while self.now_s - began_s < limit_s:
            before_c = self.temperature_c
            self.warm_up(load, step_s)
            if abs(self.temperature_c - before_c) <= band_c:
                return

    def window(self, load, seconds: float, key, number: int) -> dict:
        """Run `load` between two edges of the energy counter; the record's `windows[]` entry, raw units."""
        before_c = self.temperature_c
        state = self._state(load)
        launches_per_run = sum(count for _, count in load)
        time_factor, power_factor = (1.0, 1.0)
        if not self.exact:
            launch_s = state.time_s / launches_per_run
            time_factor, power_factor = factors(self.spec["noise"], self.seed, key, self.pair, number, launch_s)
        time_s = state.time_s * time_factor
        power_w = state.power_w * power_factor
        if self.exact:
            reading = Reading(seconds, power_w * seconds * 1000)
        else:
            draw = (self.seed, *key, *self.pair, number)
            reading = read_window(self.spec["sensor"], power_w, max(seconds, time_s), draw)
        self._run(state, reading.duration_s)
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
            "reasons": {POWER_CAP_BIT: 1.0} if state.capped else {},
            "processes": 0,
        }


class _Locked:
    def __init__(self, gpu: SimulatedGpu, pair, key):
        self.gpu, self.pair, self.key = gpu, pair, key

    def __enter__(self) -> float:
        gpu = self.gpu
        latency = latency_s(gpu.spec["switching"], gpu.seed, gpu.pair, self.pair, *self.key)
        gpu.now_s += latency
        gpu.pair = self.pair
        top = gpu.spec["clocks"].get("top_core_mhz")
        if top and not gpu.exact:
            gpu.top_mhz = float(draws.weighted(top, gpu.seed, *self.key, *self.pair, "top"))
        return latency

    def __exit__(self, *_) -> None:
        self.gpu.pair = BASELINE
