"""Table 2: every way of choosing, side by side: EDP, waste and energy, coarse and fine, single, local and global."""

import pandas as pd

from kernel_dvfs.layout import fresh_repeats
from kernel_dvfs.report import validation

CAPTION = "Strategies of choosing clocks: an iteration's time and energy against auto, and the waste left (Eq. 2)"
_ORDER = {"pass": 0, "kernel": 1, "single": 0, "local": 1, "global": 2, "waste": 0, "edp": 1, "energy": 2}


def make(results, schedules: list, validated: list = (), repeats: int = 1) -> pd.DataFrame:
    """One row a schedule of those named, after one row a granularity for auto itself.

    validated: those with fresh repeats, whose mean change stands beside the claimed one (fresh_*; empty elsewhere).

    Columns of the contract, then weights and the schedule's name. waste_j is in J for weights that count launches,
    else in the unit of the weighted energy.
    """
    named = {name: results.schedule(name) for name in schedules}
    rows = []
    for granularity in ("pass", "kernel"):
        own = {name: schedule for name, schedule in named.items() if schedule["granularity"] == granularity}
        if not own:
            continue
        ranked = sorted(own, key=lambda name: _rank(named[name]))
        rows.append(_auto(own[ranked[0]]))
        rows += [_row(name, own[name]) for name in ranked]
    columns = ["fresh_time_change_percent", "fresh_energy_change_percent"]
    found = {name: validation.changes(results.comparisons(*fresh_repeats(name, repeats))) for name in validated}
    for row in rows:
        changes = found.get(row["schedule"])
        row |= {column: changes[place].mean if changes else None for place, column in enumerate(columns)}
    return pd.DataFrame(rows).astype(dict.fromkeys(columns, float))


def _rank(schedule: dict) -> tuple:
    return _ORDER[schedule["objective"]], schedule["slack_percent"] or 0, _ORDER[schedule["scope"]]


def _auto(schedule: dict) -> dict:
    return {
        "granularity": schedule["granularity"],
        "scope": "-",
        "objective": "auto",
        "slack_percent": None,
        "time_change_percent": 0.0,
        "energy_change_percent": 0.0,
        "waste_j": schedule["baseline_waste_j"],
        "status": "measured",
        "weights": schedule["weights"],
        "schedule": None,
    }


def _row(name: str, schedule: dict) -> dict:
    columns = ("granularity", "scope", "objective", "slack_percent", "time_change_percent", "energy_change_percent")
    return {column: schedule[column] for column in (*columns, "waste_j", "status", "weights")} | {"schedule": name}
