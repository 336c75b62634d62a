"""What wrong classes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported

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
    """One row a share; changes against none."""
    import pandas as pd

    found = study.experiment("misprediction")
    base = found[0]
    return pd.DataFrame(
        [
            {
                "misprediction": str(each["misprediction"]),
                "energy_kwh": each["energy_kwh"],
                "energy_change_percent": 100 * (each["energy_kwh"] / base["energy_kwh"] - 1),
                "ttft_p50_change_percent": 100 * (each["ttft_p50_s"] / base["ttft_p50_s"] - 1),
                "ttft_p99_change_percent": 100 * (each["ttft_p99_s"] / base["ttft_p99_s"] - 1),
                "tbt_p99_ms": 1000 * each["tbt_p99_s"],
                "kept_percent": each["kept_percent"],
                "rejected": each["rejected"],
                "handed_on": each["events"].get("mispredicted", 0),
            }
            for each in found
        ]
    )
