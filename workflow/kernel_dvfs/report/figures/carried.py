"""Figures 7 and 8: what one schedule changes at other batches or degrees, carried there and chosen anew.

From a finished table; the numbers are changes against auto, so that better is down.
"""

import pandas as pd
import plotnine as p9

from kernel_dvfs.report.figures import style

CARRIED, ANEW, CLAIMED = "carried over", "chosen anew", "claimed when chosen"
QUANTITIES = ("time", "energy")
_LANES = 0.4  # share of a step that the series of a value are spread over
# of the columns of a table: prefix of each series
_PREFIXES = {CARRIED: "", ANEW: "reoptimised_", CLAIMED: "claimed_"}


def draw(results, name: str, column: str, axis: str, title: str) -> p9.ggplot:
    """Table `name`, whose `column` holds the batch or degree, in the table's order; `axis` is its label."""
    frame = changes(results.table(name), column)
    series, values = list(frame.series.cat.categories), list(frame.value.cat.categories)
    lane = style.lanes(series, _LANES)
    frame["place"] = [values.index(value) + lane[one] for value, one in zip(frame.value, frame.series)]
    return (
        p9.ggplot(frame, p9.aes("place", "change", color="series", shape="series"))
        + p9.geom_hline(yintercept=0, size=0.4, color="#777777")
        + p9.geom_errorbar(
            p9.aes(ymin="low", ymax="high"), frame.dropna(subset="low"), width=0.17, size=0.5, show_legend=False
        )
        + p9.geom_point(size=1.7, stroke=0.6, fill="white")
        + p9.facet_wrap("quantity", ncol=1, scales="free_y")
        + p9.scale_x_continuous(breaks=list(range(len(values))), labels=[str(value) for value in values])
        + p9.scale_color_manual(style.cycle(style.SERIES, len(series)))
        + p9.scale_shape_manual(style.cycle(style.SHAPES, len(series)))
        + p9.labs(
            title=title,
            subtitle=style.subtitle(results, "down"),
            x=axis,
            y="change against auto, % (negative: saved)",
            caption=_caption(frame),
        )
        + style.keys(color="", shape="")
        + style.theme(3.9)
    )


def changes(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Long form: value (category), series, quantity, change, low, high in percent; low and high NaN if not known.

    Series whose columns the table lacks, and empty cells, are absent.
    """
    frames = []
    for series, prefix in _PREFIXES.items():
        for quantity in QUANTITIES:
            cells = {"change": f"{quantity}_change", "low": f"{quantity}_low", "high": f"{quantity}_high"}
            own = {cell: table.get(f"{prefix}{name}_percent", float("nan")) for cell, name in cells.items()}
            frames.append(pd.DataFrame({"value": table[column], "series": series, "quantity": quantity} | own))
    frame = pd.concat(frames).dropna(subset="change").reset_index(drop=True)
    return frame.assign(
        value=pd.Categorical(frame.value, table[column]),
        series=pd.Categorical(frame.series, [name for name in _PREFIXES if name in set(frame.series)]),
        quantity=pd.Categorical(frame.quantity, QUANTITIES),
    )


def _caption(frame) -> str:
    known = frame.dropna(subset="low").series.unique()
    bars = f"\nBars ({', '.join(known)}): 95 % interval." if len(known) else ""
    return f"Fresh repeats, but for the claim.{bars}"
