"""How long a change of clocks takes, and what the launches do until it is through.

wait   the stream stands still from the request until the clock is there: time and stall energy for each change
lag    the request is made as a launch begins; launches run on at the old clocks until it is through, in mid-launch
ahead  the request is made early, so that the change lands at a boundary between launches; the next one can be asked
       for only when it is through, so a pair is kept for at least the latency, and jitter hits the neighbours

One change is under way at a time. Latency is one number for both clock domains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernel_dvfs.errors import InputError

BEHAVIOURS = ("wait", "lag", "ahead")


@dataclass(frozen=True)
class Timing:
    """latency_s: from request to effect. jitter: share of it by which a change may land early or late, evenly spread.

    Raises InputError for a behaviour that is none, a negative latency, jitter outside 0..1.
    """

    behaviour: str
    latency_s: float
    jitter: float = 0.0

    def __post_init__(self):
        if self.behaviour not in BEHAVIOURS:
            raise InputError(f"switch behaviour {self.behaviour!r}: use one of {', '.join(BEHAVIOURS)}")
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise InputError(f"switch latency {self.latency_s:g} s: expected a number of seconds >= 0")
        if not 0 <= self.jitter <= 1:
            raise InputError(f"switch jitter {self.jitter:g}: expected a share of the latency from 0 to 1")

    @property
    def latest_s(self) -> float:
        """The longest that a change may take; also the least dwell of `ahead`."""
        return self.latency_s * (1 + self.jitter)

    @property
    def is_free(self) -> bool:
        return self.latency_s == 0

    @property
    def spread_s(self) -> float:
        """How early or late a change may land at most."""
        return self.latency_s * self.jitter
