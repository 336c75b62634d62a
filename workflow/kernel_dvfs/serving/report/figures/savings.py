"""Energy saved by each system, with the share of kept promises beside."""

import pandas as pd
import plotnine as p9

from kernel_dvfs.report import style
from kernel_dvfs.serving.report.figures.subtitle import subtitle
from kernel_dvfs.serving.report.tables import savings

CAPTION = "Energy saved against SinglePool by serving system; beside each bar the requests whose promises are kept"


def data(study) -> pd.DataFrame:
    """system (ordered), saved_percent, label."""
    frame = savings.make(study)[["system", "saved_percent", "kept_percent"]]
    label = [f" {saved:.1f} %, kept {kept:.1f} %" for saved, kept in zip(frame.saved_percent, frame.kept_percent)]
    return frame.assign(system=pd.Categorical(frame.system, frame.system[::-1]), label=label)


def draw(study) -> p9.ggplot:
    """One bar a system."""
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
