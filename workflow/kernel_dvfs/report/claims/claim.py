"""What a claim is, what a verdict on it says, and how both are worded. Knows no data and no claim."""

from collections import namedtuple

HOLDS, DIFFERS, NOT_TESTABLE = "holds", "differs", "not testable"
UNKNOWN = "not known"

Finding = namedtuple("Finding", "ours holds why")
Finding.__doc__ = """ours: what was found, in words with figures. holds: bool. why: one sentence that explains
it and names the table or data it follows from."""

Claim = namedtuple("Claim", "number text source paper judge")
Claim.__doc__ = """number: 1..29. text: the claim. source: section of the paper. paper: its value, or
`not known`. judge: Results -> Finding; raises NotTestable."""


class NotTestable(Exception):
    """Something is absent: one sentence, what it is and what would make the claim testable."""


def claim(number: int, text: str, source: str, paper: str = UNKNOWN):
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


def span(values, digits: int = 1) -> str:
    """`-8.1 to -4.0 %` of changes; a single value where both round to the same."""
    low, high = percent(min(values), digits), percent(max(values), digits)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def mhz(clocks) -> str:
    """`1470 to 1650 MHz`, or one value."""
    low, high = (f"{value:.0f}" for value in (min(clocks), max(clocks)))
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def count(number: int, thing: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def pair(core_mhz, mem_mhz) -> str:
    """A requested pair as records name it: `1470-5001`, `auto-9251`; NaN is auto."""
    return "-".join("auto" if clock == "auto" or clock != clock else f"{clock:g}" for clock in (core_mhz, mem_mhz))
