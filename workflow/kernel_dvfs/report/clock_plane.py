"""Figures 3 and 4: what each clock pair does to each pass, in two views of its plane: all pairs, and those around auto.

Time over auto on a logarithmic axis, change of energy on a plain one; better is down and to the left. Around auto lies
the box in which a pair that runs just as auto does would be measured, so that scatter is not taken for a saving. Reads
the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotnine as p9

from kernel_dvfs.change import change_percent
from kernel_dvfs.report import labels, style, words
from kernel_dvfs.report.results import Results
from kernel_dvfs.workload.workload import WHOLE, study_of
from kernel_dvfs_clocks.errors import InputError

_LEAST = (4e-4, 0.1)  # extent of a panel: decades of time, percent of energy


class View(NamedTuple):
    """A panel: its name and the limits of its axes, in X and Y."""

    name: str
    left: float
    right: float
    bottom: float
    top: float


class Box(NamedTuple):
    """How far off auto a pair that runs just as auto does is measured, in 95 of 100 cases: half widths, percent."""

    time_percent: float
    energy_percent: float


# log10 of time over auto, so that all that is drawn lies on a plain axis; the ticks say the ratio
X, Y = "log_time", "energy_change_percent"
_ONE = (0.01, 3.0)  # curves nearer than this are one line: decades of time (2.3 %), percent of energy
_HALF_TIME, _HALF_PERCENT = 0.0065, 1.5  # least half extent of the view around auto: decades (1.5 %), percent
_NORMAL_95 = 2.236  # standard errors that both of two independent quantities keep within, in 95 of 100 cases
_PANEL_INCHES = (2.85, 1.75)
_ALL, _NEAR = 0, 1  # places of the two views
_RATIOS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50)


class Plane(NamedTuple):
    """What is drawn of a pass: a row a pair (`changes`), its scatter, and its two views."""

    name: str
    points: pd.DataFrame
    box: Box | None
    panels: list[View]


def draw(results: Results, *names: str) -> p9.ggplot:
    """Draw passes of `results` side by side, or a captured step as a whole. Raises InputError if the profile has no
    such pass."""
    planes = [_plane(results, name, len(names) > 1) for name in names]
    memories = list(planes[0].points.memory.cat.categories)
    colours = dict(zip(memories, [*style.steps(len(memories) - 1), "black"]))
    shown = _in_panels(planes, lambda plane, view: plane.points[_inside(plane.points, view)])
    shown["fill"] = [colours[m] if reached else "white" for m, reached in zip(shown.memory, shown.reached)]
    title = "memory\nclock"
    return (
        p9.ggplot(shown, p9.aes(X, Y))
        + p9.geom_blank(data=_in_panels(planes, lambda _, view: _corners(view)))
        + p9.geom_rect(
            p9.aes(xmin="left", xmax=0, ymin="bottom", ymax=0),
            _in_panels(planes, lambda _, view: pd.DataFrame([view._asdict()])),
            inherit_aes=False,
            fill=style.SQUARE,
            alpha=0.12,
            color=style.SQUARE,
            size=0.5,
        )
        + p9.geom_rect(
            p9.aes(xmin="left", xmax="right", ymin="bottom", ymax="top"),
            _in_panels(planes, lambda plane, _: _edges(plane.box), [_NEAR]),
            inherit_aes=False,
            fill=style.SERIES[2],
            alpha=0.3,
        )
        # around auto a curve would only join noise
        + p9.geom_path(
            p9.aes(color="memory", linetype="memory", group="piece"),
            _in_panels(planes, lambda plane, view: _curves(plane.points, view), [_ALL]),
            size=0.45,
        )
        + p9.geom_point(p9.aes(color="memory", shape="memory", fill="fill"), size=1.4, stroke=0.4)
        + p9.geom_point(data=shown[shown.is_baseline], shape="+", size=3.5, stroke=0.7, color="black")
        + p9.geom_point(
            data=_in_panels(planes, _best),
            shape="o",
            size=4,
            stroke=0.8,
            fill="none",
            color=style.SERIES[1],
        )
        + p9.geom_text(
            p9.aes("x", "y", label="label"),
            _in_panels(planes, _labels),
            size=labels.TEXT_PT,
            va="center_baseline",
        )
        + p9.facet_wrap("view", ncol=len(planes), scales="free")
        + p9.scale_color_manual(list(colours.values()), drop=False)
        + p9.scale_shape_manual([*style.cycle(style.SHAPES, len(memories) - 1), "*"], drop=False)
        + p9.scale_linetype_manual([*style.cycle(("solid", "dashed"), len(memories) - 1), "dotted"], drop=False)
        + p9.scale_fill_identity()
        + p9.scale_x_continuous(expand=(0, 0), breaks=breaks, labels=ratios)
        + p9.scale_y_continuous(expand=(0, 0))
        + style.keys(color=title, shape=title, linetype=title)
        + p9.labs(
            title=_title(planes),
            subtitle=style.subtitle(results, "down and to the left"),
            x="time over auto (logarithmic; below 1: faster)",
            y="change of energy against auto, % (negative: saved)",
            caption=_caption(results, planes),
        )
        + style.theme(5.6, style.WIDTH * len(planes))
    )


def _plane(results: Results, name: str, is_one_of_several: bool) -> Plane:
    points = changes(results, name)
    box = scatter(points)
    panels = views(points, box)
    if is_one_of_several:
        panels = [view._replace(name=f"{name}, {view.name}") for view in panels]
    return Plane("The whole step" if name == WHOLE else f"{name.capitalize()} pass", points, box, panels)


def changes(results: Results, name: str) -> pd.DataFrame:
    """Return a row a pair of pass `name`: clocks in MHz (NaN = auto), X and Y, whether the clocks were reached.

    `memory`: the memory clock as a category, ascending, auto last. time_se, energy_se: standard errors as shares, NaN
    where nothing tells. Raises InputError if the profile has no such pass.
    """
    profile = results.profile
    together = profile[profile.study == study_of(results.workload, "pass", name)]
    points = together[together.target == name]
    if points.empty:
        path = results.profile_path
        raise InputError(f"{path}: no pass '{name}': this figure needs a sweep of passes, tables of kernels have none")
    auto = points[points.is_baseline].iloc[0]
    # of all passes, so that a clock looks alike in each
    clocks = [*sorted(together.mem_mhz.dropna().unique()), np.nan]
    return pd.DataFrame(
        {
            "core_mhz": points.core_mhz,
            "mem_mhz": points.mem_mhz,
            X: np.log10(points.time_s / auto.time_s),
            Y: change_percent(points.energy_j, auto.energy_j),
            "time_se": points.time_se_s.astype(float) / points.time_s,
            "energy_se": points.energy_se_j.astype(float) / points.energy_j,
            "reached": points.verdict == "ok",
            "is_baseline": points.is_baseline,
            "memory": pd.Categorical([_mhz(clock) for clock in points.mem_mhz], [_mhz(clock) for clock in clocks]),
        }
    ).reset_index(drop=True)


def better_than_auto(points: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs in the waste square: no time lost, energy saved; best first."""
    return points[(points[X] <= 0) & (points[Y] < 0)].sort_values(Y)


def scatter(points: pd.DataFrame) -> Box | None:
    """Return the box of the standard errors of auto and, in the median, of the other pairs; None where they are not
    known.

    Of the difference of two independent measurements the variances add.
    """
    auto, others = points[points.is_baseline].iloc[0], points[~points.is_baseline]
    halves = [
        100 * _NORMAL_95 * float(np.hypot(auto[name], others[name].median())) for name in ("time_se", "energy_se")
    ]
    return None if np.isnan(halves).any() else Box(*halves)


def beyond(points: pd.DataFrame, box: Box) -> pd.Series:
    """Return which pairs lie outside the box."""
    return (np.abs(10 ** points[X] - 1) > box.time_percent / 100) | (np.abs(points[Y]) > box.energy_percent)


def views(points: pd.DataFrame, box: Box | None) -> list[View]:
    """Return all pairs; the surroundings of auto, with the square's best and the box."""
    gains = better_than_auto(points)
    half_x, half_y = _HALF_TIME, _HALF_PERCENT
    if len(gains):
        half_x, half_y = max(half_x, -1.25 * gains[X].min()), max(half_y, -1.25 * gains[Y].min())
    if box:
        half_x = max(half_x, 1.25 * np.log10(1 + box.time_percent / 100))
        half_y = max(half_y, 1.25 * box.energy_percent)
    near = View("", -half_x, half_x, -half_y, half_y)
    inside = int(_inside(points, near).sum())
    return [
        _around(f"all {len(points)} pairs", points),
        near._replace(name=f"around auto: {inside} pairs, the other {len(points) - inside} lie outside"),
    ]


def breaks(limits: tuple[float, float]) -> list[float]:
    """Return ticks of the time axis, log10 of round ratios that lie within the limits (log10 themselves)."""
    low, high = (10**limit for limit in limits)
    if high / low > 1.5:
        inside = [ratio for ratio in _RATIOS if low <= ratio <= high]
        # on a long axis those of the upper end would touch
        return [float(np.log10(ratio)) for ratio in (inside if len(inside) <= 7 else inside[::2])]
    step = next(width for width in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1) if (high - low) / width <= 7)
    count = range(int(np.ceil((low - 1) / step)), int((high - 1) / step) + 1)
    return [float(np.log10(1 + number * step)) for number in count]


def ratios(ticks: Sequence[Any]) -> list[str]:
    """Return what ticks of the time axis say."""
    return [f"{10**tick:.4g}" for tick in ticks]


def visible(path: np.ndarray, view: View) -> list[np.ndarray]:
    """Return the pieces of a polyline (n x 2) that lie inside a view, each n x 2 (line clipping by Liang and
    Barsky)."""
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
    planes: Sequence[Plane], make: Callable[[Plane, View], pd.DataFrame], rows: Sequence[int] = (_ALL, _NEAR)
) -> pd.DataFrame:
    """Return make(plane, view) of each panel in `rows`, under the panel's name."""
    names = [plane.panels[row].name for row in (_ALL, _NEAR) for plane in planes]
    frames = [make(plane, plane.panels[row]).assign(view=plane.panels[row].name) for row in rows for plane in planes]
    return pd.concat(frames).assign(view=lambda frame: pd.Categorical(frame.view, names))


def _around(name: str, points: pd.DataFrame) -> View:
    (left, right), (bottom, top) = ((min(points[a].min(), 0), max(points[a].max(), 0)) for a in (X, Y))
    # pairs that are all alike, as where no clock was obeyed, still need a panel
    wide, high = max(right - left, _LEAST[0]), max(top - bottom, _LEAST[1])
    return View(name, left - 0.05 * wide, right + 0.06 * wide, bottom - 0.1 * high, top + 0.14 * high)


def _inside(points: pd.DataFrame, view: View) -> pd.Series:
    return points[X].between(view.left, view.right) & points[Y].between(view.bottom, view.top)


def _corners(view: View) -> pd.DataFrame:
    return pd.DataFrame({X: [view.left, view.right], Y: [view.bottom, view.top]})


def _best(plane: Plane, view: View) -> pd.DataFrame:
    best = better_than_auto(plane.points)[:1]
    return best[_inside(best, view)]


def _edges(box: Box | None) -> pd.DataFrame:
    """Return the box in X and Y; no row where there is none."""
    frame = pd.DataFrame(columns=["left", "right", "bottom", "top"], dtype=float)
    if box:
        sides = [np.log10(1 + sign * box.time_percent / 100) for sign in (-1, 1)]
        frame.loc[0] = [*sides, -box.energy_percent, box.energy_percent]
    return frame


def _curves(points: pd.DataFrame, view: View) -> pd.DataFrame:
    """Return the visible pieces of each memory clock's curve, core clocks in order; of curves that are one, the
    first."""
    rows: list[tuple[Any, ...]] = []
    curves = points.dropna(subset="core_mhz").sort_values("core_mhz").groupby("memory", observed=True)
    drawn: list[pd.DataFrame] = []
    for memory, curve in curves:
        if any(_are_one(curve, other) for other in drawn):
            continue
        drawn.append(curve)
        for number, piece in enumerate(visible(curve[[X, Y]].to_numpy(), view)):
            rows += [(*point, memory, f"{memory} {number}") for point in piece]
    # numbers even if no row: plotnine takes an empty column of objects for names
    frame = pd.DataFrame(rows, columns=[X, Y, "memory", "piece"]).astype({X: float, Y: float})
    return frame.assign(memory=pd.Categorical(frame.memory, points.memory.cat.categories))


def _are_one(curve: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether two memory clocks differ nowhere by more than what a reader would take for one line."""
    both = curve.merge(other, on="core_mhz", suffixes=("", "_other"))
    apart = [(both[axis] - both[f"{axis}_other"]).abs().max() for axis in (X, Y)]
    return len(both) == len(curve) and apart[0] < _ONE[0] and apart[1] < _ONE[1]


def _labels(plane: Plane, view: View) -> pd.DataFrame:
    """Return core clocks next to their points, as far as each can be told from its neighbours.

    Of all pairs only ends and bests of the curves, and none that the view around auto shows.
    """
    points = plane.points
    inside = points[_inside(points, view)]
    candidates = inside[~inside.is_baseline]
    is_first = view is plane.panels[_ALL]
    if is_first:
        candidates = candidates[_landmarks(points)[candidates.index] & ~_inside(candidates, plane.panels[_NEAR])]
    candidates = candidates.sort_values(Y)
    wanted = pd.DataFrame(
        {"x": candidates[X], "y": candidates[Y], "label": [_core(clock) for clock in candidates.core_mhz]}
    )
    edges = [np.array([[0, view.bottom], [0, 0], [view.left, 0]])]
    if is_first:
        edges += [piece[[X, Y]].to_numpy() for _, piece in _curves(points, view).groupby("piece")]
    # curves that lie on one another need one label, points around auto one each
    apart = 0.35 if is_first else 0
    return labels.place(wanted, inside[[X, Y]].to_numpy(), edges, view[1:], _PANEL_INCHES, apart)


def _landmarks(points: pd.DataFrame) -> pd.Series:
    """Return which points are the lowest, the highest or the auto core clock of their curve, or its least energy."""
    curves = points.groupby("memory", observed=True)
    ends = [points.core_mhz == curves.core_mhz.transform(extreme) for extreme in ("min", "max")]
    return ends[0] | ends[1] | points.core_mhz.isna() | (points[Y] == curves[Y].transform("min"))


def _title(planes: Sequence[Plane]) -> str:
    if len(planes) == 1:
        return f"{planes[0].name}: each clock pair against auto"
    counts = [f"{len(better_than_auto(plane.points))} in the {plane.name.lower()}" for plane in planes]
    return f"Clock pairs that are better than auto: {', '.join(counts)}"


def _caption(results: Results, planes: Sequence[Plane]) -> str:
    sentences = ["+: auto. Blue: better than auto. Ring: the best."]
    sentences += [f"{plane.name}: {_better(plane)}." for plane in planes]
    if len(planes) > 1:
        sentences.append(_papers(results))
    without = [plane.name.lower() for plane in planes if not plane.box]
    if len(without) < len(planes):
        sentences.append("Grey box: where 95 of 100 pairs that run just as auto does would lie.")
    if without:
        of = f" ({', '.join(without)})" if len(without) < len(planes) else ""
        sentences.append(f"No box{of}: how far measurements scatter is not known.")
    return "\n".join([*sentences, "Numbers: core clock, MHz. Hollow: a clock that the GPU did not reach."])


def _papers(results: Results) -> str:
    """Return the paper's figures, and what is known of them where the GPU and the workload are the paper's."""
    figures = "The paper's Figures 3 and 4"
    if not words.is_papers(results.subject, results.workload["name"]):
        return f"{figures}."
    pairs = " and ".join(f"{count or 'none'} in the {name} pass" for name, count in words.PAPER_PAIRS.items())
    return f"{figures}: {pairs}; about {-words.PAPER_PERCENT['pass']:g} % of energy saved by a pair a pass."


def _better(plane: Plane) -> str:
    """Return how many pairs are better than auto, how many of them by more than scatter, and the best."""
    gains = better_than_auto(plane.points)
    if gains.empty:
        return "no pair"
    counts = "1 pair" if len(gains) == 1 else f"{len(gains)} pairs"
    if plane.box:
        counts += f", {int(beyond(gains, plane.box).sum()) or 'none'} outside the box"
    return f"{counts}; the best: core {_core(gains.iloc[0].core_mhz)}, memory {_mhz(gains.iloc[0].mem_mhz)}"


def _core(clock: float) -> str:
    return "auto" if clock != clock else f"{clock:g}"


def _mhz(clock: float) -> str:
    return "auto" if clock != clock else f"{clock:g} MHz"
