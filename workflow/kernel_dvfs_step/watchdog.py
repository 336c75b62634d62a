"""Ends this process where a kernel never does: there is no other way to be rid of one.

The clocks are then restored as after any death (kernel_dvfs_clocks.guard).
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_EVERY_S = 0.1


def end_with_reader(pipe: int) -> None:
    """End this process from now on once nobody reads `pipe` any more: whoever was to be told has gone."""

    def watch() -> None:
        poll = select.poll()
        poll.register(pipe, 0)  # an error is told all the same
        while not any(event & select.POLLERR for _, event in poll.poll(0)):
            time.sleep(_LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Watchdog:
    """A thread that kills this process once a limit has passed.

    say: called with a line about what took too long, right before. kill: what ends the process.
    """

    def __init__(
        self, say: Callable[[str], object], kill: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    ) -> None:
        self._say, self._kill = say, kill
        self._end_s: float | None = None
        self._about = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, daemon=True).start()

    def arm(self, seconds: float, about: str) -> None:
        """Set a limit of so long from now, until it is armed again or disarmed."""
        with self._changed:
            self._end_s, self._about = time.monotonic() + seconds, about
            self._changed.notify()

    def disarm(self) -> None:
        """Set no limit any more."""
        with self._changed:
            self._end_s = None
            self._changed.notify()

    @contextmanager
    def limit(self, seconds: float, about: str) -> Iterator[None]:
        """Return a context that takes at most so long."""
        self.arm(seconds, about)
        try:
            yield
        finally:
            self.disarm()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left_s = None if self._end_s is None else self._end_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    try:
                        self._say(self._about)
                    finally:  # whether or not anybody can be told
                        self._kill()
                    self._end_s = None
                else:
                    self._changed.wait(left_s)
