"""The time of measurements on a real GPU: estimated before a study, accounted for after each point.

Windows, kernel warm-up and thermal conditioning are the measurement; the rest of a point is overhead.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernel_dvfs.layout import LOCKING_REPEATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernel_dvfs.plan.asked import Study

# settings of a comparison's points: a single window, since the repeats are its statistics
COMPARED = {"windows": 1, "max_windows": 1}

_SETTLE_S = 0.5  # until the clocks have settled
# thermal conditioning: until the plateau is found, and what heating takes a point where loads differ (an H200: 158 s of
# a first look at 48 targets)
_PLATEAU_S, _HEAT_S = 75.0, 1.7
_PERIOD_S = 0.1  # up to which a window waits for its first edge
_POINTS_COMPARED = 4  # auto, chosen, chosen, auto
# of a point's time; conditioning: heating or cooling; choosing: GEMM algorithms, once in a study; preparing: plans,
# their tensors, graphs
PARTS = ("windows", "warm_up", "conditioning", "choosing", "preparing", "other")


def study_s(study: Study, measurement: dict[str, Any], validation_repeats: int, can_compare: bool) -> dict[str, float]:
    """{part of the study: seconds} with the least number of windows.

    The parts are thermal conditioning, the sweep and, where clocks can be changed within a job (can_compare), auto
    against the highest clocks, the validation, and the schedule at other sizes.
    """
    sweep = (len(study.kernels) + len(study.passes)) * len(study.points)
    is_hot = measurement["temperature"] == "plateau"
    parts = {"conditioning": (_PLATEAU_S + _HEAT_S * sweep) * is_hot, "sweep": sweep * point_s(measurement)}
    if can_compare:
        compared_s = comparison_s(measurement)
        repeats_s = validation_repeats * compared_s
        parts["locking"] = len(study.contracts) * len(study.locked) * LOCKING_REPEATS * compared_s
        parts["validation"] = len(study.kernels) * repeats_s
        parts["other sizes"] = sum(len(variant.kernels) for variant in (study.variants or {}).values()) * repeats_s
    return parts


def comparison_s(measurement: dict[str, Any]) -> float:
    """What one repeat of one kernel's comparison takes at least, s."""
    return _POINTS_COMPARED * point_s(measurement | COMPARED)


def point_s(measurement: dict[str, Any]) -> float:
    """What a point takes at least, s."""
    return measurement["warmup_s"] + _SETTLE_S + measurement["windows"] * (measurement["window_s"] + _PERIOD_S)


class TimeAccount:
    """Seconds spent in each part by the clock `now_s`. A part within another one stops the outer one meanwhile."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begin()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A context whose time belongs to the part `name`."""
        outer = self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def take(self) -> dict[str, float]:
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
