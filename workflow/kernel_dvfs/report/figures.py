"""Figures 2 to 8 of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import PUBLISHED
from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.report import carried, tables, words
from kernel_dvfs.workload.table1 import TABLE1
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUTS = Outputs()


RANGE_PERCENT = 30


_STEP_PERCENT = 0.5


EDP, WASTE = "EDP", "waste"


def edp_score(time_change: np.ndarray, energy_change: np.ndarray) -> np.ndarray:
    """Return 1 - (1 + dt)(1 + de), changes as fractions (paper, Eq. 1): the share of the EDP that is saved."""
    return 1 - (1 + time_change) * (1 + energy_change)


def waste_score(time_change: np.ndarray, energy_change: np.ndarray) -> np.ndarray:
    """Return energy saved where no time is lost, else 0 = discarded (paper, section 3); changes as fractions."""
    import numpy as np

    return np.where((time_change <= 0) & (energy_change < 0), -energy_change, 0.0)


def scores() -> pd.DataFrame:
    """Return both scores in percent over the plane of changes in percent; NaN where waste discards."""
    import numpy as np
    import pandas as pd

    # cells lie astride no axis, so that each is either loss or gain
    changes = np.arange(-RANGE_PERCENT + _STEP_PERCENT / 2, RANGE_PERCENT, _STEP_PERCENT)
    time, energy = (values.ravel() for values in np.meshgrid(changes, changes))
    waste = 100 * waste_score(time / 100, energy / 100)
    both = ((EDP, 100 * edp_score(time / 100, energy / 100)), (WASTE, np.where(waste > 0, waste, np.nan)))
    frames = [
        pd.DataFrame({"time_change_percent": time, "energy_change_percent": energy, "score": score, "rule": rule})
        for rule, score in both
    ]
    return pd.concat(frames).assign(rule=lambda frame: _rules(frame.rule))


@OUTPUTS.figure(
    "Figure 2 of the paper: how desirable a change of time and energy is: by EDP a loss of time can be paid with "
    "energy, by waste it is discarded and saved time earns nothing. Definitions, not measurements",
    title="Figure 2. What EDP and waste reward",
    text="By definition, before any measurement: EDP lets a loss of time be paid with energy, waste does not.",
    section="choosing",
    place=2,
    of_choice=True,
)
def fig2_desirability(results: Results) -> p9.ggplot:
    """Of `results` only the name of the GPU is read."""
    import numpy as np
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    time = np.linspace(-RANGE_PERCENT, RANGE_PERCENT, 121)
    even = pd.DataFrame({"x": time, "y": 100 * (1 / (1 + time / 100) - 1)}).query("y.abs() <= @RANGE_PERCENT")
    return (
        p9.ggplot(scores(), p9.aes("time_change_percent", "energy_change_percent"))
        + p9.geom_raster(p9.aes(fill="score"))
        + p9.geom_path(p9.aes("x", "y"), even.assign(rule=_rules([EDP] * len(even))), linetype="dashed", size=0.5)
        + p9.geom_hline(yintercept=0, size=0.25)
        + p9.geom_vline(xintercept=0, size=0.25)
        + p9.geom_text(p9.aes("x", "y", label="text", color="ink"), _notes(), size=style.SMALL_PT)
        + p9.facet_wrap("rule")
        + p9.scale_color_identity()
        + p9.scale_fill_gradientn(style.GAIN, limits=(-70, 70), breaks=[-60, -30, 0, 30, 60], na_value="white")
        + p9.scale_x_continuous(expand=(0, 0), breaks=[-20, 0, 20])
        + p9.scale_y_continuous(expand=(0, 0), breaks=[-20, 0, 20])
        + p9.coord_fixed()
        + p9.labs(
            title="EDP buys energy with time, waste does not",
            subtitle=f"By definition, no data (study: {results.subject}).\nBetter: down and to the left",
            x=style.TIME_CHANGE,
            y=style.ENERGY_CHANGE,
            fill="score, %\n(positive: rewarded)",
            caption="The paper's Figure 2. EDP: 1 − (1 + Δt)(1 + Δe), changes Δ of the\n"
            "baseline. Waste: energy saved if no time is lost, whatever the time\ngained; else discarded.",
        )
        + style.theme(3.0)
        + p9.theme(legend_key_width=110, legend_key_height=7)
    )


def _rules(names: list) -> pd.Categorical:
    import pandas as pd

    return pd.Categorical(names, [EDP, WASTE])


def _notes() -> pd.DataFrame:
    import pandas as pd

    from kernel_dvfs.report import style

    rows = [
        (19, -5, "score 0", style.INK, EDP),
        (-16, -18, "gain", "white", EDP),
        (16, 18, "loss", style.INK, EDP),
        (-15, -18, "gain", "white", WASTE),
        (15, -15, "time lost:\ndiscarded", style.INK, WASTE),
        (-15, 15, "energy lost:\ndiscarded", style.INK, WASTE),
        (15, 15, "both lost:\ndiscarded", style.INK, WASTE),
    ]
    notes = pd.DataFrame(rows, columns=["x", "y", "text", "ink", "rule"])
    return notes.assign(rule=_rules(notes.rule))


@OUTPUTS.figure(
    "Figures 3 and 4 of the paper: both passes at every clock pair: time over auto (logarithmic) and change of energy "
    "against auto (negative = saved), one curve per memory clock; the blue square is better than auto, the best is the "
    "lowest in it",
    title="Figures 3 and 4. The passes at each clock pair",
    text="Time and energy against auto clocks. In the blue square no time is lost and energy is saved. Pairs in the "
    "grey box of the lower view differ from auto by no more than measurements scatter.",
    section="published",
    place=1,
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.has_passes,
)
def fig3_fig4_passes(results: Results) -> p9.ggplot:
    """See clock_plane.draw."""
    from kernel_dvfs.report import clock_plane

    return clock_plane.draw(results, "forward", "backward")


TIME, ENERGY = "time, ms", "energy, J"


# what Table 1 calls a row by an abbreviation
_WORDS = {
    "GEMM": "matrix product",
    "WTE": "token embedding",
    "WPE": "position embedding",
    "WTE & WPE": "both embeddings",
    "Softmax": "softmax",
    "Permute": "permute",
    "Layernorm": "layernorm",
    "Bias": "bias gradient",
    "Bias reduce": "bias gradient, sum",
    "Residual": "residual + layernorm",
}


_ROW_INCHES = 0.17


_MARKER = 0.06  # width of a marker, share of a panel's: closer points coincide


_LONGEST = 24  # characters of a kind


_LANES = 0.5  # share of a row that its sections are spread over


@OUTPUTS.figure(
    "Figure 5 of the paper: time and energy of one launch of each kernel at auto clocks, or a table's reference, by "
    "kind: orders of magnitude apart even within a kind; numbers: kernels that coincide",
    title="Figure 5. Where time and energy go",
    text="One launch of each kernel at auto clocks, or a table's reference; area: its share of an iteration.",
    section="kernels",
)
def fig5_kernels(results: Results) -> p9.ggplot:
    """Points of a kind lie in one row, sections in lanes of it; the kind of the longest launch on top."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = together(costs(results))
    longest = frame[frame.quantity == TIME].groupby("kind").value.max().sort_values()
    rows = {kind: number for number, kind in enumerate(longest.index)}
    sections = list(frame.section.dropna().unique())
    whole = "an iteration, with all launches" if results.workload.get("kernels") else "all, each launched once"
    lane = {kind: style.lanes(list(of_kind.section.unique()), -_LANES) for kind, of_kind in frame.groupby("kind")}
    frame["row"] = [rows[kind] + lane[kind][section] for kind, section in zip(frame.kind, frame.section)]
    frame["quantity"] = pd.Categorical(frame.quantity, [TIME, ENERGY])
    plot = (
        p9.ggplot(frame, p9.aes("value", "row"))
        + p9.facet_wrap("quantity", scales="free_x")
        + p9.scale_x_log10(expand=(0.1, 0), breaks=decades, labels=lambda values: [f"{value:g}" for value in values])
        + p9.scale_y_continuous(breaks=list(rows.values()), labels=list(rows), expand=(0, 0.6))
        + p9.scale_size_area(max_size=3.4, guide=None)
        + p9.labs(
            title=_costliest(frame),
            subtitle=style.subtitle(results, f"left; at {words.against(results.workload)}"),
            x="of one launch (logarithmic)",
            caption=f"The paper's Figure 5. Area: share of {whole}.\n"
            f"Numbers: how many kernels coincide, of {len(costs(results)) // 2}.",
        )
        + style.theme(1.55 + 0.2 * ((len(sections) + 1) // 2) + _ROW_INCHES * len(rows))
        + p9.theme(axis_title_y=p9.element_blank(), panel_spacing_x=0.05)
    )
    many = frame[frame["count"] > 1]
    if len(many):
        plot += p9.geom_text(
            p9.aes(label="count"), many, size=style.SMALL_PT - 1, ha="left", nudge_x=0.22, color=style.INK
        )
    if not sections:
        return plot + p9.geom_point(p9.aes(size="share"), shape="o", fill="none", color=style.SERIES[0], stroke=0.5)
    frame["section"] = pd.Categorical(frame.section, sections)
    return (
        plot
        + p9.geom_point(p9.aes(color="section", shape="section", size="share"), fill="none", stroke=0.5)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(sections)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(sections)))
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape")})
    )


def _costliest(frame: pd.DataFrame) -> str:
    """Return the figure's message: the kind that takes most of the energy."""
    shares = frame[frame.quantity == ENERGY].groupby("kind").share.sum()
    return f"{shares.idxmax()}: {100 * shares.max():.0f} % of the energy"


def costs(results: Results) -> pd.DataFrame:
    """Return a row a kernel and quantity, in the order of the iteration: kind, section (None in a table), quantity,
    value of one launch, share (of the quantity in an iteration, with all launches).

    kind: the name of the kernel's row, or the operation of a captured step's; also of a measured table that has rows of
    Table 1 under their ids; of another table, the program it names before `::`, else the kernel itself.
    """
    import pandas as pd

    profile = results.profile
    points = profile[(profile.study == "kernel") & profile.is_baseline]
    about = results.workload.get("kernels") or _rows_of_table1()
    known = [about.get(name, {"row": 0, "name": name.partition("::")[0], "section": None}) for name in points.target]
    kernels = pd.DataFrame(
        {
            "row": [kernel["row"] for kernel in known],
            "kind": [_kind(kernel) for kernel in known],
            "section": [kernel["section"] for kernel in known],
            "launches": points.launches_per_iteration.to_numpy(),
            TIME: 1e3 * points.time_s.to_numpy(),
            ENERGY: points.energy_j.to_numpy(),
        }
    )
    ordered = kernels.sort_values("row", kind="stable").drop(columns="row")
    frame = ordered.melt(["kind", "section", "launches"], [TIME, ENERGY], var_name="quantity")
    whole = frame.launches * frame.value
    return frame.assign(share=whole / whole.groupby(frame.quantity).transform("sum")).drop(columns="launches")


def together(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with points that would cover each other as one: `count` of them, value their geometric mean, share
    their sum.

    Points of a kind, section and quantity coincide if no gap between neighbours is wider than a marker.
    """
    import numpy as np
    import pandas as pd

    rows = []
    for quantity, panel in frame.groupby("quantity", sort=False):
        logs = np.log10(panel.value)
        marker = _MARKER * max(logs.max() - logs.min(), 1.0)
        for (kind, section), points in panel.fillna({"section": ""}).groupby(["kind", "section"], sort=False):
            points = points.sort_values("value")
            ordered, shares = np.log10(points.value.to_numpy()), points.share.to_numpy()
            cuts = np.flatnonzero(np.diff(ordered) > marker) + 1
            for near, share in zip(np.split(ordered, cuts), np.split(shares, cuts)):
                rows.append((kind, section or None, quantity, 10 ** near.mean(), len(near), share.sum()))
    return pd.DataFrame(rows, columns=["kind", "section", "quantity", "value", "count", "share"])


def decades(limits: tuple[float, float]) -> list[float]:
    """Return powers of ten within limits, every other one if there are more than four; on a short axis its two ends."""
    import numpy as np

    low, high = (float(np.log10(limit)) for limit in limits)
    powers = [power for power in range(-9, 10) if low <= power <= high]
    if len(powers) < 2:
        return [float(f"{limits[0]:.2g}"), float(f"{max(limits[1], 1.02 * limits[0]):.2g}")]
    return [10.0**power for power in (powers if len(powers) <= 4 else powers[::2])]


def _kind(kernel: dict) -> str:
    """Return the name of a kernel's row; of a captured step its operation, since its names are long and many."""
    kind = kernel.get("operation", "").removeprefix("aten::") or kernel["name"].partition(" (")[0]
    kind = _WORDS.get(kind, kind)
    return kind if len(kind) <= _LONGEST else f"{kind[: _LONGEST - 1]}…"


def _rows_of_table1() -> dict[str, dict]:
    entries = [(section, entry) for section, entries in TABLE1.items() for entry in entries]
    return {
        entry.id: {"row": place, "name": entry.name, "section": section}
        for place, (section, entry) in enumerate(entries, start=1)
    }


SCOPES = ("global", "local")


# slacks are sampled a hair off the limits of what is feasible
_STRICT_PERCENT = 1e-3
# most of what a slowdown buys is bought by here, percent; the table has the rest
_MOST_PERCENT = 15.0
_DIAMOND, _STAR = "D", "*"


@OUTPUTS.figure(
    "Figure 6 of the paper: relaxed waste: claimed change of energy (negative = saved) over the tolerated slowdown, "
    f"limits kept by each kernel (local) or by the iteration (global), as far as {_MOST_PERCENT:g} %; dotted line: "
    "strict, no time lost; the strict choice measured again, and the paper's",
    title="Figure 6. Claimed energy over tolerated slowdown",
    text="Choosing for all kernels together (global) beats choosing for each by itself (local). The lines are claimed, "
    "so optimistic: the same noisy data selected the clocks. The table has larger slowdowns.",
    section="published",
    place=3,
    procedure=PUBLISHED,
    of_choice=True,
    inputs=lambda plan: [
        f"{plan.folder}/tables/{name}.json" for name in ("relaxed", *(["validation"] if plan.is_compared else []))
    ],
)
def fig6_relaxed_waste(results: Results) -> p9.ggplot:
    """Draw the table `relaxed`; points without a schedule (infeasible) are absent. From `validation` the strict choice
    measured again, where it was."""
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = claimed(results.table("relaxed"))
    frame = frame[frame.slack_percent <= max(_MOST_PERCENT, frame.slack_percent.min())]
    strict = frame[frame.slack_percent.abs() < _STRICT_PERCENT]
    # a line needs two points
    alone = ~frame.scope.duplicated(keep=False)
    lines, marked = frame[~alone], frame[alone | frame.index.isin(strict.index)]
    changes = dict(zip(strict.scope, strict.energy_change_percent))
    scopes = list(frame.scope.cat.categories)
    labels = [f"{scope} (strict: {changes[scope]:+.1f} %)" if scope in changes else scope for scope in scopes]
    beside = _beside(results)
    plot = (
        p9.ggplot(frame, p9.aes("slack_percent", "energy_change_percent"))
        + p9.geom_vline(xintercept=0, linetype="dotted", size=0.5)
        + p9.aes(color="scope", linetype="scope", shape="scope")
        + p9.geom_line(data=lines[lines.scope == "global"], size=0.7)
        # a kernel by itself goes from one clock to the next
        + p9.geom_step(data=lines[lines.scope == "local"], direction="hv", size=0.7)
        + p9.geom_point(data=marked, size=2.2, stroke=0.6, fill="white")
        + p9.expand_limits(y=0)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(scopes)), labels=labels)
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(scopes)), labels=labels)
        + p9.scale_linetype_manual(style.cycle(style.LINES, len(scopes)), labels=labels)
        + p9.labs(
            title=_bought(frame),
            subtitle=style.subtitle(results, "down"),
            x=f"tolerated slowdown, % (negative: faster than {words.against(results.workload)})",
            y="claimed change of energy, %\n(negative: saved)",
            caption="The paper's Figure 6. Limit kept by each kernel (local) or by the iteration\n"
            "(global). Dotted: strict, no time lost. Claimed by the data that selected\n"
            + "\n".join(["the clocks, with no distance kept from the limit.", *beside.told.unique()]),
        )
        + style.keys(color="", shape="", linetype="")
        + style.theme(3.3)
    )
    for mark, of_mark in beside.groupby("mark"):
        colors = {"color": style.INK, "fill": style.INK if mark == _STAR else "none"}
        plot += p9.geom_point(p9.aes("time", "energy"), of_mark, inherit_aes=False, shape=mark, size=2.4, **colors)
    return plot


def _bought(frame: pd.DataFrame) -> str:
    """Return the figure's message: what no time and a little more of it buy, of all kernels together."""
    together = frame[frame.scope == "global"]
    near = {
        percent: choices.energy_change_percent.iloc[0]
        for percent in (0.0, 2.0)
        if len(choices := together[(together.slack_percent - percent).abs() < _STRICT_PERCENT])
    }
    if len(near) < 2:
        return "Claimed energy over tolerated slowdown"
    return f"Claimed {near[0.0]:+.1f} %; at 2 % more time {near[2.0]:+.1f} %"


def _beside(results: Results) -> pd.DataFrame:
    """Return time and energy, percent, mark and what it is of what stands beside the claims: the strict choice measured
    again, where it was, and the paper's of the same GPU and workload, as claimed and as measured again."""
    import pandas as pd

    rows = []
    try:
        again = results.table("validation").set_index("quantity").fresh_change_percent
        rows.append((again["time"], again["energy"], _DIAMOND, "Diamond: the strict choice measured again."))
    except InputError:
        pass  # of a table, and of a study that is not through
    if words.is_papers(results.subject, results.workload["name"]):
        energy, time, claimed = *words.PAPER_POINT, words.PAPER_CLAIMED_PERCENT
        meaning = f"Stars: the paper's ({claimed:g} % claimed; {energy:g} % at {time:+g} % of time)."
        rows += [(0.0, claimed, _STAR, meaning), (time, energy, _STAR, meaning)]
    return pd.DataFrame(rows, columns=["time", "energy", "mark", "told"])


def claimed(table: pd.DataFrame) -> pd.DataFrame:
    """Return columns slack_percent, scope (category), energy_change_percent; ascending slack, no empty cells."""
    import pandas as pd

    table = table.dropna(subset="energy_change_percent")
    scopes = [scope for scope in SCOPES if scope in set(table.scope)]
    table = table.assign(scope=pd.Categorical(table.scope, scopes))
    return table[["slack_percent", "scope", "energy_change_percent"]].sort_values(["scope", "slack_percent"])


@OUTPUTS.figure(
    "Figure 7 of the paper: data parallelism: change of time and energy against auto at other batches, with the clocks "
    "chosen at one batch and with clocks chosen there; measured again, with 95 % intervals",
    title="Figure 7. The schedule at other batches",
    text="Measured again, with 95 % intervals. Where one leaves zero on the energy axis, energy changes there.",
    section="published",
    place=4,
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=tables.OUTPUTS["table", "data_parallelism"].when,
    inputs=lambda plan: [f"{plan.folder}/tables/data_parallelism.json"],
)
def fig7_data_parallelism(results: Results) -> p9.ggplot:
    """See carried.draw."""
    title = f"Clocks chosen at batch {results.workload['batch']}, used at other batches"
    return carried.draw(results, "data_parallelism", "batch", "batch, sequences per GPU", title, 7)


@OUTPUTS.figure(
    "Figure 8 of the paper: tensor parallelism, one rank, communication left out: change of time and energy against "
    "auto at other degrees, with the clocks chosen at one degree and with clocks chosen there; measured again, with "
    "95 % intervals",
    title="Figure 8. The schedule at other tensor-parallel degrees",
    text="Measured again, with 95 % intervals; one rank, no communication.",
    section="published",
    place=5,
    procedure=PUBLISHED,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=tables.OUTPUTS["table", "tensor_parallelism"].when,
    inputs=lambda plan: [f"{plan.folder}/tables/tensor_parallelism.json"],
)
def fig8_tensor_parallelism(results: Results) -> p9.ggplot:
    """See carried.draw."""
    degree = results.workload["tensor_parallel"]
    title = f"Clocks chosen at degree {degree}, used at other degrees"
    axis = "tensor-parallel degree (one rank, no communication)"
    return carried.draw(results, "tensor_parallelism", "tensor_parallel", axis, title, 8)
