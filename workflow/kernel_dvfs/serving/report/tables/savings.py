"""What each system saves on the trace, and what it does to latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, saved_percent
from kernel_dvfs.serving.system import BASELINE, STATIC

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy saved by each serving system, with latencies and the share of requests whose promises are kept",
    inputs=lambda plan: plan.reads("systems"),
)
LATENCIES = ("ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")
KEPT = ("kept_percent", "ttft_kept_percent", "tbt_kept_percent")


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system. kept: of all requests, TTFT and mean TBT within the promise of the request's own class."""
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    return pd.DataFrame([row(found, runs) for found in runs.values()])


def row(found: dict, runs: dict) -> dict:
    """A system's row; runs: those it is compared with, by system."""
    energy = found["energy_kwh"]
    cells = {
        "system": found["system"],
        "energy_kwh": energy,
        "saved_percent": saved_percent(energy, runs[BASELINE]["energy_kwh"]),
        "saved_of_multipool_percent": saved_percent(energy, runs[STATIC]["energy_kwh"]),
    }
    cells |= {name.removesuffix("_s") + "_ms": 1000 * found[name] for name in LATENCIES if found[name] is not None}
    cells |= {name: found[name] for name in KEPT}
    return cells | {
        "rejected": found["rejected"],
        "mean_power_w": found["mean_power_w"],
        "server_hours": found["server_hours"],
        "busy_kwh": found["busy_kwh"],
        "idle_kwh": found["idle_kwh"],
        "starting_kwh": found["starting_kwh"],
        "switching_kwh": found["switching_kwh"],
    }
