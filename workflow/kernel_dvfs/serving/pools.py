"""Pools: which classes are served together, and by which class's configuration.

Fewer pools merge neighbouring classes, served as the smallest class that dominates all of them (the sources do not
say how the authors merge: our choice).
"""

from collections import namedtuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.classes import CLASSES, dominates, index

PoolKind = namedtuple("PoolKind", "name members kind")
PoolKind.__doc__ = "members: class indices served here; kind: the class whose configuration serves them."

_MERGED = {
    9: [[name] for name in CLASSES],
    6: [["SS"], ["SM", "SL"], ["MS"], ["MM", "ML"], ["LS"], ["LM", "LL"]],
    4: [["SS", "SM", "MS", "MM"], ["SL", "ML"], ["LS", "LM"], ["LL"]],
    3: [["SS", "SM", "MS", "MM"], ["SL", "ML"], ["LS", "LM", "LL"]],
    2: [["SS", "SM", "SL", "MS", "MM", "ML"], ["LS", "LM", "LL"]],
    1: [list(CLASSES)],
}
COUNTS = tuple(sorted(_MERGED))


def pool_kinds(count: int) -> list:
    """The pools, small to large. Raises InputError for a count that there is no merging for."""
    if count not in _MERGED:
        raise InputError(f"pools = {count}; allowed: {', '.join(map(str, COUNTS))}")
    found = []
    for names in _MERGED[count]:
        members = [index(name) for name in names]
        kind = 3 * max(each // 3 for each in members) + max(each % 3 for each in members)
        found.append(PoolKind(CLASSES[kind], members, kind))
    return found


def home(pools: list, kind: int) -> int:
    """Place of the pool that a class belongs to."""
    return next(place for place, pool in enumerate(pools) if kind in pool.members)


def larger(pools: list, place: int) -> list:
    """Places of pools that may serve another's requests, nearest first: the answer's letter up, then the prompt's."""
    own = pools[place].kind
    others = [other for other, pool in enumerate(pools) if other != place and dominates(pool.kind, own)]

    def distance(other):
        kind = pools[other].kind
        return (kind // 3 - own // 3, kind % 3 - own % 3)

    return sorted(others, key=distance)


def carry_target(pools: list, place: int) -> int | None:
    """Where a pool's remainder goes when servers are counted: the nearest larger pool; None for the largest."""
    others = larger(pools, place)
    return others[0] if others else None
