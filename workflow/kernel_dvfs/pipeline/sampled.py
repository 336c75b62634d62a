"""The frontier of a pipeline too large for its every corner: few records, and a proof of how far off it is between.

The least effective energy is convex in time. At a record the linear programme gives its value and its slope; between
two records it lies below their chord and above both tangents. Steps are as long as chord and tangents stay within the
error asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.curve import TICKS_PER_S, UW_PER_W, Curve
from kernel_dvfs.pipeline.frontier import Frontier
from kernel_dvfs.pipeline.graph import Graph
from kernel_dvfs.pipeline.parametric import Records, check_prices

# a step aims below the error, grows and shrinks by so much at most
_AIM, _GROW, _SHRINK = 0.7, 2.5, 0.2
_FIRST_STEPS = 32


def sampled_frontier(graph: Graph, curves: list[Curve], programme: Any, blocking_w: float, error: float) -> Frontier:
    """Records from the slowest to the fastest iteration, so that energy between them is within a share `error`.

    curves: one per operation; programme: the core's network of them. blocking_w: of the whole pipeline.
    Raises InputError.
    """
    if not 0 < error < 1:
        raise InputError(f"pipeline: error of the frontier = {error}: expected a share between 0 and 1")
    check_prices(curves)
    slowest, fastest = (max(graph.finish_ticks([int(curve.ticks[vertex]) for curve in curves])) for vertex in (-1, 0))
    points: list[tuple[int, float, int, np.ndarray]] = []  # ticks, cost J, price uW, times

    def solve(ticks: int) -> tuple[int, float, int, np.ndarray]:
        if not programme.solve(ticks):
            raise ArithmeticError(f"no iteration takes {ticks} ticks")
        return ticks, programme.cost_j, programme.price_uw, programme.times

    points.append(solve(slowest))
    step, worst = max((slowest - fastest) // _FIRST_STEPS, 1), 0.0
    while points[-1][0] > fastest:
        point = solve(max(fastest, points[-1][0] - step))
        taken = points[-1][0] - point[0]
        found = _error(points[-1], point, blocking_w)
        share = _AIM * np.sqrt(error / found) if found else _GROW
        if found > error and taken > 1:
            step = max(int(taken * max(min(share, _AIM), _SHRINK)), 1)
            continue
        points.append(point)
        worst = max(worst, found)
        step = max(int(taken * min(max(share, _SHRINK), _GROW)), 1)
    ticks = np.array([point[0] for point in points])
    cost = np.array([point[1] for point in points])
    chords = np.zeros(len(points))
    if len(points) > 1:
        chords[1:] = np.diff(cost) / -np.diff(ticks) * (UW_PER_W * TICKS_PER_S)
    records = Records(
        ticks, np.rint(chords).astype(np.int64), np.arange(len(points)), np.array([point[3] for point in points])
    )
    saving = np.array([point[2] for point in points])
    return Frontier(records, cost, blocking_w, saving, worst)


def _error(slow: tuple, fast: tuple, blocking_w: float) -> float:
    """By which share of the energy the chord can lie above the least: at the crossing of the two tangents."""
    (slow_t, slow_j, slow_uw, _), (fast_t, fast_j, fast_uw, _) = slow, fast
    span_s = (slow_t - fast_t) / TICKS_PER_S
    slow_w, fast_w = slow_uw / UW_PER_W, fast_uw / UW_PER_W
    if fast_w <= slow_w:
        return 0.0
    back_s = min(max((fast_j - slow_j - fast_w * span_s) / (slow_w - fast_w), 0.0), span_s)
    least_j = slow_j + slow_w * back_s
    above_j = slow_j + (fast_j - slow_j) * back_s / span_s - least_j
    return max(above_j, 0.0) / (least_j + blocking_w * (slow_t / TICKS_PER_S - back_s))
