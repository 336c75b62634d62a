"""When a point has enough windows: a fixed number, or until the noise of its energy is small or stops shrinking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

# two-sided 95 % quantiles of Student's t by degrees of freedom, and the normal distribution's
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_Z95 = 1.959964


class Rule(Protocol):
    """A rule of one point. unstable: in words, why its energy is uncertain in the end; "" where it is not."""

    unstable: str

    def is_finished(self, energies: Sequence[float]) -> bool:
        """Whether no further window is needed. energies: of the windows so far; to be asked after each."""
        ...


class Fixed:
    """Always the same number of windows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.unstable = ""

    def is_finished(self, energies: Sequence[float]) -> bool:
        """See Rule."""
        return len(energies) >= self._count


class Steady:
    """At least `least` windows, then more until the 95 % interval of the mean energy is within `percent` of it.

    It gives up, and is unstable, after `most` windows or as soon as one more window has not made the interval narrower.
    """

    def __init__(self, least: int, most: int, percent: float) -> None:
        self._least, self._most, self._percent = least, most, percent
        self._widths: list[float] = []
        self.unstable = ""

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
    """The rule that a setup's measurement settings ask for: windows, and where there are any max_windows and
    energy_ci_percent."""
    if "max_windows" not in settings:
        return Fixed(settings["windows"])
    most = max(settings["max_windows"], settings["windows"])
    if most < 2:
        return Fixed(most)
    return Steady(settings["windows"], most, settings["energy_ci_percent"])


def interval_percent(values: Sequence[float]) -> float:
    """Half width of the 95 % interval of the mean of at least two values, percent of the mean (Student's t)."""
    count = len(values)
    mean = math.fsum(values) / count
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return 100 * _t95(count - 1) * sd / math.sqrt(count) / mean


def _t95(freedom: int) -> float:
    """From the table; beyond it three terms of Abramowitz and Stegun 26.7.5, right to 1e-4 as the table is."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = _Z95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
