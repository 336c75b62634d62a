"""Table 1: the clocks chosen for each kernel by the strict global schedule, and what they change for that kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Best clocks per kernel (waste, global, strict): change of each kernel's time and energy against auto",
    title="Best clocks of each kernel (Table 1 of the paper)",
    text="The strict schedule: all kernels together lose no time, so a kernel may lose time that another one "
    "gains. Share: of an iteration at auto clocks, all launches counted. Part of the saving: what the kernel "
    "contributes to the total by its claimed change, in percent of the iteration's energy. Ran at: the clocks "
    "that the GPU really ran.",
    section="kernels",
    place=1,
    formats=("csv", "md", "tex"),
    of_choice=True,
    inputs=lambda plan: [plan.schedule(STRICT), *plan.validation(plan.headline[:1])],
    options=lambda plan: {"repeats": plan.repeats} if plan.headline else {},
)


def make(results: Results, repeats: int = 0) -> pd.DataFrame:
    """Rows in the order of the iteration; columns of the contract, changes in percent, negative = less.

    A table's further settings, such as a power cap, are columns after the clocks.

    repeats: of the validation, whose mean change of each kernel is given too; 0: there was none.
    """
    import pandas as pd

    from kernel_dvfs.profile.store import CLOCKS
    from kernel_dvfs.report import validation
    from kernel_dvfs.report.results import is_chosen

    validated = {}
    if repeats:
        validated = validation.kernel_changes(results.comparisons(*fresh_repeats(STRICT, repeats)))
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
                **{name: value for name, value in pair.items() if name not in CLOCKS},
                "time_change_percent": 100 * (best.time_s / auto.time_s - 1),
                "energy_change_percent": 100 * (best.energy_j / auto.energy_j - 1),
            }
            | {
                f"fresh_{quantity}_change_percent": change.mean
                for quantity, change in zip(("time", "energy"), validated.get(name, ()))
            }
        )
    return pd.DataFrame(rows).astype({"row": "Int64"})
