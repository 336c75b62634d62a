"""Perseus's published algorithm, the baseline: one unit of time off the iteration at a time, by a minimum cut.

Source: Chung et al., "Reducing Energy Bloat in Large Model Training", SOSP 2024, its artifact, and its code lowtime
0.3.0 (Apache-2.0), rewritten from the description. Each operation's options lie on a grid of unit times, with an
exponential through them; the exact frontier (curve.py, frontier.py) needs neither grid nor fit. What the cut costs
is in whole microjoules, as there; so the flows are integers, and the source-most minimum cut is the same whichever
solver finds the flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from ortools.graph.python import max_flow
from scipy.optimize import minimize_scalar

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.curve import TICKS_PER_S
from kernel_dvfs_pipeline.graph import Graph, Waits, finishes

FILTERS = ("raw", "effective")
# options that survive must number more than this, or the filter is repeated with a tolerance
_FEW, _TOLERANCE = 3, 0.95

_UNIT_J = 1e-6
_INFINITE = round(10000 / _UNIT_J)
# below this change of cost the algorithm stops, J
_STILL_J = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class UnitCurve:
    """The published algorithm's view of one operation."""

    units: np.ndarray  # (n,) int, unit times of the options kept, falling
    cost_j: np.ndarray  # (n,) effective energy
    setting: np.ndarray  # (n,) rows of the profile
    at_unit: dict[int, float]  # {unit time: J} of the fitted exponential, every unit time from fastest to slowest

    @property
    def fastest(self) -> int:
        return int(self.units[-1])

    @property
    def slowest(self) -> int:
        return int(self.units[0])

    def setting_at(self, units: int) -> int:
        """Return the slowest option that takes at most `units` by its floored time, else the fastest."""
        return int(self.settings_at(np.array([units]))[0])

    def settings_at(self, units: np.ndarray) -> np.ndarray:
        """Return what setting_at does, for an array of unit times."""
        # units fall
        return self.setting[np.minimum(np.searchsorted(-self.units, -units), len(self.units) - 1)]


def unit_curve(
    time_s: ArrayLike, energy_j: ArrayLike, blocking_w: float, unit_s: float = 0.001, filter_on: str = "raw"
) -> UnitCurve:
    """Return an operation's curve: filter, floor to units of `unit_s`, subtract the blocking energy, fit.

    filter_on: "raw" drops by energy, then subtracts (the artifact); "effective" subtracts first (Zeus's later code).
    Raises InputError where a floored time is zero.
    """
    time_s, energy_j = np.asarray(time_s, float), np.asarray(energy_j, float)
    units = np.floor_divide(time_s, unit_s).astype(np.int64)
    if units.min() < 1:
        raise InputError(
            f"published algorithm: an option takes less than the unit time {unit_s:g} s; lower unit_time_s"
        )
    waiting = blocking_w * units * unit_s
    compared = energy_j if filter_on == "raw" else energy_j - waiting
    options = _undominated(time_s, compared, 1.0)
    if len(options) <= _FEW:
        options = _undominated(time_s, compared, _TOLERANCE)
    dearest: dict[int, int] = {}
    for option in options.tolist():
        other = dearest.get(units[option])
        if other is None or compared[option] > compared[other]:
            dearest[units[option]] = option
    rows = np.array([dearest[unit] for unit in sorted(dearest, reverse=True)])
    kept_units, cost = units[rows], (energy_j - waiting)[rows]
    grid = np.arange(kept_units[-1], kept_units[0] + 1)
    fitted = _exponential(kept_units, cost)(grid) if len(kept_units) > 1 else cost
    return UnitCurve(kept_units, cost, rows, dict(zip(grid.tolist(), np.asarray(fitted).tolist())))


def _undominated(time: np.ndarray, cost: np.ndarray, factor: float) -> np.ndarray:
    """Return the options for which no other is faster and cheaper, both by `factor`."""
    worse = (time[None, :] < factor * time[:, None]) & (cost[None, :] < factor * cost[:, None])
    return np.flatnonzero(~worse.any(axis=1))


def _exponential(units: np.ndarray, cost: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return c(q) = a exp(b q) + k of least squares with a >= 0. For a fixed b it is linear in a and k."""
    q = (units - units.min()) / (units.max() - units.min())

    def linear(b: float) -> tuple[float, float, float]:
        shape = np.exp(b * q - max(b, 0.0))
        centred = shape - shape.mean()
        a = max(float(centred @ cost / (centred @ centred)), 0.0)
        k = float((cost - a * shape).mean())
        return a, k, float(((a * shape + k - cost) ** 2).sum())

    def residual(log_b: float, sign: int) -> float:
        return linear(sign * np.exp(log_b))[2]

    coarse = np.linspace(np.log(1e-3), np.log(60), 120)
    fits = []
    for sign in (-1, 1):
        best = coarse[int(np.argmin([residual(log_b, sign) for log_b in coarse]))]
        step = coarse[1] - coarse[0]
        bounds = (best - step, best + step)
        fine = minimize_scalar(residual, bounds=bounds, args=(sign,), method="bounded", options={"xatol": 1e-11})
        fits.append((fine.fun, sign * float(np.exp(fine.x))))
    b = min(fits)[1]
    a, k, _ = linear(b)
    low, span = units.min(), units.max() - units.min()
    return lambda at: a * np.exp(b * (at - low) / span - max(b, 0.0)) + k


@dataclass(frozen=True, slots=True, eq=False)
class PublishedFrontier:
    """The published algorithm's answer, slowest iteration first."""

    time_s: np.ndarray  # (R,) as promised
    energy_j: np.ndarray  # (R,) by the fit
    slowest: np.ndarray  # (N,) durations before the first point, unit times
    moves: list[tuple[np.ndarray, np.ndarray]]  # (R,) per point: operations that it makes shorter, and longer, by one

    def units_at(self, point: int) -> np.ndarray:
        """Return (N,) planned durations of a point in unit times. Points share them but for a few operations each."""
        units = self.slowest.copy()
        for shorter, longer in self.moves[: point % len(self.moves) + 1]:
            units[shorter] -= 1
            units[longer] += 1
        return units

    def cheapest_within(self, time_s: float) -> int:
        """Return the artifact's lookup: the point of least energy that promises at most `time_s`, else the last."""
        within = [point for point, promised_s in enumerate(self.time_s.tolist()) if promised_s <= time_s * (1 + 1e-12)]
        return min(within, key=lambda point: self.energy_j[point]) if within else len(self.time_s) - 1


def published_frontier(
    graph: Graph, curves: list[UnitCurve], blocking_w: float, unit_s: float = 0.001
) -> PublishedFrontier:
    """Return the frontier of `curves`, one per operation. Edges take whole units of time, rounded down as well."""
    state = _State(graph, curves, unit_s)
    slowest = state.units.copy()
    time_s, energy_j, moves = [], [], []
    blocking_j = blocking_w * graph.stages * unit_s
    while state.step():
        time_s.append(state.length * unit_s)
        energy_j.append(state.cost_j + blocking_j * state.length)
        moves.append(state.moved)
    return PublishedFrontier(np.array(time_s), np.array(energy_j), slowest, moves)


def published_length(graph: Graph, units: Sequence[int], unit_s: float) -> int:
    """Return the unit times of an iteration whose operations take `units`."""
    return max(finishes(_in_units(graph.before, unit_s), units))


def _in_units(neighbours: Waits, unit_s: float) -> Waits:
    unit_ticks = round(unit_s * TICKS_PER_S)
    return [[(other, lag // unit_ticks) for other, lag in waits] for waits in neighbours]


class _State:
    """Durations in unit times, and what one unit more or less costs each operation."""

    def __init__(self, graph: Graph, curves: list[UnitCurve], unit_s: float) -> None:
        n = len(graph)
        self.curves = curves
        self.before, self.after = _in_units(graph.before, unit_s), _in_units(graph.after, unit_s)
        self.units = np.array([curve.slowest for curve in curves])
        self.cost_j = sum(curve.at_unit[curve.slowest] for curve in curves)
        entry = [i for i in range(n) if not graph.before[i]]
        leave = [i for i in range(n) if not graph.after[i]]
        # nodes: begins, ends, source, sink, and the two that carry the lower bounds
        self.source, self.sink, self.super_source, self.super_sink = range(2 * n, 2 * n + 4)
        self.tail = np.concatenate([np.arange(n), graph.tail + n, np.full(len(entry), self.source), np.add(leave, n)])
        self.head = np.concatenate([np.arange(n) + n, graph.head, entry, np.full(len(leave), self.sink)]).astype(int)
        lag = graph.lag_ticks // round(unit_s * TICKS_PER_S)
        self.lag = np.concatenate([lag, np.zeros(len(entry) + len(leave), np.int64)])
        self.bounds = [self._bounds(i) for i in range(n)]
        self.moved: tuple[np.ndarray, np.ndarray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._time()

    def _time(self) -> None:
        """Set earliest and latest times of all nodes; the length of the iteration, in units."""
        units, n = self.units.tolist(), len(self.units)
        finish = finishes(self.before, units)
        self.length = max(finish)
        latest = [self.length] * n
        for number in range(n - 1, -1, -1):
            latest[number] = min(
                (latest[other] - units[other] - lag for other, lag in self.after[number]), default=self.length
            )
        # by node: begins, ends, source, sink
        self.earliest, self.latest = (
            np.concatenate([ends - self.units, ends, [0, self.length]]) for ends in (np.array(finish), np.array(latest))
        )

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the (least, most) flow of an operation's arc, uJ: what a unit more saves, what a unit less costs."""
        at, units = self.curves[number].at_unit, int(self.units[number])
        fastest, slowest = self.curves[number].fastest, self.curves[number].slowest
        if fastest == slowest:
            return 0, _INFINITE
        least = 0 if units == slowest else _whole(abs(at[units] - at[units + 1]))
        if units == fastest:
            return least, _INFINITE
        return least, _whole(abs(at[units - 1] - at[units]) + (0.0 if units == slowest else _UNIT_J))

    def step(self) -> bool:
        """Shorten the iteration by one unit; return False where that is not possible or changes nothing."""
        n = len(self.units)
        duration = np.concatenate([self.units, self.lag])
        critical = np.flatnonzero(self.earliest[self.tail] + duration == self.latest[self.head])
        operations = critical[critical < n]
        least = np.zeros(len(critical), np.int64)
        most = np.full(len(critical), _INFINITE)
        least[: len(operations)], most[: len(operations)] = np.array(
            [self.bounds[number] for number in operations.tolist()]
        ).T
        near = self._source_side(self.tail[critical], self.head[critical], least, most)
        if near is None:
            return False
        from_near, to_near = near[self.tail[critical]], near[self.head[critical]]
        change, forward = 0.0, critical[from_near & ~to_near]
        longer = critical[~from_near & to_near]
        longer = longer[longer < n]
        if not len(forward):
            return False
        for number in forward.tolist():
            if number >= n or self.units[number] == self.curves[number].fastest:
                return False
            change += self._move(number, -1)
        for number in longer.tolist():
            if self.units[number] == self.curves[number].slowest:
                return False
            change -= self._move(number, 1)
        if abs(change) < _STILL_J:
            return False
        self.cost_j += change
        self.moved = forward, longer
        self._time()
        return True

    def _move(self, number: int, by: int) -> float:
        at, units = self.curves[number].at_unit, int(self.units[number])
        self.units[number] += by
        self.bounds[number] = self._bounds(number)
        return abs(at[units] - at[units + by])

    def _source_side(
        self, tail: np.ndarray, head: np.ndarray, least: np.ndarray, most: np.ndarray
    ) -> np.ndarray | None:
        """Return (nodes,) bool: the source-most side of a minimum cut with lower bounds; None: no flow keeps them."""
        nodes = self.super_sink + 1
        into = np.bincount(head, weights=least, minlength=nodes).astype(np.int64)
        out = np.bincount(tail, weights=least, minlength=nodes).astype(np.int64)
        needed, owing = np.flatnonzero(into), np.flatnonzero(out)
        feasible = max_flow.SimpleMaxFlow()
        arcs = feasible.add_arcs_with_capacity(tail, head, most - least)
        feasible.add_arcs_with_capacity(np.full(len(needed), self.super_source), needed, into[needed])
        feasible.add_arcs_with_capacity(owing, np.full(len(owing), self.super_sink), out[owing])
        feasible.add_arc_with_capacity(self.sink, self.source, 2**55)
        feasible.solve(self.super_source, self.super_sink)
        if feasible.optimal_flow() < into.sum():
            return None
        flow = feasible.flows(arcs) + least
        residual = max_flow.SimpleMaxFlow()
        residual.add_arcs_with_capacity(
            np.concatenate([tail, head]), np.concatenate([head, tail]), np.concatenate([most - flow, flow - least])
        )
        residual.solve(self.source, self.sink)
        near = np.zeros(nodes, bool)
        near[residual.get_source_side_min_cut()] = True
        return near


def _whole(joule: float) -> int:
    return int(joule // _UNIT_J)
