"""One point of the protocol: a load at a clock pair, warmed up, measured in windows, and judged.

Knows the seam of a GPU, not which kind it is.
"""

import math

from kernel_dvfs.errors import CounterFault
from kernel_dvfs.gpu.clocks import AUTO, BASELINE
from kernel_dvfs.measurement import stopping
from kernel_dvfs.measurement.verdict import judge


def condition(gpu, load, key) -> None:
    """Bring the board to the temperature plateau of `load` with nothing locked."""
    with gpu.locked(BASELINE, key):
        gpu.condition(load)


def measure(gpu, load, pair, settings: dict, key) -> dict:
    """Measure `load` at `pair`; the point: request, windows, reached, summary, verdict, reasons. Raw units.

    settings: warmup_s, window_s (s), windows (count) and what `stopping.rule` reads. The clocks are released again
    however this ends. Raises CounterFault where the energy counter fell, or froze before the first window was over.
    """
    enough, windows, counter = stopping.rule(settings), [], ""
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


def reached_of(windows: list) -> dict:
    """The clocks that the windows ran at, MHz: the median of their medians."""
    return {domain: _median([window[domain][1] for window in windows]) for domain in ("core_mhz", "mem_mhz")}


def summary(windows: list) -> dict:
    """Per launch (of the whole load), over windows: mean and standard deviation of time (us) and energy (mJ)."""
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


def _energy_mj(window: dict) -> float:
    """Of one run of the load, mJ."""
    return window["energy_mj"] / window["duration_s"] * window["time_us"] * 1e-6


def _mean(values: list) -> float:
    return math.fsum(values) / len(values)


def _sd(values: list):
    if len(values) < 2:
        return None
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _median(values: list) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
