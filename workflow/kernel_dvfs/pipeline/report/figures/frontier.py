"""The frontier: energy against iteration time, exact, published and rounded, with the simple baselines."""

import numpy as np
import pandas as pd
import plotnine as p9

from kernel_dvfs.pipeline.baselines import per_stage, uniform
from kernel_dvfs.pipeline.planner import ONE_CLOCK
from kernel_dvfs.pipeline.report.figures.subtitle import subtitle
from kernel_dvfs.pipeline.ticks import TICKS_PER_S
from kernel_dvfs.report import style

CAPTION = (
    "Energy of an iteration against its time, relative to all clocks at their highest: bound, plans as run, baselines"
)
# times shown, relative to all-max
_LAST = 1.35
_POINTS = 14
BOUND, OURS, PUBLISHED = "bound (exact)", "one clock, as run", "published, as run"


def draw(study) -> p9.ggplot:
    """For the first number of microbatches."""
    microbatches = study["microbatches"][0]
    lines, marks, baselines = data(study, microbatches)
    series = [OURS, PUBLISHED]
    marks = marks.assign(series=pd.Categorical(marks.series, [name for name in series if name in set(marks.series)]))
    return (
        p9.ggplot(lines, p9.aes("time", "energy"))
        + p9.geom_hline(yintercept=1, linetype="dotted", size=0.4)
        + p9.geom_line(color=style.SERIES[0], size=0.7)
        + p9.geom_point(p9.aes(shape="series", color="series"), data=marks, size=1.5, fill="white", stroke=0.5)
        + p9.geom_point(data=baselines, size=1.6, color=style.INK)
        + p9.geom_text(
            p9.aes(label="name"),
            data=baselines,
            size=style.SMALL_PT,
            ha="left",
            va="bottom",
            nudge_x=0.006,
            nudge_y=0.003,
        )
        + p9.scale_color_manual(style.SERIES[:2])
        # room for the topmost name
        + p9.scale_y_continuous(expand=(0.05, 0, 0.12, 0))
        + p9.scale_shape_manual(("o", "^"))
        + p9.labs(
            title="Time-energy frontier of an iteration",
            subtitle=subtitle(study, "down, left", microbatches),
            x="iteration time / all-max",
            y="energy / all-max",
            caption="Line: exact lower bound. Marks: plans that can be run.",
        )
        + style.keys(color="", shape="")
        + style.theme(3.0)
    )


def data(study, microbatches: int) -> tuple:
    """(bound; plans as run; baselines), each with columns time and energy relative to all-max."""
    planner, base = study.planner(microbatches), study.base(microbatches)
    frontier = planner.frontier
    last = min(int(base.time_ticks * _LAST), frontier.slowest_ticks)

    def relative(ticks, energy_j):
        return {"time": ticks / base.time_ticks, "energy": energy_j / base.energy_j()}

    lines = pd.DataFrame(
        [relative(t, float(frontier.energy_at(t))) for t in np.linspace(frontier.fastest_ticks, last, 200)]
    )
    marks = []
    for ticks in np.linspace(base.time_ticks, last, _POINTS).astype(np.int64).tolist():
        plan = planner.plan_ticks(ticks, ONE_CLOCK)
        marks.append(relative(plan.time_ticks, plan.energy_j()) | {"series": OURS})
    _, published = study.published(microbatches)
    reach = np.flatnonzero(published.time_s <= last / TICKS_PER_S)
    for point in reach[np.linspace(0, len(reach) - 1, _POINTS).astype(int)].tolist() if len(reach) else []:
        run = study.realised(microbatches, point)
        energy_j = run.cost_j + planner.blocking_w * run.time_s
        marks.append(relative(run.time_s * TICKS_PER_S, energy_j) | {"series": PUBLISHED})
    named = {
        "all-max": base,
        "uniform": uniform(planner, int(base.time_ticks * 1.1)),
        "per stage": per_stage(planner, base.time_ticks),
    }
    baselines = pd.DataFrame(
        [relative(plan.time_ticks, plan.energy_j()) | {"name": name} for name, plan in named.items()]
    ).drop_duplicates(["time", "energy"])
    return lines, pd.DataFrame(marks), baselines
