"""Pools: which classes are served together, by which class's configuration, and how many servers each pool gets.

Fewer pools merge neighbouring classes, served as the smallest class that dominates all of them (the sources do not
say how the authors merge: our choice).

Servers are counted at the full-power configuration: 8 GPUs per instance, highest clock. A pool gets as many full
instances as its class's load fills; the remainder is carried to the next larger pool; only the largest rounds up, so
only it is over-provisioned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.requests import CLASSES, dominates, index

if TYPE_CHECKING:
    import numpy as np

    from kernel_dvfs.serving.columns import Columns, PoolColumns

    Loads = Sequence[float] | np.ndarray  # tokens/s of each class

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
    """The pools, small to large. Raises InputError for a count that there is no merging for."""
    if count not in _MERGED:
        raise InputError(f"pools = {count}; allowed: {', '.join(map(str, COUNTS))}")
    found = []
    for names in _MERGED[count]:
        members = [index(name) for name in names]
        kind = 3 * max(each // 3 for each in members) + max(each % 3 for each in members)
        found.append(PoolKind(CLASSES[kind], members, kind))
    return found


def home(pools: list[PoolKind], kind: int) -> int:
    """Place of the pool that a class belongs to."""
    return next(place for place, pool in enumerate(pools) if kind in pool.members)


def larger(pools: list[PoolKind], place: int) -> list[int]:
    """Places of pools that may serve another's requests, nearest first: the answer's letter up, then the prompt's."""
    own = pools[place].kind
    others = [other for other, pool in enumerate(pools) if other != place and dominates(pool.kind, own)]

    def distance(other: int) -> tuple[int, int]:
        kind = pools[other].kind
        return (kind // 3 - own // 3, kind % 3 - own % 3)

    return sorted(others, key=distance)


def carry_target(pools: list[PoolKind], place: int) -> int | None:
    """Where a pool's remainder goes when servers are counted: the nearest larger pool; None for the largest."""
    others = larger(pools, place)
    return others[0] if others else None


# -- servers per pool --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizing:
    """Servers of each pool, and who serves what with them. All lists by pool."""

    servers: list[int]
    shares: list[float]  # of its load that a pool serves itself; the rest is carried on
    loads: list[float]  # what it serves, tokens/s
    offers: list[PoolColumns]  # for the classes that it then serves
    short_tps: float  # load of the largest pool beyond its servers, tokens/s


def pool_loads(pools: list[PoolKind], loads: Loads) -> list[float]:
    """Tokens/s of each pool's own classes, of loads per class."""
    sums = [0.0] * len(pools)
    for kind, load in enumerate(loads):
        sums[home(pools, kind)] += float(load)
    return sums


def size(pools: list[PoolKind], columns: Columns, loads: Loads, limit: int) -> Sizing:
    """Servers by load (tokens/s of each class), at most `limit` in all."""

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


def static(pools: list[PoolKind], columns: Columns, peaks: Loads, servers: int) -> Sizing:
    """All servers, for good: one at least to each pool, the others by turns to the pool that is fullest at its peak."""
    if servers < len(pools):
        raise InputError(f"{servers} servers are too few for {len(pools)} pools; add servers, or merge pools")
    able = [columns.pool(pool.kind, pool.members).largest(FULL_TP) or 1.0 for pool in pools]
    own = pool_loads(pools, peaks)
    counts = [1] * len(pools)
    for _ in range(servers - len(pools)):
        place = max(range(len(pools)), key=lambda each: own[each] / able[each] / counts[each])
        counts[place] += 1
    return spread(pools, columns, peaks, counts)


def spread(pools: list[PoolKind], columns: Columns, loads: Loads, counts: Sequence[int]) -> Sizing:
    """Who serves what with so many servers per pool: what does not fit is carried to the next larger pool."""
    return _walk(pools, columns, loads, lambda place, need, able: counts[place])


def _walk(
    pools: list[PoolKind], columns: Columns, loads: Loads, count_of: Callable[[int, float, float], int]
) -> Sizing:
    """From the smallest pool up; count_of(place, load, load that one server may carry) -> servers."""
    carried = [0.0] * len(pools)
    served: list[set[int]] = [set() for _ in pools]
    counts: list[int] = []
    shares: list[float] = []
    kept_loads: list[float] = []
    offers: list[PoolColumns] = []
    short = 0.0
    for place, own in enumerate(pool_loads(pools, loads)):
        served[place] |= {kind for kind in pools[place].members if loads[kind] > 0}
        need = own + carried[place]
        offer = columns.pool(pools[place].kind, served[place])
        able = offer.largest(FULL_TP)
        counts.append(count_of(place, need, able))
        following = carry_target(pools, place)
        kept = need if following is None else min(need, counts[-1] * able)
        if following is None:
            short += max(0.0, need - counts[-1] * able)
        elif kept < need:
            carried[following] += need - kept
            served[following] |= served[place]
        kept_loads.append(kept)
        shares.append(kept / need if need > 0 else 1.0)
        offers.append(offer)
    return Sizing(counts, shares, kept_loads, offers, short)
