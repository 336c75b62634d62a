"""The timeline of an iteration before and after, each operation coloured by its power."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.pipeline.report.figures import subtitle
from kernel_dvfs.pipeline.schedules import BACKWARD
from kernel_dvfs.pipeline.study import PipelineStudy, PlannedPart

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.pipeline.stage_profile import Settings

OUTPUT = Output(
    caption="Timeline of one iteration at the highest clocks and as planned for the same time; colour: power of a "
    "stage, W",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.plans()[:1],
)
# what the figure calls a plan, and its file
_PLANS = {"highest clocks": "all-max", "planned, same time": "one-clock"}


def draw(study: PipelineStudy) -> p9.ggplot:
    """For the first number of microbatches; gaps are stages that wait."""
    import plotnine as p9
    from mizani.breaks import breaks_extended

    from kernel_dvfs.report import style

    microbatches = study["microbatches"][0]
    bars = data(study, microbatches)
    return (
        p9.ggplot(bars)
        + p9.geom_rect(
            p9.aes(xmin="begin_s", xmax="end_s", ymin="low", ymax="high", fill="watt"), color="white", size=0.1
        )
        + p9.facet_wrap("plan", ncol=1)
        + p9.scale_fill_gradientn(colors=list(style.GAIN), name="mean power of a GPU, W", breaks=breaks_extended(n=4))  # type: ignore[arg-type]
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


def data(study: PipelineStudy, microbatches: int) -> pd.DataFrame:
    """A row per operation and plan: begin_s, end_s, low and high (of its bar), watt (mean, of one GPU)."""
    import pandas as pd

    rows = []
    for name, file in _PLANS.items():
        for rank in study.plan(microbatches, file)["ranks"]:
            for own in rank["instructions"]:
                half = 0.42 if own["instruction"].startswith(BACKWARD) else 0.26
                settings = study.profile.of(own["virtual_stage"], own["instruction"])
                rows.append(
                    {
                        "plan": name,
                        "begin_s": own["begin_s"],
                        "end_s": own["end_s"],
                        "low": rank["stage"] - half,
                        "high": rank["stage"] + half,
                        "watt": _watt(settings, own["clocks"]) / study["tensor_parallel"],
                    }
                )
    frame = pd.DataFrame(rows)
    return frame.assign(plan=pd.Categorical(frame.plan, list(_PLANS)))


def _watt(settings: Settings, parts: Sequence[PlannedPart]) -> float:
    """Mean power (W) over the parts of an operation."""
    rows = {settings.clocks(row): row for row in range(len(settings.time_s))}
    chosen = [(rows[part["core_mhz"], part["mem_mhz"]], part["share_of_kernels"]) for part in parts]
    energy_j = sum(share * settings.energy_j[row] for row, share in chosen)
    return float(energy_j / sum(share * settings.time_s[row] for row, share in chosen))
