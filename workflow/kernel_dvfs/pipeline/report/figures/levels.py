"""When is a clock for each kernel worth more than one clock for each operation?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report.figures import subtitle
from kernel_dvfs.pipeline.report.tables import levels
from kernel_dvfs.pipeline.study import KERNELS_IN_PIPELINE, ONE_CLOCK_EACH, PipelineStudy, latency_of_level

if TYPE_CHECKING:
    import plotnine as p9

OUTPUT = Output(
    caption="What a clock for each kernel adds to one clock for each operation of the pipeline, over the time of a "
    "change of clocks within an operation",
    formats=FIGURE_FORMATS,
    when=levels.OUTPUT.when,
    inputs=lambda plan: levels.OUTPUT.inputs(plan),
)


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches, by T'/T; latencies are evenly spaced, zero among them."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = levels.make(study)
    own = frame[frame.level.str.startswith(KERNELS_IN_PIPELINE)].assign(
        latency_ms=lambda kernels: [latency_of_level(level) for level in kernels.level]
    )
    own = own[own.latency_ms.notna()]
    one_clock = frame[frame.level == ONE_CLOCK_EACH].set_index("straggler_ratio").energy_change_percent
    further = own.energy_change_percent - own.straggler_ratio.map(one_clock)
    latencies = sorted(set(own.latency_ms))
    ratios = sorted(set(own.straggler_ratio))
    words = [f"T'/T = {ratio:g}" for ratio in ratios]
    own = own.assign(
        further_points=further,
        place=[latencies.index(each) for each in own.latency_ms],
        waits=pd.Categorical([f"T'/T = {ratio:g}" for ratio in own.straggler_ratio], words),
    )
    return (
        p9.ggplot(own, p9.aes("place", "further_points", color="waits", shape="waits"))
        + p9.geom_hline(yintercept=0, size=0.3)
        + p9.geom_line(p9.aes(linetype="waits"), size=0.6)
        + p9.geom_point(size=1.8, fill="white", stroke=0.5)
        + p9.scale_x_continuous(breaks=list(range(len(latencies))), labels=[f"{each:g}" for each in latencies])
        + p9.scale_color_manual(style.SERIES[: len(words)])
        + p9.scale_shape_manual(style.SHAPES[: len(words)])
        + p9.scale_linetype_manual(style.LINES[: len(words)])
        + p9.labs(
            title="What clocks per kernel add to clocks per operation",
            subtitle=subtitle(study, "down", study["microbatches"][0]),
            x="time of one change of clocks within an operation, ms",
            y="further change of energy,\npoints (negative: saved)",
            caption="T'/T: a straggler's iteration time over that of the highest clocks.",
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(2.6)
    )
