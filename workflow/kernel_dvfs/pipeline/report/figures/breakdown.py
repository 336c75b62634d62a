"""Figure 7: change of energy with one straggler, intrinsic and extrinsic, ours and the paper's totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.figures import subtitle
from kernel_dvfs.pipeline.report.tables import breakdown
from kernel_dvfs.pipeline.study import PipelineStudy

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

OUTPUT = Output(
    caption="Change of energy of a pipeline that waits for a straggler (T'/T = 1.2), negative = saved, intrinsic and "
    "extrinsic; ours and the paper's",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: breakdown.OUTPUT.inputs(plan),
)


def draw(study: PipelineStudy) -> p9.ggplot:
    """Stacked bars of ours; the paper's emulated totals are whole bars."""
    import plotnine as p9

    from kernel_dvfs.report import style

    bars = data(study)
    colours = {"intrinsic": style.SERIES[3], "extrinsic": style.SERIES[0], "paper": style.SERIES[2]}
    return (
        p9.ggplot(bars, p9.aes("label", "change_percent", fill="part"))
        + p9.geom_col(width=0.7, color=style.INK, size=0.2)
        + p9.coord_flip()
        + p9.scale_fill_manual([colours[part] for part in bars.part.cat.categories])
        + p9.labs(
            title="Where the change beside a straggler comes from",
            subtitle=subtitle(study, "left"),
            x="",
            y=style.ENERGY_CHANGE,
            caption="Of a pipeline that waits. Intrinsic: planned within it. Extrinsic: slower,\n"
            "since it must wait. Ours: (microbatches). Paper: SOSP'24, emulated.",
        )
        + style.keys(fill="")
        + style.theme(3.4)
    )


def data(study: PipelineStudy) -> pd.DataFrame:
    """A row per bar and part: label, part, change_percent (negative = saved)."""
    import pandas as pd

    frame = breakdown.make(study)
    rows: list[tuple[str, str, float]] = []
    for own in frame.itertuples(index=False):
        if own.source == paper.OURS:
            label = f"ours ({own.microbatches}): {own.method}"
            rows += [
                (label, "intrinsic", own.intrinsic_change_percent),
                (label, "extrinsic", own.extrinsic_change_percent),
            ]
        else:
            rows.append((f"{own.workload}, {own.method}", "paper", own.pipeline_change_percent))
    made = pd.DataFrame(rows, columns=["label", "part", "change_percent"])
    labels = list(dict.fromkeys(made.label))[::-1]
    # the part drawn last lies nearest to the axis
    parts = [name for name in ("extrinsic", "intrinsic", "paper") if name in set(made.part)]
    return made.assign(label=pd.Categorical(made.label, labels), part=pd.Categorical(made.part, parts))
