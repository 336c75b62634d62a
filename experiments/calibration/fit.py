"""Fits the simulated GPU to measured points: five parameters per kernel, and the GPU's constants if wanted.

The model is kernel_dvfs.gpu itself: there is no second copy of its formulas here. Time does not depend on
power, so its parameters (core work C, memory work M, latency t0) come first, then those of power (core energy
A, DRAM energy B). The kernels' parameters serve a score and are thrown away; no study uses them.

A score is a percentage error by kind of point and quantity. It predicts with the governor at the spec's cap, as the
simulated GPU does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from experiments.calibration.constants import Constant, power_constants, solve, time_constants, voltages
from experiments.calibration.points import Point, Points, power_w
from experiments.calibration.top import fit_top, is_top
from kernel_dvfs.gpu.governor import GovernedLoad, OperatingPoint, settle
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.model import launch_time_s, relative_bandwidth
from kernel_dvfs_clocks.clocks import applied_mem_mhz, asked_core_mhz, reached_core_mhz


@dataclass(frozen=True, slots=True)
class Form:
    """What a model can express."""

    overlap: float  # the exponent p
    latency: bool  # whether a launch has a latency
    voltage: bool  # whether voltage rises with the clock


# the classic roofline, constant voltage: p = infinity turns the model's sum of C/f and M/b into their maximum
ROOFLINE = Form(overlap=math.inf, latency=False, voltage=False)


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a fit found."""

    spec: dict[str, Any]  # its constants as shipped or fitted
    kernels: list[Kernel]  # one per kernel of the table


# where fits start. C, M, t0: shares of the longest each can be without exceeding a measured time;
# A, B: shares of the least measured energy (one start: power is linear in them)
_TIME_STARTS = ((0.6, 0.6, 0.4), (0.9, 0.3, 0.05), (0.3, 0.9, 0.05))
_POWER_STARTS = ((0.3, 0.3),)
_CLEAR_OF_TOP_MHZ = 30  # two steps of the grid
_CORE_BOUND = 0.9  # least d log(time) / d log(1 / clock) at which a run time tells the clock


def form_of(spec: dict[str, Any]) -> Form:
    """The form of a simulated GPU's model: the exponent of its streaming kernels, a latency and a voltage."""
    return Form(overlap=spec["families"]["residual"]["overlap"], latency=True, voltage=True)


def fit(points: Points, spec: dict[str, Any], form: Form | None = None, constants: bool = True) -> Fitted:
    """Fit the points below the cap. form: None for the GPU's own.

    constants: fit those of the GPU too, starting from the spec's: first all but the top of the curve on the points
    below it, then the top (top.py), and with both the kernels' parameters; else the kernels' parameters only.
    """
    form = form or form_of(spec)
    if not form.voltage:
        spec = _constant_voltage(spec)
    if constants:
        under = replace(points, below=[point for point in points.below if not is_top(spec, point)])
        fitted = fit_points(under, spec, *all_constants(under, spec, form.voltage), form)
        spec = fit_top(points, fitted.spec, fitted.kernels, form.voltage)
    return fit_points(points, spec, [], [], form)


def fit_points(
    points: Points, spec: dict[str, Any], of_time: list[Constant], of_power: list[Constant], form: Form | None = None
) -> Fitted:
    """Fit the kernels' parameters, and the constants given, to the points below the cap. form: None: the GPU's own."""
    form = form or form_of(spec)
    spec, kernels = _fit_time(points, spec, form, of_time)
    used = list(points.below)
    if form.voltage:
        used += _with_clocks_from_time(points.capped, spec, kernels)
    return _fit_power(used, spec, kernels, of_power)


def _constant_voltage(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"core": spec["core"] | {"v_over_v0": [[mhz, 1.0] for mhz, _ in spec["core"]["v_over_v0"]]}}


def all_constants(points: Points, spec: dict[str, Any], voltage: bool = True) -> tuple[list[Constant], list[Constant]]:
    """(constants of time, constants of power) that the points below the top tell (constants.py)."""
    mem_mhz = {applied_mem_mhz(spec["clocks"], point.pair) for point in points.below}
    of_power = power_constants(spec, mem_mhz) + (voltages(spec)[1:] if voltage else [])
    return time_constants(spec, mem_mhz), of_power


def state(spec: dict[str, Any], kernel: Kernel, point: Point) -> OperatingPoint:
    """The state of a kernel at a point's clocks, the board as warm as for its static power."""
    return settle(spec, [(kernel, 1)], point.pair, spec["thermal"]["reference_c"])


def core_mhz(spec: dict[str, Any], point: Point) -> float:
    """The clock (MHz) at which a point below the power cap ran: what its request and its power allow."""
    if point.core_mhz is not None:
        return point.core_mhz
    return reached_core_mhz(spec["clocks"], point.pair, power_w(point))


def clock_from_time(spec: dict[str, Any], kernel: Kernel, point: Point) -> float | None:
    """The core clock (MHz) at which a kernel takes as long as at a point; None where time does not tell.

    Lets a power-capped run of a core-bound kernel say what clock the cap left it, without the power model.
    """
    lowest, ceiling = spec["clocks"]["core_mhz"]["lowest"], core_mhz(spec, point)
    bandwidth = _bandwidth(spec, point)

    def log_ratio(core_mhz: float) -> float:
        return math.log(launch_time_s(kernel, core_mhz / 1000, bandwidth) / point.time_s)

    if log_ratio(ceiling) >= 0 or log_ratio(lowest) <= 0:
        return None
    found = brentq(log_ratio, lowest, ceiling, xtol=0.1)
    slope = (log_ratio(found * 0.99) - log_ratio(found)) / -math.log(0.99)
    return found if slope >= _CORE_BOUND else None


def _fit_time(
    points: Points, spec: dict[str, Any], form: Form, constants: list[Constant]
) -> tuple[dict[str, Any], list[Kernel]]:
    """(spec, kernels): the constants of time, and C, M, t0 of each kernel; A and B still nought."""
    # no part of a launch can be longer than the whole
    longest = np.full((len(points.kernels), 3), np.inf)
    for point in points.below:
        per_s = np.array([core_mhz(spec, point) / 1000, _bandwidth(spec, point), 1.0])
        longest[point.kernel] = np.minimum(longest[point.kernel], point.time_s * per_s)

    def kernel(number: int, shares: np.ndarray) -> Kernel:
        core_s_ghz, memory_s, latency_s = (*(shares * longest[number, : len(shares)]).tolist(), 0.0)[:3]
        return Kernel(core_s_ghz, memory_s, latency_s, form.overlap, 0.0, 0.0)

    def time_s(spec: dict[str, Any], kernel: Kernel, point: Point) -> float:
        return launch_time_s(kernel, core_mhz(spec, point) / 1000, _bandwidth(spec, point))

    starts = [start[: 3 if form.latency else 2] for start in _TIME_STARTS]
    measured = [point.time_s for point in points.below]
    return solve(points.below, measured, time_s, kernel, spec, constants, starts)


def _with_clocks_from_time(capped: Sequence[Point], spec: dict[str, Any], kernels: Sequence[Kernel]) -> list[Point]:
    """Power-capped points whose time tells their clock, with that clock: they show the voltage up there."""
    known = []
    for point in capped:
        mhz = clock_from_time(spec, kernels[point.kernel], point)
        # close to the top clock the voltage may be that of any request above
        if mhz is not None and mhz < core_mhz(spec, point) - _CLEAR_OF_TOP_MHZ:
            known.append(replace(point, core_mhz=mhz))
    return known


def _fit_power(
    points: Sequence[Point], spec: dict[str, Any], timed: Sequence[Kernel], constants: list[Constant]
) -> Fitted:
    """The constants of power, and A, B of each kernel, its time being known."""
    least_j = np.full(len(timed), np.inf)
    for point in points:
        least_j[point.kernel] = min(least_j[point.kernel], point.energy_j)

    def kernel(number: int, shares: np.ndarray) -> Kernel:
        core_j, dram_j = (shares * least_j[number]).tolist()
        of_time = timed[number]
        core_s_ghz, memory_s, latency_s = of_time.core_s_ghz, of_time.memory_s, of_time.latency_s
        return Kernel(core_s_ghz, memory_s, latency_s, of_time.overlap, core_j, dram_j)

    def mean_w(spec: dict[str, Any], kernel: Kernel, point: Point) -> float:
        asked = point.core_mhz or asked_core_mhz(spec["clocks"], point.pair)
        running = GovernedLoad(spec, [(kernel, 1)], point.pair)
        return running.at(asked, core_mhz(spec, point), spec["thermal"]["reference_c"])[1]

    measured = [power_w(point) for point in points]
    return Fitted(*solve(points, measured, mean_w, kernel, spec, constants, _POWER_STARTS))


def _bandwidth(spec: dict[str, Any], point: Point) -> float:
    return relative_bandwidth(spec["memory"], applied_mem_mhz(spec["clocks"], point.pair))


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
    """{"time" | "power" | "energy": Score} of a Fitted on a list of Point; {} for none."""
    if not points:
        return {}
    states = [state(fitted.spec, fitted.kernels[point.kernel], point) for point in points]
    measured = np.array([(point.time_s, power_w(point), point.energy_j) for point in points])
    predicted = np.array([(s.time_s, s.power_w, s.time_s * s.power_w) for s in states])
    return {name: score(predicted[:, i], measured[:, i]) for i, name in enumerate(QUANTITIES)}


def score_table(fitted: Fitted, points: Points) -> dict[tuple[str, str], Score]:
    """{("below" | "capped" | "auto", quantity): Score} of a table (Points)."""
    return {
        (kind, quantity): one
        for kind in ("below", "capped", "auto")
        for quantity, one in score_points(fitted, getattr(points, kind)).items()
    }
