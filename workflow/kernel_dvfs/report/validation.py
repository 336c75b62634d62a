"""What a validation says: the change of a whole iteration, with its 95 % interval over repeats, and a verdict.

The interval is over repeats (each a full pass over all kernels, auto and chosen measured in turn), never over all
pairs of runs, which are not independent. Student's t, as the repeats are few and independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

# the quantile of Student's t; scipy.stats would take another half second to import
from scipy.special import stdtrit

from kernel_dvfs.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.report.results import Comparisons

WITHIN, OVER, AMBIGUOUS = "within", "over", "ambiguous"
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Change:
    """Change of an iteration against auto, in percent."""

    mean: float  # %
    low: float  # %, of the 95 % interval
    high: float  # %
    sd: float  # %, over repeats
    repeats: int
    values: list[float]  # %, one a repeat


def means(points: list[dict], field: str) -> tuple[float, float]:
    """(auto, chosen) of one comparison, points in the order auto, chosen, chosen, auto: means of a summary's field."""
    first, second, third, fourth = (point["summary"][field] for point in points)
    return (first + fourth) / 2, (second + third) / 2


def totals(comparisons: Comparisons) -> dict[int, dict[str, list[float]]]:
    """Per repeat the totals of an iteration: {repeat: {"auto": (time_s, energy_j), "chosen": (...)}}."""
    sums: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"auto": [0.0, 0.0], "chosen": [0.0, 0.0]})
    for target, repeat, points in comparisons.points:
        launches = comparisons.launches[target]
        for index, (field, unit) in enumerate((("time_us", 1e-6), ("energy_mj", 1e-3))):
            for name, mean in zip(("auto", "chosen"), means(points, field)):
                sums[repeat][name][index] += launches * mean * unit
    return dict(sums)


def changes(comparisons: Comparisons) -> tuple[Change, Change]:
    """(time change, energy change) of an iteration against auto, as Change. Raises InputError below two repeats."""
    by_repeat = totals(comparisons)
    time, energy = (
        interval([100 * (each["chosen"][index] / each["auto"][index] - 1) for _, each in sorted(by_repeat.items())])
        for index in (0, 1)
    )
    return time, energy


def kernel_changes(comparisons: Comparisons) -> dict[str, tuple[Change, Change]]:
    """{id: (time change, energy change)} of each kernel by itself."""
    by_kernel: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for target, _, points in comparisons.points:
        for index, field in enumerate(("time_us", "energy_mj")):
            auto, chosen = means(points, field)
            by_kernel[target][index].append(100 * (chosen / auto - 1))
    return {target: (interval(times), interval(energies)) for target, (times, energies) in by_kernel.items()}


def interval(values: list[float]) -> Change:
    """Mean and 95 % Student interval of independent values. Raises InputError for fewer than two."""
    n = len(values)
    if n < 2:
        raise InputError("an interval needs at least two repeats; raise validation_repeats")
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / math.sqrt(n)
    return Change(mean, mean - half, mean + half, sd, n, values)


def verdict(change: Change, limit_percent: float) -> tuple[str, int | None]:
    """(within | over | ambiguous, repeats that would decide or None) of a time change against its limit."""
    if change.high <= limit_percent:
        return WITHIN, None
    if change.low > limit_percent:
        return OVER, None
    distance = abs(change.mean - limit_percent)
    # 1.96: with that many repeats Student's t is normal
    return AMBIGUOUS, math.ceil((1.96 * change.sd / distance) ** 2) if distance else None
