"""Student's t: its quantiles, and changes of few repeats with their 95 % interval.

What a session does to all repeats made in it (the day, the board's state, where tensors lie in memory) no repeat of
that session can show. So an interval is over sessions: Student's t of the sessions' means, few and independent. Where
all repeats come from one session it is over repeats and holds within that session only; each result says which. Never
over all pairs of runs, which are not independent.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from kernel_dvfs_clocks.errors import InputError

CONFIDENCE = 0.95
WITHIN_SESSION = "within one session"

# mpmath keeps its working precision once a process, and several threads of the workflow may ask for a quantile
_WORKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Change:
    """Change of an iteration against auto, in percent."""

    mean: float  # %
    low: float  # %, of the 95 % interval
    high: float  # %
    sd: float  # %, of the sessions' means; of the repeats where there is one session
    repeats: int
    sessions: int  # that the repeats come from
    values: list[float]  # %, one a repeat

    @property
    def basis(self) -> str:
        """Return what the interval is over, in words."""
        return f"over {self.sessions} sessions" if self.sessions > 1 else WITHIN_SESSION


def interval(values: list[float], sessions: Sequence[str]) -> Change:
    """Return the mean and 95 % Student interval. sessions: that each value was measured in; values of one are not
    independent.

    Raises InputError for fewer than two values.
    """
    if len(values) < 2:
        raise InputError("an interval needs at least two repeats; raise validation_repeats")
    by_session: dict[str, list[float]] = defaultdict(list)
    for value, session in zip(values, sessions, strict=True):
        by_session[session].append(value)
    blocks = [math.fsum(of_session) / len(of_session) for of_session in by_session.values()]
    if len(blocks) == 1:
        blocks = values
    n = len(blocks)
    mean = math.fsum(blocks) / n
    sd = math.sqrt(math.fsum((block - mean) ** 2 for block in blocks) / (n - 1))
    half = t_quantile(n - 1, (1 + CONFIDENCE) / 2) * sd / math.sqrt(n)
    return Change(mean, mean - half, mean + half, sd, len(values), len(by_session), values)


def of_sessions(values: Sequence[float]) -> Change:
    """Return `interval` of repeats each of which was a session of its own."""
    return interval(list(values), [str(number) for number in range(len(values))])


@cache
def t_quantile(freedom: float, probability: float) -> float:
    """Return the value below which Student's t with `freedom` degrees of freedom lies with this probability, 0.5 to
    below 1.

    From the regularised incomplete beta function: P(T > t) = I(nu / (nu + t^2); nu / 2, 1 / 2) / 2.
    Raises ValueError outside.
    """
    if not (freedom > 0 and 0.5 <= probability < 1):
        raise ValueError(f"t_quantile({freedom}, {probability}): expected freedom > 0 and 0.5 <= probability < 1")
    # imported when it is needed, which it seldom is
    import mpmath

    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def beyond(value: float) -> float:
        share = mpmath.betainc(freedom / 2, 0.5, 0, freedom / (freedom + value**2), regularized=True) / 2
        return share - (1 - probability)

    def slope(value: float) -> float:
        return -scale * (1 + value**2 / freedom) ** (-(freedom + 1) / 2)

    # the tails are never lighter than the normal distribution's, and fall ever less steeply: from below, no step of
    # Newton's goes too far
    start = NormalDist().inv_cdf(probability)
    with _WORKING:
        return float(mpmath.findroot(beyond, start, solver="newton", df=slope, tol=1e-12, maxsteps=100))
