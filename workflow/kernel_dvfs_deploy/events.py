"""How far the launches of an iteration have come, as a player asks for it: CUDA events in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

# short against a clock change, long against a look at an event
_LOOK_EVERY_S = 0.0002


class EventSource(Protocol):
    """A source of events, as a player needs it; tests have one on simulated time.

    Boundaries count on from iteration to iteration: number of the iteration x launches + launch.
    """

    def now_s(self) -> float:
        """Return the time of the source's own clock."""

    def sleep_until(self, when_s: float) -> None:
        """Return at a time of this clock, at once if it has passed."""

    def passed_s(self, boundary: int) -> float | None:
        """Return when the GPU came to a boundary; None where it has not yet, or nobody recorded it."""

    def wait(self, boundary: int, until_s: float) -> float | None:
        """Wait for the GPU to come to a boundary, until a time of this clock, and return as `passed_s`."""

    def is_idle(self) -> bool:
        """Return whether the GPU is known to have come to the end of all that was launched."""


class StreamEvents:
    """Events that the launching thread records: call `reached(launch)` before each launch of an iteration, in order.

    make_event: returns an event on the stream, with record() and done() (this project's native layer) or query()
    (torch.cuda.Event). boundaries: launches where the player wants one, see Player.boundaries; elsewhere none is made.
    count: launches of an iteration.
    """

    def __init__(self, make_event: Callable[[], Any], boundaries: Iterable[int], count: int) -> None:
        self._make, self._wanted, self._count = make_event, frozenset(boundaries), count
        self._waiting: dict[int, Any] = {}  # {boundary: its event, recorded}
        # {boundary: when it was seen to have passed, s}, in order: the player's thread alone reads and changes it
        self._passed: dict[int, float] = {}
        self._lock = threading.Lock()  # of _waiting, to which the launching thread adds
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
        """See EventSource."""
        return time.monotonic()

    def sleep_until(self, when_s: float) -> None:
        """See EventSource."""
        left_s = when_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)

    def passed_s(self, boundary: int) -> float | None:
        """See EventSource."""
        with self._lock:
            waiting = list(self._waiting.items())
        for number, event in waiting:
            is_done = event.done if hasattr(event, "done") else event.query
            if not is_done():
                break  # the GPU comes to them in order; to ask after each would hold up the thread that launches
            self._passed[number] = time.monotonic()
            with self._lock:
                self._waiting.pop(number, None)
        return self._passed.get(boundary)

    def is_idle(self) -> bool:
        """See EventSource; of a program that launches on without pause nothing is known."""
        return False

    def wait(self, boundary: int, until_s: float) -> float | None:
        """See EventSource."""
        while (passed_s := self.passed_s(boundary)) is None:
            if time.monotonic() >= until_s:
                return None
            time.sleep(_LOOK_EVERY_S)
        return passed_s
