"""The whole frontier of least effective energy against iteration time, by parametric minimum-cost flow, and how it is
asked: by time, by energy, by price; and for the planned times of every operation.

The linear programme: min sum c_i(t_i) with c_i convex, starts spaced by durations and edges, the last end <= T. Its
dual is a flow; T is its only parameter. Raising the flow (W) lowers the longest path; between two records the
frontier is straight. Sources: Fulkerson, Management Science 7(2), 1961; Kelley, Operations Research 9(3), 1961.

Each operation is an arc from its begin to its end. With tension tau = pi[end] - pi[begin] it carries
    tau > t_K: 0;    tau = t_k: between g_{k+1} and g_k;    t_{k-1} < tau < t_k: g_k,
where g_k is the price of hull segment k, g_{K+1} = 0 and g_0 without bound. Integers throughout: ticks and uW.

The two searches of each step run in compiled libraries: maximum flow in OR-Tools (push-relabel), shortest distances in
SciPy (Dijkstra). Everything else is NumPy over all arcs at once. A query of the frontier solves nothing: it is a binary
search among the records that were found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from ortools.graph.python import max_flow
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.curve import TICKS_PER_S, UW_PER_W, TradeOffCurve
from kernel_dvfs_pipeline.graph import Graph

UNBOUNDED = 2**50  # uW: a billion watts; the sum over many arcs still fits 64 bits


@dataclass(frozen=True, slots=True, eq=False)
class FrontierCorners:
    """The frontier's corners, slowest first."""

    ticks: np.ndarray  # (R,) int64 iteration times, falling
    # (R,) int64, the flow: what one more second saves between this record and the next slower one; rising from 0
    price_uw: np.ndarray
    # (P,) numbers of the records whose potentials are kept: all, or evenly spaced ones where the memory allows no more
    kept: np.ndarray
    potential: np.ndarray  # (P, 2N) begins [:, :N] and ends [:, N:] of all operations at those, int64 ticks


class _Kept:
    """Rows of a sequence: all of them, or every 2nd, 4th, 8th ... and the last, so that they never exceed `most`."""

    def __init__(self, most: int) -> None:
        self.most, self.step, self.count = max(most, 2), 1, 0
        self.rows: dict[int, np.ndarray] = {}
        self.last: tuple[int, np.ndarray]

    def add(self, row: np.ndarray) -> None:
        if self.count % self.step == 0:
            if len(self.rows) == self.most:
                self.step *= 2
                self.rows = {number: earlier for number, earlier in self.rows.items() if number % self.step == 0}
            if self.count % self.step == 0:
                self.rows[self.count] = row
        self.last = (self.count, row)
        self.count += 1

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (numbers of the rows, rows one below the other)."""
        rows = self.rows | dict([self.last])
        numbers = np.array(list(rows))
        stacked = np.empty((len(rows), len(self.last[1])), np.int64)
        for place, number in enumerate(numbers.tolist()):
            stacked[place] = rows[number]
            self.rows.pop(number, None)  # one copy in memory, not two
        return numbers, stacked


class _Network:
    """Operations as arcs begin -> end (node i -> N + i), edges as arcs end -> begin, source and sink around them."""

    def __init__(self, graph: Graph, curves: list[TradeOffCurve]) -> None:
        n = len(graph)
        self.operations = n
        self.source, self.sink, self.nodes = 2 * n, 2 * n + 1, 2 * n + 2
        entry = np.array([i for i in range(n) if not graph.before[i]])
        leave = np.array([i for i in range(n) if not graph.after[i]])
        self.begin, self.end = np.arange(n), np.arange(n) + n
        self.tail = np.concatenate([graph.tail + n, np.full(len(entry), self.source), leave + n])
        self.head = np.concatenate([graph.head, entry, np.full(len(leave), self.sink)])
        self.lag = np.concatenate([graph.lag_ticks, np.zeros(len(entry) + len(leave), np.int64)])
        # all hulls behind each other: vertex k of operation i is first[i] + k
        sizes = [len(curve.ticks) for curve in curves]
        self.first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.last = self.first + sizes - 1
        self.ticks = np.concatenate([curve.ticks for curve in curves])
        self.upper = np.concatenate([np.append(UNBOUNDED, curve.price_uw) for curve in curves])
        self.lower = np.concatenate([np.append(curve.price_uw, 0) for curve in curves])
        # the residual arcs' shortest-path matrix: its shape never changes, its weights always
        tail = np.concatenate([self.begin, self.end, self.tail, self.head])
        head = np.concatenate([self.end, self.begin, self.head, self.tail])
        self.place = np.lexsort((head, tail))
        counts = np.bincount(tail, minlength=self.nodes)
        shape = (self.nodes, self.nodes)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        self.matrix = csr_array(
            (np.zeros(len(tail)), head[self.place].astype(np.int32), indptr.astype(np.int32)), shape=shape
        )

    def longest(self, graph: Graph, ticks: np.ndarray) -> np.ndarray:
        """Return (2N + 2,) earliest begins and ends when operation i takes ticks[i]."""
        finish = np.array(graph.finish_ticks(ticks.tolist()), np.int64)
        total = finish.max()
        return np.concatenate([finish - ticks, finish, [0, total]])


def parametric_frontier(graph: Graph, curves: list[TradeOffCurve], memory_byte: int = 2**29) -> FrontierCorners:
    """Return every corner of the frontier, from everyone's slowest vertex down to the fastest iteration possible.

    curves: one per operation, in the graph's order. memory_byte: room for the potentials that are kept.
    Raises InputError where a second costs more watts than the search can count.
    """
    check_prices(curves)
    net = _Network(graph, curves)
    n, begin, end = net.operations, net.begin, net.end
    shortest = net.longest(graph, net.ticks[net.first])[net.sink]
    pi = net.longest(graph, net.ticks[net.last])
    flow, edge_flow = np.zeros(n, np.int64), np.zeros(len(net.tail), np.int64)
    price = 0
    # vertices whose arcs have room: `more` for more flow, `less` for less (where there is any)
    more, less = net.last.copy(), net.last.copy()
    reached = np.ones(net.nodes, bool)
    slack = np.empty(2 * (n + len(net.tail)))
    kept = _Kept(memory_byte // (16 * n))
    kept.add(pi[: 2 * n])
    ticks, prices = [int(pi[net.sink])], [0]
    while pi[net.sink] > shortest:
        tension = pi[end] - pi[begin]
        room = pi[net.head] - pi[net.tail] - net.lag
        # only what the last search reached by tight arcs can lie on a path from source to sink
        at_begin, at_end, at_tail, at_head = (reached[nodes] for nodes in (begin, end, net.tail, net.head))
        can_more = np.flatnonzero(at_begin & (tension == net.ticks[more]))
        can_less = np.flatnonzero(at_end & (flow > 0) & (tension == net.ticks[less]))
        can_pass, can_return = np.flatnonzero(at_tail & (room == 0)), np.flatnonzero(at_head & (edge_flow > 0))
        arcs = [
            (begin[can_more], end[can_more], (net.upper[more] - flow)[can_more]),
            (end[can_less], begin[can_less], (flow - net.lower[less])[can_less]),
            (net.tail[can_pass], net.head[can_pass], np.full(len(can_pass), UNBOUNDED)),
            (net.head[can_return], net.tail[can_return], edge_flow[can_return]),
        ]
        value, flows = _maximum_flow(arcs, net.source, net.sink)
        for arc_flow, moved, sign, chosen in zip(
            (flow, flow, edge_flow, edge_flow), flows, (1, -1, 1, -1), (can_more, can_less, can_pass, can_return)
        ):
            arc_flow[chosen] += sign * moved
        price += value
        if price >= UNBOUNDED:
            raise InputError(_too_dear(price))
        _point(net, flow, more, less)

        slack[:n] = tension - net.ticks[more]
        slack[n : 2 * n] = np.where(flow > 0, net.ticks[less] - tension, np.inf)
        slack[2 * n : 2 * n + len(room)] = room
        slack[2 * n + len(room) :] = np.where(edge_flow > 0, 0.0, np.inf)
        net.matrix.data[:] = slack[net.place]
        distance = dijkstra(net.matrix, indices=net.source)
        reached = distance <= distance[net.sink]
        if not 0 < distance[net.sink] < np.inf:
            raise ArithmeticError(f"the frontier stands still at {ticks[-1]} ticks")
        pi = pi - np.minimum(distance, distance[net.sink]).astype(np.int64)
        ticks.append(int(pi[net.sink]))
        prices.append(price)
        kept.add(pi[: 2 * n])
    return FrontierCorners(np.array(ticks), np.array(prices), *kept.arrays())


def check_prices(curves: list[TradeOffCurve]) -> None:
    """Raise InputError where a segment of a curve is as dear as what counts as without bound."""
    dearest = max((int(curve.price_uw[0]) for curve in curves if len(curve.price_uw)), default=0)
    if dearest >= UNBOUNDED:
        raise InputError(_too_dear(dearest))


def _too_dear(price_uw: int) -> str:
    return (
        f"pipeline: a second less costs {price_uw / UW_PER_W:.3g} W, more than {UNBOUNDED / UW_PER_W:.3g} W: "
        "check the profile's times and energies, their scales and the blocking power"
    )


def _maximum_flow(arcs: list[tuple], source: int, sink: int) -> tuple[int, list[np.ndarray]]:
    """Return (value, flow on each group of arcs) for groups of (tails, heads, capacities)."""
    solver = max_flow.SimpleMaxFlow()
    numbers = solver.add_arcs_with_capacity(*(np.concatenate(column) for column in zip(*arcs)))
    status = solver.solve(source, sink)
    if status != solver.OPTIMAL:
        raise ArithmeticError(f"maximum flow: {status}")
    bounds = np.cumsum([len(group[0]) for group in arcs])[:-1]
    return solver.optimal_flow(), np.split(solver.flows(numbers), bounds)


def _point(net: _Network, flow: np.ndarray, more: np.ndarray, less: np.ndarray) -> None:
    """Move `more` and `less`, in place, to lower <= flow < upper and lower < flow <= upper."""
    for pointer, too_slow, too_fast in (
        (more, lambda at: net.upper[at] <= flow, lambda at: net.lower[at] > flow),
        (less, lambda at: net.upper[at] < flow, lambda at: net.lower[at] >= flow),
    ):
        # the fastest vertex bounds nothing from above, the slowest nothing from below (but a flow of 0 has no less)
        while (move := too_slow(pointer) & (pointer > net.first)).any():
            pointer -= move
        while (move := too_fast(pointer) & (pointer < net.last)).any():
            pointer += move


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Least energy of an iteration by its time."""

    records: FrontierCorners  # the corners, from parametric_frontier
    cost_j: np.ndarray  # (R,) least effective energy at each record, rising
    blocking_w: float  # S P_blk, what the whole pipeline draws while every stage waits

    @classmethod
    def of(cls, records: FrontierCorners, slowest_cost_j: float, blocking_w: float) -> Frontier:
        """Return the Frontier of its corners. slowest_cost_j: sum of the effective energies at the first record."""
        steps = -np.diff(records.ticks) * (records.price_uw[1:] / (UW_PER_W * TICKS_PER_S))
        return cls(records, slowest_cost_j + np.concatenate([[0.0], np.cumsum(steps)]), blocking_w)

    @property
    def time_s(self) -> np.ndarray:
        """(R,) falling."""
        return self.records.ticks / TICKS_PER_S

    @property
    def energy_j(self) -> np.ndarray:
        """(R,) energy of an iteration that is over when it is done."""
        return self.cost_j + self.blocking_w * self.time_s

    @property
    def fastest_ticks(self) -> int:
        return int(self.records.ticks[-1])

    @property
    def slowest_ticks(self) -> int:
        return int(self.records.ticks[0])

    def cost_at(self, ticks: ArrayLike) -> np.ndarray:
        """Return the least effective energy (J) of iterations of `ticks` (scalar or array), exact between records."""
        return np.interp(np.asarray(ticks), self.records.ticks[::-1], self.cost_j[::-1])

    def energy_at(self, ticks: ArrayLike) -> np.ndarray:
        """Return the least energy (J) of iterations of `ticks`: a lower bound of every plan that takes as long."""
        return self.cost_at(ticks) + self.blocking_w * np.asarray(ticks) / TICKS_PER_S

    def ticks_at_price(self, price_w: float) -> int:
        """Return the time of the fastest iteration at which a second less costs at least `price_w` of effective energy.

        At the price of waiting, blocking_w, that is the iteration of least energy.
        """
        # price_uw[r] holds between r - 1 and r: go on while it is below the price asked
        cheaper = np.searchsorted(self.records.price_uw[1:], price_w * UW_PER_W, side="left")
        return int(self.records.ticks[cheaper])

    def ticks_at_energy(self, budget_j: float) -> int | None:
        """Return the time of the fastest iteration of at most `budget_j`; None where no iteration takes as little."""
        energy, ticks = self.energy_j, self.records.ticks
        least = int(np.argmin(energy))
        if budget_j < energy[least]:
            return None
        # from the least energy on, faster is dearer
        last = least + int(np.searchsorted(energy[least:], budget_j, side="right")) - 1
        if last == len(ticks) - 1:
            return int(ticks[last])
        share = (budget_j - energy[last]) / (energy[last + 1] - energy[last])
        # rounded to the slow side: within the budget
        return int(np.ceil(ticks[last] + share * float(ticks[last + 1] - ticks[last])))

    def planned(self, ticks: int) -> list[np.ndarray]:
        """Return [begins, ends], int64 ticks (N,), of a least-energy plan of `ticks`; interpolated between far records.

        From one corner to the next every time falls at the same pace until it stands still, so most operations keep
        whole durations. Interpolated times are whole ticks below the exact ones: durations and edges are whole, so
        every arc keeps its length.
        """
        kept = self.records.kept
        times = self.records.ticks[kept]
        slower = min(int(np.searchsorted(-times, -ticks, side="right")) - 1, len(times) - 2) if len(times) > 1 else 0
        rows = self.records.potential[slower : slower + 2]
        if len(rows) == 1:
            mixed = rows[0]
        elif kept[slower + 1] == kept[slower] + 1:
            mixed = rows[0] - np.minimum(rows[0] - rows[1], int(times[slower]) - ticks)
        else:
            mixed = between(rows[0], rows[1], int(times[slower] - times[slower + 1]), int(times[slower] - ticks))
        return np.split(mixed, 2)


def between(slower: np.ndarray, faster: np.ndarray, span: int, done: int) -> np.ndarray:
    """Return slower + (faster - slower) done / span, rounded down, ticks."""
    # both hold up to 1e16 ticks, so the product is split: quotient and remainder of the difference
    whole, rest = np.divmod(slower - faster, span)
    return slower - whole * done - _ceil_product(rest, done, span)


def _ceil_product(rest: np.ndarray, done: int, span: int) -> np.ndarray:
    """Return ceil(rest * done / span) for whole 0 <= rest < span, 0 <= done <= span, exactly."""
    if span < 2**31:
        return -(-rest * done // span)
    return np.array([-(-int(ticks) * done // span) for ticks in rest.tolist()], np.int64)
