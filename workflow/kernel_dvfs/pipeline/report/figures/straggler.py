"""Change of energy of a pipeline that waits, over the straggler's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.figures import NAMES, subtitle
from kernel_dvfs.pipeline.report.tables import straggler
from kernel_dvfs.pipeline.study import BEST_PUBLISHED, BOUND, ONE_CLOCK, REALISED, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

OUTPUT = Output(
    caption="Change of energy of a pipeline that waits for a straggler against all clocks at their highest (negative = "
    "saved), over T'/T",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: straggler.OUTPUT.inputs(plan),
)
_DRAWN = (BOUND, ONE_CLOCK, REALISED, BEST_PUBLISHED)


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches: bound, our plans, the published ones as looked up and at best."""
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    frame = data(study, microbatches)
    methods = list(frame.method.cat.categories)
    return (
        p9.ggplot(frame, p9.aes("straggler_ratio", "energy_change_percent", color="method", shape="method"))
        + p9.geom_line(p9.aes(linetype="method"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(methods)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(methods)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(methods)))
        + p9.labs(
            title="Energy while waiting for a straggler",
            subtitle=subtitle(study, "down", microbatches),
            x="straggler's iteration time, times that of the highest clocks",
            y=style.ENERGY_CHANGE,
            caption="Against the highest clocks in the same time.",
        )
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape", "linetype")})
        + style.theme(3.1)
    )


def data(study: PipelineStudy, microbatches: int) -> pd.DataFrame:
    """Ours of the table `straggler`, the series that are drawn; method: a category, by the names of figures."""
    import pandas as pd

    frame = straggler.make(study)
    frame = frame[
        (frame.source == paper.OURS) & (frame.microbatches == microbatches) & frame.method.isin(_DRAWN)
    ].astype({"microbatches": int})
    drawn = [NAMES[method] for method in _DRAWN if method in set(frame.method)]
    return frame.assign(method=pd.Categorical(frame.method.map(NAMES), drawn))
