"""The timeline of an iteration before and after, each operation coloured by its power."""

import pandas as pd
import plotnine as p9
from mizani.breaks import breaks_extended

from kernel_dvfs.pipeline.planner import ONE_CLOCK
from kernel_dvfs.pipeline.report.figures.subtitle import subtitle
from kernel_dvfs.pipeline.ticks import TICKS_PER_S
from kernel_dvfs.report import style

CAPTION = (
    "Timeline of one iteration at the highest clocks and as planned for the same time; colour: power of a stage, W"
)
_BEFORE, _AFTER = "highest clocks", "planned, same time"


def draw(study) -> p9.ggplot:
    """For the first number of microbatches; gaps are stages that wait."""
    microbatches = study["microbatches"][0]
    bars = data(study, microbatches)
    return (
        p9.ggplot(bars)
        + p9.geom_rect(
            p9.aes(xmin="begin_s", xmax="end_s", ymin="low", ymax="high", fill="watt"), color="white", size=0.1
        )
        + p9.facet_wrap("plan", ncol=1)
        + p9.scale_fill_gradientn(colors=list(style.GAIN), name="W per GPU", breaks=breaks_extended(n=4))
        + p9.scale_y_reverse(breaks=list(range(study["stages"])))
        + p9.labs(
            title="One iteration, stage by stage",
            subtitle=subtitle(study, microbatches=microbatches),
            x="time, s",
            y="stage",
            caption="Tall: backward; short: forward. White: the stage waits for another.",
        )
        + style.theme(3.6)
        + p9.theme(panel_grid_major_y=p9.element_blank(), legend_key_width=60, legend_key_height=6)
    )


def data(study, microbatches: int) -> pd.DataFrame:
    """A row per operation and plan: begin_s, end_s, low and high (of its bar), watt (mean, of one GPU)."""
    planner, base = study.planner(microbatches), study.base(microbatches)
    plans = {_BEFORE: base, _AFTER: planner.plan_ticks(base.time_ticks, ONE_CLOCK)}
    rows = []
    for name, plan in plans.items():
        spans = zip(
            planner.graph.operations, planner.keys, plan.parts, plan.begin_ticks.tolist(), plan.end_ticks.tolist()
        )
        for operation, key, parts, begin, end in spans:
            half = 0.42 if operation.instruction == "backward" else 0.26
            rows.append(
                {
                    "plan": name,
                    "begin_s": begin / TICKS_PER_S,
                    "end_s": end / TICKS_PER_S,
                    "low": operation.stage - half,
                    "high": operation.stage + half,
                    "watt": _watt(planner.profile.of(*key), parts) / study["tensor_parallel"],
                }
            )
    frame = pd.DataFrame(rows)
    return frame.assign(plan=pd.Categorical(frame.plan, [_BEFORE, _AFTER]))


def _watt(settings, parts) -> float:
    """Mean power (W) over the parts of an operation."""
    rows = {settings.clocks(row): row for row in range(len(settings.time_s))}
    chosen = [(rows[part.core_mhz, part.mem_mhz], part.share) for part in parts]
    energy_j = sum(share * settings.energy_j[row] for row, share in chosen)
    return float(energy_j / sum(share * settings.time_s[row] for row, share in chosen))
