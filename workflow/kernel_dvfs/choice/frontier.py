"""Energy saved against tolerated slowdown: a sweep of slacks (Fig. 6); how much time can be gained at all.

Must not know how a single point is solved (scopes.py); dominated options are filtered once for all points.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np

from kernel_dvfs.choice.dominance import undominated
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve


class Point(
    namedtuple(
        "Point",
        "slack_percent status time energy time_change_percent energy_change_percent lower_bound_energy",
    )
):
    """One slack: weighted totals, changes against the baseline in percent (negative = less); else None."""

    __slots__ = ()


def frontier(problem: Problem, slack_percents: Sequence[float], scope: str = "global") -> list[Point]:
    """Least energy within `scope` at each slack (percent of the baseline time; negative: time must fall).

    Every point is exact; OR-Tools is not asked to confirm it.
    """
    fine = problem if scope == "single" else undominated(problem)
    time, energy = problem.baseline_time, problem.baseline_energy
    points = []
    for slack in slack_percents:
        answer = solve(fine, scope, "waste", slack / 100, effort=0)
        if answer.status != "optimal":
            points.append(Point(slack, answer.status, None, None, None, None, None))
            continue
        points.append(
            Point(
                slack,
                answer.status,
                answer.time,
                answer.energy,
                100 * (answer.time / time - 1),
                100 * (answer.energy / energy - 1),
                answer.lower_bound_energy,
            )
        )
    return points


def largest_time_saving_percent(problem: Problem, scope: str = "global") -> float:
    """The most negative slack that is still feasible, as a positive percentage of the baseline time.

    global: everyone's fastest option. local: what every target can save (the least of their savings).
    single: the fastest setting known for every target; 0 if there is none.
    """
    base = problem.time[problem.baseline]
    if scope == "local":
        return float(100 * (1 - np.minimum.reduceat(problem.time, problem.first) / base).min())
    if scope == "global":
        return float(100 * (1 - np.minimum.reduceat(problem.time, problem.first).sum() / base.sum()))
    count = np.bincount(problem.key, minlength=len(problem.keys))
    total = np.bincount(problem.key, weights=problem.time, minlength=len(problem.keys))
    shared = total[count == len(problem.targets)]
    return float(100 * (1 - shared.min() / base.sum())) if len(shared) else 0.0
