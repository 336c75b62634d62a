"""Figures 3 and 4: what each clock pair saves in a pass, in three views of one plane, each closer to auto.

Savings against auto, so that better is up and to the right. Reads the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotnine as p9

from kernel_dvfs.errors import InputError
from kernel_dvfs.report import labels, style
from kernel_dvfs.report.results import Results
from kernel_dvfs.workload.workload import WHOLE, study_of

_LEAST_PERCENT = 0.1  # extent of a panel


class View(NamedTuple):
    """A panel: its name and the limits of its axes, percent saved."""

    name: str
    left: float
    right: float
    bottom: float
    top: float


X, Y = "time_saved_percent", "energy_saved_percent"
_NEAR_PERCENT = 40  # largest slowdown of the second view
_HALF_WIDTH_PERCENT = 1.5  # least half width of the third view
_PANEL_INCHES = (2.85, 1.4)


def draw(results: Results, name: str) -> p9.ggplot:
    """Pass `name` of `results`, or a captured step as a whole. Raises InputError if the profile has no such pass."""
    points = savings(results, name)
    memories = list(points.memory.cat.categories)
    colours = dict(zip(memories, [*style.steps(len(memories) - 1), "black"]))
    points["fill"] = [colours[m] if reached else "white" for m, reached in zip(points.memory, points.reached)]
    panels = views(points)
    shown = _in_panels(panels, lambda view: points[_inside(points, view)])
    gains = better_than_auto(points)
    title = "memory\nclock"
    return (
        p9.ggplot(shown, p9.aes(X, Y))
        + p9.geom_blank(data=_in_panels(panels, _corners))
        + p9.geom_rect(
            p9.aes(xmin=0, xmax="right", ymin=0, ymax="top"),
            _in_panels(panels, lambda view: pd.DataFrame([view._asdict()])),
            inherit_aes=False,
            fill=style.SQUARE,
            alpha=0.12,
            color=style.SQUARE,
            size=0.5,
        )
        + p9.geom_rect(
            p9.aes(xmin="left", xmax="right", ymin="bottom", ymax="top"),
            _in_panels(panels, lambda view: _next(panels, view)),
            inherit_aes=False,
            fill="none",
            color="#777777",
            size=0.3,
            linetype="dashed",
        )
        # around auto a curve would only join noise
        + p9.geom_path(
            p9.aes(color="memory", linetype="memory", group="piece"),
            _in_panels(panels[:-1], lambda view: _curves(points, view), panels),
            size=0.45,
        )
        + p9.geom_point(p9.aes(color="memory", shape="memory", fill="fill"), size=1.4, stroke=0.4)
        + p9.geom_point(data=shown[shown.is_baseline], shape="+", size=3.5, stroke=0.7, color="black")
        + p9.geom_text(
            p9.aes("x", "y", label="label"),
            _in_panels(panels, lambda view: _labels(points, panels, view)),
            size=labels.TEXT_PT,
            va="center_baseline",
        )
        + p9.facet_wrap("view", ncol=1, scales="free")
        + p9.scale_color_manual(list(colours.values()), drop=False)
        + p9.scale_shape_manual([*style.cycle(style.SHAPES, len(memories) - 1), "*"], drop=False)
        + p9.scale_linetype_manual([*style.cycle(("solid", "dashed"), len(memories) - 1), "dotted"], drop=False)
        + p9.scale_fill_identity()
        + p9.scale_x_continuous(expand=(0, 0))
        + p9.scale_y_continuous(expand=(0, 0))
        + style.keys(color=title, shape=title, linetype=title)
        + p9.labs(
            title=f"{'The whole step' if name == WHOLE else f'{name.capitalize()} pass'}: each clock pair against auto",
            subtitle=style.subtitle(results, "up and to the right"),
            x="time saved, % (negative: lost)",
            y="energy saved, % (negative: lost)",
            caption=f"+: auto. Blue square: better than auto, {_best(gains)}.\n"
            "Numbers: core clock, MHz. Hollow: the GPU did not reach the clock\n"
            "(power cap, its range). Dashed frame: the view below.",
        )
        + style.theme(6.2)
    )


def savings(results: Results, name: str) -> pd.DataFrame:
    """A row a pair of pass `name`: clocks in MHz (NaN = auto), what it saves in percent, whether they were reached.

    `memory`: the memory clock as a category, ascending, auto last. Raises InputError if the profile has no such pass.
    """
    profile = results.profile
    points = profile[(profile.study == study_of(results.workload, "pass", name)) & (profile.target == name)]
    if points.empty:
        path = results.folder / "profile.parquet"
        raise InputError(f"{path}: no pass '{name}': this figure needs a sweep of passes, tables of kernels have none")
    auto = points[points.is_baseline].iloc[0]
    clocks = [*sorted(points.mem_mhz.dropna().unique()), np.nan]
    return pd.DataFrame(
        {
            "core_mhz": points.core_mhz,
            "mem_mhz": points.mem_mhz,
            X: 100 * (1 - points.time_s / auto.time_s),
            Y: 100 * (1 - points.energy_j / auto.energy_j),
            "reached": points.verdict == "ok",
            "is_baseline": points.is_baseline,
            "memory": pd.Categorical([_mhz(clock) for clock in points.mem_mhz], [_mhz(clock) for clock in clocks]),
        }
    ).reset_index(drop=True)


def better_than_auto(points: pd.DataFrame) -> pd.DataFrame:
    """The pairs in the waste square: no time lost, energy saved; best first."""
    return points[(points[X] >= 0) & (points[Y] > 0)].sort_values(Y, ascending=False)


def views(points: pd.DataFrame) -> list[View]:
    """All pairs; those at most 40 % slower; the surroundings of auto."""
    gains = better_than_auto(points)
    half_x = max(_HALF_WIDTH_PERCENT, 1.25 * points[X].max())
    half_y = max(_HALF_WIDTH_PERCENT, 1.25 * gains[Y].max() if len(gains) else 0)
    return [
        _around("all pairs", points),
        _around(f"up to {_NEAR_PERCENT} % slower", points[points[X] >= -_NEAR_PERCENT]),
        View("around auto", -half_x, half_x, -half_y, half_y),
    ]


def visible(path: np.ndarray, view: View) -> list[np.ndarray]:
    """The pieces of a polyline (n x 2) that lie inside a view, each n x 2 (line clipping by Liang and Barsky)."""
    pieces: list[list[np.ndarray]] = []
    unbroken = False
    for start, end in pairwise(path):
        enter, leave = 0.0, 1.0
        for at, step, low, high in zip(start, end - start, (view.left, view.bottom), (view.right, view.top)):
            if step:
                first, last = sorted(((low - at) / step, (high - at) / step))
                enter, leave = max(enter, first), min(leave, last)
            elif not low <= at <= high:
                leave = -1.0
        if enter >= leave:
            unbroken = False
            continue
        if not (unbroken and enter == 0):
            pieces.append([start + enter * (end - start)])
        pieces[-1].append(start + leave * (end - start))
        unbroken = leave == 1
    return [np.array(piece) for piece in pieces]


def _in_panels(
    panels: Sequence[View], make: Callable[[View], pd.DataFrame], every: Sequence[View] | None = None
) -> pd.DataFrame:
    """make(view) of each panel, under the panel's name."""
    names = [view.name for view in every or panels]
    frames = [make(view).assign(view=view.name) for view in panels]
    return pd.concat(frames).assign(view=lambda frame: pd.Categorical(frame.view, names))


def _around(name: str, points: pd.DataFrame) -> View:
    (left, right), (bottom, top) = ((min(points[a].min(), 0), max(points[a].max(), 0)) for a in (X, Y))
    # pairs that are all alike, as where no clock was obeyed, still need a panel
    wide, high = max(right - left, _LEAST_PERCENT), max(top - bottom, _LEAST_PERCENT)
    return View(name, left - 0.06 * wide, right + 0.05 * wide, bottom - 0.1 * high, top + 0.14 * high)


def _inside(points: pd.DataFrame, view: View) -> pd.Series:
    return points[X].between(view.left, view.right) & points[Y].between(view.bottom, view.top)


def _corners(view: View) -> pd.DataFrame:
    return pd.DataFrame({X: [view.left, view.right], Y: [view.bottom, view.top]})


def _next(panels: list[View], view: View) -> pd.DataFrame:
    """What the panel below shows of this one; no row in the last."""
    return pd.DataFrame(
        [
            {
                "left": max(view.left, below.left),
                "right": min(view.right, below.right),
                "bottom": max(view.bottom, below.bottom),
                "top": min(view.top, below.top),
            }
            for below in panels[panels.index(view) + 1 :][:1]
        ]
    )


def _curves(points: pd.DataFrame, view: View) -> pd.DataFrame:
    """The visible pieces of each memory clock's curve, core clocks in order."""
    rows: list[tuple[Any, ...]] = []
    curves = points.dropna(subset="core_mhz").sort_values("core_mhz").groupby("memory", observed=True)
    for memory, curve in curves:
        for number, piece in enumerate(visible(curve[[X, Y]].to_numpy(), view)):
            rows += [(*point, memory, f"{memory} {number}") for point in piece]
    # numbers even if no row: plotnine takes an empty column of objects for names
    frame = pd.DataFrame(rows, columns=[X, Y, "memory", "piece"]).astype({X: float, Y: float})
    return frame.assign(memory=pd.Categorical(frame.memory, points.memory.cat.categories))


def _labels(points: pd.DataFrame, panels: list[View], view: View) -> pd.DataFrame:
    """Core clocks next to their points, as far as there is room; what lies in the view below is labelled there.

    Ends and bests of the curves first, and in the first view nothing else.
    """
    below = panels[panels.index(view) + 1 :][:1]
    inside = points[_inside(points, view)]
    named = inside[~inside.is_baseline].assign(first=_landmarks(points))
    for closer in below:
        named = named[~_inside(named, closer)]
    if view is panels[0]:
        named = named[named["first"]]
    named = named.sort_values(["first", Y], ascending=False)
    wanted = pd.DataFrame({"x": named[X], "y": named[Y], "label": [_core(clock) for clock in named.core_mhz]})
    edges = [np.array([[0, view.top], [0, 0], [view.right, 0]])]
    if below:
        edges += [np.array([[closer.left, 0], [closer.right, 0]]) for closer in below]
        edges += [piece[[X, Y]].to_numpy() for _, piece in _curves(points, view).groupby("piece")]
    obstacles = [*inside[[X, Y]].to_numpy()[:, None], *edges]
    # curves that lie on one another need one label, points around auto one each
    return labels.place(wanted, obstacles, view[1:], _PANEL_INCHES, apart=0.35 if below else 0)


def _landmarks(points: pd.DataFrame) -> pd.Series:
    """Which points are the lowest, the highest or the auto core clock of their curve, or its least energy."""
    curves = points.groupby("memory", observed=True)
    ends = [points.core_mhz == curves.core_mhz.transform(extreme) for extreme in ("min", "max")]
    return ends[0] | ends[1] | points.core_mhz.isna() | (points[Y] == curves[Y].transform("max"))


def _best(gains: pd.DataFrame) -> str:
    if gains.empty:
        return "no pair"
    first = gains.iloc[0]
    pairs = "1 pair" if len(gains) == 1 else f"{len(gains)} pairs"
    return f"{pairs}.\nThe best in it: core {_core(first.core_mhz)}, memory {_mhz(first.mem_mhz)}"


def _core(clock: float) -> str:
    return "auto" if clock != clock else f"{clock:g}"


def _mhz(clock: float) -> str:
    return "auto" if clock != clock else f"{clock:g} MHz"
