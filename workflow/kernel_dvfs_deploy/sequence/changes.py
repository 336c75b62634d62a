"""Changes of clocks in an iteration: which pair from where on, how long one takes, what the launches do meanwhile.

lag    the request is made as a launch begins; launches run on at the old clocks until it takes effect, in mid-launch
ahead  the request is made early, so that the change lands at a boundary between launches; the next one can be asked
       for only when it has landed, so a pair is kept for at least the latency, and jitter hits the neighbours

In both the GPU stalls as a change takes effect: once for a changed core clock, once for a changed
memory clock, at the power of a GPU that stands still at the pair which it leaves. One change is under way at a time; a
newer request replaces it. Latency is one number for both clock domains, with or without jitter; or, with `ahead`, a
distribution for each, whose late changes count too. An iteration begins at the pair at which the last one ended, with
nothing under way, and asks for no change before it has begun, so nothing is assumed of what lies between two
iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from kernel_dvfs.measurement.latency_file import Spread
from kernel_dvfs_clocks.errors import InputError

BEHAVIOURS = ("lag", "ahead")
# the clock whose latency counts of a change: the memory's where that changes, which takes longer
KINDS = CORE, MEM = range(2)
# equally likely landings that a choice counts on, the latest at 94 %; what lands later, a walk shows
_LANDINGS = 8


@lru_cache(maxsize=64)
def _landings_s(core: Spread, mem: Spread) -> tuple[tuple[float, ...], ...]:
    """Return equally likely latencies of a change of each kind, ascending."""
    shares = [(place + 0.5) / _LANDINGS for place in range(_LANDINGS)]
    return tuple(tuple(map(spread.at, shares)) for spread in (core, mem))


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a change takes. Raises InputError for an unknown behaviour, a negative time, jitter outside 0..1."""

    behaviour: str  # one of BEHAVIOURS
    latency_s: float  # from the request to its effect
    jitter: float = 0.0  # share of the latency by which a change may land early or late, evenly spread
    core_stall_s: float = 0.0  # how long the GPU stands still where the core clock changes
    mem_stall_s: float = 0.0  # and where the memory clock does, on top
    spreads: tuple[Spread, Spread] | None = None  # of the core and the memory clock; latency_s is the longer median

    def __post_init__(self) -> None:
        if self.behaviour not in BEHAVIOURS:
            raise InputError(f"switch behaviour {self.behaviour!r}: use one of {', '.join(BEHAVIOURS)}")
        for name, time_s in (
            ("switch latency", self.latency_s),
            ("stall of a core clock's change", self.core_stall_s),
            ("stall of a memory clock's change", self.mem_stall_s),
        ):
            if not (math.isfinite(time_s) and time_s >= 0):
                raise InputError(f"{name} {time_s:g} s: expected a number of seconds >= 0")
        if not 0 <= self.jitter <= 1:
            raise InputError(f"switch jitter {self.jitter:g}: expected a share of the latency from 0 to 1")

    @staticmethod
    def spread(core: Spread, mem: Spread, core_stall_s: float = 0.0, mem_stall_s: float = 0.0) -> Timing:
        """Return the timing of changes asked for ahead that take what a distribution for each clock says. Raises
        InputError for one that is none."""
        for spread in (core, mem):
            if not 0 < spread.median_s <= spread.p99_s < math.inf:
                raise InputError(
                    f"switch latency of {spread.median_s:g} s (median) and {spread.p99_s:g} s (99 %): expected two "
                    "ascending numbers of seconds > 0"
                )
        slower_s = max(median(landings_s) for landings_s in _landings_s(core, mem))
        return Timing("ahead", slower_s, 0.0, core_stall_s, mem_stall_s, (core, mem))

    def landings_s(self, kind: int) -> tuple[float, ...]:
        """Return equally likely latencies of a change of a kind, where there are distributions."""
        assert self.spreads is not None
        return _landings_s(*self.spreads)[kind]

    def lead_s(self, before: tuple[object, object], after: tuple[object, object]) -> float:
        """Return how long before its launch a change from one (core, memory) pair to another is asked for, s."""
        if self.behaviour == "lag":
            return 0.0
        return median(self.landings_s(kind_of(before, after))) if self.spreads else self.latency_s

    def latest_of_s(self, before: tuple[object, object], after: tuple[object, object]) -> float:
        """Return how long a change from one pair to another is waited for, s."""
        return self.landings_s(kind_of(before, after))[-1] if self.spreads else self.latest_s

    @property
    def latest_s(self) -> float:
        """Return the longest time that a change may take, s; `ahead` keeps a pair for at least as long."""
        if self.spreads:
            return max(self.landings_s(kind)[-1] for kind in KINDS)
        return self.latency_s * (1 + self.jitter)

    @property
    def settles_s(self) -> float:
        """Return the time from an iteration's begin to the earliest landing of a change, s."""
        return self.latency_s if self.behaviour == "ahead" else 0.0

    def stall_s(self, before: tuple[object, object], after: tuple[object, object]) -> float:
        """Return how long the GPU stands still as it changes from one (core, memory) pair to another, s."""
        return self.core_stall_s * (before[0] != after[0]) + self.mem_stall_s * (before[1] != after[1])

    @property
    def spread_s(self) -> float:
        """Return how early or late a change may land at most, s."""
        if self.spreads:
            return max(landings_s[-1] - median(landings_s) for landings_s in map(self.landings_s, KINDS))
        return self.latency_s * self.jitter


def kind_of(before: tuple[object, object], after: tuple[object, object]) -> int:
    """Return the kind of a change from one (core, memory) pair to another, one of KINDS."""
    return CORE if before[1] == after[1] else MEM


# a named tuple, because choices are keys and are compared
class Changes(NamedTuple):
    """A choice for an iteration. What happens at a launch in `at` depends on the behaviour: with `lag` the
    pair is asked for as it begins, with `ahead` the change lands before it, and none may land earlier than a latency
    after the begin.
    """

    first: int  # index of the pair at the iteration's begin, which is also the one at its end
    at: tuple[int, ...]  # launches with a change, ascending
    to: tuple[int, ...]  # pair index of each

    def __len__(self) -> int:
        return len(self.at)

    @staticmethod
    def of_pairs(pairs: Iterable[int]) -> Changes:
        """Return the choice that gives each launch its pair, (N,): a change wherever it differs from the launch before
        (cyclic)."""
        pairs = [int(pair) for pair in pairs]
        changes = [(place, pair) for place, pair in enumerate(pairs) if pair != pairs[place - 1]]
        return Changes(pairs[-1], tuple(place for place, _ in changes), tuple(pair for _, pair in changes))

    def pairs(self, count: int) -> list[int]:
        """Return the pair wanted for each of `count` launches."""
        wanted, now, place = [], self.first, dict(zip(self.at, self.to))
        for launch in range(count):
            now = place.get(launch, now)
            wanted.append(now)
        return wanted
