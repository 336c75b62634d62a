"""Time and energy of a step of a command that tells its steps (deploy.marks), without what is no step."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.progress import Counter

_READ_EVERY_S = 1.0  # a read of the counter takes some ms, in which a step's mark waits


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step, as the mean of many."""

    steps: int
    step_s: float
    step_j: float
    within_percent: float  # by which its energy may be wrong, since a counter moves now and then only


class StepEnergy:
    """Steps that are told, and the counter's energy at some of them.

    energy_mj: reads the counter; where it fails, run_command's verdict says so. period_s: how often it moves.
    """

    def __init__(
        self, energy_mj: Callable[[], int], period_s: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._energy_mj, self._period_s, self._now_s = energy_mj, period_s, now_s
        self._steps = 0
        self._first: tuple[int, float, int] | None = None  # steps so far, s, mJ
        self._last: tuple[int, float, int] | None = None
        self._counter = Counter(None, self._add, now_s)

    def _add(self, steps: int) -> None:
        self._steps += steps

    def step(self, number: int) -> None:
        """So many steps are done."""
        self._counter.number(number)
        now_s = self._now_s()
        if self._last and now_s - self._last[1] < _READ_EVERY_S:
            return
        with suppress(InputError):
            self._last = self._steps, now_s, self._energy_mj()
            self._first = self._first or self._last

    @property
    def stepped(self) -> Stepped | None:
        """Return what came of it; None of too few steps."""
        if not self._first or not self._last:
            return None
        (first, begin_s, begin_mj), (last, end_s, end_mj) = self._first, self._last
        steps, time_s = last - first, end_s - begin_s
        if not steps or end_mj < begin_mj or time_s < LEAST_PERIODS * self._period_s:
            return None
        within = 100 * self._period_s / time_s
        return Stepped(steps, time_s / steps, (end_mj - begin_mj) / 1000 / steps, within)
