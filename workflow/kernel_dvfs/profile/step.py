"""What a study measured of a captured step at auto, put into the step's record: a forecast is held to it."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

from kernel_dvfs.errors import InputError
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.workload.step import Step, read


def measured_step(record: str, profile: str | PathLike[str]) -> Step:
    """The step of `record` with time (us), energy (mJ) and core clock (MHz) of a launch of each kernel at auto.

    Raises InputError where the profile is of another step.
    """
    step, found = read(record), read_profile(profile)
    made_for = (found.metadata.get("workload", {}).get("step") or {}).get("checksum")
    if made_for != step.checksum:
        raise InputError(f"{profile}: of {made_for or 'no captured step'}, {record} is {step.checksum}; run snakemake")
    auto = {
        row["target"]: {
            "auto_time_us": 1e6 * row["time_s"],
            "auto_energy_mj": 1e3 * row["energy_j"],
            "auto_core_mhz": row["reached_core_mhz"],
        }
        for row in found.table.to_pylist()
        if row["study"] == "kernel" and row["is_baseline"]
    }
    return replace(step, targets=tuple(replace(target, **auto.get(target.id, {})) for target in step.targets))
