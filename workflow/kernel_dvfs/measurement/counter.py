"""Windows that begin and end when an energy counter moves.

The counter of an NVIDIA board is updated about every 100 ms, so a window that is cut anywhere else is wrong by up to
one such period (2 % of 5 s). Works on a function that reads a counter, a clock and a load to keep busy; knows neither
NVML nor CUDA.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kernel_dvfs.errors import CounterFault

if TYPE_CHECKING:
    from collections.abc import Callable


# nearer than this the counter and the power reading agree: a sensor of a board is good to about 5 %
AGREE_PERCENT = 5.0
# a power reading that is a mean over a second lags, so a load that changes by more than this tells nothing
STEADY_PERCENT = 20.0


class Compared(NamedTuple):
    """An energy counter against the integral of a power reading, over the same time."""

    time_s: float
    counter_j: float
    integral_j: float  # of the power reading, by trapezia
    lowest_w: float
    highest_w: float
    readings: int

    @property
    def difference_percent(self) -> float:
        """Counter less integral, of the integral."""
        return 100 * (self.counter_j / self.integral_j - 1)

    @property
    def verdict(self) -> str:
        """`agree`, `disagree`, or `not steady` where a difference may be the reading's lag."""
        if abs(self.difference_percent) <= AGREE_PERCENT:
            return "agree"
        mean_w = self.integral_j / self.time_s
        return "disagree" if 100 * (self.highest_w - self.lowest_w) <= STEADY_PERCENT * mean_w else "not steady"


class AlignedWindow(NamedTuple):
    """What lies between two edges of the counter."""

    start_s: float  # of the first edge, on the counter's clock
    end_s: float  # of the last edge
    energy_mj: int  # between them


# the counter is read without pause from this long before an edge is due
_LEAD_S = 0.010
# a counter that stands still this many periods is broken, not slow
_FROZEN_PERIODS = 10


class EnergyCounter:
    """An energy counter, its period (period_s) and the time of one read (read_s).

    read_mj: returns the energy since some start, mJ, which never falls. now_s, sleep: as time.monotonic and time.sleep.
    feed: called between reads to keep the GPU busy. sample: called about once a period while no edge is near, for
    whatever else is to be watched over a window. Methods raise CounterFault where the counter falls or stands still.
    """

    def __init__(
        self,
        read_mj: Callable[[], int],
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        feed: Callable[[], None],
        sample: Callable[[], None] | None = None,
    ) -> None:
        self._read_mj, self._now_s, self._sleep, self._feed = read_mj, now_s, sleep, feed
        self._sample = sample
        self.period_s = 0.1
        self.read_s = 0.0
        self._last_mj = 0

    def calibrate(self, edges: int = 5) -> float:
        """Measure the period, over `edges` of them, and the time of a read on a busy GPU; returns the period, s."""
        start_s, _ = self._next_edge(self._now_s())
        for _ in range(edges):
            end_s, _ = self._next_edge(self._now_s())
        self.period_s = (end_s - start_s) / edges
        before_s = self._now_s()
        for _ in range(edges):
            self._read()
        self.read_s = (self._now_s() - before_s) / edges
        return self.period_s

    def window(self, window_s: float) -> AlignedWindow:
        """From the next edge to the first one about `window_s` later (never more than half a period earlier)."""
        start_s, first_mj = self._next_edge(self._now_s())
        end_s, last_mj = self._next_edge(start_s + max(0.0, window_s - self.period_s / 2))
        return AlignedWindow(start_s, end_s, last_mj - first_mj)

    def against_power(self, read_mw: Callable[[], int], window_s: float) -> Compared:
        """The counter against the integral of a power reading, mW, from an edge to one about `window_s` later."""
        seen: list[tuple[float, int]] = []  # time s, power mW
        feed = self._feed

        def look() -> None:
            feed()
            seen.append((self._now_s(), read_mw()))

        self._feed = look
        try:
            window = self.window(window_s)
        finally:
            self._feed = feed
        # a stretch reaches from one reading to the next; what of it lies outside of the window is left out
        stretches = [
            (max(before_s, window.start_s), min(after_s, window.end_s), (before_mw + after_mw) / 2)
            for (before_s, before_mw), (after_s, after_mw) in pairwise([*seen, (window.end_s, seen[-1][1])])
        ]
        inside = [(end_s - start_s, mw / 1000) for start_s, end_s, mw in stretches if end_s > start_s]
        powers_w = [watts for _, watts in inside]
        return Compared(
            window.end_s - window.start_s,
            window.energy_mj / 1000,
            sum(time_s * watts for time_s, watts in inside),
            min(powers_w),
            max(powers_w),
            len(inside),
        )

    def _next_edge(self, not_before_s: float) -> tuple[float, int]:
        """(time s, energy mJ after it) of the first edge after `not_before_s`; seen at most one read late."""
        sampled_s = self._now_s()
        while (left_s := not_before_s - _LEAD_S - self._now_s()) > 0:
            self._feed()
            if self._sample and self._now_s() - sampled_s >= self.period_s:
                sampled_s = self._now_s()
                self._sample()
            self._sleep(min(left_s, _LEAD_S))
        known_mj, moved_s = self._read(), self._now_s()
        while True:
            self._feed()
            energy_mj, seen_s = self._read(), self._now_s()
            if energy_mj > known_mj and seen_s >= not_before_s:
                return seen_s, energy_mj
            if energy_mj > known_mj:
                known_mj, moved_s = energy_mj, seen_s
            elif seen_s - moved_s > _FROZEN_PERIODS * self.period_s:
                raise CounterFault(
                    f"energy counter: stood at {known_mj} mJ for {seen_s - moved_s:.1f} s; does this GPU have one?",
                    fell=False,
                )

    def _read(self) -> int:
        before_mj, self._last_mj = self._last_mj, self._read_mj()
        if self._last_mj < before_mj:
            raise CounterFault(
                f"energy counter: fell from {before_mj} to {self._last_mj} mJ; was the driver reloaded meanwhile?",
                fell=True,
            )
        return self._last_mj
