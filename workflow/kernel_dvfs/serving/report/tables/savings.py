"""What a token served in time costs in each system, and what becomes of all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, promise_kept, token_change_percent
from kernel_dvfs.serving.system import BASELINE, SIZED

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy of a token served in time by each serving system, changes against SinglePool on the fewest servers that "
    "keep the promise (negative = saved; empty where these break it too); requests in time, late and rejected, and "
    "latencies",
    inputs=lambda plan: plan.reads("systems"),
)
LATENCIES = ("ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")
KEPT = ("kept_percent", "ttft_kept_percent", "tbt_kept_percent")
STATES = ("busy_kwh", "idle_kwh", "starting_kwh", "switching_kwh")


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system. In time: TTFT and mean TBT within the promise of the request's own class."""
    import pandas as pd

    runs = by_system(study.experiment("systems"))
    return pd.DataFrame([row(study, found, runs) for found in runs.values()])


def row(study: ServingStudy, found: dict, runs: dict) -> dict:
    """A system's row; runs: those it is compared with, by system. promise_kept: else its change is no saving."""
    cells = {
        "system": found["system"],
        "servers": found["servers"],
        "energy_kwh": found["energy_kwh"],
        "j_per_token_in_time": found["j_per_token_in_time"],
        "change_percent": token_change_percent(study, found, runs[SIZED]),
        "change_of_all_servers_percent": token_change_percent(study, found, runs[BASELINE]),
        "promise_kept": promise_kept(study, found),
    }
    cells |= {name: found[name] for name in (*KEPT, "requests", "in_time", "late", "rejected")}
    cells |= {name.removesuffix("_s") + "_ms": 1000 * found[name] for name in LATENCIES if found[name] is not None}
    return cells | {name: found[name] for name in ("mean_power_w", "server_hours", *STATES)}
