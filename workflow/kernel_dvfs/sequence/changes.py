"""Changes of clocks in an iteration: which pair from where on, how long one takes, what the launches do meanwhile.

lag    the request is made as a launch begins; launches run on at the old clocks until it takes effect, in mid-launch
ahead  the request is made early, so that the change lands at a boundary between launches; the next one can be asked
       for only when it has landed, so a pair is kept for at least the latency, and jitter hits the neighbours

In both the GPU stalls as a change takes effect: once for a changed core clock, once for a changed
memory clock, at the power of a GPU that stands still at the pair which it leaves. One change is under way at a time.
Latency is one number for both clock domains. An iteration begins at the pair at which the last one ended, with nothing
under way, and asks for no change before it has begun, so nothing is assumed of what lies between two iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kernel_dvfs.errors import InputError

BEHAVIOURS = ("lag", "ahead")


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a change takes. Raises InputError for an unknown behaviour, a negative time, jitter outside 0..1."""

    behaviour: str  # one of BEHAVIOURS
    latency_s: float  # from the request to its effect
    jitter: float = 0.0  # share of the latency by which a change may land early or late, evenly spread
    core_stall_s: float = 0.0  # how long the GPU stands still where the core clock changes
    mem_stall_s: float = 0.0  # and where the memory clock does, on top

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

    @property
    def latest_s(self) -> float:
        """The longest time that a change may take, s; `ahead` keeps a pair for at least as long."""
        return self.latency_s * (1 + self.jitter)

    @property
    def settles_s(self) -> float:
        """The time from an iteration's begin to the earliest landing of a change, s."""
        return self.latency_s if self.behaviour == "ahead" else 0.0

    def stall_s(self, before: tuple[object, object], after: tuple[object, object]) -> float:
        """How long the GPU stands still as it changes from one (core, memory) pair to another, s."""
        return self.core_stall_s * (before[0] != after[0]) + self.mem_stall_s * (before[1] != after[1])

    @property
    def spread_s(self) -> float:
        """How early or late a change may land at most, s."""
        return self.latency_s * self.jitter


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
        """From the pair of every launch, (N,): a change wherever it differs from the launch before (cyclic)."""
        pairs = [int(pair) for pair in pairs]
        found = [(place, pair) for place, pair in enumerate(pairs) if pair != pairs[place - 1]]
        return Changes(pairs[-1], tuple(place for place, _ in found), tuple(pair for _, pair in found))

    def pairs(self, count: int) -> list[int]:
        """The pair wanted for each of `count` launches."""
        wanted, now, place = [], self.first, dict(zip(self.at, self.to))
        for launch in range(count):
            now = place.get(launch, now)
            wanted.append(now)
        return wanted
