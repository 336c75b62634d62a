"""Measurement noise of the simulated GPU: log-normal per window, and an offset that one campaign cannot average away.

Standard deviations come from the repeats of a published RTX 3080 Ti data set; the offset (per campaign, target and
clock pair) is an assumption that makes selection bias real, as it is on hardware.
"""

import math
from typing import NamedTuple

from kernel_dvfs.gpu.draws import normals


class Key(NamedTuple):
    """What a draw is keyed by, beside seed and clock pair."""

    campaign: str
    workload: str
    target: str  # <study>/<name>
    repeat: int


def _sd(table: list, time_s: float) -> tuple:
    for row in table:
        if row["below_s"] is None or time_s < row["below_s"]:
            return row["time_sd"], row["energy_sd"]
    raise ValueError("noise table has no last row with below_s: null")


def factors(noise: dict, seed: int, key: Key, pair, window: int, launch_s: float) -> tuple:
    """(time factor, power factor) of one window; launch_s: seconds of one launch, which sets the size."""
    time_sd, energy_sd = _sd(noise["window"], launch_s)
    # energy = power x time: the rest of the energy's scatter is the power's
    power_sd = math.sqrt(max(energy_sd**2 - time_sd**2, 0.0))
    campaign = (seed, key.campaign, key.workload, key.target, *pair)
    draw = (*campaign, key.repeat, window)
    time, power = normals(*draw, "noise")
    time_offset, power_offset = normals(*campaign, "offset")
    offset_sd = noise["offset_sd"]
    return (
        math.exp(time_sd * time + offset_sd * time_offset),
        math.exp(power_sd * power + offset_sd * power_offset),
    )
