"""Fits the top of the curve: how the clock of auto and of the highest requests falls with power, and what they draw.

What matters there is a contrast: how much longer or cooler a kernel runs at the highest clock below the top than at
the top itself. So each row at the top is compared with the kernel's own row at that clock and the same memory clock,
and the constants answer for the ratio of the two. What the model gets wrong of a kernel at both cancels.

Few constants, all of the GPU: the top clock of a locked and of an auto board, slope and knee of their fall over power,
the voltage up there, what auto adds to power, and the mean power at the cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares

from experiments.calibration.constants import Constant, values, with_values
from experiments.calibration.points import Point, Points, power_w
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.noise import window_sd
from kernel_dvfs_clocks.clocks import AUTO, applied_mem_mhz, asked_core_mhz, top_core_mhz

if TYPE_CHECKING:
    from kernel_dvfs.gpu.kernel import Kernel

_MISFIT = 0.004  # of the model, relative: no row counts for more than this allows
_OUTLYING = 1.0  # standard deviations from which a row weighs less
_PASSES = 2  # clocks, then power, then again: power moves the clock a little


@dataclass(frozen=True, slots=True)
class Contrast:
    """A row at the top and the row of the same kernel and memory clock that it is compared with."""

    top: Point
    below: Point


def is_top(spec: dict[str, Any], point: Point) -> bool:
    """Whether a point's request asks for the top of the curve, where the GPU's spec knows one."""
    clocks = spec["clocks"]
    return "top" in clocks and asked_core_mhz(clocks, point.pair) >= top_core_mhz(clocks)


def contrasts(points: Points, spec: dict[str, Any]) -> list[Contrast]:
    """The rows at the top that are clear of the cap, each with the kernel's row just below the top.

    Auto rows of launches so short that the governor does not take them for a load are left out
    (governor.auto_light_load_below_us).
    """
    clocks, least_s = spec["clocks"], spec["governor"]["auto_light_load_below_us"] * 1e-6
    below: dict[tuple[int, int], Point] = {}
    for point in sorted(points.below, key=lambda point: asked_core_mhz(clocks, point.pair)):
        if not is_top(spec, point):
            below[point.kernel, applied_mem_mhz(clocks, point.pair)] = point
    found = []
    for point in [*points.below, *points.auto_below]:
        place = point.kernel, applied_mem_mhz(clocks, point.pair)
        light = point.pair.core_mhz == AUTO and point.time_s < least_s
        if is_top(spec, point) and not light and place in below:
            found.append(Contrast(point, below[place]))
    return found


def top_constants(spec: dict[str, Any]) -> list[Constant]:
    """The constants that `fit_top` fits; none where the GPU's spec knows no top."""
    return [*_of_time(), *_of_power(spec), *_OF_CAP] if "top" in spec["clocks"] else []


_OF_CAP: list[Constant] = [[("governor", "cap_w")]]
_OF_AUTO: list[Constant] = [[("governor", "auto_extra_power")]]


def _of_time() -> list[Constant]:
    top = [("clocks", "top", name) for name in ("above_auto_mhz", "mhz_per_w", "above_w")]
    return [[place] for place in [("clocks", "auto_core_mhz"), *top]]


def _of_power(spec: dict[str, Any]) -> list[Constant]:
    return [[("core", "v_over_v0", len(spec["core"]["v_over_v0"]) - 1, 1)], *_OF_AUTO]


def fit_top(points: Points, spec: dict[str, Any], kernels: Sequence[Kernel], voltage: bool = True) -> dict[str, Any]:
    """A copy of the spec with the constants of its top fitted, the kernels being known.

    voltage: whether voltage rises with the clock (fit.Form).
    """
    rows = contrasts(points, spec)
    if not rows:
        return spec
    of_power = _of_power(spec)[0 if voltage else 1 :]
    held = [power_w(point) for point in points.capped if _state(spec, kernels, point).capped]
    if held:
        spec = with_values(spec, _OF_CAP, [fmean(held)])
    # from afar by plain least squares, then robustly
    for loss in ("linear", *["soft_l1"] * _PASSES):
        spec = _fit(rows, spec, kernels, _of_time(), 0, loss)
        spec = _fit(rows, spec, kernels, of_power, 1, loss)
    # a few auto runs draw up to a tenth more than the same clocks locked, and nobody knows why. They are as real as the
    # others: what is saved against auto on average is saved against the mean
    return _fit([row for row in rows if row.top.pair.core_mhz == AUTO], spec, kernels, _OF_AUTO, 1, "linear")


def _state(spec: dict[str, Any], kernels: Sequence[Kernel], point: Point) -> Any:
    return settle(spec, [(kernels[point.kernel], 1)], point.pair, spec["thermal"]["reference_c"])


def _fit(
    rows: Sequence[Contrast],
    spec: dict[str, Any],
    kernels: Sequence[Kernel],
    constants: Sequence[Constant],
    quantity: int,
    loss: str,
) -> dict[str, Any]:
    """The constants that meet the contrasts of time (quantity 0) or of power (1) best, by least squares."""
    # what starts at nought moves too
    start = np.array(values(spec, constants)) + 1e-3

    def log_of(state: Any) -> float:
        return math.log(state.power_w if quantity else state.time_s)

    measured, spread = [], []
    for row in rows:
        both = (power_w(row.top), power_w(row.below)) if quantity else (row.top.time_s, row.below.time_s)
        measured.append(math.log(both[0] / both[1]))
        spread.append(math.hypot(window_sd(spec["noise"]["window"], row.top.time_s)[quantity], _MISFIT))

    def residual(x: np.ndarray) -> np.ndarray:
        moved = with_values(spec, constants, x * start)
        model = [log_of(_state(moved, kernels, row.top)) - log_of(_state(moved, kernels, row.below)) for row in rows]
        return (np.array(model) - measured) / spread

    found = least_squares(
        residual, np.ones(len(start)), bounds=(0, np.inf), diff_step=1e-4, loss=loss, f_scale=_OUTLYING
    )
    return with_values(spec, constants, found.x * start)
