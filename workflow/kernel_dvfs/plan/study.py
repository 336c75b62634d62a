"""From a checked configuration to what is to be made: which GPU, which workload, which points, which schedules.

The one place that turns options into a study, whose names of folders, targets and files all else uses. Pure: it reads
facts of GPUs and what other studies have left in the results folder, and writes nothing. It knows neither Snakemake nor
how anything is made.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from kernel_dvfs import layout
from kernel_dvfs.errors import InputError
from kernel_dvfs.plan.asked import Study
from kernel_dvfs.plan.real import real
from kernel_dvfs.plan.shared import schedule_names, weights_of
from kernel_dvfs.plan.simulated import simulated
from kernel_dvfs.plan.step import MODEL as MODEL_WORKLOAD
from kernel_dvfs.workload.models import is_model

# what null stands for; at auto alone nothing is compared with the baseline, and a first look takes minutes
_USUALLY = {"auto_repeats": 10, "windows": 3}
_AT_AUTO_ALONE = {"auto_repeats": 1, "windows": 2}
# of a configuration: kernels swept alone, at no other batch, degree or tensor-core energy
ALONE: dict[str, list | None] = {
    "data_parallel_batches": [],
    "tensor_parallel_degrees": [],
    "tensor_energy_pj": [],
    "headline_map": None,
}


def load(path: str) -> dict:
    """The configuration in a YAML file, unchecked. Raises InputError."""
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except RecursionError:
        raise InputError(f"configuration {path}: nested too deeply") from None
    except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: no UTF-8, or a date that does not exist
        raise InputError(f"configuration {path}: {error}; name one with --config") from None
    if not isinstance(content, dict):
        raise InputError(f"configuration {path}: not a mapping of keys")
    return content


def resolved(config: dict) -> dict:
    """The configuration with what null stands for in `auto_repeats` and `windows`."""
    is_real = isinstance(config["gpu"], str) and config["gpu"].partition(":")[0] == "nvml"
    meant = _AT_AUTO_ALONE if is_real and config["clocks"] == "auto-only" else _USUALLY
    return config | {key: value for key, value in meant.items() if config[key] is None}


def plan(config: dict, results: str = "results") -> Study:
    """The study that `config` (checked by config.check) describes, with folders below `results`.

    Raises InputError for what only the GPU or the model can refuse: an unknown GPU or model, a clock that the GPU
    lacks, a degree that does not divide the heads.
    """
    gpu, config = config["gpu"], resolved(config)
    latencies_s = config["clock_changes"]["latency_s"]
    if len(set(map(layout.iteration_name, latencies_s))) < len(latencies_s):
        raise InputError(
            f"config: clock_changes.latency_s = {latencies_s}: two of them differ only after the twelfth digit, which "
            "a file's name does not show; allowed: values that differ in the first twelve digits"
        )
    if isinstance(gpu, dict):
        return _table(config, results)
    if is_model(config["workload"]):  # short for these two keys
        config = config | {"workload": MODEL_WORKLOAD, "model": config["workload"]}
    try:
        if gpu.partition(":")[0] == "nvml":
            return real(config, results)
        return simulated(config, results)
    except InputError as error:
        raise InputError(f"config: {error}") from None


def import_options(gpu: dict) -> str:
    """The options of a table GPU on the command line of `kernel-dvfs import`."""
    words = []
    if gpu.get("name"):
        words += ["--name", gpu["name"]]
    if gpu.get("reference") is not None:
        reference = gpu["reference"]
        words += ["--reference", ",".join(map(str, reference)) if isinstance(reference, list) else str(reference)]
    if gpu.get("settings"):
        words += ["--settings", *gpu["settings"]]
    if gpu.get("units"):
        words += ["--units", *(f"{column}={unit}" for column, unit in gpu["units"].items())]
    return shlex.join(words)


def notices(study: Study) -> list[str]:
    """What the user should know of a study before it starts."""
    if study.kind == "table" and study.options["refine"]["rounds"] > 0:
        return ["refine: a table cannot be measured again, so clocks are chosen from its rows as they are"]
    if study.clocks == "auto-only":
        return [
            f"clocks: auto-only: {study.gpu} is measured at auto: Figure 5, tables/baseline and tables/passes. "
            "Schedules, Tables 1 and 2 and the other figures need the right to lock clocks (docs/real-gpus.md)"
        ]
    if study.clocks == "external":
        return [
            f"clocks: external: each job on {study.gpu} trusts the batch system to have set its clocks, verifies and "
            "records them. Validation and carrying over switch clocks within a job, so they are left out"
        ]
    return []


def _table(config: dict, results: str) -> Study:
    from kernel_dvfs.profile.table import gpu_slug

    gpu = config["gpu"]
    if config["workload"] != MODEL_WORKLOAD:
        raise InputError("config: workload: a table of measurements already says what ran; leave workload out")
    if not Path(gpu["path"]).is_file():
        raise InputError(f"config: gpu.path = '{gpu['path']}': no such file; allowed: a CSV or Parquet table")
    slug, workload = gpu_slug(gpu["path"], gpu.get("name")), "as-measured"
    return Study(
        kind="table",
        gpu=slug,
        workload=workload,
        folder=f"{results}/{slug}/{workload}",
        options=config,
        schedules=schedule_names(["kernel"], config["slack_percent"], weights_of(config, "table")),
        title=f"table {gpu.get('name') or Path(gpu['path']).stem}",
        table=gpu["path"],
    )


def stamp(path: str) -> tuple[int, int] | None:
    """What tells one version of a file from another without reading it; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def seen(*folders: str) -> list[str]:
    """Tables and figures that lie in folders, with their times: what a page shows of other studies."""
    found = [path for folder in folders for form in ("csv", "png") for path in Path(folder).rglob(f"*.{form}")]
    return sorted(f"{path} {path.stat().st_mtime_ns}" for path in found)
