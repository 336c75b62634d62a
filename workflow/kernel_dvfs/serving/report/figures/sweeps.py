"""DynamoLLM's energy of a token over epochs, overheads, margins, rules and numbers of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_percent
from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.share import subtitle
from kernel_dvfs.serving.report.tables import sweeps

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "DynamoLLM with one setting changed at a time: energy of a token served in time against the study's own value, "
    "negative = saved; beside each point the promises kept, hollow where fewer than must be",
    formats=FIGURE_FORMATS,
    inputs=lambda plan: plan.reads("systems", "sweeps"),
)


def _number(text: str) -> float:
    """For the order of an axis; words stand as they are."""
    return float(text) if text[0].isdigit() else 0.0


def _in_words(setting: str) -> str:
    """`clock epoch, s` of `clock_epoch_s`."""
    unit = ", s" if setting.endswith("_s") else ""
    return setting.removesuffix("_s").replace("_", " ") + unit


def draw(study: ServingStudy) -> p9.ggplot:
    """A panel a setting, all on one scale: what changes little looks so."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = sweeps.make(study)
    own = frame[frame.is_default].j_per_token_in_time.iloc[0]
    frame = frame.assign(
        setting=[_in_words(name) for name in frame.setting],
        change=change_percent(frame.j_per_token_in_time, own),
        value=[f"{value:g}" if type(value) in (int, float) else str(value).lower() for value in frame.value],
        label=[f"{kept:.1f}" for kept in frame.kept_percent],
    )
    order = sorted(dict.fromkeys(frame.value), key=lambda text: (not text[0].isdigit(), _number(text)))
    frame = frame.assign(value=pd.Categorical(frame.value, order))
    reach = frame.change.max() - frame.change.min() + 1
    return (
        p9.ggplot(frame, p9.aes("value", "change"))
        + p9.geom_hline(yintercept=0, color=style.GRID, size=0.6)
        + p9.geom_point(p9.aes(fill="promise_kept"), size=1.7, shape="o", stroke=0.4, show_legend=False)
        + p9.geom_text(p9.aes(label="label"), size=5, nudge_y=0.13 * reach, color=style.INK)
        + p9.facet_wrap("setting", ncol=3, scales="free_x")
        + p9.scale_fill_manual({True: style.SERIES[0], False: "white"})
        + p9.labs(
            title="One setting at a time",
            subtitle=subtitle(study, "down"),
            x="",
            y="change of energy, % (negative: saved)",
            caption="Of a token served in time, against the study's own setting (0).\n"
            "Numbers: promises kept, %; hollow: fewer than must be.",
        )
        + style.theme(5.2)
    )
