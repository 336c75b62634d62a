"""When a point has enough windows: a fixed number, or until the noise of its energy is small or stops shrinking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# settings of a comparison's points: a single window, since the repeats are its statistics
COMPARED = {"windows": 1, "max_windows": 1}


class Rule(Protocol):
    """A rule of one point. unstable: in words, why its energy is uncertain in the end; "" where it is not."""

    unstable: str

    def is_finished(self, energies: Sequence[float]) -> bool:
        """Return whether no further window is needed. energies: of the windows so far; to be asked after each."""
        ...


class Fixed:
    """Always the same number of windows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.unstable = ""

    def is_finished(self, energies: Sequence[float]) -> bool:
        """See Rule."""
        return len(energies) >= self._count


class UntilSteady:
    """At least `least` windows, then more until the 95 % interval of the mean energy is within `percent` of it.

    It gives up, and is unstable, after `most` windows or as soon as one more window has not made the interval narrower.
    """

    def __init__(self, least: int, most: int, percent: float) -> None:
        self._least, self._most, self._percent = least, most, percent
        self._widths: list[float] = []
        self.unstable = ""
        for count in range(max(2, least), most + 1):
            _t95(count)  # it is worked out slowly, once in a process: not while the GPU waits for its next window

    def is_finished(self, energies: Sequence[float]) -> bool:
        """See Rule."""
        if len(energies) < max(2, self._least):
            return False
        width = interval_percent(energies)
        shrinks = not self._widths or width < self._widths[-1]
        self._widths.append(width)
        if width <= self._percent:
            return True
        if len(energies) < self._most and shrinks:
            return False
        self.unstable = (
            f"the 95 % interval of the energy is +-{width:.2g} % after {len(energies)} windows "
            f"(wanted: {self._percent:g} %)"
        )
        return True


def rule(settings: Mapping[str, Any]) -> Rule:
    """Return the rule that a setup's measurement settings ask for: windows, and where there are any max_windows and
    energy_ci_percent."""
    if "max_windows" not in settings:
        return Fixed(settings["windows"])
    most = max(settings["max_windows"], settings["windows"])
    if most < 2:
        return Fixed(most)
    return UntilSteady(settings["windows"], most, settings["energy_ci_percent"])


def interval_percent(values: Sequence[float]) -> float:
    """Return the half width of the 95 % interval of the mean of at least two values, percent of the mean (Student's
    t)."""
    count = len(values)
    mean = math.fsum(values) / count
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return 100 * _t95(count) * sd / math.sqrt(count) / mean


def _t95(count: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for the mean of so many values."""
    from kernel_dvfs.student import CONFIDENCE, t_quantile  # not in a job that needs a fixed number of windows

    return t_quantile(count - 1, (1 + CONFIDENCE) / 2)
