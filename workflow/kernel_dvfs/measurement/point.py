"""One point of the protocol: a load at a clock pair, warmed up, measured in windows, and judged.

Knows a GPU by its seam (measurement.seam), not which kind it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import CounterFault
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair
from kernel_dvfs.measurement import stopping
from kernel_dvfs.measurement.verdict import judge

if TYPE_CHECKING:
    from kernel_dvfs.measurement.seam import Gpu, Load, Window


def condition(gpu: Gpu[Load], load: Load, key: tuple) -> None:
    """Bring the board to the temperature plateau of `load` with nothing locked."""
    with gpu.locked(BASELINE, key):
        gpu.condition(load)


def measure(gpu: Gpu[Load], load: Load, pair: Pair, settings: dict[str, Any], key: tuple) -> dict[str, Any]:
    """Measure `load` at `pair`; returns request, windows, reached, summary, verdict and reasons, in raw units.

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
    reached = reached_of(windows)
    verdict, reasons, alias = judge(pair, reached, windows, counter, disturbances, enough.unstable)
    policy = AUTO if pair == BASELINE else settings.get("clocks", "lock")
    return {
        "request": {"policy": policy, "core_mhz": pair[0], "mem_mhz": pair[1], "switch_s": round(switch_s, 6)}
        | gpu.request(pair),
        "windows": windows,
        "reached": reached | {"alias_of": alias},
        "summary": summary(windows),
        "verdict": verdict,
        "reasons": reasons,
    }


def reached_of(windows: Sequence[Window]) -> dict[str, float]:
    """The clocks that the windows ran at, MHz: the median of their medians."""
    return {
        "core_mhz": _median([window["core_mhz"][1] for window in windows]),
        "mem_mhz": _median([window["mem_mhz"][1] for window in windows]),
    }


def summary(windows: Sequence[Window]) -> dict[str, float | None]:
    """Of one run of the whole load, over the windows: mean and standard deviation of time (us) and energy (mJ), and
    mean power (mW). The standard deviations of a single window are None."""
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
    """Of one run of the load, mJ."""
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
