"""Energy of a token served in time by each system, with the share of kept promises; grey where too few are kept."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import savings
from kernel_dvfs.serving.system import BASELINE, SIZED

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy of a token served in time by serving system, change against SinglePool on the fewest servers that keep the "
    "promise, negative = saved; grey: fewer promises kept than must be, so nothing is saved",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems"),
)


def data(study: ServingStudy) -> pd.DataFrame:
    """system (ordered), change_percent, promise_kept, label; without SinglePool on all servers, far off the scale."""
    import pandas as pd

    frame = savings.make(study)
    frame = frame[~frame.system.str.startswith(BASELINE) | (frame.system == SIZED)]
    changes = frame.change_percent.astype(float)
    against = ["no baseline" if isnan(change) else f"{change:+.1f} %" for change in changes]
    label = [f" {change}, kept {kept:.1f} %" for change, kept in zip(against, frame.kept_percent)]
    # without a baseline that keeps the promise: no bars, and the labels say so
    return frame.assign(
        change_percent=changes.fillna(0.0), system=pd.Categorical(frame.system, frame.system[::-1]), label=label
    )


def draw(study: ServingStudy) -> p9.ggplot:
    """One bar a system; its label stands on the side of zero that is free."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = data(study)
    low, high = min(0.0, frame.change_percent.min()), max(0.0, frame.change_percent.max())
    frame = frame.assign(at=frame.change_percent.clip(lower=0))
    return (
        p9.ggplot(frame, p9.aes("system", "change_percent", fill="promise_kept"))
        + p9.geom_col(width=0.65, show_legend=False)
        + p9.geom_text(p9.aes(y="at", label="label"), ha="left", size=5.5, color=style.INK)
        + p9.coord_flip()
        + p9.scale_fill_manual({True: style.SERIES[0], False: style.SERIES[2]})
        + p9.scale_y_continuous(limits=(low - 2, high + 0.9 * (high - low)))
        + p9.labs(
            title="Energy of a token served in time",
            subtitle=subtitle(study, "left"),
            x="",
            y="change of energy, % (negative: saved)",
            caption="Against SinglePool on the fewest servers that keep the promise.\n"
            "Grey: fewer promises kept than must be, so nothing is saved.",
        )
        + style.theme(3.2)
    )
