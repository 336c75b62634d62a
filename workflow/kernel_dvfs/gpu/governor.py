"""The simulated GPU's own governor: which core clock a load reaches, at which voltage, and when the power cap rules.

A request sets the voltage (gpu.model.relative_voltage) and the highest clock that it allows. Where the top of the
curve falls with power (gpu.clocks.reached_core_mhz), the clock falls and the voltage stays: asking for a lower clock
saves V^2, being held to it by power does not. Where power would exceed the cap, the governor hunts: the board
alternates between a request above the one that would just keep the cap and one below it, each about `hunting_mhz` away
(at least between neighbours of its grid), so that its mean power is the cap; what is returned is that mean. Power rises
faster than the clock, so hunting costs time: a request that keeps the cap by itself is faster than being held to it. A
board that is held may draw more than hunting explains (`capped_extra_power`): power limits of an H100 leave a product 1
to 13 % less clock than locks of the same power.

Time depends on the clock and power on time, so both are solved together. A load is a list of (Kernel, launches) run
back to back; the power controller is slower than most kernels, so it is the load's mean power that counts: all kernels
of a load run at one clock, a hot one faster and a cool one slower than each does alone (measured on an H200 at its cap:
products of a layer 5 to 8 % faster in the layer than alone, its light kernels 14 to 19 % slower).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.gpu.model import clock_w, launch_time_s, relative_bandwidth, run_j, static_w
from kernel_dvfs_clocks.clocks import AUTO, applied_mem_mhz, asked_core_mhz, reached_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_dvfs.gpu.kernel import Kernel
    from kernel_dvfs_clocks.clocks import Clock

_CLOSE_MHZ = 0.01  # how exactly a clock that follows from power is found
_STEPS = 20  # at most, towards it


class Runs(NamedTuple):
    """Runs of a load at one clock."""

    asked_mhz: float  # the core clock that sets the voltage
    core_mhz: float
    share: float  # of all runs


class OperatingPoint(NamedTuple):
    """What a load settles at."""

    core_mhz: float  # reached, mean
    mem_mhz: int  # reached
    ceiling_mhz: float  # the core clock that was allowed
    time_s: float  # of one run of the load, mean
    power_w: float  # mean power of the board
    capped: bool  # whether the power cap is what holds the core clock down
    runs: tuple[Runs, ...]  # between which the board alternates; one below the cap


def is_governed(pair: tuple[Clock, Clock], core_mhz: float) -> bool:
    """Return whether the governor, not a lock, chose the core clock that a request reached, MHz."""
    return isinstance(pair[0], str) or core_mhz < pair[0] - _CLOSE_MHZ


def held_factor(governor: dict[str, Any]) -> float:
    """Return what a board draws while its power cap holds it, by what it draws at the same clocks locked."""
    return 1.0 + float(governor.get("capped_extra_power", 0.0))


class GovernedLoad:
    """A load at the memory clock of a request, to be looked at core clock by core clock and warmer or cooler: what it
    takes at a clock is computed once."""

    def __init__(self, spec: dict[str, Any], load: Sequence[tuple[Kernel, int]], pair: tuple[Clock, Clock]) -> None:
        self.spec, self.load, self.pair = spec, load, pair
        self.mem_mhz = applied_mem_mhz(spec["clocks"], pair)
        self._bandwidth = relative_bandwidth(spec["memory"], self.mem_mhz)
        self._factor = 1 + spec["governor"]["auto_extra_power"] if pair[0] == AUTO else 1.0
        self._reached = reached_at(spec["clocks"], pair)
        self._time_s: dict[float, float] = {}  # of one run, by the core clock
        self._energy_j: dict[float, float] = {}  # of one run, by the clock that was asked for: no other changes it
        # s, W of the clock tree, W of the work, by both
        self._at: dict[tuple[float, float], tuple[float, float, float]] = {}

    def at(self, asked_mhz: float, core_mhz: float, temperature_c: float) -> tuple[float, float]:
        """Return (seconds of one run, mean W) at a core clock, with the voltage of the clock that was asked for."""
        clocks = asked_mhz, core_mhz
        if clocks not in self._at:
            time_s = self.time_s(core_mhz)
            if asked_mhz not in self._energy_j:
                self._energy_j[asked_mhz] = run_j(self.spec, self.load, asked_mhz, self.mem_mhz)
            tree_w = clock_w(self.spec["core"], core_mhz, asked_mhz)
            self._at[clocks] = time_s, tree_w, self._energy_j[asked_mhz] / time_s
        time_s, tree_w, work_w = self._at[clocks]
        return time_s, self._factor * (static_w(self.spec, self.mem_mhz, temperature_c) + tree_w + work_w)

    def time_s(self, core_mhz: float) -> float:
        """Return the seconds of one run at a core clock."""
        if core_mhz not in self._time_s:
            core_ghz, time_s = core_mhz / 1000, 0.0
            for kernel, count in self.load:
                time_s += count * launch_time_s(kernel, core_ghz, self._bandwidth)
            self._time_s[core_mhz] = time_s
        return self._time_s[core_mhz]

    def launch_s(self, state: OperatingPoint) -> list[float]:
        """Return the seconds of one launch of each kernel of the load in a state, mean: with their launches, they sum
        up to state.time_s."""
        return [
            math.fsum(runs.share * launch_time_s(kernel, runs.core_mhz / 1000, self._bandwidth) for runs in state.runs)
            for kernel, _ in self.load
        ]

    def launch_j(self, state: OperatingPoint, temperature_c: float) -> list[float]:
        """Return the same of energy, J: with their launches, they sum up to state.power_w x state.time_s."""
        energies_j = [0.0] * len(self.load)
        factor = self._factor * (held_factor(self.spec["governor"]) if state.capped else 1.0)
        for asked_mhz, core_mhz, share in state.runs:
            tree_w = clock_w(self.spec["core"], core_mhz, asked_mhz)
            standing_w = static_w(self.spec, self.mem_mhz, temperature_c) + tree_w
            for place, (kernel, _) in enumerate(self.load):
                own_j = run_j(self.spec, [(kernel, 1)], asked_mhz, self.mem_mhz)
                own_j += standing_w * launch_time_s(kernel, core_mhz / 1000, self._bandwidth)
                energies_j[place] += share * factor * own_j
        return energies_j

    @cached_property
    def asked_mhz(self) -> float:
        """The core clock that the board is asked for: the governor's own choice is another under a light load."""
        governor, asked = self.spec["governor"], asked_core_mhz(self.spec["clocks"], self.pair)
        if self.pair[0] == AUTO and governor["auto_light_load_core_mhz"]:
            launches = sum(count for _, count in self.load)
            if self.time_s(asked) / launches < governor["auto_light_load_below_us"] * 1e-6:
                return min(asked, governor["auto_light_load_core_mhz"])
        return asked

    def reached_mhz(self, power_w: float) -> float:
        """Return the core clock that the board reaches at a mean power below its cap."""
        return min(self.asked_mhz, self._reached(power_w))

    def settled(self, temperature_c: float) -> OperatingPoint:
        """Return the state in which the load runs at a board temperature."""
        cap_w, asked = self.spec["governor"]["cap_w"], self.asked_mhz
        # a board at its cap reaches what that power leaves
        highest = core_mhz = ran_mhz = self.reached_mhz(cap_w)
        time_s, power_w = self.at(asked, core_mhz, temperature_c)
        if power_w > cap_w:
            return _at_the_cap(self, asked, highest, temperature_c)
        for _ in range(_STEPS):
            before, core_mhz = core_mhz, self.reached_mhz(power_w)
            # a clock higher by 1 MHz takes about 0.1 W more, which lowers the top clock by far less than 1 MHz
            if abs(core_mhz - before) < _CLOSE_MHZ:
                break
            ran_mhz = core_mhz
            time_s, power_w = self.at(asked, ran_mhz, temperature_c)
        return OperatingPoint(
            core_mhz, self.mem_mhz, self.reached_mhz(0.0), time_s, power_w, False, (Runs(asked, ran_mhz, 1.0),)
        )


def settle(
    spec: dict[str, Any], load: Sequence[tuple[Kernel, int]], pair: tuple[Clock, Clock], temperature_c: float
) -> OperatingPoint:
    """Return the state in which a load [(kernel, launches)] runs at the requested `pair` and a board temperature."""
    return GovernedLoad(spec, load, pair).settled(temperature_c)


def _at_the_cap(running: GovernedLoad, asked: float, highest: float, temperature_c: float) -> OperatingPoint:
    """Return the state of a load that would exceed the cap; highest: the core clock that a board at the cap reaches."""
    governor, grid = running.spec["governor"], running.spec["clocks"]["core_mhz"]
    cap_w, lowest = governor["cap_w"], grid["lowest"]

    def at(request: float) -> tuple[float, float, float]:
        core_mhz = min(request, highest)
        time_s, power_w = running.at(request, core_mhz, temperature_c)
        return core_mhz, time_s, held_factor(governor) * power_w

    # power rises with the clock, so halve the grid below: `low` keeps the cap (or is the lowest), `high` does not
    low, high = 0, max(1, math.ceil((asked - lowest) / grid["step"]))
    while high - low > 1:
        middle = (low + high) // 2
        if at(min(lowest + middle * grid["step"], asked))[2] > cap_w:
            high = middle
        else:
            low = middle
    beyond_mhz = max(0, governor.get("hunting_mhz", 0) - grid["step"] / 2)
    below = max(lowest + low * grid["step"] - beyond_mhz, min(lowest, asked))
    above = min(lowest + high * grid["step"] + beyond_mhz, asked)
    (low_mhz, low_s, low_w), (high_mhz, high_s, high_w) = at(below), at(above)
    share = (cap_w - low_w) / (high_w - low_w) if low_w < cap_w < high_w else 0.0  # of the time, in the upper state
    time_s = 1 / (share / high_s + (1 - share) / low_s)
    power_w = low_w + share * (high_w - low_w)
    core_mhz = low_mhz + share * (high_mhz - low_mhz)
    # shares of the runs, not of the time: faster ones are more
    lower = Runs(below, low_mhz, (1 - share) * time_s / low_s)
    upper = Runs(above, high_mhz, share * time_s / high_s)
    return OperatingPoint(core_mhz, running.mem_mhz, highest, time_s, power_w, True, (lower, upper))
