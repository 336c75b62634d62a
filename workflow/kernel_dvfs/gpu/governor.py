"""The simulated GPU's own governor: the highest clock at or below the request that keeps board power under the cap.

Time depends on the clock and power on time, so both are solved together, on the GPU's own clock grid. A load is a
list of (Kernel, launches) run back to back; the power controller is slower than most kernels, so it is the load's
mean power that the cap acts on (inferred: a capped kernel runs faster between cooler ones).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.gpu.clocks import AUTO, applied_mem_mhz, ceiling_core_mhz
from kernel_dvfs.gpu.model import clock_w, launch_j, launch_time_s, relative_bandwidth, static_w

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_dvfs.gpu.clocks import Clock
    from kernel_dvfs.gpu.kernel import Kernel


class State(NamedTuple):
    """What a load settles at."""

    core_mhz: float  # reached
    mem_mhz: int  # reached
    ceiling_mhz: float  # the core clock that was allowed
    time_s: float  # of one run of the load
    power_w: float  # mean power of the board
    capped: bool  # whether the power cap is what holds the core clock down


def settle(
    spec: dict[str, Any],
    load: Sequence[tuple[Kernel, int]],
    pair: tuple[Clock, Clock],
    temperature_c: float,
    top_mhz: float,
) -> State:
    """The state in which a load runs at the requested `pair` of clocks and a board temperature.

    load: [(kernel, launches)]. top_mhz: where the highest core clocks land (gpu.clocks.mean_top_core_mhz).
    """
    governor = spec["governor"]
    mem_mhz = applied_mem_mhz(spec["clocks"], pair)
    bandwidth = relative_bandwidth(spec["memory"], mem_mhz)
    standing_w = static_w(spec, mem_mhz, temperature_c)
    ceiling = ceiling_core_mhz(spec["clocks"], pair, top_mhz)

    def at(core_mhz: float) -> tuple[float, float]:
        time_s = sum(count * launch_time_s(kernel, core_mhz / 1000, bandwidth) for kernel, count in load)
        energy_j = sum(count * launch_j(spec, kernel, core_mhz, mem_mhz) for kernel, count in load)
        return time_s, standing_w + clock_w(spec["core"], core_mhz) + energy_j / time_s

    if pair[0] == AUTO and governor["auto_light_load_core_mhz"]:
        launches = sum(count for _, count in load)
        if at(ceiling)[0] / launches < governor["auto_light_load_below_us"] * 1e-6:
            ceiling = min(ceiling, governor["auto_light_load_core_mhz"])
    core_mhz = ceiling
    time_s, power_w = at(core_mhz)
    capped = power_w > governor["cap_w"]
    if capped:
        # power rises with the clock, so halve the grid below: `low` keeps the cap (or is the lowest), `high` does not
        grid = spec["clocks"]["core_mhz"]
        low, high = 0, math.ceil((ceiling - grid["lowest"]) / grid["step"])
        while high - low > 1:
            middle = (low + high) // 2
            if at(grid["lowest"] + middle * grid["step"])[1] > governor["cap_w"]:
                high = middle
            else:
                low = middle
        core_mhz = grid["lowest"] + low * grid["step"]
        time_s, power_w = at(core_mhz)
    if pair[0] == AUTO:
        power_w *= 1 + governor["auto_extra_power"]
    return State(core_mhz, mem_mhz, ceiling, time_s, power_w, capped)
