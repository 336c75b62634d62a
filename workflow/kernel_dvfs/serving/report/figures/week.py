"""Power over a synthetic week."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.figures import power
from kernel_dvfs.serving.report.share import wrapped
from kernel_dvfs.serving.report.tables.week import subject as subject

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Power of all GPUs over a synthetic week, hourly means, by serving system",
    formats=FIGURE_FORMATS,
    when=lambda plan: plan.has("week"),
    inputs=lambda plan: plan.reads("week"),
)


def draw(study: ServingStudy) -> p9.ggplot:
    """A line a system."""
    import pandas as pd

    runs = study.experiment("week")
    frame = pd.concat([power.over_time(each, 3600.0) for each in runs])
    text = wrapped(f"{subject(study)}, {study['settings']['servers']} servers")
    return power.plot(frame, text, 86_400.0, "time, days")
