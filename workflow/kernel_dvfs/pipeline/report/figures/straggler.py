"""Energy saved by a pipeline that waits, over the straggler's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.figures import subtitle
from kernel_dvfs.pipeline.report.tables import straggler
from kernel_dvfs.pipeline.study import BEST_PUBLISHED, BOUND, ONE_CLOCK, REALISED, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

OUTPUT = Output(
    caption="Energy saved by a pipeline that waits for a straggler, against T'/T",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: straggler.OUTPUT.inputs(plan),
)


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches: bound, our plans, the published ones as looked up and at best."""
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    frame = data(study, microbatches)
    methods = list(dict.fromkeys(frame.method))
    # both of the published algorithm in one colour
    colors = dict(zip((BOUND, ONE_CLOCK, REALISED, BEST_PUBLISHED), (*style.SERIES, style.SERIES[-1])))
    return (
        p9.ggplot(frame, p9.aes("straggler_ratio", "energy_saved_percent", color="method", shape="method"))
        + p9.geom_line(p9.aes(linetype="method"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.scale_color_manual(colors)
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(methods)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(methods)))
        + p9.labs(
            title="Saved while waiting for a straggler",
            subtitle=subtitle(study, "up", microbatches),
            x="straggler's iteration time / all-max (T'/T)",
            y="energy saved, %",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(2.8)
    )


def data(study: PipelineStudy, microbatches: int) -> pd.DataFrame:
    """Ours of the table `straggler`, the series that are drawn."""
    frame = straggler.make(study)
    return frame[
        (frame.source == paper.OURS)
        & (frame.microbatches == microbatches)
        & frame.method.isin([BOUND, ONE_CLOCK, BEST_PUBLISHED, REALISED])
    ].astype({"microbatches": int})
