"""A request: measure a target at a clock pair, so many times.

A sweep, a search and a refinement say in this form what they need measured, and a profile what it is pooled from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from kernel_dvfs.measurement import campaign
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs_clocks.clocks import Pair, label
from kernel_dvfs_clocks.files import inside
from kernel_dvfs_clocks.shape import Count, Text

# a request as a file holds it: kind, target, core_mhz, mem_mhz, repeats
Row: TypeAlias = tuple[str, Text, int | Literal["auto"], int | Literal["auto"], list[Count]]


class PointRequest(NamedTuple):
    """Measure one target at one clock pair: one record r<k>.json for each k of `repeats`."""

    kind: str  # `kernel` or `pass`
    target: str  # its name
    core_mhz: int | str  # whole MHz or AUTO
    mem_mhz: int | str  # whole MHz or AUTO
    repeats: tuple[int, ...]  # ascending; a sweep's are 0, at (auto, auto) 0 .. auto_repeats - 1; remeasuring counts on


def sweep(
    setup: Setup, pairs: Sequence[Pair], auto_repeats: int, kinds: Sequence[str] = ("kernel", "pass")
) -> list[PointRequest]:
    """Return every target of these kinds at every pair, as a sweep measures them."""
    return [
        PointRequest(kind, name, *pair, tuple(range(campaign.repeats(pair, auto_repeats))))
        for kind in kinds
        for name in setup.targets[kind]
        for pair in pairs
    ]


def merged(requests: Iterable[PointRequest]) -> dict[tuple[str, str], dict[Pair, list[int]]]:
    """Return {(kind, target): {Pair: [repeats]}}: everything that is asked for, each repeat once, ascending."""
    asked: dict[tuple[str, str], dict[Pair, set[int]]] = {}
    for request in requests:
        pairs = asked.setdefault((request.kind, request.target), {})
        pairs.setdefault(Pair(request.core_mhz, request.mem_mhz), set()).update(request.repeats)
    return {target: {pair: sorted(repeats) for pair, repeats in pairs.items()} for target, pairs in asked.items()}


def path(request: PointRequest, repeat: int) -> str:
    """Return the path of one repeat's record in the folder `measurements`."""
    return f"{_folder(request.kind, request.target, request.core_mhz, request.mem_mhz)}/r{repeat}.json"


@lru_cache(maxsize=65536)
def _folder(kind: str, target: str, core_mhz: int | str, mem_mhz: int | str) -> str:
    return inside(f"{kind}/{target}/{label(Pair(core_mhz, mem_mhz))}")


def to_json(requests: Iterable[PointRequest]) -> list[list[str | int | list[int]]]:
    """Return requests as a file holds them: a Row each."""
    return [[*request[:4], list(request.repeats)] for request in requests]


def from_json(content: Iterable[Row]) -> list[PointRequest]:
    """Return the requests that a file holds in the form of `to_json`."""
    return [
        PointRequest(kind, target, core_mhz, mem_mhz, tuple(repeats))
        for kind, target, core_mhz, mem_mhz, repeats in content
    ]
