"""How far the launches of an iteration have come, as a player asks for it: CUDA events in real time.

What a player needs of a source of events: now_s(); sleep_until(s); passed_s(boundary), the time at which the GPU
came to a boundary or None; wait(boundary, until_s), the same but waiting. Boundaries count on from iteration to
iteration: number of the iteration x launches + launch. Tests have a source on simulated time.
"""

from __future__ import annotations

import threading
import time

# short beside a clock change, long beside a look at an event
_LOOK_EVERY_S = 0.0002


class StreamEvents:
    """Events that the launching thread records: call `reached(launch)` before each launch of an iteration, in order.

    make_event: () -> an event on the stream, with record() and done() (this project's native layer) or query()
    (torch.cuda.Event). boundaries: launches where the player wants one, see Player.boundaries; elsewhere none is made.
    count: launches of an iteration.
    """

    def __init__(self, make_event, boundaries, count: int):
        self._make, self._wanted, self._count = make_event, frozenset(boundaries), count
        self._waiting, self._passed = {}, {}
        self._lock = threading.Lock()
        self._iteration, self._last = 0, -1

    def reached(self, launch: int) -> None:
        """The launching thread is about to launch `launch`; a lower number than before begins the next iteration."""
        if launch <= self._last:
            self._iteration += 1
        self._last = launch
        if launch not in self._wanted:
            return
        event = self._make()
        event.record()
        with self._lock:
            self._waiting[self._iteration * self._count + launch] = event

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_until(self, when_s: float) -> None:
        left_s = when_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)

    def passed_s(self, boundary: int):
        with self._lock:
            waiting = list(self._waiting.items())
        for number, event in waiting:
            is_done = event.done if hasattr(event, "done") else event.query
            if is_done():
                self._passed[number] = time.monotonic()
                with self._lock:
                    del self._waiting[number]
        return self._passed.get(boundary)

    def wait(self, boundary: int, until_s: float):
        while (found := self.passed_s(boundary)) is None:
            if time.monotonic() >= until_s:
                return None
            time.sleep(_LOOK_EVERY_S)
        return found
