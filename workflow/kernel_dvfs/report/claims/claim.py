"""What a claim is, what a verdict on it says, and how both are worded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_dvfs.report.results import Results

HOLDS, DIFFERS, NOT_TESTABLE = "holds", "differs", "not testable"
# the band over what nobody has measured holds the paper's value, and others
UNMEASURED = "within what is unmeasured"
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about a claim."""

    ours: str  # what was found, in words with figures
    holds: bool | None  # None: within what is unmeasured
    why: str  # one sentence that explains it and names the table or data it follows from


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper (arXiv 2601.08539) and who judges it."""

    number: int  # 1..29
    text: str
    source: str  # section of the paper
    paper: str  # its value, or UNKNOWN
    judge: Callable[[Results], Finding]  # raises NotTestable


class NotTestable(Exception):
    """Something is absent: one sentence, what it is and what would make the claim testable."""


def claim(number: int, text: str, source: str, paper: str = UNKNOWN) -> Callable[[Callable[[Results], Finding]], Claim]:
    """Decorator: the function below is the judge of this claim."""
    return lambda judge: Claim(number, text, source, paper, judge)


def percent(value: float, digits: int = 1) -> str:
    """A change with its sign: `-8.1 %`; no sign on what rounds to zero."""
    rounded = round(float(value), digits)
    return f"{rounded:+.{digits}f} %" if rounded else f"{0:.{digits}f} %"


def points(value: float, digits: int = 1) -> str:
    """A difference of percentages, `+0.3`; no sign on what rounds to zero."""
    return percent(value, digits).removesuffix(" %")


def change(time: float, energy: float) -> str:
    """`energy -8.1 % at time +0.2 %`."""
    return f"energy {percent(energy)} at time {percent(time)}"


def span(values: Iterable[float], digits: int = 1) -> str:
    """`-8.1 to -4.0 %` of changes; a single value where both round to the same."""
    values = list(values)
    low, high = percent(min(values), digits), percent(max(values), digits)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def mhz(clocks: Iterable[float]) -> str:
    """`1470 to 1650 MHz`, or one value."""
    clocks = list(clocks)
    low, high = (f"{value:.0f}" for value in (min(clocks), max(clocks)))
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def count(number: int, thing: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def pair(core_mhz: Any, mem_mhz: Any) -> str:
    """A requested pair as records name it: `1470-5001`, `auto-9251`; NaN is auto."""
    return "-".join("auto" if clock == "auto" or clock != clock else f"{clock:g}" for clock in (core_mhz, mem_mhz))
