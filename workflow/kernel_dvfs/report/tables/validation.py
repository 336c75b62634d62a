"""Claimed beside fresh: what the schedule promised on the data that chose it, and what fresh repeats show."""

import pandas as pd

from kernel_dvfs.layout import STRICT, fresh_repeats
from kernel_dvfs.report import validation

CAPTION = "The strict global schedule measured again: claimed and fresh change, 95 % interval over repeats"


def make(results, repeats: int) -> pd.DataFrame:
    """Two rows, time and energy; `optimism_pp` = fresh - claimed; the verdict is on the time limit."""
    schedule = results.schedule(STRICT)
    comparisons = results.comparisons(*fresh_repeats(STRICT, repeats))
    rows = []
    for quantity, change in zip(("time", "energy"), validation.changes(comparisons)):
        claimed = schedule[f"{quantity}_change_percent"]
        verdict, needed = validation.verdict(change, schedule["slack_percent"]) if quantity == "time" else (None, None)
        rows.append(
            {
                "quantity": quantity,
                "claimed_change_percent": claimed,
                "fresh_change_percent": change.mean,
                "fresh_low_percent": change.low,
                "fresh_high_percent": change.high,
                "optimism_pp": change.mean - claimed,
                "repeats": change.repeats,
                "verdict": verdict,
                "repeats_to_decide": needed,
            }
        )
    return pd.DataFrame(rows).astype({"repeats_to_decide": "Int64"})
