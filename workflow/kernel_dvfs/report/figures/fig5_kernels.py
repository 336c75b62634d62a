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
    "point), by kind: orders of magnitude apart even within a kind",
    title="Figure 5. Where time and energy go",
    text="One launch of each kernel at auto clocks.",
    section="kernels",
    formats=FIGURE_FORMATS,
)

TIME, ENERGY = "time, ms", "energy, J"
_ROW_INCHES = 0.17
_LONGEST = 24  # characters of a kind
_LANES = 0.5  # share of a row that its sections are spread over


def draw(results: Results) -> p9.ggplot:
    """Points of a kind lie in one row, sections in lanes of it; the kind of the longest launch on top."""
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report import style

    frame = costs(results)
    longest = frame[frame.quantity == TIME].groupby("kind").value.max().sort_values()
    rows = {kind: number for number, kind in enumerate(longest.index)}
    sections = list(frame.section.dropna().unique())
    lane = {kind: style.lanes(list(own.section.unique()), -_LANES) for kind, own in frame.groupby("kind")}
    frame["row"] = [rows[kind] + lane[kind][section] for kind, section in zip(frame.kind, frame.section)]
    frame["quantity"] = pd.Categorical(frame.quantity, [TIME, ENERGY])
    plot = (
        p9.ggplot(frame, p9.aes("value", "row"))
        + p9.facet_wrap("quantity", scales="free_x")
        + p9.scale_x_log10(expand=(0.08, 0), labels=lambda values: [f"{value:g}" for value in values])
        + p9.scale_y_continuous(breaks=list(rows.values()), labels=list(rows), expand=(0, 0.6))
        + p9.labs(
            title=f"Kernels at {_clocks(results)} clocks",
            subtitle=style.subtitle(results, "left"),
            x="per launch, logarithmic",
        )
        + style.theme(1.3 + 0.2 * ((len(sections) + 2) // 3) + _ROW_INCHES * len(rows))
        + p9.theme(axis_title_y=p9.element_blank(), panel_spacing_x=0.05)
    )
    if not sections:
        return plot + p9.geom_point(shape="o", fill="none", color=style.SERIES[0], size=1.4, stroke=0.5)
    frame["section"] = pd.Categorical(frame.section, sections)
    return (
        plot
        + p9.geom_point(p9.aes(color="section", shape="section"), fill="none", size=1.4, stroke=0.5)
        + p9.scale_color_manual(style.steps(len(sections)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(sections)))
        + style.keys(color="", shape="")
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


def _kind(kernel: dict) -> str:
    """The name of a kernel's row; of a captured step its operation, since its names are long and many."""
    kind = kernel.get("operation", "").removeprefix("aten::") or kernel["name"].partition(" (")[0]
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
