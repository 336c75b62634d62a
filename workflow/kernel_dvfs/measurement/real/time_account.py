"""Where the time of a point goes. Windows, kernel warm-up and thermal conditioning are the measurement; the rest is
overhead."""

from contextlib import contextmanager

# conditioning: heating or cooling; choosing: GEMM algorithms, once a study; preparing: plans, their tensors, graphs
PARTS = ("windows", "warm_up", "conditioning", "choosing", "preparing", "other")


class TimeAccount:
    """Seconds of `now_s` by part, each moment in one part only: one within another stops the outer."""

    def __init__(self, now_s):
        self._now_s = now_s
        self._begin()

    @contextmanager
    def part(self, name: str):
        outer = self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def take(self) -> dict:
        """{part: seconds} since it was last taken."""
        self._switch(self._running)
        spent = {name: round(seconds, 6) for name, seconds in self._spent.items()}
        self._begin()
        return spent

    def _begin(self) -> None:
        self._running, self._since_s = "other", self._now_s()
        self._spent = dict.fromkeys(PARTS, 0.0)

    def _switch(self, name: str) -> str:
        now_s = self._now_s()
        self._spent[self._running] += now_s - self._since_s
        outer, self._running, self._since_s = self._running, name, now_s
        return outer
