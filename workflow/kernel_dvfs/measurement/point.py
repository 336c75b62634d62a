"""One point of the protocol: a load at a clock pair, warmed up, measured in windows, and judged.

Knows a GPU by its seam (measurement.seam), not which kind it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from kernel_dvfs.measurement import stopping
from kernel_dvfs.measurement.verdict import Verdict, judge
from kernel_dvfs.measurement.window import Ends, Window
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import CounterFault
from kernel_dvfs_clocks.shape import FILLED, AtLeastOne, Is, NotNegative, Positive

if TYPE_CHECKING:
    from kernel_dvfs.measurement.seam import Gpu, Load

_SETTLE_S = 0.5  # until the clocks have settled
_PERIOD_S = 0.1  # up to which a window waits for its first edge
Mhz: TypeAlias = Literal["auto"] | Annotated[float, Is("a number of MHz", lambda value: value >= 30)]


# what is measured of a point
Quantity: TypeAlias = Literal["time_us", "energy_mj"]
QUANTITIES: tuple[Quantity, ...] = ("time_us", "energy_mj")


class ClockRequest(TypedDict):
    """What was asked of the clocks: a record's `request`."""

    policy: Literal["auto", "lock", "external"]
    core_mhz: Mhz
    mem_mhz: Mhz
    switch_s: NotNegative  # until the clocks had settled
    through: NotRequired[str]  # by what they were set, where not by NVML
    lock: NotRequired[Literal["range", "exact"]]
    core_range_mhz: NotRequired[Ends | None]
    mem_range_mhz: NotRequired[Ends | None]


class ReachedClocks(TypedDict):
    """The clocks that the windows ran at: the median of their medians."""

    core_mhz: float
    mem_mhz: float
    alias_of: str | None  # the pair that a request with another memory clock really ran at


class Summary(TypedDict):
    """Of one run of the whole load, over the windows."""

    n: AtLeastOne  # windows
    time_us: Positive  # mean
    time_sd_us: NotNegative | None  # standard deviation; None of a single window
    energy_mj: Positive
    energy_sd_mj: NotNegative | None
    power_mw: Positive


class Judged(TypedDict):
    """A point without its windows."""

    request: ClockRequest
    reached: ReachedClocks
    summary: Summary
    verdict: Verdict
    reasons: list[str]


class Point(Judged):
    """A point as it is measured and recorded."""

    windows: Annotated[list[Window], FILLED]


def least_s(settings: Mapping[str, Any]) -> float:
    """Return what a point takes at least, s. settings: as for `measure`."""
    return settings["warmup_s"] + _SETTLE_S + settings["windows"] * (settings["window_s"] + _PERIOD_S)


def measure(gpu: Gpu[Load], load: Load, pair: Pair, settings: dict[str, Any], key: tuple) -> Point:
    """Measure `load` at `pair`; in raw units.

    settings: warmup_s and window_s (s), windows (how many), and what else `stopping.rule` reads. The clocks are
    released however this ends. Raises CounterFault where the energy counter fell, or froze before the end of the first
    window.
    """
    enough, counter = stopping.rule(settings), ""
    windows: list[Window] = []
    with gpu.locked(pair, key) as switch_s:
        gpu.warm_up(load, settings["warmup_s"])
        try:
            while not enough.is_finished([_energy_mj(window) for window in windows]):
                windows.append(gpu.window(load, settings["window_s"], key, len(windows)))
        except CounterFault as fault:
            if fault.fell or not windows:
                raise
            counter = str(fault)
        disturbances = gpu.disturbances(windows)
    asked = requested(pair, settings, switch_s) | gpu.request(pair)
    return of_windows(pair, asked, windows, counter, disturbances, enough.unstable)


def requested(pair: Pair, settings: Mapping[str, Any], switch_s: float) -> dict[str, Any]:
    """Return the part of a record's `request` that is the same of every GPU."""
    policy = AUTO if pair == BASELINE else settings.get("clocks", "lock")
    return {"policy": policy, "core_mhz": pair[0], "mem_mhz": pair[1], "switch_s": round(switch_s, 6)}


def of_windows(
    pair: Pair,
    asked: Mapping[str, Any],
    windows: list[Window],
    counter: str = "",
    disturbances: Sequence[str] = (),
    unstable: str = "",
) -> Point:
    """Return the point that windows make. asked: its `request`; the others as of verdict.judge."""
    reached = reached_of(windows)
    verdict, reasons, alias = judge(pair, reached, windows, counter, disturbances, unstable)
    return {
        "request": cast("ClockRequest", asked),
        "windows": windows,
        "reached": {"core_mhz": reached["core_mhz"], "mem_mhz": reached["mem_mhz"], "alias_of": alias},
        "summary": summary(windows),
        "verdict": verdict,
        "reasons": reasons,
    }


def reached_of(windows: Sequence[Window]) -> dict[str, float]:
    """Return the clocks that the windows ran at, MHz: the median of their medians."""
    return {
        "core_mhz": _median([window["core_mhz"][1] for window in windows]),
        "mem_mhz": _median([window["mem_mhz"][1] for window in windows]),
    }


def summary(windows: Sequence[Window]) -> Summary:
    """Return of one run of the whole load, over the windows: mean and standard deviation of time (us) and energy (mJ),
    and mean power (mW). The standard deviations of a single window are None."""
    times = [window["time_us"] for window in windows]
    powers = [window["energy_mj"] / window["duration_s"] for window in windows]
    energies = [_energy_mj(window) for window in windows]
    return {
        "n": len(windows),
        "time_us": _mean(times),
        "time_sd_us": _sd(times),
        "energy_mj": _mean(energies),
        "energy_sd_mj": _sd(energies),
        "power_mw": _mean(powers),
    }


def _energy_mj(window: Window) -> float:
    """Return the energy of one run of the load, mJ."""
    return window["energy_mj"] / window["duration_s"] * window["time_us"] * 1e-6


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _sd(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
