"""A schedule carried to other batches and degrees, and a choice made there: what tables and Figures 7 and 8 share.

Both are chosen as published, from one sweep each, so that only where they were chosen differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import STRICT, carried, published
from kernel_dvfs.report import remeasured
from kernel_dvfs.report.words import PAPER_POINT, is_papers

if TYPE_CHECKING:
    import pandas as pd
    import plotnine as p9

    from kernel_dvfs.report.results import Results

# kind of variants -> column that holds the value
_COLUMNS = {"batch": "batch", "tp": "tensor_parallel"}
CARRIED, CHOSEN_THERE, CLAIMED, PAPERS = "carried over", "chosen there", "claimed when chosen", "the paper"
QUANTITIES = ("time", "energy")
_LANES = 0.5  # share of a step that the series of a value are spread over
# of the columns of a table: prefix of each series
_PREFIXES = {CARRIED: "", CHOSEN_THERE: "reoptimised_", CLAIMED: "claimed_"}


# --- tables -----------------------------------------------------------------------------------------------------------


def strict_and_repeats(plan: Any) -> list[str]:
    """Return the strict schedule as published and, where it is measured again, the repeats of that."""
    name = published(STRICT)
    return [plan.schedule(name), *(plan.validation([name]) if plan.headline else [])]


def inputs(plan: Any, kind: str) -> list[str]:
    """Return what the table of a kind of variants ("batch" or "tp") is made from, apart from the profile."""
    return [*strict_and_repeats(plan), *plan.carried(kind), *plan.chosen_again(kind)]


def options(plan: Any, kind: str, values: list) -> dict:
    """Return the options of the table of a kind of variants."""
    return {
        "repeats": plan.repeats,
        "reoptimised": plan.reoptimised,
        "values": values,
        "setups": plan.setup_digests(kind),
        "sessions": plan.sessions,
    }


def table(
    results: Results,
    kind: str,
    values: list[float],
    chosen_at: int,
    repeats: int,
    reoptimised: bool,
    setups: dict[str, str],
    sessions: int,
) -> pd.DataFrame:
    """Return one row a value of `kind` (`batch` or `tp`), from validation repeats; changes in percent, 95 % intervals.

    setups: {value: digest of its setup}. sessions: that the repeats were spread over.
    chosen_at: the value of the schedule, whose row is the validation itself. auto_*: an iteration at auto.
    reoptimised_*: the schedule chosen at that value, claimed and measured again. carry_over_*_cost_pp: what carrying
    over costs in time and in energy against choosing there, both measured again (one may be paid with the other).
    """
    import pandas as pd

    rows = []
    for value in values:
        name = f"{kind}-{value}"
        if value == chosen_at:
            comparisons = results.measured_again(STRICT, repeats)
            chosen_there = results.schedule(STRICT)
        else:
            kernels = results.setup(setups[str(value)]).targets["kernel"]
            comparisons = results.comparisons(
                *(path for kernel in kernels for path in carried(name, kernel, repeats, sessions))
            )
            chosen_there = results.variant(name).own_schedule if reoptimised else {}
        time, energy = remeasured.changes(comparisons)
        totals = remeasured.totals(comparisons).values()
        row = {
            _COLUMNS[kind]: value,
            "claimed_time_change_percent": chosen_there["time_change_percent"] if value == chosen_at else None,
            "claimed_energy_change_percent": chosen_there["energy_change_percent"] if value == chosen_at else None,
            "time_change_percent": time.mean,
            "time_low_percent": time.low,
            "time_high_percent": time.high,
            "energy_change_percent": energy.mean,
            "energy_low_percent": energy.low,
            "energy_high_percent": energy.high,
            "repeats": time.repeats,
            "interval": time.basis,
            "auto_time_s": sum(total["auto"][0] for total in totals) / len(totals),
            "auto_energy_j": sum(total["auto"][1] for total in totals) / len(totals),
        }
        if reoptimised:
            there = (time, energy) if value == chosen_at else remeasured.changes(results.variant(name).validation)
            row |= {
                "reoptimised_claimed_time_change_percent": chosen_there["time_change_percent"],
                "reoptimised_claimed_energy_change_percent": chosen_there["energy_change_percent"],
                "reoptimised_time_change_percent": there[0].mean,
                "reoptimised_time_low_percent": there[0].low,
                "reoptimised_time_high_percent": there[0].high,
                "reoptimised_energy_change_percent": there[1].mean,
                "reoptimised_energy_low_percent": there[1].low,
                "reoptimised_energy_high_percent": there[1].high,
                "carry_over_time_cost_pp": time.mean - there[0].mean,
                "carry_over_energy_cost_pp": energy.mean - there[1].mean,
            }
        rows.append(row)
    return pd.DataFrame(rows)


# --- figures ----------------------------------------------------------------------------------------------------------


def draw(results: Results, name: str, column: str, axis: str, title: str, papers_figure: int) -> p9.ggplot:
    """Draw table `name`, whose `column` holds the batch or degree, in the table's order; `axis` is its label."""
    import plotnine as p9

    from kernel_dvfs.report import style

    rows = results.table(name)
    papers = results.workload[column] if is_papers(results.subject, results.workload["name"]) else None
    frame = changes(rows, column, papers)
    series, values = list(frame.series.cat.categories), list(frame.value.cat.categories)
    shapes = ["*" if one_series == PAPERS else shape for one_series, shape in zip(series, style.SHAPES)]
    lane = style.lanes(series, _LANES)
    frame["place"] = [values.index(value) + lane[series_name] for value, series_name in zip(frame.value, frame.series)]
    return (
        p9.ggplot(frame, p9.aes("place", "change", color="series", shape="series"))
        + p9.geom_hline(yintercept=0, size=0.4, color=style.FRAME)
        + p9.geom_errorbar(
            p9.aes(ymin="low", ymax="high"), frame.dropna(subset="low"), width=0.13, size=0.5, show_legend=False
        )
        + p9.geom_point(p9.aes(fill="series"), size=1.7, stroke=0.6)
        + p9.facet_wrap("quantity", ncol=1, scales="free_y")
        + p9.scale_x_continuous(breaks=list(range(len(values))), labels=[str(value) for value in values])
        + p9.scale_color_manual(
            [style.INK if one_series == PAPERS else color for one_series, color in zip(series, style.SERIES)]
        )
        + p9.scale_shape_manual(shapes)
        + p9.scale_fill_manual([style.INK if one_series == PAPERS else "white" for one_series in series])
        + p9.labs(
            title=title,
            subtitle=style.subtitle(results, "down"),
            x=axis,
            y="change against auto, % (negative: saved)",
            caption=_caption(frame, papers_figure, int(rows.repeats.iloc[0])),
        )
        + style.keys(color="", shape="", fill="")
        + style.theme(4.2)
    )


def changes(table: pd.DataFrame, column: str, papers: int | None = None) -> pd.DataFrame:
    """Return the long form: value (category), series, quantity, change, low, high in percent; low and high NaN if not
    known.

    Series whose columns the table lacks, and empty cells, are absent. papers: the value at which the paper's choice,
    measured again, is a series too.
    """
    import pandas as pd

    frames = []
    for series, prefix in _PREFIXES.items():
        for quantity in QUANTITIES:
            cells = {"change": f"{quantity}_change", "low": f"{quantity}_low", "high": f"{quantity}_high"}
            columns = {cell: table.get(f"{prefix}{name}_percent", float("nan")) for cell, name in cells.items()}
            frames.append(pd.DataFrame({"value": table[column], "series": series, "quantity": quantity} | columns))
    if papers in set(table[column]):
        columns = {"quantity": ["energy", "time"], "change": PAPER_POINT, "low": float("nan"), "high": float("nan")}
        frames.append(pd.DataFrame(columns).assign(value=papers, series=PAPERS))
    frame = pd.concat(frames).dropna(subset="change").reset_index(drop=True)
    return frame.assign(
        value=pd.Categorical(frame.value, table[column]),
        series=pd.Categorical(frame.series, [name for name in (*_PREFIXES, PAPERS) if name in set(frame.series)]),
        quantity=pd.Categorical(frame.quantity, QUANTITIES),
    )


def _caption(frame: pd.DataFrame, papers_figure: int, repeats: int) -> str:
    known = frame.dropna(subset="low").series.unique()
    sentences = [f"The paper's Figure {papers_figure}. Means of {repeats} repeats, except what was claimed."]
    if len(known):
        sentences.append(f"Bars ({', '.join(known)}): 95 % interval.")
    if PAPERS in set(frame.series):
        sentences.append(f"Star: the paper's, {PAPER_POINT[0]:g} % at {PAPER_POINT[1]:+g} % of time, measured again.")
    return "\n".join(sentences)
