"""Power of all servers over time, by system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.system import BASELINE, SIZED

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Power of all GPUs over time, one minute's means, by serving system",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems"),
)
SYSTEMS = (BASELINE, SIZED, "DynamoLLM")
_STEP_S = 60.0


def over_time(found: dict, step_s: float = _STEP_S) -> pd.DataFrame:
    """time_s (middle of a step), kw: means of all states' bins; the last step only if it is whole."""
    import pandas as pd

    each = max(1, round(step_s / found["bin_s"]))
    total = [sum(powers) for powers in zip(*found["power_w"].values())][: int(found["end_s"] / found["bin_s"])]
    means = [sum(total[start : start + each]) / each for start in range(0, len(total) - each + 1, each)]
    step_s = each * found["bin_s"]
    return pd.DataFrame({"time_s": [(place + 0.5) * step_s for place in range(len(means))], "kw": means}).assign(
        system=found["system"], kw=lambda frame: frame.kw / 1000
    )


def draw(study: ServingStudy) -> p9.ggplot:
    """Three systems of the trace."""
    import pandas as pd

    runs = [each for each in study.experiment("systems") if each["system"] in SYSTEMS]
    return plot(pd.concat(map(over_time, runs)), subtitle(study, "down"), 60.0, "time, min")


def plot(frame: pd.DataFrame, text: str, unit_s: float, x: str) -> p9.ggplot:
    """frame: over_time of some systems. unit_s: of the axis."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    names = list(dict.fromkeys(frame.system))
    frame = frame.assign(system=pd.Categorical(frame.system, names), time=frame.time_s / unit_s)
    return (
        p9.ggplot(frame, p9.aes("time", "kw", color="system", linetype="system"))
        + p9.geom_line(size=0.6)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(names)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(names)))
        + p9.expand_limits(y=0)
        + p9.labs(title="Power of all GPUs over time", subtitle=text, x=x, y="GPU power, kW")
        + style.keys(color="", linetype="")
        + style.theme(2.6)
    )
