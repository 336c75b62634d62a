"""What wrong classes cost."""

import pandas as pd

from kernel_dvfs.serving.report import paper

CAPTION = (
    "DynamoLLM with a share of answers' classes mispredicted, and with classes predicted from the prompt's length "
    f"alone; reported at 40 %: energy +{paper.MISPREDICTION['energy']:g} %, TTFT +{paper.MISPREDICTION['ttft']:g} %"
)


def make(study) -> pd.DataFrame:
    """One row a share; changes against none."""
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
