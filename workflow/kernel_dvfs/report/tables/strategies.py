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
    caption="Strategies of choosing clocks: an iteration's time and energy against auto, and the waste left (Eq. 2)",
    title="Ways of choosing (Table 2 of the paper)",
    text="One clock pair for all, each by itself (local) or all together under one limit on the total time (global); "
    "for passes and for kernels. Waste: least energy at no loss of time. EDP: least energy times time, which gives "
    "time away. Energy: least energy at any time. Waste left (Eq. 2) could still be saved at that speed.",
    section="choosing",
    place=2,
    formats=("csv", "md", "tex"),
    when=lambda plan: plan.is_chosen,
    inputs=lambda plan: [*plan.schedule_files(), *plan.validation(plan.headline)],
    options=_options,
)
_ORDER = {"pass": 0, "kernel": 1, "single": 0, "local": 1, "global": 2, "waste": 0, "edp": 1, "energy": 2}


def make(results: Results, schedules: list[str], validated: list[str] | None = None, repeats: int = 1) -> pd.DataFrame:
    """One row a schedule of those named, after one row a granularity for auto itself.

    validated: those that were validated, whose mean change is given next to the claimed one (fresh_*; empty elsewhere).

    Columns of the contract, then weights and the schedule's name. waste_j is in J for weights that count launches,
    else in the unit of the weighted energy.
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
