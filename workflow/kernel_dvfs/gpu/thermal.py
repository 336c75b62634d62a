"""Board temperature: first order towards ambient + resistance x power, leakage feeding back into power."""

import math


def advance_c(thermal: dict, temperature_c: float, power_w: float, leakage_w_per_c: float, seconds: float) -> float:
    """Temperature after `seconds` at clocks whose power is `power_w` at the present temperature.

    tau dT/dt = T_ambient + R (P + g (T - T_now)) - T, linear and so solved exactly; g = leakage_w_per_c, W/C.
    """
    damping = 1 - thermal["c_per_w"] * leakage_w_per_c
    target = thermal["ambient_c"] + thermal["c_per_w"] * (power_w - leakage_w_per_c * temperature_c)
    steady = target / damping
    return steady + (temperature_c - steady) * math.exp(-seconds * damping / thermal["tau_s"])
