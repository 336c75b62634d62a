"""A simulated kernel held to what a real one took: the model's form, with its time and energy scaled to a measurement.

Used for forecasts (workload.step_workload): how a kernel answers to clocks is the model's, from its work; what it takes
at auto is the board's.
"""

from __future__ import annotations

from typing import Any

from kernel_dvfs.gpu.clocks import BASELINE, asked_core_mhz, reached_core_mhz
from kernel_dvfs.gpu.governor import Running
from kernel_dvfs.gpu.kernel import Work, parameters

# a core clock lower by more than a step of any grid is held down by the power cap
_STEP_MHZ = 15


def standing_power_w(spec: dict[str, Any]) -> float:
    """Mean board power, W, at auto of a GPU of `spec` that only waits: no kernel draws less."""
    clocks, thermal = spec["clocks"], spec["thermal"]
    idle = Work("residual", 0.0, 1.0, 0.0, 1.0)._replace(energy_factor=0.0)
    running = Running(spec, [(parameters(spec, idle), 1)], BASELINE, thermal["ambient_c"])
    return running.at(asked_core_mhz(clocks, BASELINE), reached_core_mhz(clocks, BASELINE, 0.0))[1]


def held(
    spec: dict[str, Any], work: Work, time_s: float, power_w: float | None = None, core_mhz: float | None = None
) -> Work:
    """`work` with factors that give it this time, s, and mean board power, W, at auto on the GPU of `spec`.

    power_w: None leaves the model's energy, but for what would exceed the power cap: the board ran the kernel in that
    time, so it did not. core_mhz: clock that the board ran; None: auto's own, as without a power
    cap. Time is proportional to its factor and power linear in the other, so both are solved for at that clock. A board
    that drew less than the model's standing power leaves the kernel no energy of its own (factor 0).
    """
    clocks = spec["clocks"]
    top_mhz = reached_core_mhz(clocks, BASELINE, power_w or 0.0)
    ran_mhz = core_mhz or top_mhz
    # the voltage is that of the clock that the governor asks for: below the top, the one that the cap leaves
    asked_mhz = ran_mhz if ran_mhz < top_mhz - _STEP_MHZ else asked_core_mhz(clocks, BASELINE)
    thermal = spec["thermal"]
    temperature_c = thermal["ambient_c"] + thermal["c_per_w"] * (power_w or 0.0)

    def at(own: Work) -> tuple[float, float]:
        running = Running(spec, [(parameters(spec, own), 1)], BASELINE, temperature_c)
        return running.at(asked_mhz, ran_mhz)

    work = work._replace(time_factor=time_s / at(work)[0])
    standing_w, full_w = (at(work._replace(energy_factor=factor))[1] for factor in (0.0, 1.0))
    if power_w is None:
        power_w = min(full_w, spec["governor"]["cap_w"])
    own_w = full_w - standing_w
    return work._replace(energy_factor=max(power_w - standing_w, 0.0) / own_w if own_w > 0 else 1.0)
