"""Many measurements of a simulated GPU at once: the noise of gpu/noise.py drawn as arrays.

The same distributions as a measurement job's (tests compare them), other random numbers: thousands of studies cost
minutes instead of days. For studies of how to choose; results of a study itself come from records.
"""

from typing import NamedTuple

import numpy as np

from kernel_dvfs.studies.truth import Truth


class Noise(NamedTuple):
    """time_sd, power_sd: (K, C) of one window; offset_sd: of a campaign; late_sd: of a window's length, all relative.

    windows: per measurement.
    """

    time_sd: np.ndarray
    power_sd: np.ndarray
    offset_sd: float
    late_sd: float
    windows: int


class Campaign(NamedTuple):
    """What one campaign measured of some cells. cell: (G,) flat index target x pairs + pair; n: (G,) measurements.

    time_s, energy_j: (G,) means over measurements. time_squares, energy_squares: (G,) sums of squared deviations.
    """

    cell: np.ndarray
    n: np.ndarray
    time_s: np.ndarray
    energy_j: np.ndarray
    time_squares: np.ndarray
    energy_squares: np.ndarray


def noise_of(setup, known: Truth) -> Noise:
    """The noise of the spec's own tables, by the time of one launch."""
    spec, windows = setup.gpu["spec"], setup.measurement["windows"]
    rows = spec["noise"]["window"]
    size = np.searchsorted([row["below_s"] for row in rows[:-1]], known.time_s, side="right")
    time_sd, energy_sd = (np.array([row[name] for row in rows])[size] for name in ("time_sd", "energy_sd"))
    # a reading is late by up to read_s at either end; the difference of two uniform draws has a variance of 1/6
    late_sd = spec["sensor"]["read_s"] / np.sqrt(6) / setup.measurement["window_s"]
    power_sd = np.sqrt(np.maximum(energy_sd**2 - time_sd**2, 0))
    return Noise(time_sd, power_sd, spec["noise"]["offset_sd"], late_sd, windows)


def high_noise(setup, known: Truth, time_sd: float = 0.01, power_sd: float = 0.02) -> Noise:
    """The same relative noise for every kernel, given per measurement instead of per window; offsets as in the spec."""
    own = noise_of(setup, known)
    factor = np.sqrt(own.windows) * np.ones(known.time_s.shape)
    return own._replace(time_sd=time_sd * factor, power_sd=power_sd * factor)


def offsets(noise: Noise, draw: np.random.Generator, cells: int) -> np.ndarray:
    """(2, cells): factors of time and power that one campaign does not average away."""
    return np.exp(noise.offset_sd * draw.standard_normal((2, cells)))


def measure(known: Truth, noise: Noise, draw: np.random.Generator, cell: np.ndarray, n: int, offset=None) -> Campaign:
    """One campaign that measures each of the cells (different ones) n times. offset: its offsets, or new ones."""
    target, pair = np.divmod(cell, len(known.pairs))
    offset = (offsets(noise, draw, len(cell)) if offset is None else offset)[:, :, None]
    shape = (len(cell), n, noise.windows)
    top = np.searchsorted(np.cumsum(known.shares)[:-1], draw.random((len(cell), n)), side="right")
    time = known.top_time_s[target[:, None], pair[:, None], top]
    power = known.top_energy_j[target[:, None], pair[:, None], top] / time
    time_factor = np.exp(noise.time_sd[target, pair, None, None] * draw.standard_normal(shape))
    power_factor = np.exp(noise.power_sd[target, pair, None, None] * draw.standard_normal(shape))
    power_factor *= 1 + noise.late_sd * draw.standard_normal(shape)
    time_s = offset[0] * time * time_factor.mean(axis=2)
    energy_j = offset[0] * offset[1] * time * power * (time_factor * power_factor).mean(axis=2)
    means = time_s.mean(axis=1), energy_j.mean(axis=1)
    squares = (((values - mean[:, None]) ** 2).sum(axis=1) for values, mean in zip((time_s, energy_j), means))
    return Campaign(cell, np.full(len(cell), float(n)), *means, *squares)
