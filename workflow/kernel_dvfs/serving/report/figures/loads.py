"""Energy saved over load."""

import pandas as pd
import plotnine as p9

from kernel_dvfs.report import style
from kernel_dvfs.serving.report import paper
from kernel_dvfs.serving.report.figures.subtitle import subtitle
from kernel_dvfs.serving.report.tables import loads
from kernel_dvfs.serving.system import BASELINE

CAPTION = (
    "Energy saved against SinglePool over constant load, simulated; DynamoLLM as reported in both versions, placed at "
    "the loads that its names are taken for"
)


def data(study) -> pd.DataFrame:
    """system, tps_per_server, saved_percent: ours, and the reported points."""
    ours = loads.make(study)
    ours = ours[ours.system != BASELINE][["system", "tps_per_server", "saved_percent"]]
    at = {name: tps for tps, name in loads.NAMES.items()}
    reported = [
        {"system": f"DynamoLLM, reported ({version})", "tps_per_server": at[name], "saved_percent": value}
        for version, values in paper.BY_LOAD.items()
        for name, value in values.items()
    ]
    return pd.concat([ours, pd.DataFrame(reported)], ignore_index=True)


def draw(study) -> p9.ggplot:
    """A line a system."""
    frame = data(study)
    names = list(dict.fromkeys(frame.system))
    return (
        p9.ggplot(frame, p9.aes("tps_per_server", "saved_percent", color="system", shape="system", linetype="system"))
        + p9.geom_line(size=0.5)
        + p9.geom_point(size=1.7, fill="white", stroke=0.5)
        + p9.scale_x_log10()
        + p9.scale_color_manual(style.steps(len(names)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(names)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(names)))
        + p9.labs(
            title="Saving over load", subtitle=subtitle(study, "up"), x="tokens/s per server", y="energy saved, %"
        )
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape", "linetype")})
        + style.theme(3.3)
    )
