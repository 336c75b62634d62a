"""When a point has enough windows: a fixed number, or until the noise of the energy is small or no longer shrinks."""

import math

# two-sided 95 % quantiles of Student's t by degrees of freedom; 2 is close enough beyond
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class Fixed:
    """Always the same number of windows."""

    def __init__(self, count: int):
        self._count = count
        self.unstable = ""

    def is_finished(self, energies: list) -> bool:
        return len(energies) >= self._count


class Steady:
    """At least `least` windows, more up to `most` until the 95 % interval of the mean energy is within `percent`, or
    the last window has not made it narrower. unstable: in words where it is too wide in the end."""

    def __init__(self, least: int, most: int, percent: float):
        self._least, self._most, self._percent = least, most, percent
        self._widths = []
        self.unstable = ""

    def is_finished(self, energies: list) -> bool:
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


def rule(settings: dict):
    """The rule of a setup's measurement settings."""
    if "max_windows" not in settings:
        return Fixed(settings["windows"])
    most = max(settings["max_windows"], settings["windows"])
    if most < 2:
        return Fixed(most)
    return Steady(settings["windows"], most, settings["energy_ci_percent"])


def interval_percent(values: list) -> float:
    """Half width of the 95 % interval of the mean, percent of the mean."""
    count = len(values)
    mean = math.fsum(values) / count
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    t = _T95[count - 2] if count - 2 < len(_T95) else 2.0
    return 100 * t * sd / math.sqrt(count) / mean
