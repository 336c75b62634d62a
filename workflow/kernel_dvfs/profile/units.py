"""What the name of a table's column says: which quantity, in which unit, or that it is a setting.

A name added to a list here is understood in every format (CSV, Parquet, Kernel Tuner).
"""

import re

# column name -> how many such units make one s, one J: dividing rounds better than multiplying by 1e-3
PER_SECOND = {"time_s": 1.0, "time_ms": 1e3, "time_us": 1e6, "time_ns": 1e9}
PER_JOULE = {"energy_j": 1.0, "energy_mj": 1e3, "energy_uj": 1e6, "energy_nj": 1e9, "energy_kj": 1e-3}
CORE_MHZ = ("core_mhz", "core_mhz_requested")
MEM_MHZ = ("mem_mhz", "mem_mhz_requested")
# the clock a harness saw in effect, as opposed to the one asked for
REACHED_CORE_MHZ = ("core_mhz_applied", "reached_core_mhz")
REACHED_MEM_MHZ = ("mem_mhz_applied", "reached_mem_mhz")
FLAGS = ("is_auto", "is_reference")

# a power cap is a number of watts; the other settings of a table must be declared by the user
POWER_CAPS = ("power_cap_w", "power_limit_w", "power_cap", "power_limit", "nvml_pwr_limit")

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
