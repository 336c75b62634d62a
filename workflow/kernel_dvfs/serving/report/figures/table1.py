"""Heat map of Table I, published and simulated: energy relative to eight GPUs at the highest clock, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output
from kernel_dvfs.serving.report.tables import table1
from kernel_dvfs.serving.report.tables.table1 import subject as subject

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "Energy of each class by degree and clock relative to TP8 at the highest clock: DynamoLLM's Table I and a "
    "simulated instance in both readings of its unit; no number: a promise is broken",
    formats=FIGURE_FORMATS,
    when=lambda plan: plan.has("table1"),
    inputs=lambda plan: plan.reads("table1"),
)
_PANELS = {
    "paper_wh": "DynamoLLM, Table I (measured)",
    "lifetime_wh": "simulated: power × a request's lifetime",
    "share_wh": "simulated: a request's share of the power",
}


def ratios(cells: pd.DataFrame) -> pd.DataFrame:
    """Long form: panel, class, column, ratio to REFERENCE (NaN where a promise is broken), is_best."""
    import pandas as pd

    from kernel_dvfs.serving.requests import CLASSES
    from kernel_dvfs.serving.table1 import COLUMNS, REFERENCE

    frames = []
    for name, panel in _PANELS.items():
        own = cells[["class", "tp", "ghz"]].assign(panel=panel, wh=cells[name])
        if name != "paper_wh":
            own.loc[~cells.feasible, "wh"] = float("nan")
        at_reference = own[(own.tp == REFERENCE[0]) & (own.ghz == REFERENCE[1])].set_index("class").wh
        own["ratio"] = own.wh / own["class"].map(at_reference)
        own["is_best"] = own.ratio == own.groupby("class").ratio.transform("min")
        frames.append(own)
    frame = pd.concat(frames, ignore_index=True)
    names = [f"{tp}\n{ghz}" for tp, ghz in COLUMNS]
    return frame.assign(
        panel=pd.Categorical(frame.panel, list(_PANELS.values())),
        column=pd.Categorical([f"{tp}\n{ghz}" for tp, ghz in zip(frame.tp, frame.ghz)], names),
        **{"class": pd.Categorical(frame["class"], CLASSES[::-1])},
    )


def draw(study: ServingStudy) -> p9.ggplot:
    """A panel a reading."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = ratios(table1.make(study))
    known = frame.dropna(subset="ratio")
    known = known.assign(
        text=[f"{ratio:.2f}" for ratio in known.ratio],
        ink=["white" if ratio < 0.8 else style.INK for ratio in known.ratio],
    )
    return (
        p9.ggplot(frame, p9.aes("column", "class"))
        + p9.geom_tile(p9.aes(fill="ratio"), color="white", size=0.3)
        + p9.geom_tile(data=known[known.is_best], fill="none", color=style.SERIES[1], size=0.8)
        + p9.geom_text(p9.aes(label="text", color="ink"), known, size=4.3)
        + p9.facet_wrap("panel", ncol=1)
        + p9.scale_color_identity()
        + p9.scale_fill_gradientn(
            style.GAIN[::-1], limits=(0.2, 1.3), breaks=[0.4, 0.6, 0.8, 1.0, 1.2], na_value=style.NOTHING
        )
        + p9.labs(
            title="Least energy by degree, clock and class",
            subtitle=f"{subject(study)}, 2,000 tokens/s;\n1 = TP8 at 2.0 GHz, row by row; better: darker; framed: best",
            x="GPUs (tensor parallel) and clock, GHz",
            y="class",
            fill="energy, times that\nof the row's TP8 at 2.0 GHz",
            caption="Empty: P99 of time to first token or between tokens breaks its promise.\n"
            "Table I's unit is not stated: only ratios within a row can be compared.",
        )
        + style.theme(6.6)
        + p9.theme(legend_key_width=110, legend_key_height=7, panel_grid_major=p9.element_blank())
    )
