"""How many servers each pool gets, at the full-power configuration: 8 GPUs per instance, highest clock.

A pool gets as many full instances as its class's load fills; the remainder is carried to the next larger pool; only
the largest rounds up, so only it is over-provisioned.
"""

from collections import namedtuple
from math import ceil, floor

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.pools import carry_target, home

Sizing = namedtuple("Sizing", "servers shares loads offers short_tps")
Sizing.__doc__ = """Per pool: servers; shares: of its load that it serves itself, the rest is carried on; loads: what it
serves, tokens/s; offers: its columns.PoolColumns, for the classes that it then serves. short_tps: load of the largest
pool beyond its servers."""

FULL_TP = 8


def pool_loads(pools: list, loads) -> list:
    """Tokens/s of each pool's own classes, of loads per class."""
    sums = [0.0] * len(pools)
    for kind, load in enumerate(loads):
        sums[home(pools, kind)] += float(load)
    return sums


def size(pools: list, columns, loads, limit: int) -> Sizing:
    """Servers by load (tokens/s of each class), at most `limit` in all."""

    def full(place, need, able):
        if carry_target(pools, place) is not None:
            return floor(need / able + 1e-9) if able > 0 else 0
        return max(1, ceil(need / able - 1e-9)) if able > 0 else 1

    counts = _walk(pools, columns, loads, full).servers
    while sum(counts) > limit:
        # a smaller pool's requests can be served in a larger one, so the smaller gives first
        place = next((place for place, count in enumerate(counts[:-1]) if count), len(counts) - 1)
        counts[place] -= 1
    return spread(pools, columns, loads, counts)


def static(pools: list, columns, peaks, servers: int) -> Sizing:
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


def spread(pools: list, columns, loads, counts: list) -> Sizing:
    """Who serves what with so many servers per pool: what does not fit is carried to the next larger pool."""
    return _walk(pools, columns, loads, lambda place, need, able: counts[place])


def _walk(pools: list, columns, loads, count_of) -> Sizing:
    """From the smallest pool up; count_of(place, load, load that one server may carry) -> servers."""
    carried, served = [0.0] * len(pools), [set() for _ in pools]
    counts, shares, kept_loads, offers, short = [], [], [], [], 0.0
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
