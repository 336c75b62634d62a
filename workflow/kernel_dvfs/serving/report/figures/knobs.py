"""What DynamoLLM's knobs stand at over time: servers, GPUs by degree, mean clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import by_system, subtitle

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM's knobs over time: servers on, GPUs in instances by tensor-parallel degree, mean clock of their GPUs",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems"),
)
SERVERS, GPUS, CLOCK = "servers on", "GPUs in instances", "mean core clock, MHz"


def data(study: ServingStudy, experiment: str = "systems") -> pd.DataFrame:
    """Long form: time_min, panel, series, value."""
    import pandas as pd

    samples = pd.DataFrame(by_system(study.experiment(experiment))["DynamoLLM"]["samples"])
    degrees = [name for name in samples if name.startswith("gpus_tp")]
    parts = [("servers_on", SERVERS, "all")] + [(name, GPUS, name.removeprefix("gpus_").upper()) for name in degrees]
    parts.append(("mean_core_mhz", CLOCK, "all"))
    return pd.concat(
        [
            pd.DataFrame({"time_min": samples.time_s / 60, "value": samples[name], "panel": panel, "series": series})
            for name, panel, series in parts
        ]
    ).assign(panel=lambda frame: pd.Categorical(frame.panel, [SERVERS, GPUS, CLOCK]))


def _whole(limits: tuple[float, float]) -> list[float]:
    """Breaks of an axis at whole numbers: there is no half of a server."""
    step = next(each for each in (1, 2, 4, 8, 16, 32, 64, 250, 500, 1000) if limits[1] <= 5 * each or each == 1000)
    return [float(value) for value in range(0, int(limits[1]) + 1, step)]


def draw(study: ServingStudy) -> p9.ggplot:
    """Three panels under each other."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = data(study)
    names = list(dict.fromkeys(frame.series))
    colours = dict(zip(names, [style.INK, *style.cycle(style.SERIES, len(names) - 1)]))
    return (
        p9.ggplot(frame, p9.aes("time_min", "value", color="series", linetype="series"))
        + p9.geom_step(size=0.6)
        + p9.facet_wrap("panel", ncol=1, scales="free_y")
        + p9.scale_color_manual(colours)
        + p9.scale_linetype_manual(dict(zip(names, style.cycle(style.LINES, len(names)))))
        + p9.expand_limits(y=0)
        + p9.scale_y_continuous(breaks=_whole)
        + p9.labs(title="What DynamoLLM sets, over time", subtitle=subtitle(study), x="time, min", y="")
        + style.keys(color="", linetype="")
        + style.theme(4.2)
    )
