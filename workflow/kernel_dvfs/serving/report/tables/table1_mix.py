"""What each class at its best cell of Table I would save on two traces, with both knobs and with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.tables.table1 import subject as subject

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Arithmetic on DynamoLLM's Table I with the class mix of the Azure 2023 traces (no result of ours)",
    when=lambda plan: plan.has("table1"),
    inputs=lambda plan: plan.reads("table1"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a trace and choice of knobs."""
    import pandas as pd

    return pd.DataFrame(study.experiment("table1")["mix"])
