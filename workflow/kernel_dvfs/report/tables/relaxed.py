"""Figure 6 as numbers: energy against tolerated slowdown, from the largest time saving possible to 30 % slack."""

import math

import pandas as pd

from kernel_dvfs.choice.frontier import frontier, largest_time_saving_percent
from kernel_dvfs.choice.schedule import problem_from

CAPTION = "Relaxed waste: least energy at each tolerated slowdown, kernel level"
LARGEST_SLACK_PERCENT = 30
# finer where savings change fastest
_FINE_BELOW_PERCENT, _FINE_STEP, _STEP = 5, 0.5, 1


def make(results, ties: str, weights: str | None = None) -> pd.DataFrame:
    """Rows by scope and slack; a slack that a scope cannot keep (local, below its largest saving) has no row.

    The first row of each scope is its largest time saving; changes in percent, negative = less.
    """
    problem = problem_from(results.folder / "profile.parquet", "kernel", weights, ties)
    rows = []
    for scope in ("local", "global"):
        # a hair inside, so that rounding cannot make the fastest choice infeasible
        fastest = min(1e-7 - largest_time_saving_percent(problem, scope), 0.0)
        for point in frontier(problem, slacks(fastest), scope):
            if point.status == "optimal":
                rows.append(
                    {
                        "slack_percent": point.slack_percent,
                        "scope": scope,
                        "time_change_percent": point.time_change_percent,
                        "energy_change_percent": point.energy_change_percent,
                    }
                )
    return pd.DataFrame(rows)


def slacks(fastest: float) -> list:
    """Slacks in percent, ascending, from `fastest` (<= 0) to the largest; 0 among them."""
    first = math.ceil(fastest / _FINE_STEP)
    fine = [step * _FINE_STEP for step in range(first, round(_FINE_BELOW_PERCENT / _FINE_STEP))]
    coarse = [float(slack) for slack in range(_FINE_BELOW_PERCENT, LARGEST_SLACK_PERCENT + 1, _STEP)]
    return sorted({fastest, *fine, *coarse})
