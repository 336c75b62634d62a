"""The energy counter: millijoules since power-up, moving only about every 100 ms, and slow to read.

A window is aligned to the counter's edges as the measurement protocol asks: read until it moves, run, read until it
moves again. What is left of the coarse counter is an edge seen up to one read too late, and whole millijoules.
"""

import math
from typing import NamedTuple

from kernel_dvfs.gpu.draws import normal, uniform, uniforms


class Reading(NamedTuple):
    """A window between two edges of the counter."""

    duration_s: float  # as the reader saw the edges
    energy_mj: int  # the counter's difference


def read_window(sensor: dict, power_w: float, window_s: float, key: tuple) -> Reading:
    """What the counter shows for a window of at least `window_s` at a mean power of `power_w`."""
    period_s = sensor["counter_period_s"] * (1 + sensor["period_jitter"] * normal(*key, "period"))
    # from the first edge on, whole periods until the window is over
    true_s = math.ceil(window_s / period_s) * period_s
    late_start, late_end = uniforms(*key, "late")
    late_s = sensor["read_s"] * (late_end - late_start)
    start_mj = uniform(*key, "counter")
    energy_mj = math.floor(start_mj + power_w * true_s * 1000)
    return Reading(true_s + late_s, energy_mj)
