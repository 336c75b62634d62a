"""The kernels of a captured step, the costliest first: joules, watts, power cap, and how they run alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Kernels of the step at auto clocks, the costliest first: energy of all launches of a step, its share, and "
    "of one launch time, energy, power, core clock and share of the time under the power cap",
    title="Your step, the costliest kernels first",
    text="Energy and time of a step: all launches of the kernel. Time, energy, power and core clock: of one launch, "
    "repeated alone at auto clocks. Alone, the power cap may hold a kernel lower than within the step, where "
    "cooler ones run beside it. auto-only studies therefore repeat hot kernels with rests in between, so long "
    "that they run at the clock that they have in the step (run: paced), and subtract the rests. For a moment "
    "such a kernel draws more than the cap. Rests cannot lower a clock: kernels that run faster alone are shown "
    "as they run alone. In the step: time by the trace of the capture, clock by marks around each launch. "
    "Power cap: share of the time that it is under the cap without rests. Alone against step: how much longer a "
    "launch takes alone, without rests, than in the step. In a forecast, energy and power marked as the model's "
    "were never measured, and may be far off.",
    section="step",
    place=1,
    kinds=MEASURED,
    workload="step",
)
# columns that not every capture knows
IN_THE_STEP = ("step_time_us", "step_core_mhz")


def make(results: Results) -> pd.DataFrame:
    """One row a kernel; energies in J a step and mJ a launch, times in ms a step and us a launch, clocks in MHz."""
    from kernel_dvfs.report import step_costs

    costs = step_costs.per_kernel(results)
    costs["alone_change_percent"] = 100 * (costs.alone_us / costs.step_time_us - 1)
    share = 100 * costs.energy_j / costs.energy_j.sum()
    table = costs[["name", "module", "section", "launches"]].copy()
    table["energy_per_step_j"] = costs.energy_j
    table["energy_share_percent"] = share
    table["energy_so_far_percent"] = share.cumsum()
    table["time_per_step_ms"] = costs.time_ms
    if costs.is_paced.any():
        table["run"] = ["paced" if is_paced else "alone" for is_paced in costs.is_paced]
    for column in (
        "time_us",
        "energy_mj",
        "power_w",
        "core_mhz",
        *IN_THE_STEP,
        "power_cap_share",
        "alone_change_percent",
    ):
        if column not in IN_THE_STEP or costs[column].notna().any():
            table[column] = costs[column]
    table["expected"] = [_why(row) for row in costs.itertuples()]
    if costs.is_power_modelled.any():
        table["power_is"] = ["the model's" if modelled else "measured" for modelled in costs.is_power_modelled]
    table["verdict"] = costs.verdict
    table["operation"] = costs.operation
    table["id"] = costs.id
    return table


def _why(row: Any) -> str:
    """Why a kernel takes another time alone than within the step, as far as its own record tells."""
    from kernel_dvfs.report.step_costs import ALIKE_PERCENT

    change = row.alone_change_percent
    if not abs(change) > ALIKE_PERCENT:  # also where it is not known
        return ""
    if change > 0:
        return "power cap" if row.power_cap_share else "not told by the record"
    if math.isnan(row.alone_core_mhz) or math.isnan(row.step_core_mhz):
        return "warm caches, a clock of its own"
    is_higher = row.alone_core_mhz > (1 + ALIKE_PERCENT / 100) * row.step_core_mhz
    return "a higher clock, warm caches" if is_higher else "warm caches"
