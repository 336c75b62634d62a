"""The clocks of a training that is tuned: one pair for all its GPUs, or one for each pass, from mark to mark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs_deploy.guarded_control import GuardedControl
    from kernel_dvfs_deploy.tuning import Setting

LEAST_CHANGES = 10.0  # a pass takes so many times what a change of clocks does, or has no pair of its own
_MOST_NAMES = 100  # a training that gives each step's passes new names must not fill the memory


class PassClocks:
    """What a session asks for, and the passes' marks follow. Safe between threads.

    controls: one a GPU, entered. now_s: the steps' clock. repeats(): called when the pass that was marked first begins
    again, which is a step; None where steps are told otherwise.
    """

    def __init__(
        self,
        controls: Sequence[GuardedControl],
        now_s: Callable[[], float],
        repeats: Callable[[], object] | None = None,
    ) -> None:
        self._controls, self._now_s, self.repeats = controls, now_s, repeats
        self._lock = threading.Lock()
        self._by_pass: dict[str, Pair] = {}
        self._refusal: Exception | None = None
        self._first: str | None = None
        self._last: tuple[str, float] | None = None  # pass under way, and since when
        self._took: dict[str, tuple[float, int]] = {}  # of each pass: s in all, how often

    def ask(self, setting: Setting) -> None:
        """Have a setting in force: of passes from the next mark on. Raises what a control does, also for what a mark
        asked for before."""
        with self._lock:
            refusal, self._refusal = self._refusal, None
            self._by_pass = {} if isinstance(setting, Pair) else dict(setting)
            if isinstance(setting, Pair):
                self._set(setting)
        if refusal:
            raise refusal

    def mark(self, name: str) -> None:
        """The pass `name` begins."""
        now_s = self._now_s()
        with self._lock:
            if self._last:
                last, since_s = self._last
                if last in self._took or len(self._took) < _MOST_NAMES:
                    in_all_s, times = self._took.get(last, (0.0, 0))
                    self._took[last] = in_all_s + now_s - since_s, times + 1
            self._last = name, now_s
            is_first = name == self._first
            self._first = self._first or name
            if self._by_pass:
                try:
                    self._set(self._by_pass.get(name, BASELINE))
                except (InputError, ExceptionGroup) as error:
                    self._refusal, self._by_pass = error, {}  # the session hears of it at its next request
        if is_first and self.repeats:
            self.repeats()

    def forget(self) -> None:
        """Measure the passes from here on."""
        with self._lock:
            self._took, self._last = {}, None

    def passes(self) -> dict[str, tuple[float, float]]:
        """Return {pass: (share of the time, s each time)} since `forget`, in the order of a step."""
        with self._lock:
            total_s = sum(in_all_s for in_all_s, _ in self._took.values())
            return {
                name: (in_all_s / total_s, in_all_s / times)
                for name, (in_all_s, times) in self._took.items()
                if total_s
            }

    def _set(self, pair: Pair) -> None:
        for control in self._controls:
            if tuple(control.pair) == tuple(pair):
                continue
            if pair == BASELINE:
                control.to_auto()
            else:
                control.ask(pair)
