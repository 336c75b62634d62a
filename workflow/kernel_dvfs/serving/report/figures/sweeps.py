"""DynamoLLM's saving over epochs, overheads, margins and numbers of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import sweeps

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM with one setting changed at a time: energy saved against SinglePool, and promises kept",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems", "sweeps"),
)
_SERIES = {"saved_percent": "energy saved, %", "kept_percent": "promises kept, %"}


def draw(study: ServingStudy) -> p9.ggplot:
    """A panel a setting."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = sweeps.make(study)
    frame = pd.concat([frame.assign(series=text, y=frame[name]) for name, text in _SERIES.items()])
    frame = frame.assign(value=[f"{value:g}" for value in frame.value])
    order = sorted(dict.fromkeys(frame.value), key=float)
    frame = frame.assign(value=pd.Categorical(frame.value, order))
    return (
        p9.ggplot(frame, p9.aes("value", "y", color="series", shape="series", group="series"))
        + p9.geom_line(size=0.4)
        + p9.geom_point(size=1.3)
        + p9.facet_wrap("setting", ncol=2, scales="free_x")
        + p9.scale_color_manual(style.SERIES[:2])
        + p9.expand_limits(y=[0, 100])
        + p9.labs(title="One setting at a time", subtitle=subtitle(study), x="", y="%")
        + style.keys(color="", shape="")
        + style.theme(5.0)
    )
