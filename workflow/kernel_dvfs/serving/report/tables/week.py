"""A synthetic week: energy, latencies, cost and carbon."""

import pandas as pd

from kernel_dvfs.serving.report import paper
from kernel_dvfs.serving.report.share import by_system
from kernel_dvfs.serving.report.tables import cost, savings

CAPTION = "A synthetic week of published load shape: savings, latencies, cost and carbon"


def subject(study) -> str:
    """Whose numbers these are: not the study's own trace."""
    return f"{study['hardware']}, {study.experiment('week')[0]['trace']}"


def make(study) -> pd.DataFrame:
    """One row a system."""
    runs = by_system(study.experiment("week"))
    rows = []
    for found in runs.values():
        bill = {name: value for name, value in cost.costs(study, found).items() if name != "system"}
        reported = paper.WEEK[study["week"]["service"]] if found["system"] == "DynamoLLM" else None
        head = {"trace": found["trace"], "requests": found["requests"]}
        rows.append(head | savings.row(found, runs) | bill | {"paper_arxiv_v1_saved_percent": reported})
    return pd.DataFrame(rows)
