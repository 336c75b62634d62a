"""Kernel Tuner's JSON files as a table: its cache file, and its T4 results file.

Cache: {"device_name", "kernel_name", "tune_params_keys", "tune_params", "cache": {"<values>": entry}}; an
entry holds its parameters and results side by side: `time` in ms (a word such as "InvalidConfig" where the
configuration failed), `nvml_energy` in J, `core_freq` and `mem_freq` in MHz. The last two braces may be
missing: Kernel Tuner appends to an open file.
T4: {"metadata": {"timeunit"}, "results": [{"configuration", "invalidity", "times": {"runtimes"}, "measurements":
[{"name", "value", "unit"}]}]}, without the names of kernel and device; a time without a unit of its own is in the
file's, and where none is among the measurements it is the mean of the runs.
Source: kernel_tuner/util.py (process_cache), file_utils.py (store_output_file), observers/ (units).

Only the format is understood here; clocks, pooling and baselines are in table.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.raw import RawTable, read_text
from kernel_dvfs.profile.store import COLUMNS
from kernel_dvfs.profile.units import PER_JOULE, RESERVED, UNITS, spelled
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import check_depth

# tunable parameters that Kernel Tuner itself plays on the device (NVMLObserver): MHz, MHz, W
DEVICE_PARAMETERS = {
    "nvml_gr_clock": "core_mhz",
    "nvml_mem_clock": "mem_mhz",
    "nvml_pwr_limit": "power_cap_w",
}
# results in J per launch: NVML's and PowerSensor's
JOULE_RESULTS = ("nvml_energy", "ps_energy")
# what old caches hold as the time of a configuration that failed
FAILED_TIME_MS = 1e20

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, slots=True)
class TunerCache:
    """What a file holds."""

    raw: RawTable  # the measured configurations
    settings: list[str]  # columns of it that are settings beyond the clocks
    notices: list[str]  # one line each, for the user


@dataclass(frozen=True, slots=True)
class _TunerEntry:
    key: str  # what the file calls the configuration
    values: dict[str, Any]  # parameters and results
    failed: bool


def read_kernel_tuner(path: str | PathLike[str], declared: Collection[str] = ()) -> TunerCache:
    """Read a Kernel Tuner cache or T4 file. declared: parameters that are settings even if they never change.

    Configurations that failed are left out and counted in a notice. Any tunable parameter that takes more
    than one value, or is declared, is a setting: variants of one kernel stay one kernel with more settings.

    Raises InputError, naming the file and the configuration, on anything that is not such a file.
    """
    content = _load(path)
    if isinstance(content.get("cache"), dict):
        names, entries = _from_cache(path, content)
    elif isinstance(content.get("results"), list):
        names, entries = _from_t4(path, content)
    else:
        raise InputError(f"{path}: neither a Kernel Tuner cache (key `cache`) nor its T4 results (key `results`)")
    ran = [entry for entry in entries if not entry.failed]
    # what deploy.kernel_tuner's observer says of a configuration
    measured = [entry for entry in ran if entry.values.get("verdict") not in UNUSABLE]
    if not measured:
        disturbed = f", {len(ran)} were disturbed" if ran else ""
        raise InputError(f"{path}: no configuration was measured ({len(entries) - len(ran)} failed{disturbed})")
    if not set(names) & set(DEVICE_PARAMETERS):
        raise InputError(
            f"{path}: no clock among the tunable parameters ({', '.join(names) or 'none'}); "
            f"tune {', '.join(DEVICE_PARAMETERS)}"
        )

    def place(row: int) -> str:
        return f"configuration {measured[row].key}"

    for row, entry in enumerate(measured):
        for name in (*names, "time"):
            if name not in entry.values:
                raise InputError(f"{path}, {place(row)}: no value of {name}")
    notices = []
    if "kernel_name" not in content:
        notices.append(f"{path}: T4 results name no kernel; it is called {Path(path).stem} after the file")
    if left_out := len(ran) - len(measured):
        notices.append(f"{path}: {left_out} of {len(entries)} configurations were disturbed and are left out")
    failed = len(entries) - len(ran)
    if failed:
        notices.append(f"{path}: {failed} of {len(entries)} configurations failed and are left out")

    def column(name: str) -> list[Any]:
        return [entry.values.get(name) for entry in measured]

    energy_column, shown_energy = _energy(path, measured, place(0))
    everyone = len(measured)
    measured = [entry for entry in measured if not _is_none(entry.values.get(shown_energy))]
    if not measured:
        raise InputError(f"{path}: {shown_energy} is missing, NaN or 0 in every configuration; measure it again")
    if missing := everyone - len(measured):
        what = f"{missing} of {len(entries)} configurations have no {shown_energy} (missing, NaN or 0)"
        notices.append(f"{path}: {what} and are left out")
    shown = {"core_mhz": "nvml_gr_clock", "mem_mhz": "nvml_mem_clock", "time_ms": "time", energy_column: shown_energy}
    shown |= {"reached_core_mhz": "core_freq", "reached_mem_mhz": "mem_freq"}
    # a clock that was not tuned was left to the GPU, whatever else is called so
    columns = {
        column_name: column(name) if name in names or name not in DEVICE_PARAMETERS else [None] * len(measured)
        for column_name, name in shown.items()
    }
    columns["kernel"] = [str(content.get("kernel_name") or Path(path).stem)] * len(measured)
    columns["gpu"] = [content.get("device_name")] * len(measured)
    settings = []
    for name in names:
        values = column(name)
        if name == "nvml_pwr_limit":
            setting = DEVICE_PARAMETERS[name]
        elif name in DEVICE_PARAMETERS:
            continue
        elif name in declared or any(value != values[0] for value in values):
            # a parameter may be called "n" or "kernel"; the profile's own names come first
            taken = name in RESERVED or name in COLUMNS or name in DEVICE_PARAMETERS.values()
            setting = f"{name}_parameter" if taken else name
        else:
            continue
        columns[setting] = [int(v) if isinstance(v, bool) else v for v in values]
        shown[setting] = name
        settings.append(setting)
    return TunerCache(RawTable(path, columns, place, shown=shown, rows=len(measured)), settings, notices)


def _load(path: str | PathLike[str]) -> dict[str, Any]:
    text = read_text(path).strip()
    try:
        content = json.loads(text)
    except ValueError as error:
        fault = error
        try:
            content = json.loads(text.rstrip().removesuffix(",") + "}}")  # a cache still open for appending
        except ValueError:
            line, column = getattr(fault, "lineno", 1), getattr(fault, "colno", 1)
            raise InputError(
                f"{path}, line {line}, character {column}: not JSON, nor an open Kernel Tuner cache"
            ) from None
    except RecursionError:
        raise InputError(f"{path}: not a Kernel Tuner file (nested too deep)") from None
    try:
        check_depth(content)
    except ValueError:
        raise InputError(f"{path}: not a Kernel Tuner file (nested too deep)") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a Kernel Tuner file (a JSON {type(content).__name__} where an object belongs)")
    return content


def _from_cache(path: str | PathLike[str], content: dict[str, Any]) -> tuple[list[str], list[_TunerEntry]]:
    names = content.get("tune_params_keys")
    if names is None and isinstance(content.get("tune_params"), dict):
        names = list(content["tune_params"])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: not a Kernel Tuner cache: no tune_params_keys")
    for key in ("device_name", "kernel_name"):
        if not isinstance(content.get(key), str) or not content[key].strip():
            raise InputError(f"{path}: not a Kernel Tuner cache: no {key}")
    entries = []
    for key, values in content["cache"].items():
        if not isinstance(values, dict):
            raise InputError(f"{path}, configuration {key}: not an object of parameters and results")
        entries.append(_TunerEntry(key, values, _failed(values)))
    return names, entries


def _from_t4(path: str | PathLike[str], content: dict[str, Any]) -> tuple[list[str], list[_TunerEntry]]:
    entries: list[_TunerEntry] = []
    names: dict[str, None] = {}
    metadata = content.get("metadata")
    unit = metadata.get("timeunit") if isinstance(metadata, dict) else None
    for number, result in enumerate(content["results"], 1):
        configuration = result.get("configuration") if isinstance(result, dict) else None
        measurements = result.get("measurements") if isinstance(result, dict) else None
        if not isinstance(configuration, dict) or not isinstance(measurements, list):
            raise InputError(f"{path}, result {number}: not a T4 result (configuration, measurements)")
        names |= dict.fromkeys(configuration)
        values = dict(configuration)
        for item in measurements:
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                values.setdefault(item["name"], item.get("value"))
                if item["name"] == "time":
                    values["time"] = _in_ms(f"{path}, result {number}", values["time"], item.get("unit") or unit)
        times = result.get("times")
        runs = times.get("runtimes") if isinstance(times, dict) else None
        if "time" not in values and isinstance(runs, list) and runs and all(map(_is_number, runs)):
            values["time"] = _in_ms(f"{path}, result {number}", sum(runs) / len(runs), unit)
        failed = result.get("invalidity", "correct") != "correct" or _failed(values)
        key = ",".join(str(value) for value in configuration.values())
        entries.append(_TunerEntry(f"{key} (result {number})", values, failed))
    return list(names), entries


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_ms(where: str, value: Any, unit: object) -> Any:
    """Return a time in ms, as Kernel Tuner has it where no unit is said; what is no number stays as it is."""
    if not _is_number(value) or not unit:
        return value
    # Kernel Tuner writes miliseconds
    per = UNITS["time"].get(spelled(str(unit).strip().lower().replace("mili", "milli")))
    if per is None:
        raise InputError(f"{where}: a time in {str(unit)[:40]!r}; expected {', '.join(UNITS['time'])}")
    return value if per == UNITS["time"]["ms"] else value / per * UNITS["time"]["ms"]


def _failed(values: dict[str, Any]) -> bool:
    return isinstance(values.get("time"), str) or values.get("time") == FAILED_TIME_MS or "__error__" in values


def _energy(path: str | PathLike[str], measured: list[_TunerEntry], where: str) -> tuple[str, str]:
    """Return (the column, its name in the file): the first result whose unit is known, one that says it before
    NVMLObserver's, which is a power reading times time; without any, its mean power, nvml_power, in W."""
    for name in (*PER_JOULE, *JOULE_RESULTS):
        if any(name in entry.values for entry in measured):
            return name if name in PER_JOULE else "energy_j", name
    if any("nvml_power" in entry.values for entry in measured):
        return "power_w", "nvml_power"
    raise InputError(
        f"{path}, {where}: no energy in a known unit; observe nvml_energy (NVMLObserver), "
        f"or name a result {' or '.join(list(PER_JOULE)[:2])}"
    )


def _is_none(value: Any) -> bool:
    """Return whether a sensor gave nothing: null, NaN or 0, as it does where a kernel is over before it was read."""
    return value is None or (isinstance(value, int | float) and not value > 0 and not value < 0)
