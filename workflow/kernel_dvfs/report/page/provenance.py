"""What was measured on what, when, and with which program: the facts that a number needs to be believed.

The tally counts the records of a study by their labels. A broken record is counted and named and does not
stop the page.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernel_dvfs.layout import STRICT, Folder
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.native import agreement
from kernel_dvfs.report import sealed
from kernel_dvfs.report.headings import heading_of
from kernel_dvfs.report.inference import digest
from kernel_dvfs.report.results import Results
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import digest as digest_of
from kernel_dvfs_clocks.files import read_json, seal_of
from kernel_dvfs_clocks.package import VERSION

_DIGITS = 16  # of a checksum, for people
_PACKAGES = ("snakemake", "ortools", "numpy", "pandas", "pyarrow")
_DEVICE = {
    "uuid": "UUID",
    "driver": "driver",
    "cuda": "CUDA of the driver",
    "vbios": "VBIOS",
    "nvml": "NVML",
    "power_limit_mw": "power limit",
    "ecc": "ECC",
    "persistence": "persistence mode",
    "energy_scope": "energy counted for",
}
VERDICTS = ("ok", "throttled", "not_reached", "unstable", "disturbed", "counter", "not_free", "unsupported")
# sweeps first, and numbers by their size
_ORDER = ("kernel", "pass", "validation", "batch", "tp")
_SWEEPS = {"kernel": "sweep of the kernels", "pass": "sweep of the passes"}

Facts = list[tuple[str, str]]  # (term, value)


@dataclass(frozen=True, slots=True)
class CampaignRecords:
    """Records of one campaign."""

    name: str
    records: int  # files
    points: int  # measurements in them
    verdicts: Counter[str]  # over points


@dataclass(frozen=True, slots=True)
class Tally:
    """What the records of a study say of themselves."""

    groups: list[CampaignRecords]
    broken: list[Path]  # could not be read
    setups: Counter[str]  # digests, of the sweep
    devices: dict[str, list]  # field of a record's device -> values found
    started: tuple[str, str] | None  # first and last start of a record, UTC, of real GPUs
    hosts: list[str]  # names of machines


# --- records ----------------------------------------------------------------------------------------------------------


def tally(folder: str | Path) -> Tally:
    """Return the tally of `<folder>/measurements`; empty where there are none."""
    counts: dict[str, Counter[str]] = {}
    files: Counter[str] = Counter()
    setups: Counter[str] = Counter()
    broken: list[Path] = []
    started: list[str] = []
    hosts: set[str] = set()
    devices: dict[str, list] = {field: [] for field in _DEVICE}
    root = Path(folder, "measurements")
    for path in sorted(root.rglob("*.json"), key=lambda path: _rank(path.relative_to(root).parts)):
        if path.name.startswith("."):
            continue
        try:
            record = read_json(path)
            verdicts = _verdicts(record)
            run, device = record["run"], record["device"]
            digest = run["setup"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            broken.append(path)
            continue
        top = path.relative_to(root).parts[0]
        group = _group(top, run)
        files[group] += 1
        counts.setdefault(group, Counter()).update(verdicts)
        if top in _SWEEPS:
            setups[digest] += 1
        started += [run["started_utc"]] if "started_utc" in run else []
        hosts |= {run["host"]} if "host" in run else set()
        for field, values in devices.items():
            if device.get(field) is not None and device[field] not in values:
                values.append(device[field])
    groups = [CampaignRecords(name, files[name], sum(verdicts.values()), verdicts) for name, verdicts in counts.items()]
    return Tally(groups, broken, setups, devices, (min(started), max(started)) if started else None, sorted(hosts))


def _rank(parts: tuple[str, ...]) -> tuple:
    study, _, value = parts[0].partition("-")
    place = _ORDER.index(study) if study in _ORDER else len(_ORDER)
    return place, int(value) if value.isdecimal() else 0, parts


def _group(top: str, run: dict) -> str:
    if top in _SWEEPS:
        repeated = str(run.get("campaign", "")).startswith("remeasure")
        return f"{_SWEEPS[top]}, repeated" if repeated else _SWEEPS[top]
    if top.startswith("validation"):
        return "the choice, measured again"
    study, _, value = top.partition("-")
    return {"batch": f"batch {value}", "tp": f"tensor-parallel degree {value}"}.get(study, top)


def _verdicts(record: dict) -> list[str]:
    if "comparisons" in record:
        return [point["verdict"] for comparison in record["comparisons"] for point in comparison["points"]]
    return [record["verdict"]]


# --- facts ------------------------------------------------------------------------------------------------------------


def of_gpu(gpu: dict, tally: Tally) -> Facts:
    """Return the device. gpu: as setups and profiles have it, with the spec where it is simulated."""
    facts = [("GPU", gpu["name"]), ("kind", {"nvml": "real", "table": "measured table"}.get(gpu["kind"], gpu["kind"]))]
    if gpu["kind"] == "simulated":
        facts += [("model", gpu["model"])] if "model" in gpu else []
        if "spec" in gpu:
            facts.append(("spec digest", digest(gpu["spec"])))
        return facts
    for field, term in _DEVICE.items():
        values = tally.devices.get(field) or ([gpu[field]] if gpu.get(field) is not None else [])
        if values:
            facts.append((term, ", ".join(_value(field, value) for value in values)))
    facts += [("host", ", ".join(tally.hosts))] if tally.hosts else []
    return facts


def of_workload(workload: dict) -> Facts:
    """Return the options that say what work was measured; of a captured step its checksum."""
    checksum = workload.get("step", {}).get("checksum")
    return ([("step", checksum)] if checksum else []) + [
        (key.replace("_", " "), _value(key, value))
        for key, value in workload.items()
        if value is not None and not isinstance(value, dict | list) and key != "setup"
    ]


def of_protocol(setup: Setup | None) -> Facts:
    """Return how it was measured."""
    if setup is None:
        return []
    settings = [(heading_of(key), _value(key, value)) for key, value in setup.measurement.items()]
    return [("setup", setup.digest), *settings]


def of_program() -> Facts:
    """Return the versions that made the page."""
    return [("kernel-dvfs", VERSION), ("Python", platform.python_version()), *_versions()]


def of_native_layer(results: Results) -> Facts:
    """Return what a second count of the kernels' work found, in a sentence; nothing where there was none."""
    path = Folder(str(results.folder)).native_rows
    return [("second count", agreement.sentence(agreement.read(path)))] if Path(path).is_file() else []


def of_chain(results: Results) -> Facts:
    """Return what the strict schedule was made of, down to the profile and its setup, by the begin of each SHA-256;
    nothing where there is no schedule under seal."""
    name = f"schedules/{STRICT}.json"
    if not results.procedure or not results.has(name):
        return []
    facts = of_file(results.path(name), name, {"profile": results.profile_path})
    return [*facts, ("its setup", str(results.workload.get("setup") or "a table"))] if facts else []


def of_file(path: str | Path, name: str, inputs: Mapping[str, str | Path]) -> Facts:
    """Return what a file under seal was made of: the begins of its own SHA-256 and of those of its inputs, {name:
    path}, as they are now; nothing where it has no seal. Raises InputError where it is not as it was written."""
    made_of = sealed.check_file(path)
    checksum, _ = seal_of(path)
    if not checksum:
        return []
    facts = [(name, checksum[:_DIGITS])]
    for input_name, where in inputs.items():
        if Path(where).is_file():
            now = digest_of(where)
            other = "" if made_of.get(input_name, now) == now else ", another than it was made of"
            facts.append((f"its {Path(where).name}", now[:_DIGITS] + other))
        elif input_name in made_of:
            facts.append((f"its {Path(where).name}", made_of[input_name][:_DIGITS] + ", no longer there"))
    return facts


def dates(folder: str | Path, tally: Tally) -> Facts:
    """Return, in UTC, when records of a real GPU were started, when the newest result was written, and now."""
    facts = []
    if tally.started:
        facts.append(("measured", " to ".join(_minute(datetime.fromisoformat(moment)) for moment in tally.started)))
    written = [path.stat().st_mtime for path in _results(folder)]
    if written:
        facts.append(("newest result", _minute(datetime.fromtimestamp(max(written), UTC))))
    return [*facts, ("page written", now())]


def now() -> str:
    """Return the time, to the minute; SOURCE_DATE_EPOCH where a build must give the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return _minute(datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC))


def setup_of(results: Results, digests: Iterable[str]) -> Setup | None:
    """Return the first setup of these digests that is there and whole, or None: of a table, or where it is lost."""
    for name in digests:
        try:
            return results.setup(name)
        except InputError:
            continue
    return None


def _results(folder: str | Path) -> list[Path]:
    return [
        path for name in ("profile.parquet", "schedules/*.json", "tables/*.json") for path in Path(folder).glob(name)
    ]


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _value(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if field.endswith("_mw"):
        return f"{value / 1000:g} W"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(key, item)}" for key, item in value.items())
    return "none" if value is None else str(value)


def _versions() -> Facts:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return versions
