"""Measure again what might be chosen: winner, runner-up and auto of every target, until the choice no longer changes.

The best of noisy measurements is partly the luckiest. A lucky outlier does not survive being measured again, and data
that were asked for because a pair won are pooled with what made it win, so what is left of the luck is small.
Works on arrays (contest) and profiles (propose), not on files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs.choice.integer_grid import integer_grid_of
from kernel_dvfs.choice.margin import Guarded, guarded
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.relaxation import relax
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.measurement.request import Request
from kernel_dvfs.search.candidates import Context

# rounds in which the choice must stay as it is
STABLE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """Who would be chosen now, and who comes next, of K targets."""

    winner: np.ndarray  # (K,) flat indices into the problem's options
    runner_up: np.ndarray  # (K,) likewise; the winner again where a target has no second option


def contest(problem: Problem, slack: float, z: float) -> Contest | None:
    """Who would be chosen now, and who comes next by the Lagrangian score; None where no choice keeps the limit.

    The score is energy + price x time at the price of time at which the budget binds: at it the global choice separates
    by target, so it tells how close each target's second came. Auto is measured in any case and no runner-up.
    """
    found = guarded(problem, slack, z, effort=0)
    return None if found is None else Contest(found.option, _runner_up(problem, found))


def _runner_up(problem: Problem, found: Guarded) -> np.ndarray:
    linear = found.problem
    grid = integer_grid_of(linear, found.limit, only_fitting=False)
    # nothing but the baseline keeps the margin: any other option would have to save time first
    price = relax(grid).price * grid.energy_unit / grid.time_unit if grid else 0.0
    score = linear.energy + price * linear.time
    score[found.option] = np.inf
    score[problem.baseline] = np.inf
    best = np.minimum.reduceat(score, problem.first)
    place = np.flatnonzero((score == best[problem.target]) & np.isfinite(score))
    runner_up = found.option.copy()
    # of equals the first
    runner_up[problem.target[place[::-1]]] = place[::-1]
    return runner_up


def settled(history: Sequence[Any]) -> bool:
    """Whether the choice stayed as it is for STABLE rounds. history: a choice per round, the newest last."""
    last = history[-1 - STABLE :]
    return len(last) > STABLE and all(each == last[0] for each in last)


def propose(
    profile_rows: Mapping[str, list], context: Context, asked: dict, history: Sequence[dict]
) -> tuple[list[Request], dict[str, dict]]:
    """(requests of the next round, the choice they follow from): no requests where the choice has settled.

    profile_rows: as for guided.propose. context.options: the configuration's `refine`. asked: request.merged of all
    that was measured so far. history: choices of the rounds before. A choice is {name: {target: [core, mem]}}, a name
    for each granularity and slack; what no choice can keep is left out.
    """
    requests: dict[tuple, Request] = {}
    choice: dict[str, dict[str, list]] = {}
    z = context.options["margin_z"]
    for granularity in sorted(set(profile_rows["study"])):
        problem = problem_of(profile_rows, ("core_mhz", "mem_mhz"), granularity, "counts", context.ties)
        for slack_percent in context.slacks_percent:
            found = contest(problem, slack_percent / 100, z)
            if found is None:
                continue
            own: dict[str, list] = {}
            choice[f"{granularity}-slack{slack_percent:g}"] = own
            for option in np.concatenate([found.winner, found.runner_up, problem.baseline]).tolist():
                pair = _pair(problem.keys[problem.key[option]])
                for name in problem.members[problem.target[option]]:
                    # a guided search measures one of several identical launches
                    repeats = asked[granularity, name].get(pair, ())
                    first = repeats[-1] + 1 if repeats else 0
                    again = tuple(range(first, first + context.options["repeats"]))
                    requests[granularity, name, pair] = Request(granularity, name, *pair, again)
            for option in found.winner.tolist():
                for name in problem.members[problem.target[option]]:
                    own[name] = list(_pair(problem.keys[problem.key[option]]))
    done = len(history) >= context.options["rounds"] or settled([*history, choice])
    return [] if done else list(requests.values()), choice


def _pair(key: tuple) -> Pair:
    return Pair(*(AUTO if clock is None else int(clock) for clock in key))
