"""What each kernel and pass costs at auto, what the GPU's governor made of its clocks, and how both drifted."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

from kernel_dvfs.files import read_json
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Kernels and passes at auto clocks, per launch: time, energy, power, the clocks that the GPU ran, the "
    "share of time under its power cap, and the drift of the energy over the run",
    title="Every kernel and pass at auto clocks",
    text="Per launch and per iteration, with clocks left to the GPU: time, energy, power, the clocks that it ran, "
    "the share of time under its power cap, and the drift over the run. The last row is an iteration as the "
    "sum of its kernels.",
    section="kernels",
    place=2,
    kinds=("nvml",),
)

# over a shorter run the slope per hour would be noise
_LEAST_HOURS = 0.25


def make(results: Results) -> pd.DataFrame:
    """Rows in the order of the iteration, then passes, then the iteration as a sum; times in us, energies in mJ, powers
    in W, clocks in MHz."""
    import pandas as pd

    about = results.workload.get("kernels", {})
    points = results.profile[results.profile.is_baseline]
    launches = points.launches_per_iteration
    repeats = [auto_records(results.folder, study, name) for study, name in zip(points.study, points.target)]
    found = pd.DataFrame(
        {
            "study": points.study,
            "id": points.target,
            "name": [about.get(name, {}).get("name", name) for name in points.target],
            "launches": launches,
            "time_us": 1e6 * points.time_s,
            "time_sd_us": 1e6 * points.time_sd_s,
            "energy_mj": 1e3 * points.energy_j,
            "energy_sd_mj": 1e3 * points.energy_sd_j,
            "power_w": points.energy_j / points.time_s,
            "time_per_iteration_us": 1e6 * launches * points.time_s,
            "energy_per_iteration_mj": 1e3 * launches * points.energy_j,
            "core_mhz": points.reached_core_mhz,
            "mem_mhz": points.reached_mem_mhz,
            "power_cap_share": [cap_share(records) for records in repeats],
            "energy_drift_percent_per_h": [_drift(records) for records in repeats],
            "n": points.n,
            "verdict": points.verdict,
        }
    )
    # whole numbers stay whole beside the last row, which has none
    found = found.astype({"launches": "Int64", "n": "Int64"})
    return pd.concat([found, pd.DataFrame([_total(found)])], ignore_index=True)


def _total(rows: pd.DataFrame) -> dict[str, object]:
    """The row of an iteration as the sum of its kernels, each measured alone."""
    kernels = rows[rows.study == "kernel"]
    time_us, energy_mj = kernels.time_per_iteration_us.sum(), kernels.energy_per_iteration_mj.sum()
    return {
        "study": "iteration",
        "id": "iteration",
        "name": "sum of its kernels",
        "power_w": 1e3 * energy_mj / time_us,
        "time_per_iteration_us": time_us,
        "energy_per_iteration_mj": energy_mj,
    }


def auto_records(folder: Path, study: str, target: str) -> list[dict]:
    """The records of a target at auto. study: as the profile has it."""
    kind = "kernel" if study == "kernel" else "pass"
    return [read_json(path) for path in sorted((folder / f"measurements/{kind}/{target}/auto-auto").glob("r*.json"))]


def cap_share(records: list[dict]) -> float | None:
    """Share of the time under the power cap, 0 to 1, over all windows; None where there are none."""
    windows = [window for record in records for window in record["windows"]]
    return fmean(window["cap_ns"] / 1e9 / window["duration_s"] for window in windows) if windows else None


def _drift(records: list[dict]) -> float | None:
    """Slope of the energy over the run, percent per hour; None for a run too short to have one."""
    hours = [datetime.fromisoformat(record["run"]["started_utc"]).timestamp() / 3600 for record in records]
    if len(hours) < 3 or max(hours) - min(hours) < _LEAST_HOURS:
        return None
    energies = [record["summary"]["energy_mj"] for record in records]
    return 100 * linear_regression(hours, energies).slope / fmean(energies)
