"""Claimed and validated: what the schedule promised on the data that chose it, and what new measurements show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="The strict global schedule measured again: claimed and validated change, 95 % interval and what "
    "it is over",
    title="The chosen clocks, measured again",
    text="Claimed is what the measurements that chose the clocks promised. Validated is what new measurements found: "
    "each repeat runs every kernel at auto, chosen, chosen, auto. An interval over sessions holds what changes from "
    "one measuring session to the next; one within a session does not. Trust the validated change: a choice among "
    "noisy points prefers the lucky ones, so it claims too much.",
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_compared,
    inputs=lambda plan: [plan.schedule(STRICT), *plan.validation(plan.headline[:1])],
    options=lambda plan: {"repeats": plan.repeats},
)


def make(results: Results, repeats: int) -> pd.DataFrame:
    """Two rows, time and energy; `optimism_pp` = fresh - claimed; the verdict is on the time limit.

    interval: what the 95 % interval is over.
    """
    import pandas as pd

    from kernel_dvfs import student
    from kernel_dvfs.report import validation

    schedule = results.schedule(STRICT)
    comparisons = results.comparisons(*fresh_repeats(STRICT, repeats))
    rows = []
    for quantity, change in zip(("time", "energy"), validation.changes(comparisons)):
        claimed = schedule[f"{quantity}_change_percent"]
        verdict, needed = student.verdict(change, schedule["slack_percent"]) if quantity == "time" else (None, None)
        rows.append(
            {
                "quantity": quantity,
                "claimed_change_percent": claimed,
                "fresh_change_percent": change.mean,
                "fresh_low_percent": change.low,
                "fresh_high_percent": change.high,
                "optimism_pp": change.mean - claimed,
                "repeats": change.repeats,
                "interval": change.basis,
                "verdict": verdict,
                "repeats_to_decide": needed,
            }
        )
    return pd.DataFrame(rows).astype({"repeats_to_decide": "Int64"})
