"""What a pool's servers draw under a load: how they are best divided into instances, and how many servers pay.

By levels: servers per pool, then degrees within each pool's servers, then each instance's clock. A division is priced
slot by slot on the profile, each instance at the share of the load that its capacity gives it, and at the clock that it
will then run at (the published rule, `top`, prices the peak at the highest clock, where a degree that is best there
need not be best at the clock that the instance manager sets later). Divisions are enumerated, not searched: a pool of
12 servers has some 4,600. Servers beyond those that the peak needs are taken where the lower clocks that they allow
save more than they draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs_serving.columns import Columns
from kernel_dvfs_serving.pools import FULL_TP, PoolKind, Sizing, size, spread, static
from kernel_dvfs_serving.resharding import SERVER_GPUS

if TYPE_CHECKING:
    from kernel_dvfs_serving.columns import PoolColumns

# of load that is not carried, W per token/s: above what any instance takes to carry it
SHED_W_PER_TPS = 1000.0
# a move of the search for servers must save so much of the power, or it is not made
_WORTH = 1e-3
# mean loads that a series of slots is summed up to, between its least and its highest: within 0.1 % of every slot's own
_LEVELS = 12


@dataclass(frozen=True, slots=True)
class Pricing:
    """How a system's decisions on servers and degrees are priced."""

    degrees: tuple[int, ...]  # that its pools may be divided into
    clock_margin: float | None  # on the load that a clock is set for; None: the highest clock, whatever the load
    parked_w: float  # of a GPU without instance
    peak_only: bool = False  # priced at the peak at the highest clock, and no servers beyond the needed (published)


@dataclass(frozen=True, slots=True)
class Division:
    """Instances of one pool."""

    counts: dict[int, int]  # {degree: instances}
    power_w: float  # mean over the slots, of all the pool's GPUs
    carries: bool  # whether it carries the peak within the promises; else it is the division that carries most


def divide(offer: PoolColumns, load_tps: np.ndarray, servers: int, pricing: Pricing) -> Division:
    """The least-power division of a pool's servers for a load, of shape (slots,)."""
    degrees = tuple(tp for tp in pricing.degrees if offer.largest(tp) > 0)
    if not degrees:
        return Division({FULL_TP: servers}, float("inf"), False)
    return _best(offer, load_tps, servers, degrees, _divisions(servers, degrees), pricing)


def priced(
    offer: PoolColumns, load_tps: np.ndarray, servers: int, counts: dict[int, int], pricing: Pricing
) -> Division:
    """A given division of a pool's servers, {degree: instances}, under a load of shape (slots,)."""
    degrees = tuple(counts)
    if not degrees or any(offer.largest(tp) <= 0 for tp in degrees):
        return Division(counts, float("inf"), False)
    return _best(offer, load_tps, servers, degrees, np.array([list(counts.values())]), pricing)


def _best(
    offer: PoolColumns,
    load_tps: np.ndarray,
    servers: int,
    degrees: tuple[int, ...],
    numbers: np.ndarray,
    pricing: Pricing,
) -> Division:
    """The least-power one of divisions, `numbers` of shape (divisions, degrees), that carry the peak."""
    peak = float(load_tps.max())
    able = np.array([offer.largest(tp) for tp in degrees])
    fits = numbers @ able >= peak * (1 - 1e-9)
    carries = bool(fits.any())
    numbers = numbers[fits] if carries else numbers[[(numbers @ able).argmax()]]
    levels = np.array([peak]) if pricing.peak_only else _levels(load_tps)
    margin = None if pricing.peak_only else pricing.clock_margin
    relative = np.minimum(levels / (numbers @ able)[:, None], 1.0)
    power_w = pricing.parked_w * (SERVER_GPUS * servers - numbers @ np.array(degrees))
    for place, tp in enumerate(degrees):
        power_w = power_w + numbers[:, place] * offer.power_at(tp, relative, margin).mean(1)
    best = int(power_w.argmin())
    counts = {tp: int(number) for tp, number in zip(degrees, numbers[best]) if number}
    return Division(counts, float(power_w[best]), carries)


@lru_cache(maxsize=32)
def _divisions(servers: int, degrees: tuple[int, ...]) -> np.ndarray:
    """Every way to put instances of these degrees on the servers' GPUs, at least one: (ways, degrees)."""
    gpus = SERVER_GPUS * servers
    axes = np.meshgrid(*(np.arange(gpus // tp + 1) for tp in degrees), indexing="ij")
    numbers = np.stack([axis.ravel() for axis in axes], axis=1)
    used = numbers @ np.array(degrees)
    return numbers[(used <= gpus) & (used > 0)]


def _levels(load_tps: np.ndarray) -> np.ndarray:
    """Means of equal parts of the sorted slots."""
    if len(load_tps) <= _LEVELS:
        return load_tps
    starts = np.arange(_LEVELS) * len(load_tps) // _LEVELS
    return np.add.reduceat(np.sort(load_tps), starts) / np.diff(starts, append=len(load_tps))


def choose_servers(
    pools: list[PoolKind],
    columns: Columns,
    loads: np.ndarray,
    limit: int,
    pricing: Pricing,
    running: int | None = None,
    start_w: float = 0.0,
) -> Sizing:
    """Servers of each pool for loads of shape (slots, classes): those the peak needs, and more where they pay.

    running: servers that are on or starting; each beyond them costs `start_w`, the power that its start spreads over
    the epoch. None: starts are free.
    """
    needed = size(pools, columns, loads, limit)
    if pricing.peak_only:
        return needed
    search = _Search(pools, columns, loads, limit, pricing, limit if running is None else running, start_w)
    starts = [tuple(needed.servers)]
    if limit >= len(pools):
        starts.append(tuple(static(pools, columns, loads, limit).servers))
    return spread(pools, columns, loads, search.climb(min(starts, key=search.cost)))


class _Search:
    """Servers of each pool, moved one by one as long as that saves power."""

    def __init__(
        self,
        pools: list[PoolKind],
        columns: Columns,
        loads: np.ndarray,
        limit: int,
        pricing: Pricing,
        running: int,
        start_w: float,
    ):
        self._pools, self._columns, self._loads, self._pricing = pools, columns, loads, pricing
        self._limit, self._running, self._start_w = limit, running, start_w
        self._power_w: dict[tuple[int, ...], float] = {}  # of a pool, by its servers and those of all smaller pools
        self._costs: dict[tuple[int, ...], float] = {}

    def cost(self, counts: tuple[int, ...]) -> float:
        """W, load that is not carried at its price; infinite for counts that cannot be."""
        if counts not in self._costs:
            self._costs[counts] = self._cost(counts)
        return self._costs[counts]

    def _cost(self, counts: tuple[int, ...]) -> float:
        if sum(counts) > self._limit or min(counts) < 0:
            return float("inf")
        plan = spread(self._pools, self._columns, self._loads, counts)
        total_w = SHED_W_PER_TPS * plan.short_tps + self._start_w * max(0, sum(counts) - self._running)
        for place, count in enumerate(counts):
            if count:
                key = counts[: place + 1]
                if key not in self._power_w:
                    self._power_w[key] = divide(plan.offers[place], plan.loads[place], count, self._pricing).power_w
                total_w += self._power_w[key]
        return total_w

    def climb(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """From these counts, by the best of all single moves, until none saves enough."""
        while True:
            best = min(self._moves(counts), key=self.cost)
            if not self.cost(best) < self.cost(counts) * (1 - _WORTH):
                return counts
            counts = best

    def _moves(self, counts: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
        """A server more, a server less, a server from one pool to another."""
        size_ = len(counts)
        # -1 is no pool: the server comes from those that are off, or goes there
        places = range(-1, size_)
        steps = [(to, away) for to in places for away in places if to != away]
        return [
            tuple(count + (place == to) - (place == away) for place, count in enumerate(counts)) for to, away in steps
        ]
