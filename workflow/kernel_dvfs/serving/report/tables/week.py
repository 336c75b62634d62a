"""A synthetic week: energy, latencies, cost and carbon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import by_system
from kernel_dvfs.serving.report.tables import cost, savings

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "A synthetic week of published load shape: energy of a token served in time, latencies, cost and carbon",
    when=lambda plan: plan.has("week"),
    inputs=lambda plan: plan.reads("week"),
)


def subject(study: ServingStudy) -> str:
    """Whose numbers these are: not the study's own trace."""
    return f"{study['hardware']}, {study.experiment('week')[0]['trace']}"


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system."""
    import pandas as pd

    runs = by_system(study.experiment("week"))
    rows = []
    for found in runs.values():
        bill = {name: value for name, value in cost.costs(study, found).items() if name != "system"}
        theirs = reported.WEEK[study["week"]["service"]] if found["system"] == "DynamoLLM" else None
        head = {"trace": found["trace"], "requests": found["requests"]}
        rows.append(head | savings.row(study, found, runs) | bill | {"paper_arxiv_v1_change_percent": theirs})
    return pd.DataFrame(rows)
