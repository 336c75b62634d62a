"""Do the kernels of a captured step, each measured alone, add up to the step? Per section, and in all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.outputs import Output
from kernel_dvfs.workload.step import paced_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from kernel_dvfs.report.results import Results

# goals of the check, percent
TIME_PERCENT, ENERGY_PERCENT = 3.0, 5.0

OUTPUT = Output(
    caption="Sections of the step and the whole step at auto, compared with the sums of their kernels in the same "
    "study, alone and with hot ones at their clock of the step; "
    f"good within {TIME_PERCENT:g} % of time and {ENERGY_PERCENT:g} % of energy",
    title="Do the kernels add up to the step?",
    text="Each section as it ran, compared with the sum of its kernels, each repeated alone, at auto clocks. A "
    "difference is how much more (+) or less the section took than that sum. Hot kernels are slower alone, and "
    "take less energy: no cooler neighbours leave them room under the power cap, so it holds their clock lower. "
    "Kernels left at auto are in the section as it ran, not in the sum. Within the step: the sum of the times "
    "that the kernels take in the trace of the capture. If it agrees with the section, no kernel is missing. "
    "Paced (auto-only studies): the same sum, but the hot kernels were repeated with rests in between, so long "
    "that they ran at the clock that they have in the step; what the rests took is subtracted. paced_share says "
    "how much of the sum these kernels are. Adds up: the sum, paced where that was measured, is within "
    f"{TIME_PERCENT:g} % of time and {ENERGY_PERCENT:g} % of energy.",
    section="step",
    place=3,
    kinds=("nvml",),
    workload="step",
)


def make(results: Results) -> pd.DataFrame:
    """One row a section, and one for the step; times in ms, energies in J, differences in percent of the sums.
    within_step_ms: NaN where a kernel was not traced."""
    import pandas as pd

    from kernel_dvfs.report.step_costs import paced_rows
    from kernel_dvfs.report.tables.passes import compared, points_of
    from kernel_dvfs.workload.workload import study_of

    steps = results.setup(results.workload["setup"]).targets["pass"]
    points = points_of(results.profile)
    paced = paced_rows(results)
    rows = []
    for name, own in steps.items():
        if paced_kernel(name):
            continue
        row = compared(points, study_of(results.workload, "pass", name), name, own, (AUTO, AUTO))
        del row["clocks"], row["core_mhz"], row["verdict"]
        within_ms = _within_step_ms(results, own)
        row |= {"within_step_ms": within_ms, "within_step_difference_percent": 100 * (row["time_ms"] / within_ms - 1)}
        which = ""
        if paced:
            row, which = row | _with_paced(row, paced, points, own), "paced_"
        time, energy = (row[f"{which}{each}_difference_percent"] for each in ("time", "energy"))
        adds_up = abs(time) <= TIME_PERCENT and abs(energy) <= ENERGY_PERCENT
        rows.append({"section": name, "launches": sum(count for _, count in own)} | row | {"adds_up": adds_up})
    return pd.DataFrame(rows)


def _within_step_ms(results: Results, own: Sequence[tuple[str, int]]) -> float:
    """Time of these launches within the step; NaN where one was not traced."""
    kernels = results.workload["kernels"]
    times_s = [(kernels[name]["step_time_s"], count) for name, count in own]
    return 1e3 * sum(math.nan if time_s is None else count * time_s for time_s, count in times_s)


def _with_paced(
    row: dict[str, Any], paced: dict[str, Any], points: dict[tuple, Any], own: Sequence
) -> dict[str, float]:
    """The sums with the hot kernels at their clocks of the step."""
    sum_s = sum_j = share_s = 0.0
    for name, count in own:
        point = paced.get(name) or points["kernel", name, AUTO, AUTO]
        sum_s += count * point.time_s
        sum_j += count * point.energy_j
        share_s += count * point.time_s if name in paced else 0.0
    return {
        "paced_share": share_s / sum_s,
        "paced_time_difference_percent": 100 * (1e-3 * row["time_ms"] / sum_s - 1),
        "paced_energy_difference_percent": 100 * (row["energy_j"] / sum_j - 1),
    }
