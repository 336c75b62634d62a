"""A plan or pass launched over and over without a gap: what a window of power needs under it.

Batches of launches are queued two deep, with an event and a mark of the clock probe between batches and no wait for
the device, so the GPU never idles and every batch has its time and its SM clock.
"""

import time
from typing import Any

from kernel_dvfs_clocks.errors import InputError

# batches do not divide the 100 ms in which some boards sample their power a quarter of the time
BATCH_S = 0.037
# the host launches in 2 to 4 us: below this, launches go through a CUDA graph
GRAPH_BELOW_US = 20
_GRAPH_LAUNCHES = 500
_QUEUED = 2
_MARKS = 4000


class Steady:
    """Keeps `runnable` (cuda.Plan or cuda.Pass) running on `device`; `feed` must be called often.

    by_graph: whether launches go through a CUDA graph; launches_per_batch: their number.
    """

    def __init__(self, cuda: Any, device: Any, runnable: Any) -> None:
        self._device, self._event = device, lambda: cuda.Event(device)
        runnable.run(1)
        few = 5
        launch_us = 1e3 * runnable.time(few) / few
        self.by_graph = launch_us < GRAPH_BELOW_US
        self._runnable = runnable.capture(_GRAPH_LAUNCHES) if self.by_graph else runnable
        unit_us = 1e3 * self._runnable.time(few) / few if self.by_graph else launch_us
        self._repeat = max(1, round(BATCH_S * 1e6 / unit_us))
        self.launches_per_batch = self._repeat * (_GRAPH_LAUNCHES if self.by_graph else 1)
        self._probe = cuda.ClockProbe(device, _MARKS)
        self._ends: list[Any] = []  # events, one a batch
        self._seen_s: list[float] = []  # when the host saw them done
        self._mark()

    @property
    def ended(self) -> int:
        """How many batches are known to have ended since those before were forgotten: stands still where one hangs."""
        return len(self._seen_s)

    def feed(self) -> None:
        """Note what is done, queue what is missing."""
        while len(self._seen_s) < len(self._ends) and self._ends[len(self._seen_s)].done():
            self._seen_s.append(time.monotonic())
        while len(self._ends) - len(self._seen_s) < _QUEUED:
            if len(self._ends) + 1 == _MARKS:
                self._restart()
            self._launch()
            self._mark()

    def run_for(self, duration_s: float) -> None:
        """Keep the GPU busy for a while, before a window: what ran is forgotten."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self.feed()
            time.sleep(0.002)
        self._restart()

    def between(self, start_s: float, end_s: float) -> dict[str, float]:
        """Return of the batches that ended between two times (time.monotonic) time_us a launch, launches, sm_mhz
        (mean).

        Raises InputError where fewer than two batches did.
        """
        while self._seen_s and self._seen_s[-1] < end_s:  # the last batch may have ended unseen
            self.feed()
            time.sleep(0.001)
        ended = [number for number, seen_s in enumerate(self._seen_s) if start_s <= seen_s <= end_s]
        if len(ended) < 2:
            raise InputError(
                f"window of {end_s - start_s:.1f} s: {len(ended)} batches of launches ended in it, two are needed; "
                f"window_s must span two launches and be at most {_MARKS * BATCH_S:.0f} s"
            )
        first, last = ended[0], ended[-1]
        launches = (last - first) * self.launches_per_batch
        clocks = self._probe.sm_mhz()[first:last]
        return {
            "time_us": 1e3 * self._ends[last].since_ms(self._ends[first]) / launches,
            "launches": launches,
            "sm_mhz": sum(clocks) / len(clocks),
        }

    def own_mhz(self) -> None:
        """Return None: it never rests."""

    def stop(self) -> None:
        """Wait for all that is queued."""
        self._device.synchronize()

    def _launch(self) -> None:
        launch = self._runnable.launch if self.by_graph else self._runnable.run
        launch(self._repeat)

    def _mark(self) -> None:
        self._probe.mark()
        event = self._event()
        event.record()
        self._ends.append(event)

    def _restart(self) -> None:
        """Forget all batches but go on without a gap: the probe has room for so many marks only."""
        self._probe.clear()
        self._ends, self._seen_s = [], []
        self._mark()
