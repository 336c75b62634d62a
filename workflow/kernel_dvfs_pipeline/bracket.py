"""The frontier of a pipeline of any size, between two bounds: its error is proven.

The compiled core's interior point (native/pipeline/interior.cpp) gives two things for an iteration time: a schedule and
a flow. The schedule's cost bounds the frontier from above, and since the frontier is convex, so do the chords from one
schedule to the next. The flow bounds it from below at every time (weak duality): a tangent, but for the solver's
tolerance. Wherever chord and tangents are too far apart, the next times are asked, all at once in as many threads as
the process has cores. A solve starts between its two neighbours. Which times these are does not depend on the number of
cores, so the answer does not either.

The times may be divided among independent jobs: each solves a part of them, and all their bounds make one frontier.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_dvfs_pipeline.curve import TICKS_PER_S, UW_PER_W, TradeOffCurve
from kernel_dvfs_pipeline.frontier import Frontier, FrontierCorners, check_prices

ERROR = 1e-3  # of the energy: how far apart the bounds may be
# of that, how far apart the bounds of a single time may be
_POINT_SHARE = 0.25
_MOST_ROUNDS = 30
_SAME = 1e-9  # of the energy: what bounds of the same pipeline may seem to contradict each other by
_SHARES = 257  # of the way from everyone's fastest to everyone's slowest duration, where parts are cut


@dataclass(frozen=True, slots=True)
class Bounds:
    """One iteration time, solved."""

    ticks: int
    cost_j: float  # of the schedule: no optimum at this time is dearer
    intercept_j: float  # intercept_j - price_w T: no schedule of T seconds, up to the slowest, is cheaper
    price_w: float

    @classmethod
    def of(cls, ticks: int, point: Any) -> Bounds:
        """Return those of the core's answer for `ticks`."""
        return cls(ticks, point.cost_j, point.intercept_j, point.price_w)

    @property
    def least_j(self) -> float:
        """The lower bound at this time."""
        return self.intercept_j - self.price_w * self.ticks / TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Solved(Bounds):
    """Those of a part of a frontier, in its file."""

    pipeline: str  # a digest of what was solved


class Programme:
    """The linear programme of a pipeline, solved at single iteration times within a share of the energy."""

    def __init__(self, interior: Any, curves: list[TradeOffCurve], blocking_w: float) -> None:
        """interior: the core's, of the same operations (rounding.interior). blocking_w: of the whole pipeline.

        Raises InputError where a second costs more watts than a search can count.
        """
        check_prices(curves)
        self.interior, self.curves, self.blocking_w = interior, curves, blocking_w
        self.fastest_ticks, self.slowest_ticks = int(interior.fastest_ticks), int(interior.slowest_ticks)
        self.least_cost_j = float(sum(float(curve.cost_j[-1]) for curve in curves))

    def point(self, ticks: int, error: float = ERROR, slower: Any = None, faster: Any = None) -> Any:
        """Return the core's solution at `ticks`, which must lie between the fastest and the slowest iteration. Its
        bounds are closer to each other than a quarter of `error` of the energy, as far as 53 bits allow. slower,
        faster: `start` of solutions at such times, found with the same error; where these lead nowhere, it starts from
        nothing."""
        tolerance_j = _POINT_SHARE * error * (self.least_cost_j + self.blocking_w * ticks / TICKS_PER_S)
        if slower and faster:
            point = self.interior.solve(ticks, tolerance_j, slower, faster)
            if point.cost_j - Bounds.of(ticks, point).least_j <= tolerance_j:
                return point
        return self.interior.solve(ticks, tolerance_j)

    def bounds(self, ticks: int, error: float = ERROR) -> Bounds:
        """Return both bounds of `point`."""
        return Bounds.of(ticks, self.point(ticks, error))

    def frontier(self, error: float = ERROR) -> Bracket:
        """Return the whole frontier, within `error` of the energy; Bracket.error tells where 53 bits are too few."""
        return Bracket.around(self.solved(error), self.least_cost_j, self.blocking_w)

    def part_ticks(self, part: int, parts: int) -> tuple[int, int]:
        """Return the (fastest, slowest) time of a part of the frontier, from 1, the fastest; the next begins there.

        Each has an equal share of what is saved where all operations become slower alike: times are asked mostly
        where energy falls steeply, so the parts are about as much work.
        """
        share = np.linspace(0, 1, _SHARES)
        cost_j = np.zeros(_SHARES)
        kinds = {id(curve): curve for curve in self.curves}
        for kind, count in Counter(map(id, self.curves)).items():
            curve = kinds[kind]
            cost_j += count * np.interp(
                curve.ticks[0] + share * (curve.ticks[-1] - curve.ticks[0]), curve.ticks, curve.cost_j
            )
        cuts = np.interp(np.linspace(0, cost_j[0] - cost_j[-1], parts + 1), cost_j[0] - cost_j, share)
        cuts[[0, -1]] = 0, 1
        ends = self.fastest_ticks + np.rint(cuts[part - 1 : part + 1] * (self.slowest_ticks - self.fastest_ticks))
        return int(ends[0]), int(ends[1])

    def solved(self, error: float = ERROR, part: int = 1, parts: int = 1) -> list[Bounds]:
        """Return the solved times of a part of the frontier (default: all), rising, enough for `error` of the energy
        between them."""
        by_ticks: dict[int, Bounds] = {}
        starts: dict[int, Any] = {}  # of the times beside those that are asked

        def at(asked: tuple[int, int, int]) -> tuple[Bounds, Any]:
            slower, ticks, faster = asked
            point = self.point(ticks, error, starts.get(slower), starts.get(faster))
            return Bounds.of(ticks, point), point.start

        asked = [(end, end, end) for end in sorted(set(self.part_ticks(part, parts)))]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1) as pool:
            for _ in range(_MOST_ROUNDS):
                for bounds, start in pool.map(at, asked):
                    by_ticks[bounds.ticks], starts[bounds.ticks] = bounds, start
                asked = Bracket.around(list(by_ticks.values()), self.least_cost_j, self.blocking_w).far_apart(error)
                if not asked:
                    break
                beside = {end for slower, _, faster in asked for end in (slower, faster)}
                starts = {end: starts[end] for end in beside}
        return [by_ticks[ticks] for ticks in sorted(by_ticks)]

    def joined(self, parts: Sequence[Sequence[Bounds]]) -> Bracket | None:
        """Return the frontier of what was `solved` of all parts of this programme; None where one of them, or an end of
        one, is missing, or where they contradict each other."""
        parts = sorted(parts, key=lambda part: min((bounds.ticks for bounds in part), default=0))
        for number, part in enumerate(parts, 1):
            asked = [bounds.ticks for bounds in part] or [0]
            # the last tick may be rounded differently on another machine
            if np.abs(np.array([min(asked), max(asked)]) - self.part_ticks(number, len(parts))).max() > 1:
                return None
        solved = [bounds for part in parts for bounds in part]
        if not np.isfinite([(bounds.cost_j, bounds.intercept_j, bounds.price_w) for bounds in solved]).all():
            return None
        bracket = Bracket.around(solved, self.least_cost_j, self.blocking_w)
        return bracket if bracket.is_consistent else None


@dataclass(frozen=True, slots=True, eq=False)
class Bracket(Frontier):
    """A Frontier that is the lower bound: its records are the corners of all tangents. `upper` is never below."""

    upper_ticks: np.ndarray  # (P,) times that were asked, falling
    upper_cost_j: np.ndarray  # (P,) of their schedules; between two, the straight line

    @classmethod
    def around(cls, solved: list[Bounds], least_cost_j: float, blocking_w: float) -> Bracket:
        """Return the Bracket of some solved times, of which one may come twice. least_cost_j: of all operations at
        their cheapest, which nothing undercuts."""
        cheapest = {
            bounds.ticks: bounds.cost_j for bounds in sorted(solved, key=lambda bounds: (-bounds.ticks, -bounds.cost_j))
        }
        upper = np.array(list(cheapest))
        lines = [(0.0, least_cost_j), *((bounds.price_w, bounds.intercept_j) for bounds in solved)]
        ticks, cost_j = _highest(lines, int(upper[-1]), int(upper[0]))
        price_uw = np.append(0.0, np.diff(cost_j) / -np.diff(ticks)) * (TICKS_PER_S * UW_PER_W)
        records = FrontierCorners(
            ticks, np.rint(price_uw).astype(np.int64), np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
        )
        return cls(records, cost_j, blocking_w, upper, np.array(list(cheapest.values())))

    def upper_cost_at(self, ticks: np.ndarray) -> np.ndarray:
        """Return the effective energy (J) that some schedule of `ticks` reaches on the hulls."""
        return np.interp(ticks, self.upper_ticks[::-1], self.upper_cost_j[::-1])

    def _errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (times, shares of the energy by which the bounds differ there); nowhere between is it more."""
        ticks = np.unique(np.concatenate([self.records.ticks, self.upper_ticks]))
        least = self.cost_at(ticks)
        return ticks, (self.upper_cost_at(ticks) - least) / (least + self.blocking_w * ticks / TICKS_PER_S)

    @property
    def error(self) -> float:
        """Proven: nowhere is the frontier further above this lower bound than by this share of the energy."""
        return max(float(self._errors()[1].max()), 0.0)

    @property
    def is_consistent(self) -> bool:
        """Return whether the lower bound is nowhere above what a schedule reaches, but for rounding."""
        return bool((self._errors()[1] >= -_SAME).all())

    def far_apart(self, error: float) -> list[tuple[int, int, int]]:
        """Return, from each time that was asked to the next, (slower, the time of the largest error, faster) where that
        error is above `error`."""
        ticks, errors = self._errors()
        intervals = []
        for slower, faster in zip(self.upper_ticks.tolist(), self.upper_ticks[1:].tolist()):
            inside = np.flatnonzero((ticks > faster) & (ticks < slower))
            if len(inside) and errors[worst := inside[np.argmax(errors[inside])]] > error:
                intervals.append((slower, int(ticks[worst]), faster))
        return intervals


def _highest(lines: list[tuple[float, float]], fastest: int, slowest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ticks falling, J) where the highest of the lines, intercept - price T, bends: from slowest to fastest.

    lines: [(price W, intercept J)]. The prices between the corners rise from one to the next.
    """
    price, intercept = np.array(lines).T

    def highest(ticks: int) -> int:
        return int(np.argmax(intercept - price * (ticks / TICKS_PER_S)))

    ticks, at = [slowest], highest(slowest)
    while ticks[-1] > fastest:
        # the first of the steeper lines that is met on the way to the fastest
        steeper = np.flatnonzero(price > price[at])
        if not len(steeper):
            break
        meets = (intercept[steeper] - intercept[at]) / (price[steeper] - price[at]) * TICKS_PER_S
        at = int(steeper[np.argmax(meets)])
        met = int(meets.max())
        if met <= fastest:
            break
        if met < ticks[-1]:
            ticks.append(met)
    if ticks[-1] > fastest:
        ticks.append(fastest)
    corners = np.array(ticks)
    values = intercept - price * (corners[:, None] / TICKS_PER_S)
    return corners, values.max(axis=1)
