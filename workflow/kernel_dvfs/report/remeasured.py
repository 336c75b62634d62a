"""What a validation says: the change of a whole iteration and of each kernel, each with its interval over repeats.

A repeat is a full pass over all kernels, auto and chosen measured in turn.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kernel_dvfs.student import Change, interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_dvfs.measurement.point import Judged, Quantity
    from kernel_dvfs.report.results import Comparisons


def means(points: Sequence[Judged], field: Quantity) -> tuple[float, float]:
    """Return (auto, chosen) of one comparison, points in the order auto, chosen, chosen, auto, or auto, chosen: means
    of a summary's field."""
    values = [point["summary"][field] for point in points]
    if len(values) == 2:
        return values[0], values[1]
    first, second, third, fourth = values
    return (first + fourth) / 2, (second + third) / 2


def totals(comparisons: Comparisons) -> dict[int, dict[str, list[float]]]:
    """Return, per repeat, the totals of an iteration: {repeat: {"auto": (time_s, energy_j), "chosen": (...)}}."""
    sums: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"auto": [0.0, 0.0], "chosen": [0.0, 0.0]})
    for target, repeat, points in comparisons.points:
        launches = comparisons.launches[target]
        for index, (both, unit) in enumerate(((means(points, "time_us"), 1e-6), (means(points, "energy_mj"), 1e-3))):
            for name, mean in zip(("auto", "chosen"), both):
                sums[repeat][name][index] += launches * mean * unit
    return dict(sums)


def changes(comparisons: Comparisons) -> tuple[Change, Change]:
    """Return (time change, energy change) of an iteration against auto, as Change. Raises InputError below two
    repeats."""
    by_repeat, sessions = totals(comparisons), sessions_of(comparisons)
    repeats = sorted(by_repeat)
    time, energy = (
        interval(
            [100 * (by_repeat[repeat]["chosen"][index] / by_repeat[repeat]["auto"][index] - 1) for repeat in repeats],
            [sessions[repeat] for repeat in repeats],
        )
        for index in (0, 1)
    )
    return time, energy


def kernel_changes(comparisons: Comparisons) -> dict[str, tuple[Change, Change]]:
    """Return {id: (time change, energy change)} of each kernel by itself."""
    by_kernel: dict[str, list[int]] = defaultdict(list)
    for place, (target, _, _) in enumerate(comparisons.points):
        by_kernel[target].append(place)

    def change(places: list[int], field: Quantity) -> Change:
        of = [means(comparisons.points[place][2], field) for place in places]
        return interval(
            [100 * (chosen / auto - 1) for auto, chosen in of], [comparisons.sessions[place] for place in places]
        )

    return {target: (change(places, "time_us"), change(places, "energy_mj")) for target, places in by_kernel.items()}


def sessions_of(comparisons: Comparisons) -> dict[int, str]:
    """Return {repeat: its session}. Repeats that share a session in any of their kernels have the same one."""
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
