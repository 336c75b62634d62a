"""Windows that begin and end when an energy counter moves: the counter of an NVIDIA board shows its energy every
100 ms or so, and a window cut anywhere else is wrong by up to one such period (2 % of 5 s).

Knows a function that reads a counter, a clock and a load to keep busy; no NVML, no CUDA.
"""

from kernel_dvfs.errors import CounterFault
from kernel_dvfs.tuples import named

# what one edge-to-edge window gives; energy in mJ, times in s of `now`
AlignedWindow = named(
    "AlignedWindow",
    "start_s end_s energy_mj",
    """Between two edges of the counter: their times, s of the counter's clock, and the energy between them, mJ.""",
)

# the counter is read without pause from this long before an edge is due
_LEAD_S = 0.010
# a counter that stands still this many periods is broken, not slow
_FROZEN_PERIODS = 10


class EnergyCounter:
    """An energy counter, its period and the time of one read.

    read_mj: () -> energy since some start, mJ, never falling; now_s, sleep: as time.monotonic and time.sleep;
    feed: called between reads, keeps the GPU busy; sample: called about once a period while no edge is near, for
    what else is to be watched over a window. Raises CounterFault where the counter falls or stands still.
    """

    def __init__(self, read_mj, now_s, sleep, feed, sample=None):
        self._read_mj, self._now_s, self._sleep, self._feed = read_mj, now_s, sleep, feed
        self._sample = sample
        self.period_s = 0.1
        self.read_s = 0.0
        self._last_mj = 0

    def calibrate(self, edges: int = 5) -> float:
        """Measure the period, s, over `edges` periods, and the time of a read; the GPU is kept busy meanwhile."""
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

    def _next_edge(self, not_before_s: float) -> tuple:
        """(time, energy after it) of the counter's first move after `not_before_s`; seen one read late at most."""
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
