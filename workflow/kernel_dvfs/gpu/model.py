"""The model of a simulated GPU: time of a launch, board power while it runs, and the board's temperature.

Time: core work and memory work overlap, a latency comes on top:

    t = ((C/f)^p + (M f^g/b)^p)^(1/p) + t0

the form that fits the published RTX 3080 Ti measurements best, with p = 3 and g = 0. On an A100 streaming kernels are a
little faster at lower core clocks (g > 0), which is what lets others slow down at no loss of time. Power:

    P = Ps(fm) (1 + l (T - T0)) + k V(f)^2 f + (A V(f)^2 + s(fm) B) / t

Ps: static, memory held at its clock included; k V^2 f: clock tree; A: switching energy of the kernel in the core at
V0; B: its DRAM energy. The voltage is relative to its floor V0 and absorbs leakage; it is that of the clock asked for,
also where power holds the clock below it (gpu.governor). Pure functions on plain floats;
`spec` and its groups are those of gpu.spec.resolve.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_dvfs.gpu.kernel import Kernel


# --- time -------------------------------------------------------------------------------------------------------------


def relative_bandwidth(memory: dict[str, Any], mem_mhz: float) -> float:
    """Return the DRAM bandwidth at a memory clock relative to the reference clock: eta(f) f / f_reference.

    memory: the spec's group.
    """
    return memory["eta"][str(mem_mhz)] * mem_mhz / memory["reference_mhz"]


def launch_time_s(kernel: Kernel, core_ghz: float, bandwidth: float) -> float:
    """Return the seconds of one launch of `kernel` at a core clock (GHz) and a relative bandwidth."""
    core = kernel.core_s_ghz / core_ghz
    memory = kernel.memory_s / bandwidth
    if kernel.memory_exponent:
        memory *= core_ghz**kernel.memory_exponent
    longer = max(core, memory)
    if longer == 0:
        return kernel.latency_s
    p = kernel.overlap
    # factor out the longer part, so that large p cannot underflow
    return longer * ((core / longer) ** p + (memory / longer) ** p) ** (1 / p) + kernel.latency_s


# --- power ------------------------------------------------------------------------------------------------------------


def relative_voltage(core: dict[str, Any], core_mhz: float) -> float:
    """Return V/V0 at a core clock: linear between the points of the spec's `core` group, flat below, the last slope
    above."""
    points = core["v_over_v0"]
    low_mhz, low = points[0]
    if core_mhz <= low_mhz:
        return low
    slope = 0.0
    for high_mhz, high in points[1:]:
        slope = (high - low) / (high_mhz - low_mhz)
        if core_mhz <= high_mhz:
            return low + slope * (core_mhz - low_mhz)
        low_mhz, low = high_mhz, high
    return low + slope * (core_mhz - low_mhz)


def static_w(spec: dict[str, Any], mem_mhz: float, temperature_c: float) -> float:
    """Return the power of an idle but clocked board at a memory clock and a temperature, W."""
    thermal = spec["thermal"]
    leak = 1 + thermal["leakage_per_c"] * (temperature_c - thermal["reference_c"])
    return spec["memory"]["static_w"][str(mem_mhz)] * leak


def clock_w(core: dict[str, Any], core_mhz: float, asked_mhz: float | None = None) -> float:
    """Return the power of the clock tree, W. core: the spec's group; asked_mhz: the clock that sets the voltage, if
    another."""
    voltage = relative_voltage(core, core_mhz if asked_mhz is None else asked_mhz)
    return core["clock_w_per_ghz"] * voltage * voltage * core_mhz / 1000


def run_j(spec: dict[str, Any], load: Sequence[tuple[Kernel, int]], asked_mhz: float, mem_mhz: float) -> float:
    """Return the switching energy in core and DRAM of all launches of a load [(kernel, launches)], J; static power and
    clock tree come on top.

    asked_mhz: the core clock that sets the voltage.
    """
    voltage = relative_voltage(spec["core"], asked_mhz)
    scale = spec["memory"]["dram_energy_scale"][str(mem_mhz)]
    energy_j = 0.0
    for kernel, count in load:
        energy_j += count * (kernel.core_j * voltage * voltage + scale * kernel.dram_j)
    return energy_j


# --- temperature ------------------------------------------------------------------------------------------------------


def advance_c(
    thermal: dict[str, Any], temperature_c: float, power_w: float, leakage_w_per_c: float, seconds: float
) -> float:
    """Return the temperature (C) after `seconds` at clocks whose power is `power_w` at the present temperature.

    First order towards ambient + resistance x power, with leakage feeding back into power:
    tau dT/dt = T_ambient + R (P + g (T - T_now)) - T, linear and so solved exactly; g = leakage_w_per_c, W/C.
    thermal: the spec's group.
    """
    damping = 1 - thermal["c_per_w"] * leakage_w_per_c
    target = thermal["ambient_c"] + thermal["c_per_w"] * (power_w - leakage_w_per_c * temperature_c)
    steady = target / damping
    return steady + (temperature_c - steady) * math.exp(-seconds * damping / thermal["tau_s"])
