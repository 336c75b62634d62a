"""Which kernels of a captured step make the saving: the strict schedule, the largest share first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="What each kernel adds to the saving of the strict schedule, in J of a step, the largest first",
    title="Which kernels make the saving",
    text="By the claimed change of the strict schedule. If you change clocks only for the first kernels, down to "
    "80 %, you get most of the saving with few clock changes.",
    section="step",
    place=2,
    kinds=MEASURED,
    workload="step",
    of_choice=True,
    inputs=lambda plan: [plan.schedule(STRICT)],
)


def make(results: Results) -> pd.DataFrame:
    """One row a kernel: change of a step's energy (J) and time (ms), negative = less, and the share of all savings."""
    import pandas as pd

    from kernel_dvfs.report.results import is_chosen

    chosen = results.schedule(STRICT)["targets"]
    profile = results.profile.query("study == 'kernel'")
    best = profile[is_chosen(profile, chosen)].set_index("target")
    auto = profile[profile.is_baseline].set_index("target")
    about = results.workload["kernels"]
    launches = auto.launches_per_iteration
    change_j = launches * (best.energy_j.reindex(auto.index) - auto.energy_j)
    change_ms = 1e3 * launches * (best.time_s.reindex(auto.index) - auto.time_s)
    saved_j = (-change_j).clip(lower=0)
    share = 100 * saved_j / saved_j.sum() if saved_j.sum() > 0 else 0 * saved_j
    table = pd.DataFrame(
        {
            "name": [about[name]["name"] for name in auto.index],
            "module": [about[name]["module"] for name in auto.index],
            "core_mhz": [chosen[name]["core_mhz"] for name in auto.index],
            "mem_mhz": [chosen[name]["mem_mhz"] for name in auto.index],
            "energy_change_j": change_j,
            "time_change_ms": change_ms,
            "saving_share_percent": share,
            "id": auto.index,
        }
    ).sort_values("energy_change_j", kind="stable")
    table.insert(7, "saving_so_far_percent", table.saving_share_percent.cumsum())
    return table.reset_index(drop=True)
