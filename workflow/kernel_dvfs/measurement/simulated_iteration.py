"""The simulated GPU visited: the whole iteration as one load, and its kernels' power, on virtual time.

All kernels of an iteration run under one governor, at one clock. What is drawn is keyed by what a visit is, so that one
that is measured again alone comes out the same; each starts from the same hot board, as points of a sweep do. What a
session does to a kernel at a pair, its offset, is drawn for that kernel alone: an iteration, and a window of several
kernels, have none of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from kernel_dvfs.gpu.governor import OperatingPoint, is_governed
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, parameters
from kernel_dvfs.gpu.noise import Key, Reading, mean_offsets, offsets, read_window, scatter, short_sds
from kernel_dvfs.measurement.simulated import SimulatedGpu
from kernel_dvfs.measurement.verdict import judge
from kernel_dvfs.measurement.visit import (
    AUTO_SETTLE_S,
    KERNEL_S,
    SETTLE_S,
    Passes,
    Power,
    Visit,
    VisitMeasurement,
    Visitor,
    asked,
    round_of,
)
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, POWER_CAP
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.measurement.setup import Setup
    from kernel_dvfs.measurement.window import RecordDevice, Window

# {kernel: (its parameters, launches)} of a load whose kernels are known by name
Named = dict[str, tuple[Kernel, int]]


def iteration_of(setup: Setup) -> Named:
    """Return all kernels of a setup with their launches in one iteration, as its simulated GPU runs them."""
    spec = setup.gpu["spec"]
    return {
        name: (parameters(spec, LaunchWork(*about["work"])), about["launches_per_iteration"])
        for name, about in setup.targets["kernel"].items()
    }


class SimulatedVisitor:
    """A simulated GPU, hot from its iteration at auto, on which each visit begins.

    exact: without noise, the truth that visits average to.
    """

    run: dict[str, Any] = {}  # noqa: RUF012 - never written: records of a simulated GPU are the same bytes each time

    def __init__(self, setup: Setup, exact: bool = False) -> None:
        self._setup = setup
        self._kernels = iteration_of(setup)
        self._iteration = list(self._kernels.values())
        self._hot = SimulatedGpu(setup.gpu["spec"], setup.measurement["seed"], exact)
        with self._hot.locked(BASELINE, ("condition",)):
            self._hot.condition(self._iteration)

    @property
    def device(self) -> RecordDevice:
        """The record's `device` group."""
        return self._hot.device()

    def visit(self, visit: Visit) -> VisitMeasurement:
        """Measure. Raises InputError for a kernel that the workload lacks, or a clock that the GPU lacks."""
        groups = [self._named(names) for names in visit.metered]
        gpu, is_auto = self._hot.copy(), visit.pair == BASELINE
        before_c, began_s = gpu.temperature_c, gpu.now_s
        with gpu.locked(visit.pair, self._key(visit, "iteration")) as switch_s:
            gpu.warm_up(self._iteration, AUTO_SETTLE_S if is_auto else SETTLE_S)
            passes, state = self._passes(gpu, visit)
            powers = []
            for number, group in enumerate(groups):
                load = list(group.values())
                gpu.warm_up(load, min(AUTO_SETTLE_S, visit.window_s) if is_auto else KERNEL_S)
                powers.append(self._power(gpu, visit, number, group, load))
        reached = {"core_mhz": state.core_mhz, "mem_mhz": float(state.mem_mhz)}
        verdict, reasons, _ = judge(visit.pair, reached, [_held(state)])
        policy = AUTO if is_auto else self._setup.measurement.get("clocks", "lock")
        return cast(
            "VisitMeasurement",
            {
                "request": asked(visit) | gpu.request(visit.pair) | {"policy": policy, "switch_s": round(switch_s, 6)},
                "passes": passes,
                "powers": powers,
                "reached": reached,
                "temp_c": [round(before_c, 2), round(gpu.temperature_c, 2)],
                "spent_s": round(gpu.now_s - began_s, 6),
                "verdict": verdict,
                "reasons": reasons,
            },
        )

    def _named(self, names: tuple[str, ...]) -> Named:
        missing = [name for name in names if name not in self._kernels]
        if missing or not names:
            what = f"'{missing[0]}': not in workload {self._setup.workload['name']}" if missing else "none given"
            raise InputError(f"kernels of a window: {what}; it has {', '.join(self._kernels)}")
        launches = {name: count for name, (_, count) in self._kernels.items()}
        return {name: (self._kernels[name][0], count) for name, count in round_of(names, launches).items()}

    def _key(self, visit: Visit, target: str) -> Key:
        return Key(f"session-{visit.session}", self._setup.workload["name"], target, visit.place)

    def _passes(self, gpu: SimulatedGpu, visit: Visit) -> tuple[Passes, OperatingPoint]:
        """Return what stamps between the kernels say, over whole passes."""
        state = gpu.state(self._iteration)
        time_s = dict(zip(self._kernels, gpu.launch_s(self._iteration, state), strict=True))
        if not gpu.exact:
            for name, (longer, _) in self._drawn(gpu, visit, state, time_s).items():
                time_s[name] *= longer
        iteration_s = math.fsum(count * time_s[name] for name, (_, count) in self._kernels.items())
        count = max(1, math.ceil(visit.pass_s / iteration_s))
        power_w = self._mean_w(gpu, visit, state, time_s, count * iteration_s)
        gpu.run(state, count * iteration_s)
        times_us = {name: 1e6 * seconds for name, seconds in time_s.items()}
        passes: Passes = {
            "n": count,
            "iteration_us": 1e6 * iteration_s,
            "power_mw": 1000 * power_w,
            "is_capped": state.capped,
            "time_us": times_us,
        }
        return passes, state

    def launches(self, visit: Visit) -> dict[str, tuple[float, float]]:
        """Return (s, J) of one launch of each kernel in passes of the whole iteration, as this visit's session has
        them: what an iteration whose clocks change is played with."""
        gpu = self._hot.copy()
        with gpu.locked(visit.pair, self._key(visit, "iteration")):
            gpu.warm_up(self._iteration, SETTLE_S)
            state = gpu.state(self._iteration)
            time_s = dict(zip(self._kernels, gpu.launch_s(self._iteration, state), strict=True))
            energy_j = dict(zip(self._kernels, gpu.launch_j(self._iteration, state), strict=True))
            drawn = {} if gpu.exact else self._drawn(gpu, visit, state, time_s)
        launches = {}
        for name in self._kernels:
            longer, stronger = drawn.get(name, (1.0, 1.0))
            launches[name] = time_s[name] * longer, energy_j[name] * longer * stronger
        return launches

    def read(self, visit: Visit, power_w: float, seconds: float) -> float:
        """Return what the energy counter says of a mean power, W."""
        if self._hot.exact:
            return power_w
        draw = (self._hot.seed, *self._key(visit, "iteration"), *visit.pair, "passes")
        reading = read_window(self._hot.spec["sensor"], power_w, seconds, draw)
        return reading.energy_mj / reading.duration_s / 1000

    def _drawn(
        self, gpu: SimulatedGpu, visit: Visit, state: OperatingPoint, time_s: dict[str, float]
    ) -> dict[str, tuple[float, float]]:
        """Return (time factor, power factor) of each kernel in passes."""
        noise = gpu.spec["noise"]
        governed = is_governed(visit.pair, state.core_mhz)
        # under the cap the clock of all is one: what it does to one kernel, it does to all
        common_sd = noise["capped_pass_sd"] if state.capped else 0.0
        common, _ = scatter((common_sd, 0.0), gpu.seed, self._key(visit, "iteration"), visit.pair, "passes")
        factors = {}
        for name, launch_s in time_s.items():
            key = self._key(visit, f"kernel/{name}")
            scattered = scatter(
                short_sds(noise, launch_s, visit.pass_s, state.capped), gpu.seed, key, visit.pair, "passes"
            )
            shared = offsets(noise, gpu.seed, key, visit.pair, governed)
            factors[name] = scattered[0] * shared[0] * common, scattered[1] * shared[1]
        return factors

    def _mean_w(
        self, gpu: SimulatedGpu, visit: Visit, state: OperatingPoint, time_s: dict[str, float], passes_s: float
    ) -> float:
        """Return what the energy counter says of the passes. Scatter and offset of the board's power follow from each
        kernel's."""
        if gpu.exact:
            return state.power_w
        noise = gpu.spec["noise"]
        key = self._key(visit, "iteration")
        seconds = {name: count * time_s[name] for name, (_, count) in self._kernels.items()}
        governed = is_governed(visit.pair, state.core_mhz)
        scattered = math.fsum(
            time * scatter(short_sds(noise, time_s[name], passes_s, state.capped), gpu.seed, key, visit.pair, name)[1]
            for name, time in seconds.items()
        ) / math.fsum(seconds.values())
        _, shared = mean_offsets(noise, gpu.seed, self._key(visit, "kernel"), visit.pair, seconds, governed)
        return self.read(visit, state.power_w * scattered * shared, passes_s)

    def _power(
        self, gpu: SimulatedGpu, visit: Visit, number: int, group: Named, load: list[tuple[Kernel, int]]
    ) -> Power:
        """Return a window of kernels that run in turn, in rounds."""
        state = gpu.state(load)
        time_s, power_w = state.time_s, state.power_w
        least_s = max(visit.window_s, time_s)
        if gpu.exact:
            reading = Reading(least_s, power_w * least_s * 1000)
        else:
            noise, sensor = gpu.spec["noise"], gpu.spec["sensor"]
            key = self._key(visit, f"kernel/{'+'.join(group)}")
            launches = sum(count for _, count in load)
            seconds = {
                name: count * launch_s for (name, (_, count)), launch_s in zip(group.items(), gpu.launch_s(load, state))
            }
            governed = is_governed(visit.pair, state.core_mhz)
            sds = short_sds(noise, time_s / launches, max(least_s, sensor["counter_period_s"]), state.capped)
            scattered = scatter(sds, gpu.seed, key, visit.pair, number)
            shared = mean_offsets(noise, gpu.seed, key, visit.pair, seconds, governed)
            time_s, power_w = time_s * scattered[0] * shared[0], power_w * scattered[1] * shared[1]
            draw = (gpu.seed, *key, *visit.pair, number)
            reading = read_window(sensor, power_w, max(visit.window_s, time_s), draw)
        gpu.run(state, reading.duration_s)
        power: Power = {
            "kernels": list(group),
            "duration_s": reading.duration_s,
            "power_mw": reading.energy_mj / reading.duration_s,
            "time_us": 1e6 * time_s,
            "core_mhz": state.core_mhz,
            "is_capped": state.capped,
        }
        return power


def _held(state: OperatingPoint) -> Window:
    """Return what a verdict reads of a window."""
    return cast(
        "Window",
        {
            "reasons": {hex(POWER_CAP): 1.0} if state.capped else {},
            "cap_ns": 1 if state.capped else 0,
            "thermal_delta": 0,
        },
    )


if TYPE_CHECKING:
    _: type[Visitor] = SimulatedVisitor  # mypy compares every signature
