"""A simulated GPU measured thousands of times at once: its truth as arrays, and noise drawn around it.

The noise has the same distributions as that of a measurement job (gpu/noise.py; tests compare them)
but other random numbers, so thousands of studies cost minutes instead of days. For studies of how to choose; results of
a study itself come from records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernel_dvfs.gpu.governor import is_governed
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.point import Judged
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import Pair


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What measurements of a simulated GPU average to, over everything that is drawn: K kernels at C clock pairs."""

    names: list[str]  # of the kernels
    launches: np.ndarray  # (K,) per iteration
    groups: list[str | None]  # (K,) replicate group
    pairs: list[Pair]  # the baseline first
    time_s: np.ndarray  # (K, C) of one launch
    energy_j: np.ndarray  # (K, C) of one launch
    core_mhz: np.ndarray  # (K, C) reached, NaN where unknown

    @property
    def auto_core_mhz(self) -> np.ndarray:
        """(K,) reached at the baseline."""
        return self.core_mhz[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """How measurements scatter; standard deviations of the logarithm, or relative.

    A campaign is a session: what is measured in it shares two offsets, which no averaging within it removes.
    """

    time_sd: np.ndarray  # (K, C) of one window
    power_sd: np.ndarray  # (K, C) of one window
    offset_sd: np.ndarray  # (K, C) of a session, as the spec's offset_sd
    locked_sd: float  # of all locked clocks against auto in a session, which no number of kernels averages out
    late_sd: float  # of a window's length, from late readings of the energy counter
    windows: int  # per measurement


@dataclass(frozen=True, slots=True, eq=False)
class Campaign:
    """What one campaign measured of G cells, each a target at a pair."""

    cell: np.ndarray  # (G,) flat index target x pairs + pair
    n: np.ndarray  # (G,) measurements
    time_s: np.ndarray  # (G,) mean over measurements
    energy_j: np.ndarray  # (G,) mean over measurements
    time_squares: np.ndarray  # (G,) sum of squared deviations, s^2
    energy_squares: np.ndarray  # (G,) sum of squared deviations, J^2


def truth(setup: Setup, pairs: Sequence[Pair]) -> Truth:
    """The truth of the kernels of a setup (simulated GPU) at `pairs`."""
    kernels = setup.targets["kernel"]
    time_s, energy_j, core_mhz = np.stack([true_points(setup, name, pairs) for name in kernels], axis=1)
    return Truth(
        names=list(kernels),
        launches=np.array([about["launches_per_iteration"] for about in kernels.values()], dtype=float),
        groups=[about["replicate_group"] for about in kernels.values()],
        pairs=list(pairs),
        time_s=time_s,
        energy_j=energy_j,
        core_mhz=core_mhz,
    )


def true_points(setup: Setup, kernel: str, pairs: Sequence[Pair]) -> np.ndarray:
    """(3, C): s and J of one launch of a kernel, and the core clock reached, MHz, measured without noise."""
    bench = Bench(setup, MeasurementTarget("kernel", kernel), exact=True)
    points = [bench.point(pair) for pair in pairs]
    return np.array([[*per_launch(point), point["reached"]["core_mhz"]] for point in points]).T


def per_launch(point: Judged) -> tuple[float, float]:
    """(s, J) of one launch, by what a point of it measured."""
    return point["summary"]["time_us"] * 1e-6, point["summary"]["energy_mj"] * 1e-3


def noise_of(spec: Mapping[str, Any], measurement: Mapping[str, Any], known: Truth) -> Noise:
    """The noise of a spec's own tables, by the time of one launch and by what chooses its clock.

    measurement: the setup's windows and window_s.
    """
    rows = spec["noise"]["window"]
    size = np.searchsorted([row["below_s"] for row in rows[:-1]], known.time_s, side="right")
    time_sd, energy_sd = (np.array([row[name] for row in rows])[size] for name in ("time_sd", "energy_sd"))
    # a reading is late by up to read_s at either end; the difference of two uniform draws has a variance of 1/6
    late_sd = spec["sensor"]["read_s"] / np.sqrt(6) / measurement["window_s"]
    power_sd = np.sqrt(np.maximum(energy_sd**2 - time_sd**2, 0))
    governed = [[is_governed(pair, core_mhz) for pair, core_mhz in zip(known.pairs, own)] for own in known.core_mhz]
    offset_sd = np.where(governed, *(spec["noise"]["offset_sd"][state] for state in ("governed", "locked")))
    return Noise(time_sd, power_sd, offset_sd, 0.0, late_sd, measurement["windows"])


def high_noise(own: Noise, time_sd: float = 0.01, power_sd: float = 0.02) -> Noise:
    """The same relative noise for every kernel, given per measurement instead of per window; offsets as they are."""
    factor = np.sqrt(own.windows) * np.ones(own.time_sd.shape)
    return replace(own, time_sd=time_sd * factor, power_sd=power_sd * factor)


def _log_normal(sd: np.ndarray | float, z: np.ndarray) -> np.ndarray:
    """Factors whose mean is 1, as gpu.noise has them."""
    return np.exp(sd * (z - sd / 2))


def _offsets(noise: Noise, draw: np.random.Generator, target: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """(2, G): factors of time and power of G cells that one session does not average away."""
    own = _log_normal(noise.offset_sd[target, pair], draw.standard_normal((2, len(pair))))
    return own * np.where(pair > 0, _log_normal(noise.locked_sd, draw.standard_normal((2, 1))), 1)


def measure(known: Truth, noise: Noise, draw: np.random.Generator, cell: np.ndarray, n: int = 1) -> Campaign:
    """One campaign that measures each of the cells (different ones) n times."""
    target, pair = np.divmod(cell, len(known.pairs))
    offset = _offsets(noise, draw, target, pair)[:, :, None]
    shape = (len(cell), n, noise.windows)
    time, energy = (values[target, pair, None] for values in (known.time_s, known.energy_j))
    time_factor = _log_normal(noise.time_sd[target, pair, None, None], draw.standard_normal(shape))
    power_factor = _log_normal(noise.power_sd[target, pair, None, None], draw.standard_normal(shape))
    power_factor *= 1 + noise.late_sd * draw.standard_normal(shape)
    time_s = offset[0] * time * time_factor.mean(axis=2)
    energy_j = offset[0] * offset[1] * energy * (time_factor * power_factor).mean(axis=2)
    means = time_s.mean(axis=1), energy_j.mean(axis=1)
    squares = (((values - mean[:, None]) ** 2).sum(axis=1) for values, mean in zip((time_s, energy_j), means))
    return Campaign(cell, np.full(len(cell), float(n)), *means, *squares)
