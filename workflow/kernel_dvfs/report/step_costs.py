"""What a captured step costs at auto, kernel by kernel: the numbers behind the tables and cards of its page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernel_dvfs.report.tables.baseline import auto_records, cap_share
from kernel_dvfs.workload.step import PACED
from kernel_dvfs.workload.workload import WHOLE

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

# a kernel runs as long alone as in the step where the two are within so many percent
ALIKE_PERCENT = 3.0
MOST_PERCENT = 80.0  # what "most" of the energy or the saving means


def per_kernel(results: Results) -> pd.DataFrame:
    """A row a kernel, the costliest in energy first: id, what it is, launches, and of one launch repeated alone at auto
    time_us, energy_mj, power_w, core_mhz, power_cap_share; step_time_us: of a launch within the step, NaN where it was
    not traced; step_core_mhz: its clock there; paced_energy_mj: its energy alone at that clock; NaN where not measured.
    Of the whole step energy_j, time_ms. is_power_modelled: of a forecast, nobody has measured its power."""
    import pandas as pd

    about = results.workload["kernels"]
    points = results.profile.query("study == 'kernel' and is_baseline")
    paced_j = {
        row.target.removeprefix(PACED): row.energy_j
        for row in results.profile.query("study == @WHOLE and is_baseline").itertuples()
        if row.target.startswith(PACED)
    }
    labels = [about[name] for name in points.target]
    found = pd.DataFrame(
        {
            "id": points.target,
            "name": [label["name"] for label in labels],
            "module": [label["module"] for label in labels],
            "operation": [label["operation"] for label in labels],
            "section": [label["section"] for label in labels],
            "launches": points.launches_per_iteration,
            "energy_j": points.launches_per_iteration * points.energy_j,
            "time_ms": 1e3 * points.launches_per_iteration * points.time_s,
            "time_us": 1e6 * points.time_s,
            "energy_mj": 1e3 * points.energy_j,
            "power_w": points.energy_j / points.time_s,
            "core_mhz": points.reached_core_mhz,
            "power_cap_share": [cap_share(auto_records(results.folder, "kernel", name)) for name in points.target],
            "step_time_us": pd.Series(
                [None if label["step_time_s"] is None else 1e6 * label["step_time_s"] for label in labels],
                index=points.index,
                dtype=float,
            ),
            "step_core_mhz": pd.Series(
                [label.get("step_core_mhz") for label in labels], index=points.index, dtype=float
            ),
            "paced_energy_mj": [1e3 * paced_j.get(name, math.nan) for name in points.target],
            "is_power_modelled": [label.get("is_power_modelled", False) for label in labels],
            "verdict": points.verdict,
        }
    )
    return found.sort_values("energy_j", ascending=False, kind="stable").reset_index(drop=True)


def whole(results: Results) -> dict | None:
    """time_ms, energy_j, power_w, power_cap_share of the step as one, at auto; None where it cannot be repeated."""
    profile = results.profile
    # sections may be of that study too, where they do not make up the step
    points = profile[(profile.study == WHOLE) & (profile.target == WHOLE) & profile.is_baseline]
    if points.empty:
        return None
    row = points.iloc[0]
    return {
        "time_ms": 1e3 * row.time_s,
        "energy_j": row.energy_j,
        "power_w": row.energy_j / row.time_s,
        "power_cap_share": cap_share(auto_records(results.folder, WHOLE, WHOLE)),
    }


def how_many_make(values: pd.Series, percent: float = MOST_PERCENT) -> int:
    """How many of the largest of these (not negative) numbers make so many percent of their sum; 0 of nothing."""
    ordered = values.sort_values(ascending=False)
    total = ordered.sum()
    if not total > 0:
        return 0
    return int((ordered.cumsum() < percent / 100 * total * (1 - 1e-12)).sum()) + 1
