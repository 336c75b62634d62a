"""Energy of a token over load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report import reported
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import loads
from kernel_dvfs.serving.system import BASELINE

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy of a token served in time over constant load, change against SinglePool on all servers, simulated; "
    "DynamoLLM as reported in both versions, placed at the loads that its names are taken for",
    formats=FIGURE_FORMATS,
    when=lambda plan: plan.has("loads"),
    inputs=lambda plan: plan.reads("loads"),
)

CHANGE = "change_of_all_servers_percent"


def data(study: ServingStudy) -> pd.DataFrame:
    """system, tps_per_server, CHANGE: ours, and the reported points."""
    import pandas as pd

    ours = loads.make(study)
    ours = ours[ours.system != BASELINE][["system", "tps_per_server", CHANGE]]
    at = {name: tps for tps, name in loads.NAMES.items()}
    theirs = [
        {
            "system": f"DynamoLLM, reported ({version})",
            "tps_per_server": at[name],
            CHANGE: value,
        }
        for version, values in reported.BY_LOAD.items()
        for name, value in values.items()
    ]
    return pd.concat([ours, pd.DataFrame(theirs)], ignore_index=True)


def draw(study: ServingStudy) -> p9.ggplot:
    """A line a system."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = data(study)
    names = list(dict.fromkeys(frame.system))
    return (
        p9.ggplot(
            frame,
            p9.aes("tps_per_server", CHANGE, color="system", shape="system", linetype="system"),
        )
        + p9.geom_line(size=0.5)
        + p9.geom_point(size=1.7, fill="white", stroke=0.5)
        + p9.scale_x_log10()
        + p9.scale_color_manual(style.cycle(style.SERIES, len(names)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(names)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(names)))
        + p9.labs(
            title="Energy of a token over load",
            subtitle=subtitle(study, "down"),
            x="load, tokens/s per server (logarithmic)",
            y=style.ENERGY_CHANGE,
            caption="Of a token served in time, against SinglePool on all servers.",
        )
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape", "linetype")})
        + style.theme(3.5)
    )
