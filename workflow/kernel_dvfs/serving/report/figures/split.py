"""Where DynamoLLM's change comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import split

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Split of DynamoLLM's change of a token's energy against SinglePool on all servers, negative = saved: pools, "
    "instances, degrees, clocks (mean over all orders)",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems"),
)


def draw(study: ServingStudy) -> p9.ggplot:
    """One bar a part."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = split.make(study)
    frame = frame.assign(part=pd.Categorical(frame.part, frame.part[::-1]))
    # no bar where a system that the part is made of served no token in time
    frame = frame.dropna(subset="of_singlepool_percent")
    frame = frame.assign(
        label=[f"{value:+.1f} " for value in frame.of_singlepool_percent],
        whole=frame.part == "all",
    )
    return (
        p9.ggplot(frame, p9.aes("part", "of_singlepool_percent", fill="whole"))
        + p9.geom_col(width=0.65, show_legend=False)
        + p9.geom_text(p9.aes(label="label"), ha="right", size=6, color=style.INK)
        + p9.coord_flip()
        + p9.scale_fill_manual({False: style.SERIES[0], True: style.SERIES[1]})
        + p9.scale_y_continuous(limits=(1.25 * min([0.0, *frame.of_singlepool_percent]), 5))
        + p9.labs(
            title="Where the change comes from",
            subtitle=subtitle(study, "left"),
            x="",
            y="change of energy, % (negative: saved)",
            caption="Of a token served in time, against SinglePool on all servers.",
        )
        + style.theme(2.4)
    )
