"""Windows that begin and end when an energy counter moves.

The counter of an NVIDIA board is updated about every 100 ms, so a window that is cut anywhere else is wrong by up to
one such period (2 % of 5 s). Works on a function that reads a counter, a clock and a load to keep busy; knows neither
NVML nor CUDA.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from kernel_dvfs_clocks.errors import CounterFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# nearer than this the counter and the power reading agree: a sensor of a board is good to about 5 %
AGREE_PERCENT = 5.0
READING_LAG_S = 1.0  # over which a power reading may be a mean


class CounterComparison(NamedTuple):
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
        """`agree`, `disagree`, or `not steady` where a difference may come of readings that lag, or are few."""
        if abs(self.difference_percent) <= AGREE_PERCENT:
            return "agree"
        return "disagree" if self.exceeds(AGREE_PERCENT) else "not steady"

    def exceeds(self, percent: float) -> bool:
        """Return whether the two differ by more than this, and by more than what a changing load may do: a reading that
        is a mean of the last second is behind by as much as it moves in one, and few readings miss what is between
        them."""
        low_j, high_j = sorted((self.counter_j, self.integral_j))
        if low_j <= 0:
            return high_j > 0
        moved_percent = 100 * (self.highest_w - self.lowest_w) * self.time_s / self.integral_j
        missed = max(READING_LAG_S / self.time_s, 1 / math.sqrt(self.readings))
        return 100 * (high_j / low_j - 1) > percent + moved_percent * missed


class AlignedWindow(NamedTuple):
    """What lies between two edges of the counter."""

    start_s: float  # of the first edge, on the counter's clock
    end_s: float  # of the last edge
    energy_mj: int  # between them


def compared(window: AlignedWindow, seen: Sequence[tuple[float, int]]) -> CounterComparison:
    """Compare a window of the counter with power readings, (s, mW), of which one at least is there; the first and the
    last stand for what comes before and after them."""
    first, last = (window.start_s, seen[0][1]), (window.end_s, seen[-1][1])
    # a stretch reaches from one reading to the next; what of it lies outside of the window is left out
    stretches = [
        (max(before_s, window.start_s), min(after_s, window.end_s), (before_mw + after_mw) / 2)
        for (before_s, before_mw), (after_s, after_mw) in pairwise([first, *seen, last])
    ]
    inside = [(end_s - start_s, mw / 1000) for start_s, end_s, mw in stretches if end_s > start_s]
    powers_w = [watts for _, watts in inside]
    return CounterComparison(
        window.end_s - window.start_s,
        window.energy_mj / 1000,
        sum(time_s * watts for time_s, watts in inside),
        min(powers_w),
        max(powers_w),
        len(inside),
    )


# the counter is read without pause from this long before an edge is due
_LEAD_S = 0.010
# Of a period, between two samples: the golden ratio. What repeats as the counter does, as steps of a training may,
# would else be seen at one and the same moment each time.
_SAMPLED = 0.618
_MOST_LATE = 5  # edges in a row that are seen late; the next one counts, however late
# a counter that stands still this many periods is broken, not slow
_FROZEN_PERIODS = 10


class EnergyCounter:
    """An energy counter, its period (period_s) and the time of one read (read_s).

    read_mj: returns the energy since some start, mJ, which never falls. now_s, sleep: as time.monotonic and time.sleep.
    feed: called between reads to keep the GPU busy. sample: called more than once a period while no edge is near, for
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
        self.time_reads(edges)
        return self.period_s

    def time_reads(self, reads: int = 5) -> None:
        """Measure the time of a read on a busy GPU, the median of so many, since a busy machine may come between: from
        then on, edges that are seen late are passed over."""
        taken_s = []
        for _ in range(reads):
            before_s = self._now_s()
            self._read()
            taken_s.append(self._now_s() - before_s)
        self.read_s = median(taken_s)

    def window(self, window_s: float) -> AlignedWindow:
        """Return a window from the next edge to the first one about `window_s` later (never more than half a period
        earlier)."""
        start_s, first_mj = self._next_edge(self._now_s())
        end_s, last_mj = self._next_edge(start_s + max(0.0, window_s - self.period_s / 2))
        return AlignedWindow(start_s, end_s, last_mj - first_mj)

    def against_power(self, read_mw: Callable[[], int], window_s: float) -> CounterComparison:
        """Compare the counter with the integral of a power reading, mW, from an edge to one about `window_s` later."""
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
        return compared(window, seen)

    @property
    def late_s(self) -> float:
        """By how much an edge may be seen late: about a read; infinite before that is measured."""
        return 1.5 * self.read_s + 0.0005 if self.read_s else math.inf

    def _next_edge(self, not_before_s: float) -> tuple[float, int]:
        """Return (time s, energy mJ after it) of the first edge after `not_before_s` that is seen in time: a load that
        is fed just then, or a machine that is busy, may come between two reads."""
        sampled_s = self._now_s()
        while (left_s := not_before_s - _LEAD_S - self._now_s()) > 0:
            self._feed()
            if self._sample and self._now_s() - sampled_s >= _SAMPLED * self.period_s:
                sampled_s = self._now_s()
                self._sample()
            self._sleep(min(left_s, _LEAD_S))
        self._feed()  # ahead of the edge
        looked_s = self._now_s()
        known_mj, moved_s, late = self._read(), self._now_s(), 0
        # a read that was held up may have been taken long before it came back: the edge lies between the last two
        was_late, looked_s = moved_s - looked_s > self.late_s, moved_s
        while True:
            self._feed()
            energy_mj, seen_s = self._read(), self._now_s()
            is_late, looked_s = seen_s - looked_s > self.late_s, seen_s
            if energy_mj > known_mj and seen_s >= not_before_s:
                if not (is_late or was_late) or late == _MOST_LATE:
                    return seen_s, energy_mj
                late += 1
            was_late = is_late
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
            raise fallen(before_mj, self._last_mj)
        return self._last_mj


def fallen(before_mj: int, now_mj: int) -> CounterFault:
    """Return the fault of a counter that shows less than before."""
    return CounterFault(
        f"energy counter: fell from {before_mj} to {now_mj} mJ; was the driver reloaded meanwhile?", fell=True
    )
