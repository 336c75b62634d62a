"""What a validation says: the change of a whole iteration, with its 95 % interval over repeats, and a verdict.

A repeat is a full pass over all kernels, auto and chosen measured in turn. What a session does to all repeats made in
it (the day, the board's state, where tensors lie in memory) no repeat of that session can show. So the interval is over
sessions: Student's t of the sessions' means, few and independent. Where all repeats come from one session it is over
repeats and holds within that session only; each result says which. Never over all pairs of runs, which are not
independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.errors import InputError
from kernel_dvfs.student import t_quantile

if TYPE_CHECKING:
    from kernel_dvfs.measurement.point import Judged, Quantity
    from kernel_dvfs.report.results import Comparisons

WITHIN, OVER, AMBIGUOUS = "within", "over", "ambiguous"
CONFIDENCE = 0.95
WITHIN_SESSION = "within one session"


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
        """What the interval is over, in words."""
        return f"over {self.sessions} sessions" if self.sessions > 1 else WITHIN_SESSION


def means(points: Sequence[Judged], field: Quantity) -> tuple[float, float]:
    """(auto, chosen) of one comparison, points in the order auto, chosen, chosen, auto: means of a summary's field."""
    first, second, third, fourth = (point["summary"][field] for point in points)
    return (first + fourth) / 2, (second + third) / 2


def totals(comparisons: Comparisons) -> dict[int, dict[str, list[float]]]:
    """Per repeat the totals of an iteration: {repeat: {"auto": (time_s, energy_j), "chosen": (...)}}."""
    sums: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"auto": [0.0, 0.0], "chosen": [0.0, 0.0]})
    for target, repeat, points in comparisons.points:
        launches = comparisons.launches[target]
        for index, (both, unit) in enumerate(((means(points, "time_us"), 1e-6), (means(points, "energy_mj"), 1e-3))):
            for name, mean in zip(("auto", "chosen"), both):
                sums[repeat][name][index] += launches * mean * unit
    return dict(sums)


def changes(comparisons: Comparisons) -> tuple[Change, Change]:
    """(time change, energy change) of an iteration against auto, as Change. Raises InputError below two repeats."""
    by_repeat, sessions = totals(comparisons), sessions_of(comparisons)
    repeats = sorted(by_repeat)
    time, energy = (
        interval(
            [100 * (by_repeat[each]["chosen"][index] / by_repeat[each]["auto"][index] - 1) for each in repeats],
            [sessions[each] for each in repeats],
        )
        for index in (0, 1)
    )
    return time, energy


def kernel_changes(comparisons: Comparisons) -> dict[str, tuple[Change, Change]]:
    """{id: (time change, energy change)} of each kernel by itself."""
    by_kernel: dict[str, list[int]] = defaultdict(list)
    for place, (target, _, _) in enumerate(comparisons.points):
        by_kernel[target].append(place)

    def change(places: list[int], field: Quantity) -> Change:
        of = [means(comparisons.points[place][2], field) for place in places]
        return interval(
            [100 * (chosen / auto - 1) for auto, chosen in of], [comparisons.sessions[place] for place in places]
        )

    return {target: (change(own, "time_us"), change(own, "energy_mj")) for target, own in by_kernel.items()}


def sessions_of(comparisons: Comparisons) -> dict[int, str]:
    """{repeat: its session}. Repeats that share a session in any of their kernels have the same one."""
    same: dict[str, str] = {}  # session -> another one that counts as the same
    label: dict[int, str] = {}

    def first(session: str) -> str:
        while session in same:
            session = same[session]
        return session

    for (_, repeat, _), session in zip(comparisons.points, comparisons.sessions):
        known, now = first(label.setdefault(repeat, session)), first(session)
        if known != now:
            # the measuring process was replaced within the repeat
            same[now] = known
    return {repeat: first(session) for repeat, session in label.items()}


def interval(values: list[float], sessions: Sequence[str]) -> Change:
    """Mean and 95 % Student interval. sessions: that each value was measured in; values of one are not independent.

    Raises InputError for fewer than two values.
    """
    if len(values) < 2:
        raise InputError("an interval needs at least two repeats; raise validation_repeats")
    by_session: dict[str, list[float]] = defaultdict(list)
    for value, session in zip(values, sessions, strict=True):
        by_session[session].append(value)
    blocks = [math.fsum(own) / len(own) for own in by_session.values()]
    if len(blocks) == 1:
        blocks = values
    n = len(blocks)
    mean = math.fsum(blocks) / n
    sd = math.sqrt(math.fsum((block - mean) ** 2 for block in blocks) / (n - 1))
    half = _half(sd, n)
    return Change(mean, mean - half, mean + half, sd, len(values), len(by_session), values)


def verdict(change: Change, limit_percent: float) -> tuple[str, int | None]:
    """(within | over | ambiguous, repeats that would decide or None) of a time change against its limit.

    Those would decide, if mean and scatter stayed as they are; always more than were made. None also where the mean is
    the limit itself.
    """
    if change.high <= limit_percent:
        return WITHIN, None
    if change.low > limit_percent:
        return OVER, None
    distance = abs(change.mean - limit_percent)
    if not distance > 0:  # also where it is unknown
        return AMBIGUOUS, None
    made = change.sessions if change.sessions > 1 else change.repeats
    # 1.96: what Student's t falls to with many
    blocks = max(made + 1, math.ceil((1.96 * change.sd / distance) ** 2))
    while _half(change.sd, blocks) > distance:
        blocks += 1
    return AMBIGUOUS, math.ceil(blocks * change.repeats / made)


def _half(sd: float, blocks: int) -> float:
    """Half width of the 95 % Student interval of the mean of so many independent values."""
    return t_quantile(blocks - 1, (1 + CONFIDENCE) / 2) * sd / math.sqrt(blocks)
