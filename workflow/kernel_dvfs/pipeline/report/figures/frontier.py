"""The frontier: energy against iteration time, exact, published and rounded, with the simple baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_percent
from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report.figures import NAMES, subtitle
from kernel_dvfs.pipeline.study import (
    ALL_MAX,
    MARKED_RATIO,
    ONE_CLOCK,
    PER_STAGE,
    REALISED,
    UNIFORM,
    Corner,
    PipelineStudy,
    Run,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

OUTPUT = Output(
    caption="Energy of an iteration against its time, changes against all clocks at their highest (negative = saved): "
    "bound, plans as run, baselines",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.solved(Corner)[:1] + plan.solved(Run)[:1],
)
# what the key calls the plans that are marked, and the names next to single points
SERIES = {name: NAMES[name] for name in (ONE_CLOCK, REALISED)}
_NAMED = (ALL_MAX, UNIFORM, PER_STAGE)
_POINTS = 200  # of the bound's line
_NEAR_POINTS = 1.0  # percentage points of time and energy; the names of nearer baselines would cover each other


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    lines, marks, baselines = data(study, microbatches)
    series = [name for name in SERIES.values() if name in set(marks.series)]
    marks = marks.assign(series=pd.Categorical(marks.series, series))
    return (
        p9.ggplot(lines, p9.aes("time", "energy"))
        + p9.geom_hline(yintercept=0, linetype="dotted", size=0.4)
        + p9.geom_line(color=style.SERIES[0], size=0.7)
        + p9.geom_point(p9.aes(shape="series", color="series"), data=marks, size=1.5, fill="white", stroke=0.5)
        + p9.geom_point(data=baselines, size=1.6, color=style.INK)
        + p9.geom_text(
            p9.aes(label="name"),
            data=baselines,
            size=style.SMALL_PT,
            ha="left",
            va="bottom",
            nudge_x=0.6,
            nudge_y=0.3,
        )
        + p9.scale_color_manual(style.SERIES[:2])
        # room for the topmost name
        + p9.scale_y_continuous(expand=(0.05, 0, 0.12, 0))
        + p9.scale_shape_manual(("o", "^"))
        + p9.labs(
            title="Energy of an iteration against its time",
            subtitle=subtitle(study, "down and to the left", microbatches),
            x=style.TIME_CHANGE,
            y=style.ENERGY_CHANGE,
            caption="Against all clocks at their highest.\nLine: proven lower bound. Marks: plans that can be run.",
        )
        + style.keys(color="", shape="")
        + style.theme(3.0)
    )


def data(study: PipelineStudy, microbatches: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(bound; plans as run; baselines), each with columns time and energy: changes against all-max in percent."""
    import numpy as np
    import pandas as pd

    runs = study.read(microbatches, Run)
    base = next(run for run in runs if run.method == ALL_MAX)
    corners = study.read(microbatches, Corner)[::-1]
    corner_s = np.array([corner.time_s for corner in corners])
    cost_j = np.array([corner.effective_energy_j for corner in corners])
    time_s = np.linspace(corner_s[0], min(base.time_s * MARKED_RATIO, corner_s[-1]), _POINTS)
    # straight between corners, waiting included
    energy_j = np.interp(time_s, corner_s, cost_j) + study.blocking_w * time_s
    lines = pd.DataFrame(
        {"time": change_percent(time_s, base.time_s), "energy": change_percent(energy_j, base.energy_j)}
    )

    def changes(run: Run) -> dict:
        return {
            "time": change_percent(run.time_s, base.time_s),
            "energy": change_percent(run.energy_j, base.energy_j),
        }

    marks = [changes(run) | {"series": SERIES[run.method]} for run in runs if run.method in SERIES]
    named: list[dict] = []
    for run in runs:
        if run.method in _NAMED:
            point = changes(run) | {"name": NAMES[run.method]}
            near = [
                each for each in named if all(abs(each[key] - point[key]) < _NEAR_POINTS for key in ("time", "energy"))
            ]
            if near:
                near[0]["name"] += f", {point['name']}"
            else:
                named.append(point)
    return lines, pd.DataFrame(marks), pd.DataFrame(named)
