"""Board power while a kernel runs.

P = Ps(fm) (1 + l (T - T0)) + k V(f)^2 f + (A V(f)^2 + s(fm) B) / t

Ps: static, memory held at its clock included; k V^2 f: clock tree; A: switching energy of the kernel in the core at
V0; B: its DRAM energy. Voltage stands relative to its floor V0 and absorbs leakage. Pure functions on plain floats.
"""


def relative_voltage(core: dict, core_mhz: float) -> float:
    """V/V0 at a core clock: linear between the spec's points, flat below, the last slope above."""
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


def static_w(spec: dict, mem_mhz: float, temperature_c: float) -> float:
    """Power of an idle but clocked board at a memory clock and a temperature, W."""
    thermal = spec["thermal"]
    leak = 1 + thermal["leakage_per_c"] * (temperature_c - thermal["reference_c"])
    return spec["memory"]["static_w"][str(mem_mhz)] * leak


def clock_w(core: dict, core_mhz: float) -> float:
    """Power of the clock tree, W."""
    voltage = relative_voltage(core, core_mhz)
    return core["clock_w_per_ghz"] * voltage * voltage * core_mhz / 1000


def launch_j(spec: dict, kernel, core_mhz: float, mem_mhz: float) -> float:
    """Switching energy of one launch in core and DRAM, without the board's standing power, J."""
    voltage = relative_voltage(spec["core"], core_mhz)
    scale = spec["memory"]["dram_energy_scale"][str(mem_mhz)]
    return kernel.core_j * voltage * voltage + scale * kernel.dram_j
