"""What slow changes of clocks leave of the saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report.figures import NAMES, subtitle
from kernel_dvfs.pipeline.report.tables import switching
from kernel_dvfs.pipeline.study import PipelineStudy

if TYPE_CHECKING:
    import plotnine as p9

OUTPUT = Output(
    caption="Change of energy against all clocks at their highest in the same time (negative = saved), when each "
    "change of clocks stops a stage for a while",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: switching.OUTPUT.inputs(plan),
)


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches, by what was asked for; latencies are evenly spaced, zero among them."""
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    frame = switching.make(study)
    frame = frame[frame.microbatches == microbatches]
    latencies = sorted(set(frame.latency_ms))
    frame = frame.assign(
        place=[latencies.index(each) for each in frame.latency_ms], asked=[NAMES[kind] for kind in frame.asked]
    )
    return (
        p9.ggplot(frame, p9.aes("place", "energy_change_percent", color="asked", shape="asked"))
        + p9.geom_line(p9.aes(linetype="asked"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.expand_limits(y=0)
        + p9.scale_x_continuous(breaks=list(range(len(latencies))), labels=[f"{each:g}" for each in latencies])
        + p9.scale_color_manual(style.SERIES[:2])
        + p9.scale_shape_manual(style.SHAPES[:2])
        + p9.scale_linetype_manual(style.LINES[:2])
        + p9.labs(
            title="What slow changes of clocks leave of the saving",
            subtitle=subtitle(study, "down", microbatches),
            x="time of one change of clocks, ms",
            y=style.ENERGY_CHANGE,
            caption="Against the highest clocks, in their time.",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(2.6)
    )
