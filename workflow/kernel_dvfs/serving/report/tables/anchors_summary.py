"""Errors of the simulated instance against published measurements, summed up by source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.serving.report.tables import anchors
from kernel_dvfs.serving.report.tables.anchors import subject as subject

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Errors of the simulated serving instance against published measurements, by source and quantity",
    inputs=lambda plan: plan.reads("anchors"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """Mean absolute and mean error of each source, quantity and role."""
    import pandas as pd

    groups = anchors.make(study).groupby(["source", "quantity", "role"], sort=False).error_percent
    return pd.DataFrame(
        {"count": groups.size(), "mean_error_percent": groups.mean(), "mean_abs_error_percent": groups.apply(_absolute)}
    ).reset_index()


def _absolute(errors: pd.Series) -> float:
    return errors.abs().mean()
