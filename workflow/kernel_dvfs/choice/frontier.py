"""Energy against tolerated slowdown: a sweep of slacks (Fig. 6), and how much time can be gained at all.

How a single point is solved is in scopes.py; dominated options are filtered once for all points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs.choice.dominance import undominated
from kernel_dvfs.choice.schedule import problem_from
from kernel_dvfs.choice.schedule_file import FrontierFile, FrontierPoint
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.layout import FRONTIER

if TYPE_CHECKING:
    from kernel_dvfs.choice.problem import Problem
    from kernel_dvfs.choice.schedule import Profile

# slacks of a relaxed frontier, percent of the baseline time: finer where savings change fastest
LARGEST_SLACK_PERCENT = 30
_FINE_BELOW_PERCENT, _FINE_STEP_PERCENT, _STEP_PERCENT = 5, 0.5, 1


@dataclass(frozen=True, slots=True)
class SlackOptimum:
    """The optimum at one slack. Where the status is not "optimal", everything after it is None."""

    slack_percent: float  # tolerated slowdown, percent of the baseline time; negative: time must fall
    status: str  # "optimal" or "infeasible"
    time: float | None = None  # weighted totals, in the problem's units
    energy: float | None = None
    time_change_percent: float | None = None  # against the baseline; negative = less
    energy_change_percent: float | None = None
    lower_bound_energy: float | None = None  # no choice of the scope global uses less


def frontier(problem: Problem, slack_percents: Iterable[float], scope: str = "global") -> list[SlackOptimum]:
    """Return the least energy within `scope` at each slack (percent of the baseline time; negative: time must fall).

    Every point is exact; OR-Tools is not asked to confirm it.
    """
    fine = problem if scope == "single" else undominated(problem)
    base_time, base_energy = problem.baseline_time, problem.baseline_energy
    points = []
    for slack in slack_percents:
        answer = solve(fine, scope, "waste", slack / 100, effort=0)
        if answer.time is None or answer.energy is None:
            points.append(SlackOptimum(slack, answer.status))
            continue
        points.append(
            SlackOptimum(
                slack,
                answer.status,
                answer.time,
                answer.energy,
                100 * (answer.time / base_time - 1),
                100 * (answer.energy / base_energy - 1),
                answer.lower_bound_energy,
            )
        )
    return points


def relaxed_frontier(profile: Profile, ties: str = "tied", weights: str | None = None) -> FrontierFile:
    """Return the least energy at each tolerated slowdown, kernel level, JSON-ready.

    First the points of scope "local", then those of "global", each by ascending slack from its largest time saving to
    LARGEST_SLACK_PERCENT. A slack that a scope cannot keep has no point. ties, weights: as in schedule.choose. Raises
    InputError on bad input.
    """
    problem = problem_from(profile, "kernel", weights, ties)
    points: list[FrontierPoint] = []
    for scope in ("local", "global"):
        # a hair inside, so that rounding cannot make the fastest choice infeasible
        fastest = min(1e-7 - largest_time_saving_percent(problem, scope), 0.0)
        for point in frontier(problem, relaxed_slacks(fastest), scope):
            if point.time_change_percent is not None and point.energy_change_percent is not None:
                points.append(
                    {
                        "slack_percent": point.slack_percent,
                        "scope": scope,
                        "time_change_percent": point.time_change_percent,
                        "energy_change_percent": point.energy_change_percent,
                    }
                )
    return {"schema": FRONTIER, "points": points}


def relaxed_slacks(fastest: float) -> list[float]:
    """Return slacks in percent, ascending, from `fastest` (<= 0) to LARGEST_SLACK_PERCENT; 0 is among them."""
    first = math.ceil(fastest / _FINE_STEP_PERCENT)
    last = round(_FINE_BELOW_PERCENT / _FINE_STEP_PERCENT)
    fine = [step * _FINE_STEP_PERCENT for step in range(first, last)]
    coarse = [float(slack) for slack in range(_FINE_BELOW_PERCENT, LARGEST_SLACK_PERCENT + 1, _STEP_PERCENT)]
    return sorted({fastest, *fine, *coarse})


def largest_time_saving_percent(problem: Problem, scope: str = "global") -> float:
    """Return the most negative slack that is still feasible, as a positive percentage of the baseline time.

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
