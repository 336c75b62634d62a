"""The page of one schedule and the profile that it was chosen from: for a profile from anywhere, without a workflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule import problem_from
from kernel_dvfs.errors import InputError
from kernel_dvfs.limit_verdict import limit_in_words, of_repeats
from kernel_dvfs.report.page.answer import Change
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import MINUS, most, table
from kernel_dvfs.report.words import against, asked, whose
from kernel_dvfs.report.words import checked as answered
from kernel_dvfs.student import interval

_LARGEST = 6  # savings that stand on the first screen, where all are folded


def make(
    profile: str | Path,
    schedule: Mapping[str, Any],
    again: tuple[Sequence[float], Sequence[float]] | None = None,
    called: str = "report",
) -> str:
    """The page as HTML. again: the changes of energy and of time in each repeat that measured the schedule again,
    percent; called: what errors call the schedule (its file).

    Raises InputError.
    """
    try:
        answered(schedule)
    except InputError as error:
        raise InputError(f"{called}: {error}") from None
    # str: a path may be none of pyarrow's
    problem = problem_from(str(profile), schedule["granularity"], schedule["weights"], schedule["ties"])
    chosen = _chosen(problem, schedule["targets"], called)
    of_profile = 100 * float(problem.energy[chosen].sum() / problem.baseline_energy - 1)
    walk = schedule["walk"]
    promised = walk["proposed_energy_percent"] if walk else schedule["energy_change_percent"]
    if not math.isclose(of_profile, promised, abs_tol=1e-6):
        raise InputError(
            f"{called}: the schedule changes energy by {promised:+.3f} %, this profile says "
            f"{of_profile:+.3f} %: give the profile that it was chosen from"
        )
    auto = problem.baseline
    saved = problem.energy[auto] - problem.energy[chosen]
    total = float(saved.sum())
    energy, time = (
        _change(schedule[f"{quantity}_change_percent"], again[index] if again else ())
        for index, quantity in enumerate(("energy", "time"))
    )
    named = against(schedule["workload"])
    order = np.argsort(-saved, kind="stable").tolist()
    rows = [_row(problem, k, chosen[k], float(saved[k]), total) for k in order]
    return render(
        "schedule.html.j2",
        subject=whose(schedule),
        simulated=schedule["gpu"].get("kind") == "simulated",
        forecast=bool(schedule["gpu"].get("forecast")),
        asked=asked(schedule),
        against=named,
        cards=[("Energy", energy), ("Time", time)],
        repeats=len(again[0]) if again else 0,
        limit=limit_in_words(schedule, of_repeats(schedule, again[1]) if again else None).replace("-", MINUS),
        proof=schedule["proof"],
        most=most([(problem.members[k][0], -float(saved[k])) for k in order]),
        largest=replace(
            table("largest", rows[:_LARGEST], drop=(), folds=False, against=named), title="Largest savings"
        ),
        kernels=table("kernels_by_saving", rows, drop=(), against=named),
    )


def _change(claimed: float, repeats: Sequence[float]) -> Change:
    """With the mean of the repeats and its 95 % interval, as far as there are repeats."""
    if len(repeats) < 2:
        return Change(claimed, *repeats)
    # each has noise of its own
    found = interval(list(repeats), [str(number) for number in range(len(repeats))])
    return Change(claimed, found.mean, found.low, found.high)


def _chosen(problem: Problem, targets: Mapping[str, Mapping[str, Any]], called: str) -> np.ndarray:
    """(K,) the option that each target runs at. Raises InputError for one that the schedule does not name."""
    chosen = problem.baseline.copy()
    for k, members in enumerate(problem.members):
        clocks = targets.get(members[0])
        if not isinstance(clocks, Mapping):
            raise InputError(
                f"{called}: the schedule has no clocks for {members[0]}: give the profile that it was chosen from"
            )
        wanted = tuple(None if clocks.get(name) == "auto" else clocks.get(name) for name in problem.settings)
        own = np.flatnonzero(problem.target == k)
        found = [at for at in own.tolist() if problem.keys[problem.key[at]] == wanted]
        if not found:
            raise InputError(
                f"{called}: {members[0]} is chosen at {dict(clocks)}, which this profile lacks: give the profile that "
                "the schedule was chosen from"
            )
        chosen[k] = found[0]
    return chosen


def _row(problem: Problem, k: int, at: int, saved_j: float, total_j: float) -> dict[str, str]:
    base = problem.baseline[k]
    key = problem.keys[problem.key[at]]
    # a setting beside the clocks may be a text
    told = ("auto" if value is None else value if isinstance(value, str) else f"{value:g}" for value in key)
    clocks = dict(zip(problem.settings, told))
    share = 100 * saved_j / total_j if total_j > 0 else 0.0
    return {
        "targets": ", ".join(problem.members[k]),
        **clocks,
        "energy_change_percent": repr(100 * (problem.energy[at] / problem.energy[base] - 1).item()),
        "time_change_percent": repr(100 * (problem.time[at] / problem.time[base] - 1).item()),
        "share_of_the_saving_percent": repr(share),
        # weighted to equal times they are no joules and no seconds any more
        **(
            {}
            if problem.weights == "equal-time"
            else {
                "baseline_energy_j": repr(problem.energy[base].item()),
                "baseline_time_s": repr(problem.time[base].item()),
            }
        ),
    }
