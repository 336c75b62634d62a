"""What an hour costs and emits: servers by the hour, energy by the kWh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, change_percent, promise_kept
from kernel_dvfs.serving.system import SIZED

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Cost and carbon per hour of the trace, at the prices and the carbon intensity of study.json; GPU energy only",
    inputs=lambda plan: plan.reads("systems"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system; changes against SinglePool, sized. Servers are charged from start to release."""
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    rows = {name: costs(study, found) for name, found in runs.items()}
    # a baseline that breaks the promise costs nothing that could be compared
    base = rows[SIZED] if promise_kept(study, runs[SIZED]) else dict.fromkeys(rows[SIZED])
    for name, each in rows.items():
        each |= {
            "servers_change_percent": change_percent(each["servers"], base["servers"]),
            "cost_change_percent": change_percent(each["usd_per_hour"], base["usd_per_hour"]),
            "carbon_change_percent": change_percent(each["co2_kg_per_hour"], base["co2_kg_per_hour"]),
            "kept_percent": runs[name]["kept_percent"],
        }
    return pd.DataFrame(list(rows.values()))


def costs(study: ServingStudy, found: dict) -> dict:
    """Of one run, per hour."""
    hours = found["end_s"] / 3600
    servers, kwh = found["server_hours"] / hours, found["energy_kwh"] / hours
    vm, energy = servers * study["usd_per_server_hour"], kwh * study["usd_per_kwh"]
    return {
        "system": found["system"],
        "servers": servers,
        "server_usd_per_hour": vm,
        "energy_usd_per_hour": energy,
        "usd_per_hour": vm + energy,
        "co2_kg_per_hour": kwh * study["co2_g_per_kwh"] / 1000,
    }
