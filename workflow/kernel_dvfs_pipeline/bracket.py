"""The frontier of a pipeline of any size, between two bounds: its error is proven.

The compiled core's interior point (native/pipeline/interior.cpp) gives two things for an iteration time: a schedule and
a flow. The schedule's cost bounds the frontier from above, and since the frontier is convex, so do the chords from one
schedule to the next. The flow bounds it from below at every time (weak duality): a tangent, but for the solver's
tolerance. Wherever chord and tangents are too far apart, the next times are solved, all at once in as many threads as
the process has cores. Which times these are does not depend on the number of cores, so the answer does not either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_dvfs_pipeline.curve import TICKS_PER_S, UW_PER_W, Curve
from kernel_dvfs_pipeline.frontier import Frontier, Records, between, check_prices

ERROR = 1e-3  # of the energy: how far apart the bounds may be
# of that, how far apart the bounds of a single time may be
_OWN = 0.25
_MOST_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Bounds:
    """One iteration time, solved."""

    ticks: int
    cost_j: float  # of the schedule: no optimum at this time is dearer
    intercept_j: float  # intercept_j - price_w T: no schedule of T seconds, up to the slowest, is cheaper
    price_w: float
    begin: np.ndarray  # (N,) ticks, of the schedule
    end: np.ndarray

    @property
    def least_j(self) -> float:
        """The lower bound at this time."""
        return self.intercept_j - self.price_w * self.ticks / TICKS_PER_S


class Programme:
    """The linear programme of a pipeline, solved at single iteration times within a share of the energy."""

    def __init__(self, interior: Any, curves: list[Curve], blocking_w: float) -> None:
        """interior: the core's, of the same operations (rounding.interior). blocking_w: of the whole pipeline.

        Raises InputError where a second costs more watts than a search can count.
        """
        check_prices(curves)
        self.interior, self.blocking_w = interior, blocking_w
        self.fastest_ticks, self.slowest_ticks = int(interior.fastest_ticks), int(interior.slowest_ticks)
        self.least_cost_j = float(sum(float(curve.cost_j[-1]) for curve in curves))

    def point(self, ticks: int, error: float = ERROR) -> Any:
        """The core's solution at `ticks`, which must lie between the fastest and the slowest iteration. Its bounds are
        closer to each other than a quarter of `error` of the energy, as far as 53 bits allow."""
        energy_j = self.least_cost_j + self.blocking_w * ticks / TICKS_PER_S
        return self.interior.solve(ticks, _OWN * error * energy_j)

    def bounds(self, ticks: int, error: float = ERROR) -> Bounds:
        """Both bounds of `point`."""
        found = self.point(ticks, error)
        return Bounds(ticks, found.cost_j, found.intercept_j, found.price_w, found.begin, found.end)

    def frontier(self, error: float = ERROR) -> Bracket:
        """The whole frontier, within `error` of the energy. Bracket.error tells where 53 bits do not allow it."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1) as pool:
            asked: Iterable[int] = sorted({self.fastest_ticks, self.slowest_ticks}, reverse=True)
            solved: dict[int, Bounds] = {}
            for _ in range(_MOST_ROUNDS):
                solved |= {own.ticks: own for own in pool.map(lambda ticks: self.bounds(ticks, error), asked)}
                found = Bracket.around(list(solved.values()), self.least_cost_j, self.blocking_w)
                asked = [ticks for ticks in found.far_apart(error) if ticks not in solved]
                if not asked:
                    break
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Bracket(Frontier):
    """A Frontier that is the lower bound: its records are the corners of all tangents. `upper` is never below."""

    upper_ticks: np.ndarray  # (P,) solved times, falling
    upper_cost_j: np.ndarray  # (P,) of their schedules; between two, the straight line
    schedule: np.ndarray  # (P, 2N) begins and ends of the schedules

    @classmethod
    def around(cls, solved: list[Bounds], least_cost_j: float, blocking_w: float) -> Bracket:
        """least_cost_j: of all operations at their cheapest, which nothing undercuts at any time."""
        solved = sorted(solved, key=lambda own: -own.ticks)
        upper = np.array([own.ticks for own in solved])
        lines = [(0.0, least_cost_j), *((own.price_w, own.intercept_j) for own in solved)]
        ticks, cost_j = _highest(lines, int(upper[-1]), int(upper[0]))
        price_uw = np.append(0.0, np.diff(cost_j) / -np.diff(ticks)) * (TICKS_PER_S * UW_PER_W)
        records = Records(ticks, np.rint(price_uw).astype(np.int64), np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
        schedule = np.array([np.concatenate([own.begin, own.end]) for own in solved])
        return cls(records, cost_j, blocking_w, upper, np.array([own.cost_j for own in solved]), schedule)

    def upper_cost_at(self, ticks: np.ndarray) -> np.ndarray:
        """Effective energy (J) that some schedule of `ticks` reaches on the hulls."""
        return np.interp(ticks, self.upper_ticks[::-1], self.upper_cost_j[::-1])

    def _errors(self) -> tuple[np.ndarray, np.ndarray]:
        """(times, shares of the energy by which the bounds differ there): between two of them it is nowhere more."""
        ticks = np.unique(np.concatenate([self.records.ticks, self.upper_ticks]))
        least = self.cost_at(ticks)
        return ticks, (self.upper_cost_at(ticks) - least) / (least + self.blocking_w * ticks / TICKS_PER_S)

    @property
    def error(self) -> float:
        """Proven: nowhere is the frontier further above this lower bound than by this share of the energy."""
        return max(float(self._errors()[1].max()), 0.0)

    def far_apart(self, error: float) -> list[int]:
        """From each solved time to the next, the time of the largest error, where that is above `error`."""
        ticks, errors = self._errors()
        found = []
        for slower, faster in zip(self.upper_ticks, self.upper_ticks[1:]):
            inside = np.flatnonzero((ticks > faster) & (ticks < slower))
            if len(inside) and errors[worst := inside[np.argmax(errors[inside])]] > error:
                found.append(int(ticks[worst]))
        return found

    def planned(self, ticks: int) -> list[np.ndarray]:
        """[begins, ends], int64 ticks (N,), of a schedule of `ticks`: between two solved times, of both by their
        distance; durations and edges are convex, so it is one, too."""
        times = self.upper_ticks
        slower = min(int(np.searchsorted(-times, -ticks, side="right")) - 1, len(times) - 2) if len(times) > 1 else 0
        rows = self.schedule[slower : slower + 2]
        if len(rows) == 1:
            return np.split(rows[0], 2)
        return np.split(
            between(rows[0], rows[1], int(times[slower] - times[slower + 1]), int(times[slower] - ticks)), 2
        )


def _highest(lines: list[tuple[float, float]], fastest: int, slowest: int) -> tuple[np.ndarray, np.ndarray]:
    """(ticks falling, J) where the highest of the lines, intercept - price T, bends: from slowest to fastest.

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
