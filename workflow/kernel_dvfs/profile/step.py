"""What a study measured of a captured step at auto: put into the step's record, to which a forecast is held; and the
step that ships with the package, read back from the tables of its study."""

from __future__ import annotations

import re
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from kernel_dvfs.profile.store import COLUMNS, read_profile, write_profile
from kernel_dvfs.shipped import STEP
from kernel_dvfs.table_file import kept_rows, write_rows
from kernel_dvfs.workload.step import Step, read
from kernel_dvfs.workload.workload import study_of
from kernel_dvfs_clocks.errors import InputError

# the shipped step: a study at the GPU's own clocks, by experiments/benchmarks/own_step_workflow.py
_GPU = {"kind": "nvml", "name": "NVIDIA H200", "slug": "nvidia-h200-16f757ee", "power_limit_mw": 700_000}
_WORKLOAD = {
    "name": "step-llama",
    "captured_on": "NVIDIA H200",
    "captured": "2026-11-22",
    "source": "experiments/benchmarks/own_steps/steps.py:llama",
    "about": "two Llama-style layers, 8 x 1024 tokens, vocabulary 32000, bfloat16, AdamW",
    "step": {},
    "items": {"token": 8192},
}
# a product's sizes, as step.trace names it, and the bytes of an element of this step's
_PRODUCT, _ELEMENT_BYTE = re.compile(r"mm (\d+)x(\d+)x(\d+)\b"), 2


def write_shipped_step(folder: Path) -> list[dict[str, Any]]:
    """Write the shipped step's tables and profile into a results folder; the rows of its kernels, the costliest first.

    Its records are not kept: the profile holds what the tables say, one point at auto a kernel and pass.
    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def add(study: str, target: str, launches: int, row: dict[str, Any], time_s: float, energy_j: float) -> None:
        values = {"study": study, "target": target, "launches_per_iteration": launches, "time_s": time_s}
        values |= {"energy_j": energy_j, "reached_core_mhz": float(row["core_mhz"]), "n": 1}
        values |= {"verdict": row["verdict"], "is_baseline": True}
        for name in COLUMNS:
            columns[name].append(values.get(name))

    tables = {path.stem: kept_rows(path) for path in sorted(STEP.glob("*.csv"))}
    for name, rows in tables.items():
        write_rows(folder / f"tables/{name}.json", rows)
    kernels, passes = tables["step_kernels"], tables["passes"]
    for row in kernels:
        add("kernel", row["id"], row["launches"], row, 1e-6 * row["time_us"], 1e-3 * row["energy_mj"])
    sections = list(dict.fromkeys(row["section"] for row in kernels))
    workload = _WORKLOAD | {"passes": sections, "kernels": {row["id"]: _about(row) for row in kernels}}
    for row in passes:
        study = study_of(workload, "pass", row["pass"])
        add(study, row["pass"], 1, row, 1e-3 * row["time_ms"], row["energy_j"])
    write_profile(folder / "profile.parquet", columns, _GPU, workload, ("core_mhz", "mem_mhz"))
    return kernels


def _about(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a profile knows of a kernel. Of its work the study kept a product's sizes, which name it."""
    work = None
    if product := _PRODUCT.match(row["name"]):
        m, k, n = map(int, product.groups())
        work = ["gemm", 2.0 * m * k * n, 0.0, 0.0, float(_ELEMENT_BYTE * (m * k + k * n + m * n))]
    return {
        **{name: row[name] for name in ("name", "module", "operation", "section")},
        "step_time_s": 1e-6 * row["step_time_us"],
        "step_core_mhz": row["step_core_mhz"],
        "work": work,
        "is_paced": row["run"] == "paced",
    }


def measured_step(record: str, profile: str | PathLike[str]) -> Step:
    """Return the step of `record` with time (us), energy (mJ) and core clock (MHz) of a launch of each kernel at auto.

    Raises InputError where the profile is of another step.
    """
    step, measured = read(record), read_profile(profile)
    made_for = (measured.metadata.get("workload", {}).get("step") or {}).get("checksum")
    if made_for != step.checksum:
        raise InputError(f"{profile}: of {made_for or 'no captured step'}, {record} is {step.checksum}; run snakemake")
    auto = {
        row["target"]: {
            "auto_time_us": 1e6 * row["time_s"],
            "auto_energy_mj": 1e3 * row["energy_j"],
            "auto_core_mhz": row["reached_core_mhz"],
        }
        for row in measured.table.to_pylist()
        if row["study"] == "kernel" and row["is_baseline"]
    }
    return replace(step, targets=tuple(replace(target, **auto.get(target.id, {})) for target in step.targets))
