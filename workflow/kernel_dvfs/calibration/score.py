"""How far a fitted model is from measured points: percentage errors by kind of point and quantity.

Predicts with the governor at the spec's cap, as the simulated GPU does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernel_dvfs.calibration.fit import Fitted, state
from kernel_dvfs.calibration.points import Point, Points, power_w


@dataclass(frozen=True, slots=True)
class Score:
    """How far predictions are from measurements, in percent."""

    n: int  # points
    mape: float  # mean absolute error
    p95: float  # 95th percentile of the absolute error
    bias: float  # mean error


QUANTITIES = ("time", "power", "energy")


def score(predicted: ArrayLike, measured: ArrayLike) -> Score:
    """Score of predictions against measurements (both arrays of positive numbers in one unit)."""
    error = 100 * (np.asarray(predicted) / np.asarray(measured) - 1)
    size = np.abs(error)
    return Score(len(error), float(size.mean()), float(np.percentile(size, 95)), float(error.mean()))


def score_points(fitted: Fitted, points: list[Point]) -> dict[str, Score]:
    """{"time" | "power" | "energy": Score} of a calibration.fit.Fitted on a list of Point; {} for none."""
    if not points:
        return {}
    states = [state(fitted.spec, fitted.kernels[point.kernel], point) for point in points]
    measured = np.array([(point.time_s, power_w(point), point.energy_j) for point in points])
    predicted = np.array([(s.time_s, s.power_w, s.time_s * s.power_w) for s in states])
    return {name: score(predicted[:, i], measured[:, i]) for i, name in enumerate(QUANTITIES)}


def score_table(fitted: Fitted, points: Points) -> dict[tuple[str, str], Score]:
    """{("below" | "capped" | "auto", quantity): Score} of a table (calibration.points.Points)."""
    return {
        (kind, quantity): one
        for kind in ("below", "capped", "auto")
        for quantity, one in score_points(fitted, getattr(points, kind)).items()
    }
