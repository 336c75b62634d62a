"""Table 1: the clocks chosen for each kernel by the strict global schedule, and what they change for that kernel."""

import pandas as pd

from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.report import validation
from kernel_dvfs.report.chosen import is_chosen

CAPTION = "Best clocks per kernel (waste, global, strict): change of each kernel's time and energy against auto"


def make(results, repeats: int | None = None) -> pd.DataFrame:
    """Rows in the order of the iteration; columns of the contract, changes in percent, negative = less.

    repeats: fresh ones, whose mean change of each kernel stands beside the claimed one.
    """
    again = {}
    if repeats:
        again = validation.kernel_changes(results.comparisons(*fresh_repeats(STRICT, repeats)))
    chosen = results.schedule(STRICT)["targets"]
    profile = results.profile.query("study == 'kernel'")
    best_of = profile[is_chosen(profile, chosen)].set_index("target")
    about = results.workload.get("kernels", {})
    rows = []
    for number, (name, points) in enumerate(profile.groupby("target", sort=False), 1):
        auto = points[points.is_baseline].iloc[0]
        pair = chosen[name]
        best = best_of.loc[name]
        label = about.get(name, {"row": number, "section": "", "name": name})
        rows.append(
            {
                "row": label["row"],
                "section": label["section"],
                "name": label["name"],
                "id": name,
                "mem_mhz": pair["mem_mhz"],
                "core_mhz": pair["core_mhz"],
                "time_change_percent": 100 * (best.time_s / auto.time_s - 1),
                "energy_change_percent": 100 * (best.energy_j / auto.energy_j - 1),
            }
            | {
                f"fresh_{quantity}_change_percent": change.mean
                for quantity, change in zip(("time", "energy"), again.get(name, ()))
            }
        )
    return pd.DataFrame(rows).astype({"row": "Int64"})
