"""What wrong classes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import change_percent

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM with a share of answers' classes mispredicted, and with classes predicted from the prompt's length "
    f"alone; reported at 40 %: energy +{reported.MISPREDICTION['energy']:g} %, "
    f"TTFT +{reported.MISPREDICTION['ttft']:g} %",
    inputs=lambda plan: plan.reads("misprediction"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a share and seed; changes against none."""
    import pandas as pd

    found = study.experiment("misprediction")
    base = found[0]
    return pd.DataFrame(
        [
            {
                "misprediction": str(each["misprediction"]),
                "seed": each["seed"],
                "j_per_token_in_time": each["j_per_token_in_time"],
                "change_percent": change_percent(each["j_per_token_in_time"], base["j_per_token_in_time"]),
                "ttft_p50_change_percent": change_percent(each["ttft_p50_s"], base["ttft_p50_s"]),
                "ttft_p99_change_percent": change_percent(each["ttft_p99_s"], base["ttft_p99_s"]),
                "tbt_p99_ms": 1000 * each["tbt_p99_s"],
                "kept_percent": each["kept_percent"],
                "late": each["late"],
                "rejected": each["rejected"],
                "handed_on": each["events"].get("mispredicted", 0),
            }
            for each in found
        ]
    )
