"""Figure 5: how long each kernel runs and what it costs at auto, per launch, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, Output

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Time and energy of one launch of each kernel at auto clocks (of a table without auto: at its reference "
    "point), by kind: orders of magnitude apart even within a kind; numbers: kernels that coincide",
    title="Figure 5. Where time and energy go",
    text="One launch of each kernel at auto clocks.",
    section="kernels",
    formats=FIGURE_FORMATS,
)

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


def draw(results: Results) -> p9.ggplot:
    """Points of a kind lie in one row, sections in lanes of it; the kind of the longest launch on top."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = together(costs(results))
    longest = frame[frame.quantity == TIME].groupby("kind").value.max().sort_values()
    rows = {kind: number for number, kind in enumerate(longest.index)}
    sections = list(frame.section.dropna().unique())
    lane = {kind: style.lanes(list(own.section.unique()), -_LANES) for kind, own in frame.groupby("kind")}
    frame["row"] = [rows[kind] + lane[kind][section] for kind, section in zip(frame.kind, frame.section)]
    frame["quantity"] = pd.Categorical(frame.quantity, [TIME, ENERGY])
    plot = (
        p9.ggplot(frame, p9.aes("value", "row"))
        + p9.facet_wrap("quantity", scales="free_x")
        + p9.scale_x_log10(expand=(0.1, 0), breaks=decades, labels=lambda values: [f"{value:g}" for value in values])
        + p9.scale_y_continuous(breaks=list(rows.values()), labels=list(rows), expand=(0, 0.6))
        + p9.labs(
            title=f"One launch of each kernel at {_clocks(results)} clocks",
            subtitle=style.subtitle(results, "left"),
            x="of one launch (logarithmic)",
            caption=f"Numbers: how many kernels coincide. {len(costs(results)) // 2} kernels in all.",
        )
        + style.theme(1.55 + 0.2 * ((len(sections) + 1) // 2) + _ROW_INCHES * len(rows))
        + p9.theme(axis_title_y=p9.element_blank(), panel_spacing_x=0.05)
    )
    many = frame[frame["count"] > 1]
    if len(many):
        plot += p9.geom_text(
            p9.aes(label="count"), many, size=style.SMALL_PT - 1, ha="left", nudge_x=0.15, color=style.INK
        )
    if not sections:
        return plot + p9.geom_point(shape="o", fill="none", color=style.SERIES[0], size=1.4, stroke=0.5)
    frame["section"] = pd.Categorical(frame.section, sections)
    return (
        plot
        + p9.geom_point(p9.aes(color="section", shape="section"), fill="none", size=1.4, stroke=0.5)
        + p9.scale_color_manual(style.cycle(style.SERIES, len(sections)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(sections)))
        + p9.guides(**{name: p9.guide_legend(title="", ncol=2) for name in ("color", "shape")})
    )


def costs(results: Results) -> pd.DataFrame:
    """A row a kernel and quantity, in the order of the iteration: kind, section (None in a table), quantity, value.

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
            TIME: 1e3 * points.time_s.to_numpy(),
            ENERGY: points.energy_j.to_numpy(),
        }
    )
    ordered = kernels.sort_values("row", kind="stable").drop(columns="row")
    return ordered.melt(["kind", "section"], [TIME, ENERGY], var_name="quantity")


def together(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with points that would cover each other as one: `count` of them, value their geometric mean.

    Points of a kind, section and quantity coincide if no gap between neighbours is wider than a marker.
    """
    import numpy as np
    import pandas as pd

    rows = []
    for quantity, panel in frame.groupby("quantity", sort=False):
        logs = np.log10(panel.value)
        marker = _MARKER * max(logs.max() - logs.min(), 1.0)
        for (kind, section), own in panel.fillna({"section": ""}).groupby(["kind", "section"], sort=False):
            ordered = np.sort(np.log10(own.value.to_numpy()))
            for near in np.split(ordered, np.flatnonzero(np.diff(ordered) > marker) + 1):
                rows.append((kind, section or None, quantity, 10 ** near.mean(), len(near)))
    return pd.DataFrame(rows, columns=["kind", "section", "quantity", "value", "count"])


def decades(limits: tuple[float, float]) -> list[float]:
    """Powers of ten within limits, every other one if there are more than four; on a short axis its two ends."""
    import numpy as np

    low, high = (float(np.log10(each)) for each in limits)
    powers = [power for power in range(-9, 10) if low <= power <= high]
    if len(powers) < 2:
        return [float(f"{limits[0]:.2g}"), float(f"{max(limits[1], 1.02 * limits[0]):.2g}")]
    return [10.0**power for power in (powers if len(powers) <= 4 else powers[::2])]


def _kind(kernel: dict) -> str:
    """The name of a kernel's row; of a captured step its operation, since its names are long and many."""
    kind = kernel.get("operation", "").removeprefix("aten::") or kernel["name"].partition(" (")[0]
    kind = _WORDS.get(kind, kind)
    return kind if len(kind) <= _LONGEST else f"{kind[: _LONGEST - 1]}…"


def _rows_of_table1() -> dict[str, dict]:
    from kernel_dvfs.workload.table1 import TABLE1

    entries = [(section, entry) for section, entries in TABLE1.items() for entry in entries]
    return {
        entry.id: {"row": place, "name": entry.name, "section": section}
        for place, (section, entry) in enumerate(entries, start=1)
    }


def _clocks(results: Results) -> str:
    """What the baseline is: `auto`, or the reference point of a table without auto."""
    profile = results.profile
    return "auto" if profile[profile.is_baseline].core_mhz.isna().all() else "reference"
