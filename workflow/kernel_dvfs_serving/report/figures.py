"""Figures of the serving study. They read files only."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Outputs
from kernel_dvfs_serving.report import tables
from kernel_dvfs_serving.report.share import subtitle
from kernel_dvfs_serving.requests import CLASSES
from kernel_dvfs_serving.system import BASELINE, OVER_TIME, TUNED
from kernel_dvfs_serving.table1 import COLUMNS, REFERENCE

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs_serving.study import ServingStudy

OUTPUTS = Outputs()


def savings_data(study: ServingStudy) -> pd.DataFrame:
    """Return system (ordered), change_percent, label; without SinglePool on all servers, far off the scale."""
    import pandas as pd

    frame = tables.savings(study)
    frame = frame[~frame.system.str.startswith(BASELINE) | (frame.system == TUNED)]
    changes = frame.change_percent.astype(float)
    unknown = ["no baseline" if kept else "promise broken" for kept in frame.promise_kept]
    against = [why if isnan(change) else f"{change:+.1f} %" for why, change in zip(unknown, changes)]
    label = [f" {change}, kept {kept:.1f} %" for change, kept in zip(against, frame.kept_percent)]
    # no bar where the system or its baseline breaks the promise, and the labels say so
    return frame.assign(
        change_percent=changes.fillna(0.0), system=pd.Categorical(frame.system, frame.system[::-1]), label=label
    )


@OUTPUTS.figure(
    "Energy of a token served in time by serving system, change against the tuned static plan, "
    "negative = saved; no bar: fewer promises kept than must be, so nothing is saved",
    reads=["systems"],
)
def savings(study: ServingStudy) -> p9.ggplot:
    """Return one bar a system; its label stands on the side of zero that is free."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = savings_data(study)
    low, high = min(0.0, frame.change_percent.min()), max(0.0, frame.change_percent.max())
    reach = max(high - low, 10.0)  # also where there is no bar, the labels need their room
    frame = frame.assign(at=frame.change_percent.clip(lower=0))
    return (
        p9.ggplot(frame, p9.aes("system", "change_percent"))
        + p9.geom_col(width=0.65, fill=style.SERIES[0])
        + p9.geom_text(p9.aes(y="at", label="label"), ha="left", size=5.5, color=style.INK)
        + p9.coord_flip()
        + p9.scale_y_continuous(limits=(low - 0.02 * reach, high + 0.9 * reach))
        + p9.labs(
            title="Energy of a token served in time",
            subtitle=subtitle(study, "left"),
            x="",
            y="change of energy, % (negative: saved)",
            caption="Against the tuned static plan.\nNo bar: fewer promises kept than must be, so nothing is saved.",
        )
        + style.theme(3.2)
    )


@OUTPUTS.figure(
    "What the answer hangs on: energy of a token served in time over degree and clock (fewest servers that keep the "
    "promise), servers, and DynamoLLM's load slot; hollow: fewer promises kept than must be",
    when=lambda plan: plan.has("sensitivity"),
    reads=["sensitivity"],
)
def sensitivity(study: ServingStudy) -> p9.ggplot:
    """Return a panel for each thing varied, all on one scale of energy."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = tables.sensitivity(study).dropna(subset="j_per_token_in_time")
    frame = frame.assign(
        varied=pd.Categorical(frame.varied, list(dict.fromkeys(frame.varied))),
        value=pd.Categorical(frame.value, list(dict.fromkeys(frame.value))),
        fill=[system if kept else "broken" for system, kept in zip(frame.system, frame.promise_kept)],
    )
    # a degree and its clock in two lines: a dozen stand side by side
    frame["value"] = frame.value.cat.rename_categories(lambda value: str(value).replace(" ", "\n"))
    names = list(dict.fromkeys(frame.system))
    colours = dict(zip(names, style.cycle(style.SERIES, len(names))))
    return (
        p9.ggplot(frame, p9.aes("value", "j_per_token_in_time", color="system", shape="system"))
        + p9.geom_point(p9.aes(fill="fill"), size=2.2, stroke=0.6)
        + p9.facet_wrap("varied", scales="free_x", ncol=1)
        + p9.scale_color_manual(colours)
        + p9.scale_fill_manual(colours | {"broken": "white"}, guide=None)
        + p9.scale_shape_manual(dict(zip(names, style.cycle(style.SHAPES, len(names)))))
        + p9.expand_limits(y=0)
        + p9.labs(
            title="What the answer hangs on",
            subtitle=subtitle(study, "down"),
            x="",
            y="J per token served in time",
            caption="Hollow: fewer promises kept than must be.\nDegree and clock: on the fewest servers that keep it.",
        )
        + style.keys(color="", shape="")
        + style.theme(5.4)
    )


def over_time(run: dict) -> pd.DataFrame:
    """Return time_min (middle of a minute), kw: means of all states' bins; the last minute only if it is whole."""
    import pandas as pd

    bins = max(1, round(60.0 / run["bin_s"]))
    total = [sum(powers) for powers in zip(*run["power_w"].values())][: int(run["end_s"] / run["bin_s"])]
    means = [sum(total[start : start + bins]) / bins for start in range(0, len(total) - bins + 1, bins)]
    step_min = bins * run["bin_s"] / 60
    return pd.DataFrame({"time_min": [(place + 0.5) * step_min for place in range(len(means))], "kw": means}).assign(
        system=run["system"], kw=lambda frame: frame.kw / 1000
    )


@OUTPUTS.figure(
    "Power of all GPUs over time, one minute's means, by serving system",
    reads=["systems"],
)
def power(study: ServingStudy) -> p9.ggplot:
    """Return the power of four systems of the trace."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = pd.concat([over_time(run) for run in study.experiment("systems") if run["system"] in OVER_TIME])
    names = list(dict.fromkeys(frame.system))
    return (
        p9.ggplot(
            frame.assign(system=pd.Categorical(frame.system, names)),
            p9.aes("time_min", "kw", color="system", linetype="system"),
        )
        + p9.geom_line(size=0.6)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(names)))
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(names)))
        + p9.expand_limits(y=0)
        + p9.labs(
            title="Power of all GPUs over time", subtitle=subtitle(study, "down"), x="time, min", y="GPU power, kW"
        )
        + style.keys(color="", linetype="")
        + style.theme(2.6)
    )


_TABLE1_PANELS = {
    "paper_wh": "DynamoLLM, Table I (measured)",
    "lifetime_wh": "simulated: power × a request's lifetime",
    "share_wh": "simulated: a request's share of the power",
}


def ratios(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the long form: panel, class, column, ratio to REFERENCE (NaN where a promise is broken), is_best."""
    import pandas as pd

    frames = []
    for name, panel in _TABLE1_PANELS.items():
        panel_cells = cells[["class", "tp", "ghz"]].assign(panel=panel, wh=cells[name])
        if name != "paper_wh":
            panel_cells.loc[~cells.feasible, "wh"] = float("nan")
        is_reference = (panel_cells.tp == REFERENCE[0]) & (panel_cells.ghz == REFERENCE[1])
        at_reference = panel_cells[is_reference].set_index("class").wh
        panel_cells["ratio"] = panel_cells.wh / panel_cells["class"].map(at_reference)
        panel_cells["is_best"] = panel_cells.ratio == panel_cells.groupby("class").ratio.transform("min")
        frames.append(panel_cells)
    frame = pd.concat(frames, ignore_index=True)
    names = [f"{tp}\n{ghz}" for tp, ghz in COLUMNS]
    return frame.assign(
        panel=pd.Categorical(frame.panel, list(_TABLE1_PANELS.values())),
        column=pd.Categorical([f"{tp}\n{ghz}" for tp, ghz in zip(frame.tp, frame.ghz)], names),
        **{"class": pd.Categorical(frame["class"], CLASSES[::-1])},
    )


@OUTPUTS.figure(
    "Energy of each class by degree and clock relative to TP8 at the highest clock: DynamoLLM's Table I and a "
    "simulated instance in both readings of its unit; no number: a promise is broken",
    when=lambda plan: plan.has("table1"),
    reads=["table1"],
    subject=tables.OUTPUTS["table", "table1"].subject,
)
def table1(study: ServingStudy) -> p9.ggplot:
    """Return a panel a reading."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = ratios(tables.table1(study))
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
            subtitle=f"{study.experiment('table1')['subject']}, 2,000 tokens/s;\n"
            "1 = TP8 at 2.0 GHz, row by row; better: darker; framed: best",
            x="GPUs (tensor parallel) and clock, GHz",
            y="class",
            fill="energy, times that\nof the row's TP8 at 2.0 GHz",
            caption="Empty: P99 of time to first token or between tokens breaks its promise.\n"
            "Table I's unit is not stated: only ratios within a row can be compared.",
        )
        + style.theme(6.6)
        + p9.theme(legend_key_width=110, legend_key_height=7, panel_grid_major=p9.element_blank())
    )
