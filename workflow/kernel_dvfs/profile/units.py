"""What the name of a table's column says: which quantity, in which unit, or that it is a setting.

A name added to a list here is understood in every format (CSV, Parquet, Kernel Tuner).
"""

import re

# column name -> how many such units make one s, one J: dividing rounds better than multiplying by 1e-3
PER_SECOND = {"time_s": 1.0, "time_ms": 1e3, "time_us": 1e6, "time_ns": 1e9}
PER_JOULE = {"energy_j": 1.0, "energy_mj": 1e3, "energy_uj": 1e6, "energy_nj": 1e9, "energy_kj": 1e-3}
# mean power of the board, where a table has no energy
PER_WATT = {
    name.format(unit): scale
    for name in ("power_{}", "avg_power_{}", "mean_power_{}", "power_avg_{}", "power_mean_{}")
    for unit, scale in (("w", 1.0), ("mw", 1e3))
}
CORE_MHZ = ("core_mhz", "core_mhz_requested")
MEM_MHZ = ("mem_mhz", "mem_mhz_requested")
# the clock a harness saw in effect, as opposed to the one asked for
REACHED_CORE_MHZ = ("core_mhz_applied", "reached_core_mhz")
REACHED_MEM_MHZ = ("mem_mhz_applied", "reached_mem_mhz")
FLAGS = ("is_auto", "is_reference")

# a power cap is a number of watts; the other settings of a table must be declared by the user
POWER_CAPS = ("power_cap_w", "power_limit_w", "power_cap", "power_limit", "nvml_pwr_limit")

# what a user may say a column holds, whatever its name says: unit -> how many make one s, J, W or MHz
UNITS = {
    "time": {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9},
    "energy": {"j": 1.0, "mj": 1e3, "uj": 1e6, "nj": 1e9, "kj": 1e-3},
    "power": {"w": 1.0, "mw": 1e3, "kw": 1e-3},
    "clock": {"mhz": 1.0, "khz": 1e3, "hz": 1e6, "ghz": 1e-3},
}

# what one board can be: outside, a column is in another unit than its name says
LEAST_W, HIGHEST_W = 1.0, 5_000.0
LEAST_MHZ, HIGHEST_MHZ = 10.0, 50_000.0

# words under which tables name what is looked for, to suggest a column where one is missing
ALIASES = {
    "kernel": ("kernel", "kernel_name", "name", "function", "operator", "op"),
    "time": (*PER_SECOND, "time", "duration", "latency", "runtime", "elapsed", "seconds"),
    "energy": (*PER_JOULE, "energy", "joules", "power", "watts"),
    "core": (*CORE_MHZ, "core_clock", "sm_clock", "sm_mhz", "gpu_clock", "graphics_clock", "frequency", "freq"),
    "mem": (*MEM_MHZ, "mem_clock", "memory_clock", "memory_mhz", "mem_freq"),
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

# headings that can mean one column only, as their unit stands in them: `SM clock [MHz]`, `Memory frequency (MHz)`
_CLOCK_HEADINGS = (
    (re.compile(r"(core|sm|gpu|graphics)_(clock|freq|frequency)_mhz"), "core_mhz"),
    (re.compile(r"(mem|memory|dram)_((clock|freq|frequency)_)?mhz"), "mem_mhz"),
)


def known_as(heading: str) -> str | None:
    """The column that a heading in small letters and underscores stands for; None where it is no known one."""
    if heading in RESERVED or heading in PER_WATT:
        return heading
    return next((column for pattern, column in _CLOCK_HEADINGS if pattern.fullmatch(heading)), None)


def quantity(column: str) -> str | None:
    """Which of UNITS a column's name is about; None where the name does not say."""
    for words, found in (
        (PER_SECOND, "time"),
        (PER_JOULE, "energy"),
        (PER_WATT, "power"),
        (POWER_CAPS, "power"),
        ((*CORE_MHZ, *MEM_MHZ, *REACHED_CORE_MHZ, *REACHED_MEM_MHZ), "clock"),
    ):
        if column in words:
            return found
    return None


def is_known(column: str) -> bool:
    """Whether the column is a label or a measurement that says nothing about the setting."""
    return column in _LABELS or _MEASUREMENT.fullmatch(column) is not None


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
