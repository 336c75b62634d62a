"""Kernel Tuner's JSON files as a table: its cache file, and its T4 results file.

Cache: {"device_name", "kernel_name", "tune_params_keys", "tune_params", "cache": {"<values>": entry}}; an
entry holds its parameters and results side by side: `time` in ms (a word such as "InvalidConfig" where the
configuration failed), `nvml_energy` in J, `core_freq` and `mem_freq` in MHz. The last two braces may be
missing: Kernel Tuner appends to an open file.
T4: {"results": [{"configuration", "invalidity", "measurements": [{"name", "value"}]}]}, without the names of
kernel and device.
Source: kernel_tuner/util.py (process_cache), file_utils.py (store_output_file), observers/ (units).

Only the format is understood here; clocks, pooling and baselines are in table.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.raw import Raw, read_text
from kernel_dvfs.profile.store import COLUMNS
from kernel_dvfs.profile.units import PER_JOULE, RESERVED

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
class Cache:
    """What a file holds."""

    raw: Raw  # the measured configurations
    settings: list[str]  # columns of it that are settings beyond the clocks
    notices: list[str]  # one line each, for the user


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str  # what the file calls the configuration
    values: dict[str, Any]  # parameters and results
    failed: bool


def read_kernel_tuner(path: str | PathLike[str], declared: Collection[str] = ()) -> Cache:
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

    energy, energy_column, shown_energy, notice = _energy(path, measured, place)
    notices += notice
    columns: dict[str, list[Any]] = {
        "kernel": [str(content.get("kernel_name") or Path(path).stem)] * len(measured),
        "gpu": [content.get("device_name")] * len(measured),
        "core_mhz": column("nvml_gr_clock") if "nvml_gr_clock" in names else [None] * len(measured),
        "mem_mhz": column("nvml_mem_clock") if "nvml_mem_clock" in names else [None] * len(measured),
        "time_ms": column("time"),
        energy_column: energy,
        "reached_core_mhz": column("core_freq"),
        "reached_mem_mhz": column("mem_freq"),
    }
    shown = {
        "core_mhz": "nvml_gr_clock",
        "mem_mhz": "nvml_mem_clock",
        "time_ms": "time",
        energy_column: shown_energy,
    }
    shown |= {"reached_core_mhz": "core_freq", "reached_mem_mhz": "mem_freq"}
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
    return Cache(Raw(path, columns, place, shown=shown), settings, notices)


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
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a Kernel Tuner file (a JSON {type(content).__name__} where an object belongs)")
    return content


def _from_cache(path: str | PathLike[str], content: dict[str, Any]) -> tuple[list[str], list[_Entry]]:
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
        entries.append(_Entry(key, values, _failed(values)))
    return names, entries


def _from_t4(path: str | PathLike[str], content: dict[str, Any]) -> tuple[list[str], list[_Entry]]:
    entries: list[_Entry] = []
    names: dict[str, None] = {}
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
        failed = result.get("invalidity", "correct") != "correct" or _failed(values)
        key = ",".join(str(value) for value in configuration.values())
        entries.append(_Entry(f"{key} (result {number})", values, failed))
    return list(names), entries


def _failed(values: dict[str, Any]) -> bool:
    return isinstance(values.get("time"), str) or values.get("time") == FAILED_TIME_MS or "__error__" in values


def _energy(
    path: str | PathLike[str], measured: list[_Entry], place: Callable[[int], str]
) -> tuple[list[Any], str, str, list[str]]:
    """(energies, column name, the name in the file, notices): the first result whose unit is known, one that says it
    before NVMLObserver's, which is a power reading times time."""
    for name in (*PER_JOULE, *JOULE_RESULTS):
        if any(name in entry.values for entry in measured):
            column = name if name in PER_JOULE else "energy_j"
            return [entry.values.get(name) for entry in measured], column, name, []
    if not any("nvml_power" in entry.values for entry in measured):
        raise InputError(
            f"{path}, {place(0)}: no energy in a known unit; observe nvml_energy (NVMLObserver), "
            f"or name a result {' or '.join(list(PER_JOULE)[:2])}"
        )
    energies = []
    for row, entry in enumerate(measured):
        power_w, time_ms = entry.values.get("nvml_power"), entry.values["time"]
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (power_w, time_ms)):
            raise InputError(f"{path}, {place(row)}: nvml_power and time are not both numbers")
        energies.append(power_w * time_ms / 1e3)
    # the observer's own nvml_energy is this very product
    return energies, "energy_j", "nvml_power", [f"{path}: no nvml_energy; energy is nvml_power x time"]
