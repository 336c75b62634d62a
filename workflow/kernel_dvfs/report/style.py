"""How every figure looks: one theme, sizes in inches, colours told apart in grey by shape, line and lightness.

A figure is as wide as a column of a paper, so its text is read at the size set here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import plotnine as p9

from kernel_dvfs.layout import PUBLISHED

WIDTH = 3.5  # inches: one column
WIDE = 1.5 * WIDTH  # three panels side by side
TEXT_PT = 7.5
SMALL_PT = 6.5
_SUBTITLE_CHARACTERS = 72

INK = "#222222"
GRID = "#E4E4E4"
FRAME = "#777777"  # of panels; lines at zero
QUIET = "#555555"  # text around the panels
NOTHING = "#F2F2F2"  # a cell without a value
SQUARE = "#1F5FBF"  # "better than auto"
# of series, one colour each: the first three are dark, mid, light; any two differ for colour-blind readers as well
# (tests/report/test_style.py)
SERIES = ("#0B3C5D", "#D1741C", "#8A8A8A", "#22AAFF", "#7700CC", "#552200", "#996644", "#000000")
# steps of an ordered quantity, light to dark
STEPS = ("#9BD93C", "#35B779", "#21908C", "#31688E", "#443983", "#31123B")
# titles of an axis that shows a change: the one sign (kernel_dvfs.change)
ENERGY_CHANGE = "change of energy, %\n(negative: saved)"
TIME_CHANGE = "change of time, % (negative: saved)"
# each can be filled or hollow
SHAPES = ("o", "^", "s", "D", "v", "h", "p", "8")
LINES = ("solid", "dashed", "dotted", "dashdot")
# loss to gain, darker all the way
GAIN = ("#FDE725", "#7AD151", "#22A884", "#2A788E", "#414487", "#440154")


def theme(height: float, width: float = WIDTH) -> p9.theme:
    """Return the theme of a figure so many inches high and wide."""
    text = p9.element_text(size=TEXT_PT, color=INK)
    return p9.theme_bw(base_size=TEXT_PT, base_family="DejaVu Sans") + p9.theme(
        figure_size=(width, height),
        dpi=300,
        text=text,
        plot_title=p9.element_text(size=TEXT_PT + 1, weight="bold", ha="left", margin={"b": 2}),
        plot_subtitle=p9.element_text(size=SMALL_PT, color=QUIET, ha="left", margin={"b": 7}),
        plot_caption=p9.element_text(size=SMALL_PT, color=QUIET, ha="left", margin={"t": 4}),
        plot_title_position="plot",
        plot_caption_position="plot",
        plot_margin=0.02,
        axis_title=p9.element_text(size=TEXT_PT),
        axis_text=p9.element_text(size=SMALL_PT, color=INK),
        panel_grid_minor=p9.element_blank(),
        panel_grid_major=p9.element_line(color=GRID, size=0.4),
        panel_border=p9.element_rect(color=FRAME, size=0.5),
        panel_spacing_y=0.02,
        strip_background=p9.element_blank(),
        strip_text=p9.element_text(size=TEXT_PT, ha="left", margin={"t": 5, "b": 2, "unit": "pt"}),
        legend_position="bottom",
        legend_title=p9.element_text(size=SMALL_PT),
        legend_text=p9.element_text(size=SMALL_PT),
        legend_key_size=9,
        legend_box_spacing=0.01,
        legend_background=p9.element_blank(),
        legend_key=p9.element_blank(),
    )


def subtitle(results: Any, better: str) -> str:
    """Return whose numbers a figure shows, and in which direction they are better."""
    how = ", as published" if results.procedure == PUBLISHED else ""
    return textwrap.fill(f"{results.subject}, {results.workload['name']}{how}; better: {better}", _SUBTITLE_CHARACTERS)


def steps(count: int) -> list[str]:
    """Return `count` colours of an ordered quantity, light to dark."""
    if count == 1:
        return [STEPS[3]]
    if count <= len(STEPS):
        return [STEPS[round(number * (len(STEPS) - 1) / (count - 1))] for number in range(count)]
    return [STEPS[number % len(STEPS)] for number in range(count)]


def keys(**aesthetics: str) -> p9.guides:
    """Return a legend of at most three keys a row, one for all `aesthetics`: name -> title."""
    return p9.guides(**{name: p9.guide_legend(title=title, ncol=3) for name, title in aesthetics.items()})


def lanes(names: Sequence[str], share: float) -> dict[str, float]:
    """Return offsets that keep `names` apart about a position of an axis, `share` of a step from first to last."""
    count = len(names)
    return {name: share * (number / (count - 1) - 0.5) if count > 1 else 0.0 for number, name in enumerate(names)}


def cycle(values: Sequence[str], count: int) -> list[str]:
    """Return the first `count` of `values`, starting over after the last."""
    return [values[number % len(values)] for number in range(count)]
