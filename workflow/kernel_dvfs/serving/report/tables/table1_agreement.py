"""How far the simulated instance agrees with Table I."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.tables.table1 import subject as subject

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "The simulated instance against DynamoLLM's Table I: best cell, feasibility, order, ratios",
    when=lambda plan: plan.has("table1"),
    inputs=lambda plan: plan.reads("table1"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a table1.Agreement; cells as text, `TP2@1.2`."""
    import pandas as pd

    frame = pd.DataFrame(study.experiment("table1")["agreement"]).rename(columns={"class_": "class"})
    for name in ("paper_best", "ours_best_share", "ours_best_lifetime"):
        frame[name] = [_cell_name(column) for column in frame[name]]
    return frame


def _cell_name(column: list | None) -> str:
    """`TP2@1.2` of [2, 1.2]; a dash for none."""
    return f"TP{column[0]}@{column[1]}" if column is not None else "-"
