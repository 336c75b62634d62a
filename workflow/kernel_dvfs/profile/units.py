"""What the heading of a table's column says: which quantity, in which unit, or that it is a setting; and what one board
can be.

A heading added here is understood in every format (CSV, Parquet, Kernel Tuner) and by every reader of numbers.
"""

import math
import re

# what a user may say a column holds, whatever its name says: unit -> how many make one s, J, W or MHz (dividing rounds
# better than multiplying by 1e-3)
UNITS = {
    "time": {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9},
    "energy": {"j": 1.0, "mj": 1e3, "uj": 1e6, "nj": 1e9, "kj": 1e-3, "wh": 1 / 3600, "kwh": 1 / 3.6e6},
    "power": {"w": 1.0, "mw": 1e3, "kw": 1e-3},
    "clock": {"mhz": 1.0, "khz": 1e3, "hz": 1e6, "ghz": 1e-3},
}
# as people write them
UNIT_NAMES = {
    **{"j": "J", "mj": "mJ", "uj": "uJ", "nj": "nJ", "kj": "kJ", "wh": "Wh", "kwh": "kWh"},
    **{"w": "W", "mw": "mW", "kw": "kW", "mhz": "MHz", "khz": "kHz", "hz": "Hz", "ghz": "GHz"},
}
_SPELLINGS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("nsec", "nanosecond", "nanoseconds"), "ns"),
    **{"joule": "j", "joules": "j", "watt": "w", "watts": "w", "milliwatts": "mw"},
}

# column name -> how many such units make one s, J, W
PER_SECOND = {f"time_{unit}": per for unit, per in UNITS["time"].items()}
PER_JOULE = {f"energy_{unit}": per for unit, per in UNITS["energy"].items()}
# mean power of the board, where a table has no energy
PER_WATT = {
    name.format(unit): scale
    for name in ("power_{}", "avg_power_{}", "mean_power_{}", "power_avg_{}", "power_mean_{}")
    for unit, scale in UNITS["power"].items()
}
CORE_MHZ = ("core_mhz", "core_mhz_requested")
MEM_MHZ = ("mem_mhz", "mem_mhz_requested")
# the clock a harness saw in effect, as opposed to the one asked for
REACHED_CORE_MHZ = ("core_mhz_applied", "reached_core_mhz")
REACHED_MEM_MHZ = ("mem_mhz_applied", "reached_mem_mhz")
FLAGS = ("is_auto", "is_reference")

# a power cap is a number of watts; the other settings of a table must be declared by the user
POWER_CAPS = ("power_cap_w", "power_limit_w", "power_cap", "power_limit", "nvml_pwr_limit")

# what one board can be: outside, a column is in another unit than its name says
LEAST_W, HIGHEST_W = 1.0, 5_000.0
LEAST_MHZ, HIGHEST_MHZ = 60.0, 50_000.0  # less than 1,000 times apart: what is possible in MHz is not so in kHz
LEAST_S, HIGHEST_S = 1e-9, 1e6  # of a launch, or of one piece of work
_EPOCH_S = 9e8, 4.2e9  # Unix time of measurements, from 1998 to 2103
_RANGES = {"power": (LEAST_W, HIGHEST_W), "clock": (LEAST_MHZ, HIGHEST_MHZ), "time": (LEAST_S, HIGHEST_S)}

# words under which tables name what is looked for, to suggest a column where one is missing
ALIASES = {
    "kernel": ("kernel", "kernel_name", "name", "function", "operator", "op", "appname"),
    "time": (*PER_SECOND, "time", "duration", "latency", "runtime", "elapsed", "seconds"),
    "energy": (*PER_JOULE, "energy", "joules", "power", "watts"),
    "core": (*CORE_MHZ, "core_clock", "sm_mhz", "clocks_sm", "clocks_current_sm_mhz", "graphics"),
    "mem": (*MEM_MHZ, "mem_clock", "memory_clock", "memory_mhz", "mem_freq", "clocks_mem", "clocks_current_memory_mhz"),
}

_LABELS = {
    *("gpu", "kernel", "suite", "application", "benchmark", "input", "note", "notes", "comment", "comments"),
    *("repeat", "run", "trial", "rep", "iteration", "index", "timestamp", "time_stamp", "date", "datetime"),
    *("temperature_c", "clock_event_reasons_hex", "verdict"),
    *("", "__index_level_0__"),  # the index that pandas writes along
}
_MEASUREMENT = re.compile(
    r".*(_active|_occupancy|_temp_c|_per_s|_mhz_applied|_mhz_(median|mean|min|max))"
    r"|.*(^|_)(sd|std|stddev|stdev)(_[a-z]+)?"
    r"|timestamp_\w+|\w+_timestamp"
    r"|((avg|mean|min|max|idle)_)?power(_(avg|mean|min|max|p\d+))?_(w|mw)"
)

# headings that can mean one column only. A clock and a power need no unit: whatever they are in, one board's range
# tells (see guess); a time and an energy do
_HEADINGS = (
    (re.compile(r"kernel_?name"), "kernel"),
    (re.compile(r"((core|sm|gpu|graphics|gr)_?(clocks?|clk|freq|frequency|f)|freq|frequency)(_[kmg]?hz)?"), "core_mhz"),
    (re.compile(r"(mem|memory|dram)_?(clocks?|clk|freq|frequency|f)(_[kmg]?hz)?|(mem|memory|dram)_mhz"), "mem_mhz"),
    (re.compile(r"(gpu_|board_)?power(_draw(_average)?)?|watts"), "power_w"),
)
_WITH_UNIT = (
    (re.compile(r"(?:time|(?:exec|execution|kernel|run)_?time|duration|latency|elapsed(?:_time)?)_([a-z]+)"), "time"),
    (re.compile(r"(?:gpu_|board_)?energy(?:_consumed|_consumption)?_([a-z]+)"), "energy"),
    (re.compile(r"(?:gpu_|board_)?power_draw(?:_average)?_([a-z]+)"), "power"),
)


def plain(heading: str) -> str:
    """Return a heading in small letters and underscores: `SM clock [MHz]` as sm_clock_mhz, `Time [µs]` as time_us."""
    return re.sub(r"[^a-z0-9]+", "_", heading.replace("\u00b5", "u").replace("\u03bc", "u").lower()).strip("_")


def spelled(unit: str) -> str:
    """Return a unit in small letters as UNITS has it: `milliseconds` as ms."""
    return _SPELLINGS.get(unit, unit)


def known_as(heading: str) -> str | None:
    """Return the column that a heading in small letters and underscores stands for; None where it is no known one."""
    if heading in RESERVED or heading in PER_WATT:
        return heading
    for pattern, quantity_ in _WITH_UNIT:
        if match := pattern.fullmatch(heading):
            unit = spelled(match[1])
            return f"{quantity_}_{unit}" if unit in UNITS[quantity_] else None
    return next((column for pattern, column in _HEADINGS if pattern.fullmatch(heading)), None)


def clock_unit(heading: str) -> str:
    """Return the unit of clocks that a heading names at its end; MHz where it names none."""
    unit = plain(heading).rpartition("_")[2]
    return unit if unit in UNITS["clock"] else "mhz"


def quantity(column: str) -> str | None:
    """Return which of UNITS a column's name is about; None where the name does not say."""
    for words, kind in (
        (PER_SECOND, "time"),
        (PER_JOULE, "energy"),
        (PER_WATT, "power"),
        (POWER_CAPS, "power"),
        ((*CORE_MHZ, *MEM_MHZ, *REACHED_CORE_MHZ, *REACHED_MEM_MHZ), "clock"),
    ):
        if column in words:
            return kind
    return None


def is_known(column: str) -> bool:
    """Return whether the column is a label or a measurement that says nothing about the setting."""
    return column in _LABELS or _MEASUREMENT.fullmatch(column) is not None


def is_possible(quantity_: str, value: float) -> bool:
    """Return whether one board can have such a power (W), clock (MHz) or time of a piece of work (s)."""
    least, most = _RANGES[quantity_]
    return least <= value <= most


def guess(quantity_: str, value: float) -> str | None:
    """Return the unit that a number which is impossible in W, MHz or s is likely in; None where no unit makes it
    possible."""
    return next((unit for unit, per in UNITS[quantity_].items() if is_possible(quantity_, value / per)), None)


def guess_pair(power_w: float, time: str = "s", energy: str = "j") -> list[tuple[str, str]]:
    """Return, for a mean power that no board has, of a time and an energy taken to be in these units: [(which of both,
    the unit that it is likely in instead)], each alone making the power possible."""
    guesses = []
    for role, taken in (("time", time), ("energy", energy)):
        scales = {unit: UNITS[role][taken] / per for unit, per in UNITS[role].items() if not unit.endswith("wh")}
        for unit, scale in sorted(scales.items(), key=lambda item: abs(math.log(item[1]))):
            if is_possible("power", power_w / scale if role == "time" else power_w * scale):
                guesses.append((role, unit))
                break
    return guesses


def unit_of_epoch(least: float, most: float) -> str | None:
    """Return the unit of moments that are Unix time in another than s; None where they are s, or count from anything
    else."""
    for unit in ("ms", "us", "ns"):
        if all(_EPOCH_S[0] <= moment / UNITS["time"][unit] <= _EPOCH_S[1] for moment in (least, most)):
            return unit
    return None


def watts(power_w: float) -> str:
    """Return a power for a message, in the unit that makes it short."""
    for unit, scale in (("GW", 1e-9), ("MW", 1e-6), ("kW", 1e-3), ("W", 1.0)):
        if power_w * scale >= 1:
            return f"{power_w * scale:.3g} {unit}"
    return f"{power_w * 1e3:.3g} mW"


RESERVED = {
    *PER_SECOND,
    *PER_JOULE,
    *CORE_MHZ,
    *MEM_MHZ,
    *REACHED_CORE_MHZ,
    *REACHED_MEM_MHZ,
    *FLAGS,
    "kernel",
    "gpu",
}
