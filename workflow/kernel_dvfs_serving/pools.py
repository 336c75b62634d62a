"""Pools: which classes are served together, by which class's configuration, and how many servers each pool gets.

Fewer pools merge neighbouring classes, served as the smallest class that dominates all of them (the sources do not
say how the authors merge: our choice).

Servers are counted at the full-power configuration: 8 GPUs per instance, highest clock. A pool gets as many full
instances as its load fills at its peak, which is the highest of its slots (the sum of its classes in the same slot, not
the sum of their peaks); the remainder is carried to the next larger pool; only the largest rounds up, so only it is
over-provisioned. These are the servers that a load needs; whether more of them would take less energy is decided in
pricing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.requests import CLASSES, dominates, index

if TYPE_CHECKING:
    from kernel_dvfs_serving.columns import Columns, PoolColumns

FULL_TP = 8  # degree that servers are counted at


@dataclass(frozen=True, slots=True)
class PoolKind:
    """Classes that are served together."""

    name: str  # of the class whose configuration serves them
    members: list[int]  # indices of the classes
    kind: int  # index of the class whose configuration serves them


_MERGED = {
    9: [[name] for name in CLASSES],
    6: [["SS"], ["SM", "SL"], ["MS"], ["MM", "ML"], ["LS"], ["LM", "LL"]],
    4: [["SS", "SM", "MS", "MM"], ["SL", "ML"], ["LS", "LM"], ["LL"]],
    3: [["SS", "SM", "MS", "MM"], ["SL", "ML"], ["LS", "LM", "LL"]],
    2: [["SS", "SM", "SL", "MS", "MM", "ML"], ["LS", "LM", "LL"]],
    1: [list(CLASSES)],
}
COUNTS = tuple(sorted(_MERGED))


def pool_kinds(count: int) -> list[PoolKind]:
    """Return the pools, small to large. Raises InputError for a count that there is no merging for."""
    if count not in _MERGED:
        raise InputError(f"pools = {count}; allowed: {', '.join(map(str, COUNTS))}")
    pools = []
    for names in _MERGED[count]:
        members = [index(name) for name in names]
        kind = 3 * max(member // 3 for member in members) + max(member % 3 for member in members)
        pools.append(PoolKind(CLASSES[kind], members, kind))
    return pools


def home(pools: list[PoolKind], kind: int) -> int:
    """Return the place of the pool that a class belongs to."""
    return next(place for place, pool in enumerate(pools) if kind in pool.members)


def larger(pools: list[PoolKind], place: int) -> list[int]:
    """Return the places of pools that may serve another's requests, the nearest first: first the answer's letter goes
    up, then the prompt's."""
    kind = pools[place].kind
    others = [other for other, pool in enumerate(pools) if other != place and dominates(pool.kind, kind)]

    def distance(other: int) -> tuple[int, int]:
        other_kind = pools[other].kind
        return (other_kind // 3 - kind // 3, other_kind % 3 - kind % 3)

    return sorted(others, key=distance)


def carry_target(pools: list[PoolKind], place: int) -> int | None:
    """Return where a pool's remainder goes when servers are counted: the nearest larger pool; None for the largest."""
    others = larger(pools, place)
    return others[0] if others else None


# -- servers per pool --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Sizing:
    """Servers of each pool, and who serves what with them. All lists by pool."""

    servers: list[int]
    shares: list[float]  # of its load that a pool serves itself; the rest is carried on
    loads: list[np.ndarray]  # what it serves, tokens/s in each slot
    offers: list[PoolColumns]  # for the classes that it then serves
    short_tps: float  # load of the largest pool beyond its servers, at its peak, tokens/s


def size(pools: list[PoolKind], columns: Columns, loads: np.ndarray, limit: int) -> Sizing:
    """Return the sizing for loads (slots, classes), tokens/s, on up to `limit` servers: each pool's own peak counts."""

    def full(place: int, need: float, able: float) -> int:
        if carry_target(pools, place) is not None:
            return floor(need / able + 1e-9) if able > 0 else 0
        return max(1, ceil(need / able - 1e-9)) if able > 0 else 1

    counts = _walk(pools, columns, loads, full).servers
    while sum(counts) > limit:
        # a smaller pool's requests can be served in a larger one, so the smaller gives first
        place = next((place for place, count in enumerate(counts[:-1]) if count), len(counts) - 1)
        counts[place] -= 1
    return spread(pools, columns, loads, counts)


def static(pools: list[PoolKind], columns: Columns, loads: np.ndarray, servers: int) -> Sizing:
    """Return the sizing with all servers: one at least a pool, the others by turns to the pool fullest at its peak."""
    if servers < len(pools):
        raise InputError(f"{servers} servers are too few for {len(pools)} pools; add servers, or merge pools")
    able = [columns.pool(pool.kind, pool.members).largest(FULL_TP) or 1.0 for pool in pools]
    peaks = [loads[:, pool.members].sum(1).max() for pool in pools]
    counts = [1] * len(pools)
    for _ in range(servers - len(pools)):
        place = max(range(len(pools)), key=lambda candidate: peaks[candidate] / able[candidate] / counts[candidate])
        counts[place] += 1
    return spread(pools, columns, loads, counts)


def spread(pools: list[PoolKind], columns: Columns, loads: np.ndarray, counts: Sequence[int]) -> Sizing:
    """Return the sizing of so many servers per pool: what does not fit is carried to the next larger pool."""
    return _walk(pools, columns, loads, lambda place, need, able: counts[place])


def _walk(
    pools: list[PoolKind], columns: Columns, loads: np.ndarray, count_of: Callable[[int, float, float], int]
) -> Sizing:
    """Return the sizing, smallest pool first. count_of(place, peak load, load that one server may carry) -> servers."""
    carried = [np.zeros(len(loads)) for _ in pools]
    served: list[set[int]] = [set() for _ in pools]
    occurs = loads.max(0) > 0
    sizing = Sizing([], [], [], [], 0.0)
    short_tps = 0.0
    for place, pool in enumerate(pools):
        served[place] |= {kind for kind in pool.members if occurs[kind]}
        need = loads[:, pool.members].sum(1) + carried[place]
        peak = float(need.max())
        offer = columns.pool(pool.kind, served[place])
        able = offer.largest(FULL_TP)
        sizing.servers.append(count_of(place, peak, able))
        fits = sizing.servers[-1] * able
        share = fits / peak if peak > fits else 1.0
        following = carry_target(pools, place)
        if following is None:
            short_tps += max(0.0, peak - fits)
            share = 1.0
        elif share < 1:
            # the same share at all times: a request's way does not depend on the moment
            carried[following] += (1 - share) * need
            served[following] |= served[place]
        sizing.shares.append(share)
        sizing.loads.append(share * need)
        sizing.offers.append(offer)
    return replace(sizing, short_tps=short_tps)
