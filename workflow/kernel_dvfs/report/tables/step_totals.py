"""A captured step in a row: joules, seconds and watts of one step at auto, and how many kernels make most of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="One step at auto clocks: time, energy, mean power and share of the time under the power cap, as a whole "
    "and as the sum of its kernels, each repeated by itself; how many kernels take 80 % of the energy",
    title="One step",
    text="As a whole: the captured step, repeated. Sum: its kernels, each repeated by itself, hot ones with rests that "
    "give them their clock of the step where the study has measured that, times their launches. The power of the sum "
    "may lie a little above the power limit, since what is not held down alone draws more there than in the step. "
    "energy_least_j and energy_most_j limit the energy in a forecast of kernels whose power nobody has "
    "measured: a board that only waits, and one at its power limit.",
    kinds=MEASURED,
    workload="step",
)


def make(results: Results) -> pd.DataFrame:
    """One row for the step as a whole (none where it cannot be repeated), one for the sum of its kernels."""
    import pandas as pd

    from kernel_dvfs.report import step_costs

    costs = step_costs.per_kernel(results)
    time_ms, energy_j = costs.time_ms.sum(), costs.energy_j.sum()
    summed = {
        "time_ms": time_ms,
        "energy_j": energy_j,
        "power_w": 1e3 * energy_j / time_ms,
        # what rested was under the cap for another share of its time than alone
        "power_cap_share": (
            math.nan if costs.is_paced.any() else (costs.power_cap_share * costs.time_ms).sum() / time_ms
        ),
    }
    shared = {
        "kernels": len(costs),
        "launches": int(costs.launches.sum()),
        "kernels_of_80_percent": step_costs.how_many_make(costs.energy_j),
    }
    if bounds_w := results.workload.get("modelled_power_w"):
        known_j = costs.energy_j[~costs.is_power_modelled].sum()
        modelled_s = 1e-3 * costs.time_ms[costs.is_power_modelled].sum()
        least_j, most_j = (known_j + modelled_s * power_w for power_w in bounds_w)
        shared |= {"energy_least_j": least_j, "energy_most_j": most_j}
    rows = [{"step": "sum of its kernels"} | summed | shared]
    if whole := step_costs.whole(results):
        rows.insert(0, {"step": "as a whole"} | whole | shared)
    return pd.DataFrame(rows)
