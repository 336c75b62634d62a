"""What wrong classes do to DynamoLLM's energy and promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import misprediction

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM's energy of a token and kept promises by the share of mispredicted answers, a point a draw",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("misprediction"),
)
_PANELS = {
    "change_percent": "change of energy of a token, % (negative: saved)",
    "late_or_rejected_percent": "requests whose promises are broken, %",
}


def draw(study: ServingStudy) -> p9.ggplot:
    """Two panels, a point a draw of the errors; the token-count predictor stands last."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = misprediction.make(study).assign(late_or_rejected_percent=lambda own: 100 - own.kept_percent)
    frame = pd.concat([frame.assign(panel=panel, value=frame[name]) for name, panel in _PANELS.items()])
    frame = frame.assign(
        panel=pd.Categorical(frame.panel, list(_PANELS.values())),
        misprediction=pd.Categorical(frame.misprediction, list(dict.fromkeys(frame.misprediction))),
    )
    return (
        p9.ggplot(frame, p9.aes("misprediction", "value"))
        + p9.geom_point(color=style.SERIES[0], size=1.8, fill="none")
        + p9.facet_wrap("panel", ncol=1, scales="free_y")
        + p9.expand_limits(y=0)
        + p9.labs(
            title="What wrongly predicted answers cost",
            subtitle=subtitle(study, "down"),
            x="share of answers mispredicted",
            y="",
        )
        + style.theme(3.2)
    )
