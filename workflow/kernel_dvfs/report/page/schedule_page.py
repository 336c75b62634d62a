"""The page of one schedule and the profile that it was chosen from: for a profile from anywhere, without a workflow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule import default_weights, problem_from
from kernel_dvfs.gpu.spec import of_board, resolve, savings_of
from kernel_dvfs.limit_verdict import limit_in_words, of_repeats
from kernel_dvfs.report.page.answer import sentence
from kernel_dvfs.report.page.frontier import ChoiceSource, ShownChange, StudyChoice, frontier, options_of
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import MINUS, most, table
from kernel_dvfs.report.words import OF_WEIGHTS, against, asked, whose
from kernel_dvfs.report.words import checked as answered
from kernel_dvfs.student import of_sessions
from kernel_dvfs_clocks.clocks import AUTO
from kernel_dvfs_clocks.errors import InputError


def make(
    profile: str | Path,
    schedule: Mapping[str, Any],
    again: tuple[Sequence[float], Sequence[float]] | None = None,
    called: str = "report",
) -> str:
    """Return the page as HTML. again: the changes of energy and of time in each repeat that measured the schedule
    again, percent; called: what errors call the schedule (its file).

    Raises InputError.
    """
    try:
        answered(schedule)
    except InputError as error:
        raise InputError(f"{called}: {error}") from None
    # str: a path may be none of pyarrow's
    problem = problem_from(str(profile), schedule["granularity"], schedule["weights"], schedule["ties"])
    chosen = options_of(problem, schedule["targets"], called)
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
    choices = frontier(
        str(profile),
        problem,
        _with_spec(schedule["gpu"]),
        [StudyChoice(schedule, energy, time)],
        _source(profile, schedule),
    )
    named = against(schedule["workload"])
    order = np.argsort(-saved, kind="stable").tolist()
    rows = [_row(problem, k, chosen[k], float(saved[k]), total) for k in order]
    return render(
        "schedule.html.j2",
        subject=whose(schedule),
        judged=savings_of(schedule["gpu"]["name"]) if schedule["gpu"].get("kind") == "simulated" else "",
        forecast=bool(schedule["gpu"].get("forecast")),
        asked=f"{asked(schedule)}{OF_WEIGHTS[schedule['weights']]}",
        against=named,
        sentence=sentence(choices.made, per="run" if schedule["scope"] == "single" else schedule["granularity"]),
        frontier=choices,
        energy=energy,
        time=time,
        repeats=len(again[0]) if again else 0,
        limit=limit_in_words(schedule, of_repeats(schedule, again[1]) if again else None).replace("-", MINUS),
        proof=schedule["proof"],
        most=most([(problem.members[k][0], -float(saved[k])) for k in order]),
        kernels=table("kernels_by_saving", rows, drop=(), against=named),
    )


def _with_spec(gpu: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a GPU as a profile has it, with the spec of its type where it is simulated: what a change of clocks
    takes."""
    name = of_board(gpu["name"]) if gpu["kind"] == "simulated" else None
    return {**gpu, "spec": resolve(name)} if name else gpu


def _source(profile: str | Path, schedule: Mapping[str, Any]) -> ChoiceSource:
    """Return the source as a reader would type it: a page that is mailed should not tell where its maker keeps
    files."""
    path = Path(profile)
    shown = Path(path.name) if path.is_absolute() else path
    defaults = {"granularity": "kernel", "weights": default_weights(schedule), "ties": "tied"}
    options = {name: schedule[name] for name, default in defaults.items() if schedule[name] != default}
    walk = shown.with_name("by_clock.json") if path.with_name("by_clock.json").is_file() else ""
    return ChoiceSource(str(shown), str(walk), options)


def _change(claimed: float, repeats: Sequence[float]) -> ShownChange:
    """Return a change with the mean of the repeats and its 95 % interval, as far as there are repeats."""
    if len(repeats) < 2:
        return ShownChange(claimed, *repeats)
    change = of_sessions(repeats)
    return ShownChange(claimed, change.mean, change.low, change.high)


def _row(problem: Problem, k: int, at: int, saved_j: float, total_j: float) -> dict[str, Any]:
    base = problem.baseline[k]
    key = problem.keys[problem.key[at]]
    clocks = {name: AUTO if value is None else value for name, value in zip(problem.settings, key)}
    share = 100 * saved_j / total_j if total_j > 0 else 0.0
    return {
        "targets": ", ".join(problem.members[k]),
        **clocks,
        "energy_change_percent": 100 * (problem.energy[at] / problem.energy[base] - 1).item(),
        "time_change_percent": 100 * (problem.time[at] / problem.time[base] - 1).item(),
        "share_of_the_saving_percent": share,
        # weighted to equal times they are no joules and no seconds any more
        **(
            {}
            if problem.weights == "equal-time"
            else {
                "baseline_energy_j": problem.energy[base].item(),
                "baseline_time_s": problem.time[base].item(),
            }
        ),
    }
