"""The schedules of the headline, claimed beside fresh, each with a verdict on its time limit."""

import pandas as pd

from kernel_dvfs.layout import fresh_repeats
from kernel_dvfs.report import validation

CAPTION = "Headline schedules measured again: claimed and fresh change, 95 % interval, verdict on the time limit"


def make(results, schedules: list, repeats: int) -> pd.DataFrame:
    """One row a schedule of those named. Changes in percent; optimism_pp = fresh - claimed.

    margin_percent: what the choice kept clear of its time limit. repeats_to_decide: where the verdict is ambiguous.
    """
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
        verdict, needed = validation.verdict(changes[0], schedule["slack_percent"])
        margin = (schedule["margin"] or {}).get("time_percent")
        rows.append(
            row
            | {"repeats": repeats, "verdict": verdict, "repeats_to_decide": needed}
            | {"margin_percent": margin, "status": schedule["status"]}
        )
    return pd.DataFrame(rows).astype({"repeats_to_decide": "Int64", "margin_percent": float})
