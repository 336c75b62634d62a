"""Perseus's published algorithm, the baseline: one unit of time off the iteration at a time, by a minimum cut.

Source: Chung et al., "Reducing Energy Bloat in Large Model Training", SOSP 2024, and its code lowtime 0.3.0
(Apache-2.0), rewritten from the description. What the cut costs is in whole microjoules, as there; so the flows are
integers, and the source-most minimum cut is the same whichever solver finds the flow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.graph.python import max_flow

from kernel_dvfs.pipeline.graph import Graph, finishes
from kernel_dvfs.pipeline.published_curve import UnitCurve
from kernel_dvfs.pipeline.ticks import TICKS_PER_S

_UNIT_J = 1e-6
_INFINITE = round(10000 / _UNIT_J)
# below this change of cost the algorithm stops, J
_STILL_J = 1e-6


@dataclass(frozen=True, eq=False)
class PublishedFrontier:
    """time_s, energy_j: (R,), slowest first, energies by the fit; units: (R, N) planned durations in unit times."""

    time_s: np.ndarray
    energy_j: np.ndarray
    units: np.ndarray


def published_frontier(
    graph: Graph, curves: list[UnitCurve], blocking_w: float, unit_s: float = 0.001
) -> PublishedFrontier:
    """The frontier of `curves`, one per operation. Edges take whole units of time, rounded down like the rest."""
    state = _State(graph, curves, unit_s)
    time_s, energy_j, units = [], [], []
    blocking_j = blocking_w * graph.stages * unit_s
    while state.step():
        time_s.append(state.length * unit_s)
        energy_j.append(state.cost_j + blocking_j * state.length)
        units.append(state.units.copy())
    return PublishedFrontier(np.array(time_s), np.array(energy_j), np.array(units).reshape(-1, len(graph)))


def published_length(graph: Graph, units: list, unit_s: float) -> int:
    """Unit times of an iteration whose operations take `units`."""
    return max(finishes(_in_units(graph.before, unit_s), units))


def _in_units(neighbours: list, unit_s: float) -> list:
    unit_ticks = round(unit_s * TICKS_PER_S)
    return [[(other, lag // unit_ticks) for other, lag in own] for own in neighbours]


class _State:
    """Durations in unit times, and what one unit more or less costs each operation."""

    def __init__(self, graph: Graph, curves: list[UnitCurve], unit_s: float):
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
        self._time()

    def _time(self) -> None:
        """Earliest and latest times of all nodes; the length of the iteration, in units."""
        units, n = self.units.tolist(), len(self.units)
        finish = finishes(self.before, units)
        self.length = max(finish)
        latest = [self.length] * n
        for number in range(n - 1, -1, -1):
            latest[number] = min(
                (latest[other] - units[other] - lag for other, lag in self.after[number]), default=self.length
            )
        finish, latest = np.array(finish), np.array(latest)
        # by node: begins, ends, source, sink
        self.earliest = np.concatenate([finish - self.units, finish, [0, self.length]])
        self.latest = np.concatenate([latest - self.units, latest, [0, self.length]])

    def _bounds(self, number: int) -> tuple:
        """(least, most) flow of an operation's arc, uJ: what a unit more saves, what a unit less costs."""
        at, own = self.curves[number].at_unit, int(self.units[number])
        fastest, slowest = self.curves[number].fastest, self.curves[number].slowest
        if fastest == slowest:
            return 0, _INFINITE
        least = 0 if own == slowest else _whole(abs(at[own] - at[own + 1]))
        if own == fastest:
            return least, _INFINITE
        return least, _whole(abs(at[own - 1] - at[own]) + (0.0 if own == slowest else _UNIT_J))

    def step(self) -> bool:
        """Shorten the iteration by one unit; False where that is not possible or changes nothing."""
        n = len(self.units)
        duration = np.concatenate([self.units, self.lag])
        critical = np.flatnonzero(self.earliest[self.tail] + duration == self.latest[self.head])
        own = critical[critical < n]
        least = np.zeros(len(critical), np.int64)
        most = np.full(len(critical), _INFINITE)
        least[: len(own)], most[: len(own)] = np.array([self.bounds[number] for number in own.tolist()]).T
        near = self._source_side(self.tail[critical], self.head[critical], least, most)
        if near is None:
            return False
        from_near, to_near = near[self.tail[critical]], near[self.head[critical]]
        change, forward = 0.0, critical[from_near & ~to_near]
        if not len(forward):
            return False
        for number in forward.tolist():
            if number >= n or self.units[number] == self.curves[number].fastest:
                return False
            change += self._move(number, -1)
        for number in critical[~from_near & to_near].tolist():
            if number >= n:
                continue
            if self.units[number] == self.curves[number].slowest:
                return False
            change -= self._move(number, 1)
        if abs(change) < _STILL_J:
            return False
        self.cost_j += change
        self._time()
        return True

    def _move(self, number: int, by: int) -> float:
        at, own = self.curves[number].at_unit, int(self.units[number])
        self.units[number] += by
        self.bounds[number] = self._bounds(number)
        return abs(at[own] - at[own + by])

    def _source_side(self, tail, head, least, most):
        """(nodes,) bool: the source-most side of a minimum cut with lower bounds; None where no flow keeps them."""
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
