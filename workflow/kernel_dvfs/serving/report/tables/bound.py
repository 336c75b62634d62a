"""Simulated systems, and what could be planned for the same loads: the joint optimum as a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, change_percent
from kernel_dvfs.serving.system import BASELINE

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Mean power over the trace: simulated, and planned on the profile for each slot's load in hindsight with free "
    "changes, by levels and at once (the joint optimum)",
    inputs=lambda plan: plan.reads("hierarchy", "systems"),
)
_SIMULATED = ("SinglePool", "DynamoLLM", "DynamoLLM, kernel clocks")


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system or plan; change: against SinglePool of the same kind (simulated or planned)."""
    import pandas as pd

    runs, slots = by_system(study.experiment("systems")), study.experiment("hierarchy")
    base = runs[BASELINE]["mean_power_w"]
    rows = [
        {
            "what": name,
            "kind": "simulated",
            "mean_power_w": runs[name]["mean_power_w"],
            "change_percent": change_percent(runs[name]["mean_power_w"], base),
            "kept_percent": runs[name]["kept_percent"],
        }
        for name in _SIMULATED
        if name in runs
    ]
    plain = [each for each in slots if not each["kernel_level"]]
    static = sum(each["static_w"] for each in plain) / len(plain)
    for level, key, name in (
        (False, "static_w", "SinglePool"),
        (False, "levels_w", "by levels"),
        (False, "joint_w", "at once"),
        (True, "levels_w", "by levels, kernel clocks"),
        (True, "joint_w", "at once, kernel clocks"),
    ):
        own = [each for each in slots if each["kernel_level"] == level]
        if own:
            power = sum(each[key] for each in own) / len(own)
            row = {"what": name, "kind": "planned", "mean_power_w": power}
            rows.append(row | {"change_percent": change_percent(power, static), "kept_percent": None})
    return pd.DataFrame(rows)
