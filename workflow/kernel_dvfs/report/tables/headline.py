"""The schedules of the headline: claimed and validated changes, and a verdict on each time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import fresh_repeats
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Headline schedules measured again: claimed and validated change, 95 % interval, verdict on the time limit",
    title="The schedules of the headline, measured again",
    text="What each schedule claimed, and what measuring it again gave (validated), with 95 % intervals. Over sessions "
    "they hold what changes from one to the next; within one session they do not. The verdict is on the time limit: "
    "within, over, or ambiguous where the interval holds the limit.",
    section="choosing",
    place=1,
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_compared,
    inputs=lambda plan: [*map(plan.schedule, plan.headline), *plan.validation(plan.headline)],
    options=lambda plan: {"schedules": plan.headline, "repeats": plan.repeats},
)


def make(results: Results, schedules: list[str], repeats: int) -> pd.DataFrame:
    """One row a schedule of those named. Changes in percent; optimism_pp = fresh - claimed.

    margin_percent: the distance that the choice kept from its time limit: standard errors, and what choosing flatters.
    repeats_to_decide: where the verdict is ambiguous.
    """
    import pandas as pd

    from kernel_dvfs import student
    from kernel_dvfs.report import validation
    from kernel_dvfs.report.tables.strategies import margin_percent, status

    rows = []
    for name in schedules:
        schedule = results.schedule(name)
        changes = validation.changes(results.comparisons(*fresh_repeats(name, repeats)))
        row = {"schedule": name, "slack_percent": schedule["slack_percent"]}
        for quantity, change in zip(("time", "energy"), changes):
            claimed = schedule[f"{quantity}_change_percent"]
            row |= {
                f"claimed_{quantity}_change_percent": claimed,
                f"fresh_{quantity}_change_percent": change.mean,
                f"fresh_{quantity}_low_percent": change.low,
                f"fresh_{quantity}_high_percent": change.high,
                f"{quantity}_optimism_pp": change.mean - claimed,
            }
        verdict, needed = student.verdict(changes[0], schedule["slack_percent"])
        rows.append(
            row
            | {"repeats": repeats, "interval": changes[0].basis, "verdict": verdict, "repeats_to_decide": needed}
            | {"margin_percent": margin_percent(schedule), "status": status(schedule)}
        )
    return pd.DataFrame(rows).astype({"repeats_to_decide": "Int64", "margin_percent": float})
