"""Table 2: every way of choosing, side by side: EDP, waste and energy, coarse and fine, single, local and global."""

import pandas as pd

CAPTION = (
    "Strategies of choosing clocks: change of an iteration's time and energy against auto, and the waste left (Eq. 2)"
)
_ORDER = {"pass": 0, "kernel": 1, "single": 0, "local": 1, "global": 2, "waste": 0, "edp": 1, "energy": 2}


def make(results) -> pd.DataFrame:
    """One row a schedule, after one row a granularity for auto itself; columns of the contract."""
    schedules = results.schedules().values()
    rows = []
    for granularity in ("pass", "kernel"):
        own = [schedule for schedule in schedules if schedule["granularity"] == granularity]
        if not own:
            continue
        rows.append(_row(granularity, "-", "auto", None, 0.0, 0.0, own[0]["baseline_waste_j"], "measured"))
        for schedule in sorted(own, key=_rank):
            rows.append(
                _row(
                    granularity,
                    schedule["scope"],
                    schedule["objective"],
                    schedule["slack_percent"],
                    schedule["time_change_percent"],
                    schedule["energy_change_percent"],
                    schedule["waste_j"],
                    schedule["status"],
                )
            )
    return pd.DataFrame(rows)


def _rank(schedule: dict) -> tuple:
    return _ORDER[schedule["objective"]], schedule["slack_percent"] or 0, _ORDER[schedule["scope"]]


def _row(granularity, scope, objective, slack, time, energy, waste, status) -> dict:
    return {
        "granularity": granularity,
        "scope": scope,
        "objective": objective,
        "slack_percent": slack,
        "time_change_percent": time,
        "energy_change_percent": energy,
        "waste_j": waste,
        "status": status,
    }
