"""DynamoLLM over epochs, overheads and numbers of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.share import by_system, promise_kept, token_change_percent
from kernel_dvfs.serving.system import SIZED

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM with one setting changed at a time: epochs, overheads, margins, rules, number of pools; change "
    "of a token's energy against SinglePool, sized",
    inputs=lambda plan: plan.reads("systems", "sweeps"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a setting and value; is_default: the study's own."""
    import pandas as pd

    base = by_system(study.experiment("systems"))[SIZED]
    return pd.DataFrame(
        [
            {
                "setting": each["swept"],
                "value": each["value"],
                "is_default": each["value"] == getattr(study.settings(), each["swept"]),
                "j_per_token_in_time": each["j_per_token_in_time"],
                "change_percent": token_change_percent(study, each, base),
                "promise_kept": promise_kept(study, each),
                "ttft_p99_ms": 1000 * each["ttft_p99_s"],
                "tbt_p99_ms": 1000 * each["tbt_p99_s"],
                "kept_percent": each["kept_percent"],
                "late": each["late"],
                "rejected": each["rejected"],
                "server_hours": each["server_hours"],
            }
            for each in study.experiment("sweeps")
        ]
    )
