"""Table 2: every way of choosing, side by side: EDP, waste and energy, coarse and fine, single, local and global."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import fresh_repeats
from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results


def _options(plan: Any) -> dict:
    options = {"schedules": plan.schedules}
    if plan.headline:
        options |= {"validated": [name for name in plan.headline if name in plan.schedules], "repeats": plan.repeats}
    return options


OUTPUT = Output(
    caption="Strategies of choosing clocks: an iteration's time and energy against auto, claimed and, where it was "
    "measured again, validated; the margin to the time limit; the waste left (Eq. 2)",
    title="Ways of choosing (Table 2 of the paper)",
    text="One clock pair for all, each by itself (local) or all together under one limit on the total time (global); "
    "for passes and for kernels. Waste: least energy at no loss of time. EDP: least energy times time, which gives "
    "time away. Energy: least energy at any time. Waste left (Eq. 2) could still be saved at that speed. Claimed: by "
    "the data that chose. Validated: measured again. Margin: how far the claimed time stays below its limit, because "
    "times are known only within their errors; such a choice is optimal within its margin, and one without a margin "
    "may claim more.",
    section="choosing",
    place=2,
    formats=("csv", "md", "tex"),
    of_choice=True,
    inputs=lambda plan: [*plan.schedule_files(), *plan.validation(plan.headline)],
    options=_options,
)
_ORDER = {"pass": 0, "kernel": 1, "single": 0, "local": 1, "global": 2, "waste": 0, "edp": 1, "energy": 2}


def make(results: Results, schedules: list[str], validated: list[str] | None = None, repeats: int = 1) -> pd.DataFrame:
    """One row a schedule of those named, after one row a granularity for auto itself.

    time_change_percent, energy_change_percent: claimed. validated: those schedules that were measured again, whose mean
    change is given too (fresh_*; empty elsewhere). margin_percent: by which the claimed time was kept below its limit.

    Columns of the contract, then weights, the schedule's name and what was validated. waste_j is in J for weights
    that count launches, else in the unit of the weighted energy.
    """
    import pandas as pd

    from kernel_dvfs.report import validation

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
    found = {name: validation.changes(results.comparisons(*fresh_repeats(name, repeats))) for name in validated or ()}
    for row in rows:
        changes = found.get(row["schedule"])
        row |= {column: changes[place].mean if changes else None for place, column in enumerate(columns)}
        row["margin_percent"] = margin_percent(named[row["schedule"]]) if row["schedule"] else None
    return pd.DataFrame(rows).astype(dict.fromkeys([*columns, "margin_percent"], float))


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
    found = {column: schedule[column] for column in (*columns, "waste_j", "status", "weights")}
    return found | {"status": status(schedule), "schedule": name}


def status(schedule: dict) -> str:
    """`optimal`, `optimal within its margin` where the choice keeps one, `infeasible`."""
    found: str = schedule["status"]
    return f"{found} within its margin" if found == "optimal" and schedule.get("margin") else found


def margin_percent(schedule: dict) -> float | None:
    """By which a choice was held below its time limit, percent of the time at auto; None where there was no margin."""
    return (schedule.get("margin") or {}).get("time_percent")
