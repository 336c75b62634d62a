"""Energy saved by each system, with the share of kept promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import savings

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy saved against SinglePool by serving system; beside each bar the requests whose promises are kept",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems"),
)


def data(study: ServingStudy) -> pd.DataFrame:
    """system (ordered), saved_percent, label."""
    import pandas as pd

    frame = savings.make(study)[["system", "saved_percent", "kept_percent"]]
    label = [f" {saved:.1f} %, kept {kept:.1f} %" for saved, kept in zip(frame.saved_percent, frame.kept_percent)]
    return frame.assign(system=pd.Categorical(frame.system, frame.system[::-1]), label=label)


def draw(study: ServingStudy) -> p9.ggplot:
    """One bar a system."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = data(study)
    return (
        p9.ggplot(frame, p9.aes("system", "saved_percent"))
        + p9.geom_col(fill=style.SERIES[0], width=0.65)
        + p9.geom_text(p9.aes(label="label"), ha="left", size=5.5, color=style.INK)
        + p9.coord_flip()
        + p9.scale_y_continuous(limits=(min(0, frame.saved_percent.min()), 150), breaks=[0, 25, 50, 75, 100])
        + p9.labs(
            title="Energy saved, promises kept",
            subtitle=subtitle(study, "right"),
            x="",
            y="energy saved against SinglePool, %",
        )
        + style.theme(2.9)
    )
