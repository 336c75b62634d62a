"""What was measured on what, when, and with which program: the facts that a number needs to be believed."""

import json
import os
import platform
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_dvfs import __version__
from kernel_dvfs.errors import InputError
from kernel_dvfs.report.page.cells import title

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


def of_gpu(gpu: dict, tally) -> list:
    """[(term, value)] on the device. gpu: as setups and profiles have it, with the spec where it is simulated."""
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


def of_workload(workload: dict) -> list:
    """[(term, value)] of the options that say what work was measured."""
    return [
        (key.replace("_", " "), _value(key, value))
        for key, value in workload.items()
        if value is not None and not isinstance(value, dict | list) and key != "setup"
    ]


def of_protocol(setup) -> list:
    """[(term, value)] of how it was measured. setup: measurement.setup.Setup or None."""
    if setup is None:
        return []
    settings = [(title(key), _value(key, value)) for key, value in setup.measurement.items()]
    return [("setup", setup.digest), *settings]


def of_program() -> list:
    """[(term, value)] of the versions that made the page."""
    return [("kernel-dvfs", __version__), ("Python", platform.python_version()), *_versions()]


def dates(folder, tally) -> list:
    """[(term, value)], UTC: when records of a real GPU were started, when the newest result was written, and now."""
    found = []
    if tally.started:
        found.append(("measured", " to ".join(_minute(datetime.fromisoformat(each)) for each in tally.started)))
    written = [path.stat().st_mtime for path in _results(folder)]
    if written:
        found.append(("newest result", _minute(datetime.fromtimestamp(max(written), UTC))))
    return [*found, ("page written", now())]


def now() -> str:
    """The time, to the minute; SOURCE_DATE_EPOCH where a build is to give the same bytes again."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return _minute(datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC))


def digest(content: dict) -> str:
    """12 hex digits that name a content."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def setup_of(results, digests: list):
    """The first setup of these digests that is there and whole, or None: of a table, or where it is lost."""
    for name in digests:
        try:
            return results.setup(name)
        except InputError:
            continue
    return None


def _results(folder):
    return [
        path for name in ("profile.parquet", "schedules/*.json", "tables/*.csv") for path in Path(folder).glob(name)
    ]


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _value(field: str, value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if field.endswith("_mw"):
        return f"{value / 1000:g} W"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(key, each)}" for key, each in value.items())
    return "none" if value is None else str(value)


def _versions() -> list:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
