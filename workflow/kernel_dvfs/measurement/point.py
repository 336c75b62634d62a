"""One point of the protocol: a load at a clock pair, warmed up, measured in windows, and judged.

Knows the seam of a GPU, not which kind it is. Verdicts as in the protocol: every point is kept, with its reasons.
"""

import math

from kernel_dvfs.gpu.clocks import AUTO, BASELINE

# a clock is reached if it is within 15 MHz or 1 % of the request
_REACHED_MHZ = 15
_REACHED_SHARE = 0.01
# NVML event reasons that mean "held below the request": power cap, slowdowns, thermal, brake
_THROTTLE_BITS = ("0x4", "0x8", "0x20", "0x40", "0x80")


def condition(gpu, load, key) -> None:
    """Bring the board to the temperature plateau of `load` with nothing locked."""
    with gpu.locked(BASELINE, key):
        gpu.condition(load)


def measure(gpu, load, pair, settings: dict, key) -> dict:
    """Measure `load` at `pair`; the point: request, windows, reached, summary, verdict, reasons. Raw units.

    settings: warmup_s, window_s (s), windows (count). The clocks are released again however this ends.
    """
    with gpu.locked(pair, key) as switch_s:
        gpu.warm_up(load, settings["warmup_s"])
        windows = [gpu.window(load, settings["window_s"], key, number) for number in range(settings["windows"])]
    reached = {
        "core_mhz": _median([window["core_mhz"][1] for window in windows]),
        "mem_mhz": _median([window["mem_mhz"][1] for window in windows]),
    }
    verdict, reasons, alias = _judge(pair, reached, windows)
    return {
        "request": {
            "policy": AUTO if pair == BASELINE else "lock",
            "core_mhz": pair[0],
            "mem_mhz": pair[1],
            "switch_s": round(switch_s, 6),
        },
        "windows": windows,
        "reached": reached | {"alias_of": alias},
        "summary": summary(windows),
        "verdict": verdict,
        "reasons": reasons,
    }


def summary(windows: list) -> dict:
    """Per launch (of the whole load), over windows: mean and standard deviation of time (us) and energy (mJ)."""
    times = [window["time_us"] for window in windows]
    powers = [window["energy_mj"] / window["duration_s"] for window in windows]
    energies = [power * time * 1e-6 for power, time in zip(powers, times)]
    return {
        "n": len(windows),
        "time_us": _mean(times),
        "time_sd_us": _sd(times),
        "energy_mj": _mean(energies),
        "energy_sd_mj": _sd(energies),
        "power_mw": _mean(powers),
    }


def _judge(pair, reached: dict, windows: list) -> tuple:
    """(verdict, reasons in words, the pair that a folded request really is or None)."""
    throttled = any(window["cap_ns"] or set(window["reasons"]) & set(_THROTTLE_BITS) for window in windows)
    missed = []
    for domain, request in zip(("core", "mem"), pair):
        got = reached[f"{domain}_mhz"]
        if request != AUTO and abs(got - request) > max(_REACHED_MHZ, _REACHED_SHARE * request):
            missed.append((domain, f"{domain} clock: asked {request} MHz, reached {got:g} MHz"))
    if pair == BASELINE or (not missed and not throttled):
        return "ok", ["power cap active"] if throttled else [], None
    alias = None
    if any(domain == "mem" for domain, _ in missed):
        alias = f"{pair[0]}-{reached['mem_mhz']:g}"
    reasons = [reason for _, reason in missed]
    if throttled:
        reasons.append("power cap active")
        # with the core at auto, the cap is the governor at its usual work
        core_missed = any(domain == "core" for domain, _ in missed)
        return ("throttled" if core_missed else "not_reached" if missed else "ok"), reasons, alias
    return "not_reached", reasons, alias


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
