"""Promises kept by class and system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Percent of requests whose promises (TTFT and mean TBT) are kept, by class",
    inputs=lambda plan: plan.reads("systems"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a system, one column a class that occurs."""
    import pandas as pd

    return pd.DataFrame(
        [{"system": each["system"]} | each["kept_percent_by_class"] for each in study.experiment("systems")]
    )
