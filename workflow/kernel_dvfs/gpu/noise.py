"""What is random about a simulated GPU: noise of measuring, the energy counter's steps, the latency of a new clock, and
another specimen of its model.

Random numbers are drawn by name: the same key gives the same number in any order, process or machine. Every draw is
keyed by (seed, campaign, target, pair, repeat, ...), so that a record can be measured again alone, comes out the same
whoever asks for it and when, and a new campaign has noise of its own. A hash does that; a generator with state would
depend on the order.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_dvfs_clocks.clocks import Clock

_HALF = 1 << 53
_SHORT_S = 0.5  # the window that `short` of a spec's noise says
_Z99 = 2.3263  # standard normal quantile of 0.99


def uniforms(*key: object) -> tuple[float, float]:
    """Return two independent numbers in (0, 1), the same ones for the same key."""
    digest = blake2b("|".join(map(str, key)).encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little") >> 11, int.from_bytes(digest[8:], "little") >> 11
    return (first + 0.5) / _HALF, (second + 0.5) / _HALF


def uniform(*key: object) -> float:
    """Return a number in (0, 1), the same one for the same key."""
    return uniforms(*key)[0]


def normals(*key: object) -> tuple[float, float]:
    """Return two independent standard normal numbers, the same ones for the same key (Box-Muller)."""
    first, second = uniforms(*key)
    radius = math.sqrt(-2 * math.log(first))
    return radius * math.cos(2 * math.pi * second), radius * math.sin(2 * math.pi * second)


def normal(*key: object) -> float:
    """Return a standard normal number, the same one for the same key."""
    return normals(*key)[0]


class Key(NamedTuple):
    """What the draws of a point are keyed by, together with seed and clock pair."""

    campaign: str  # `sweep`, `fresh-3`: each draws its own noise and offsets
    workload: str  # its name
    target: str  # `kernel/<id>` or `pass/<name>`
    repeat: int  # of the point within the campaign


class Reading(NamedTuple):
    """What the reader of the energy counter sees of a window."""

    duration_s: float  # time between the two edges
    energy_mj: float  # the counter's difference, whole mJ


# --- noise: log-normal per window, and an offset that one campaign cannot average away --------------------------------


def scatter(
    sds: tuple[float, float], seed: int, key: Key, pair: tuple[Clock, Clock], window: object
) -> tuple[float, float]:
    """Return (time factor, power factor) of one window alone. sds: relative standard deviations of both, of
    `window_sds` or `short_sds`; window: which one of its point."""
    time, power = normals(seed, key.campaign, key.workload, key.target, *pair, key.repeat, window, "noise")
    return _log_normal(sds[0], time), _log_normal(sds[1], power)


def offsets(
    noise: dict[str, Any], seed: int, key: Key, pair: tuple[Clock, Clock], is_governed: bool
) -> tuple[float, float]:
    """Return (time factor, power factor) that all windows of a campaign share, of a target at a pair: it makes
    selection bias real, as it is on hardware. Larger where the governor chooses the clock than where a lock does.
    noise: the spec's group.
    """
    time, power = normals(seed, key.campaign, key.workload, key.target, *pair, "offset")
    sd = noise["offset_sd"]["governed" if is_governed else "locked"]
    return _log_normal(sd, time), _log_normal(sd, power)


def mean_offsets(
    noise: dict[str, Any],
    seed: int,
    key: Key,
    pair: tuple[Clock, Clock],
    seconds: Mapping[str, float],
    is_governed: bool,
) -> tuple[float, float]:
    """Return factors as `offsets` does, of kernels that run one after the other: the mean of theirs by the time that
    each takes, so that a pass differs from its kernels by no offset of its own. seconds: {kernel: of all its
    launches}."""
    by_kernel = [offsets(noise, seed, key._replace(target=f"kernel/{name}"), pair, is_governed) for name in seconds]
    whole = math.fsum(seconds.values())
    time, power = (
        math.fsum(part * factor for part, factor in zip(seconds.values(), factors)) / whole
        for factors in zip(*by_kernel)
    )
    return time, power


def _log_normal(sd: float, z: float) -> float:
    """Return a factor whose mean is 1, so that the truth is what measurements average to."""
    return math.exp(sd * (z - sd / 2))


def window_sds(noise: dict[str, Any], launch_s: float) -> tuple[float, float]:
    """Return the relative standard deviations (of time, of power) of one window of 5 s, by the seconds of one launch;
    they come from the repeats of a published RTX 3080 Ti data set. noise: the spec's group."""
    time_sd, energy_sd = window_sd(noise["window"], launch_s)
    # energy = power x time: the rest of the energy's scatter is the power's
    return time_sd, math.sqrt(max(energy_sd**2 - time_sd**2, 0.0))


def short_sds(noise: dict[str, Any], launch_s: float, window_s: float, is_capped: bool) -> tuple[float, float]:
    """Return the same of a window of any length: short ones scatter more, most of all where the power cap holds the
    clock, whose controller has not come to rest after another kernel."""
    time_sd, power_sd = window_sds(noise, launch_s)
    more = noise["short"]["capped" if is_capped else "free"]
    # nobody has looked at shorter ones than a quarter of a second
    times = (_SHORT_S / max(window_s, _SHORT_S / 2)) ** more["falls"]
    return math.hypot(time_sd, more["time_sd"] * times), math.hypot(power_sd, more["power_sd"] * times)


def window_sd(table: list[dict[str, Any]], time_s: float) -> tuple[float, float]:
    """Return the relative standard deviations (of time, of energy) of one window, by the seconds of one launch.

    table: `window` of the spec's group.
    """
    for row in table:
        if row["below_s"] is None or time_s < row["below_s"]:
            return row["time_sd"], row["energy_sd"]
    raise ValueError("noise table has no last row with below_s: null")


# --- the energy counter: millijoules since power-up, moving only about every 100 ms, and slow to read -----------------


def read_window(sensor: dict[str, Any], power_w: float, window_s: float, key: tuple) -> Reading:
    """Return what the counter shows for a window of at least `window_s` at a mean power of `power_w`.

    The window is aligned to the counter's edges as the measurement protocol asks: read until it moves, run, read until
    it moves again. What is left of the coarse counter is an edge that is seen up to one read too late, and whole
    millijoules. sensor: the spec's group.
    """
    period_s = sensor["counter_period_s"] * (1 + sensor["period_jitter"] * normal(*key, "period"))
    # from the first edge on, whole periods until the window is over
    true_s = math.ceil(window_s / period_s) * period_s
    late_start, late_end = uniforms(*key, "late")
    late_s = sensor["read_s"] * (late_end - late_start)
    start_mj = uniform(*key, "counter")
    energy_mj = math.floor(start_mj + power_w * true_s * 1000)
    return Reading(true_s + late_s, energy_mj)


# --- the latency of a clock change: a distribution, never a constant --------------------------------------------------


def latency_s(
    switching: dict[str, Any], seed: int, before: tuple[Clock, Clock], after: tuple[Clock, Clock], *key: object
) -> float:
    """Return the seconds from request to effect of a change between two (core, memory) pairs; 0 where nothing changes.

    Log-normal around a median, with a factor per target clock fixed by the seed: which clock is asked for matters more
    than which one is left. The old clocks rule until the change is through. All figures are assumptions (the specs say
    so). switching: the spec's group.
    """
    slowest = 0.0
    for domain, old, new in (("core", before[0], after[0]), ("mem", before[1], after[1])):
        if old == new:
            continue
        median_s, p99_s = switching[domain]["median_s"], switching[domain]["p99_s"]
        spread = math.log(p99_s / median_s) / _Z99
        # half of the variance belongs to the target clock, half to the moment
        z = (normal(seed, "switch", domain, new) + normal(seed, "switch", domain, new, *key)) / math.sqrt(2)
        slowest = max(slowest, median_s * math.exp(spread * z))
    return slowest
