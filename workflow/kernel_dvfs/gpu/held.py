"""A simulated kernel held to what a real one took: the model's form, with its time and energy scaled to a measurement.

Used for forecasts (workload.step_workload): how a kernel answers to clocks is the model's, from its work; what it takes
at auto is the board's.
"""

from __future__ import annotations

from typing import Any

from kernel_dvfs.gpu.clocks import BASELINE, applied_mem_mhz
from kernel_dvfs.gpu.kernel import Work, parameters
from kernel_dvfs.gpu.model import clock_w, launch_j, launch_time_s, relative_bandwidth, static_w


def held(
    spec: dict[str, Any], work: Work, time_s: float, power_w: float | None = None, core_mhz: float | None = None
) -> Work:
    """`work` with factors that give it this time, s, and mean board power, W, at auto on the GPU of `spec`.

    power_w: None leaves the model's energy. core_mhz: clock that the board ran; None: auto's own, as without a power
    cap. The two factors are solved for in closed form at that clock. A board that drew less than the model's standing
    power leaves the kernel no energy of its own (factor 0).
    """
    core_mhz = core_mhz or spec["clocks"]["auto_core_mhz"]
    mem_mhz = applied_mem_mhz(spec["clocks"], BASELINE)
    kernel = parameters(spec, work)
    model_s = launch_time_s(kernel, core_mhz / 1000, relative_bandwidth(spec["memory"], mem_mhz))
    work = work._replace(time_factor=time_s / model_s)
    if power_w is None:
        return work
    thermal = spec["thermal"]
    temperature_c = thermal["ambient_c"] + thermal["c_per_w"] * power_w
    standing_w = static_w(spec, mem_mhz, temperature_c) + clock_w(spec["core"], core_mhz)
    own_w = power_w / (1 + spec["governor"]["auto_extra_power"]) - standing_w
    own_j = launch_j(spec, kernel, core_mhz, mem_mhz)
    return work._replace(energy_factor=max(own_w, 0.0) * time_s / own_j if own_j else 1.0)
