"""Measure again what might be chosen, then check it: rounds that propose, and measurements that propose nothing.

The best of noisy measurements is partly the luckiest. Rounds measure winner, runner-up and auto of every target again,
until another round is not expected to gain what the claim could show. But data that propose a choice flatter it,
however often they are pooled. So what was proposed is measured once more, `checks` times, and the last choice, its
margin and its claim rest on these measurements alone (choice.margin.decide). That needs no knowledge of the noise.
Works on arrays (contest, shortlist) and profiles (propose, check), not on files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs.choice.margin import Guarded, guarded, price_of_time
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.measurement.request import Request
from kernel_dvfs.search.candidates import Context

# the choices that are checked: those with no margin, with the margin, and with twice it. They differ in few targets, so
# that the last choice can give up a little time where the check finds that it must
_MARGINS = (0, 1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """Who would be chosen now, and who comes next, of K targets."""

    winner: np.ndarray  # (K,) flat indices into the problem's options
    runner_up: np.ndarray  # (K,) likewise; the winner again where a target has no second option
    gain_percent: float  # of the baseline's energy: what another round is expected to save
    error_percent: float  # standard error of what they save, time at its price included

    def has_settled(self, gain: float) -> bool:
        """Whether another round is expected to gain no more than `gain` standard errors of the claim."""
        return self.gain_percent <= gain * self.error_percent


def contest(problem: Problem, slack: float, z: float) -> Contest | None:
    """Who would be chosen now, and who comes next by the Lagrangian score; None where no choice keeps the limit.

    The score is energy + price x time at the price of time at which the budget binds: at it the global choice separates
    by target, so it tells how close each target's second came. Auto is measured in any case and no runner-up.
    """
    found = guarded(problem, slack, z, effort=0)
    if found is None:
        return None
    price = price_of_time(found)
    runner_up = _runner_up(problem, found, price)
    gain = _gain(problem, found.option, runner_up, price)
    percent = 100 / problem.baseline_energy
    # where all would stay at auto, which saves nothing for certain, what the runners-up would save
    claimed = runner_up if np.array_equal(found.option, problem.baseline) else found.option
    return Contest(found.option, runner_up, percent * gain, percent * _error(problem, claimed, price))


def shortlist(problem: Problem, slack: float, z: float) -> np.ndarray | None:
    """Flat indices of the options that are proposed for a check, ascending; None as of `contest`.

    A check measures baselines as well, proposed or not.
    """
    found = [guarded(problem, slack, times * z, effort=0) for times in _MARGINS]
    return np.unique(np.concatenate([each.option for each in found if each])) if found[0] else None


def _runner_up(problem: Problem, found: Guarded, price: float) -> np.ndarray:
    score = found.problem.energy + price * found.problem.time
    score[found.option] = np.inf
    score[problem.baseline] = np.inf
    best = np.minimum.reduceat(score, problem.first)
    place = np.flatnonzero((score == best[problem.target]) & np.isfinite(score))
    runner_up = found.option.copy()
    # of equals the first
    runner_up[problem.target[place[::-1]]] = place[::-1]
    return runner_up


def _gain(problem: Problem, winner: np.ndarray, runner_up: np.ndarray, price: float) -> float:
    """Energy that measuring winner and runner-up once more is expected to save, summed over targets (J x weight).

    The knowledge gradient of two normal means (Frazier, Powell, Dayanik 2008): one more measurement moves the
    difference d of their scores by a normal amount of sd s, and the choice changes where d changes sign, so
    gain = s phi(d / s) - d Phi(-d / s). Of a mean of n measurements with variance v, one more moves it by v / (n + 1).
    """
    score = problem.energy + price * problem.time
    away = runner_up != winner
    one, other = winner[away], runner_up[away]
    moved = _score_variance(problem, price) / (1 + (1 if problem.n is None else problem.n))
    sd = np.sqrt(moved[one] + moved[other])
    distance = np.maximum(score[other] - score[one], 0)[sd > 0]
    sd = sd[sd > 0]
    ratio = distance / sd
    return float((sd * np.exp(-(ratio**2) / 2) / np.sqrt(2 * np.pi) - distance * ndtr(-ratio)).sum())


def _score_variance(problem: Problem, price: float) -> np.ndarray:
    """(N,) of energy + price x time. Energy is power x time, of independent errors, so both share that of the time."""
    if problem.time_se is None or problem.energy_se is None:
        raise ValueError("standard errors are unknown; give problem.time_se and problem.energy_se")
    time, energy = (np.nan_to_num(error) ** 2 for error in (problem.time_se, problem.energy_se))
    return energy + price * (price + 2 * problem.energy / problem.time) * time


def _error(problem: Problem, winner: np.ndarray, price: float) -> float:
    """Standard error of the winners' total score less that of the baseline, in the problem's unit of energy."""
    variance = _score_variance(problem, price)
    away = winner != problem.baseline
    return float(np.sqrt((variance[winner] + variance[problem.baseline])[away].sum()))


def propose(
    profile_rows: Mapping[str, list], context: Context, asked: dict, rounds: int
) -> tuple[list[Request], dict[str, Any]]:
    """(requests of the next round, what they follow from): no requests where all has settled, or after all rounds.

    profile_rows: as for guided.propose. context.options: the configuration's `refine`. asked: request.merged of all
    that was measured so far. rounds: how many there were before. What they follow from, each {name: ...} with a name
    for each granularity and slack: `choice` {target: [core, mem]}, and `gain`: percent of energy that another round is
    expected to save, with the standard error of the claim. What no choice can keep is left out.
    """
    options = context.options
    requests: dict[tuple, Request] = {}
    choice: dict[str, dict[str, list]] = {}
    gain: dict[str, dict[str, float]] = {}
    for name, slack, problem in _problems(profile_rows, context):
        found = contest(problem, slack, options["margin_z"])
        if found is None:
            continue
        choice[name] = _pairs(problem, found.winner)
        gain[name] = {
            "gain_percent": round(found.gain_percent, 6),
            "error_percent": round(found.error_percent, 6),
        }
        # before the first round nothing tells what differs between campaigns
        if not rounds or not found.has_settled(options["gain"]):
            wanted = np.concatenate([found.winner, found.runner_up, problem.baseline])
            requests |= _requests(problem, wanted, name, asked, 1)
    done = rounds >= options["rounds"]
    return [] if done else list(requests.values()), {"choice": choice, "gain": gain}


def check(profile_rows: Mapping[str, list], context: Context, asked: dict) -> tuple[list[Request], list[list[str]]]:
    """(the measurements that the last choice rests on, [kind, target] of those that auto is proposed for).

    As `propose`. `checks` measurements of each option that the rounds propose, and of every baseline.
    """
    options = context.options
    requests: dict[tuple, Request] = {}
    stay: list[list[str]] = []
    for name, slack, problem in _problems(profile_rows, context):
        wanted = shortlist(problem, slack, options["margin_z"])
        if wanted is None or not options["checks"]:
            continue
        measured = np.union1d(wanted, problem.baseline)
        requests |= _requests(problem, measured, name, asked, options["checks"])
        for place in problem.target[np.intersect1d(wanted, problem.baseline)].tolist():
            stay += [[name.partition("-")[0], member] for member in problem.members[place]]
    return list(requests.values()), sorted({tuple(each): each for each in stay}.values())


def _problems(profile_rows: Mapping[str, list], context: Context) -> Iterator[tuple[str, float, Problem]]:
    """(name, slack as a fraction, problem) of each granularity and slack."""
    # a captured step as a whole is measured, but nothing is chosen for it
    for granularity in sorted({"kernel", "pass"} & set(profile_rows["study"])):
        problem = problem_of(profile_rows, ("core_mhz", "mem_mhz"), granularity, "counts", context.ties)
        for slack_percent in context.slacks_percent:
            yield f"{granularity}-slack{slack_percent:g}", slack_percent / 100, problem


def _requests(problem: Problem, wanted: np.ndarray, name: str, asked: dict, count: int) -> dict[tuple, Request]:
    """Each of the options `count` times more, at every member of its target."""
    granularity = name.partition("-")[0]
    requests: dict[tuple, Request] = {}
    for option in wanted.tolist():
        pair = _pair(problem.keys[problem.key[option]])
        for member in problem.members[problem.target[option]]:
            # a guided search measures one of several identical launches
            repeats = asked[granularity, member].get(pair, ())
            first = repeats[-1] + 1 if repeats else 0
            again = tuple(range(first, first + count))
            requests[granularity, member, pair] = Request(granularity, member, *pair, again)
    return requests


def _pairs(problem: Problem, options: np.ndarray) -> dict[str, list]:
    """{target: [core, mem]} of one option a target, for each of its members."""
    return {
        member: list(_pair(problem.keys[problem.key[option]]))
        for option in options.tolist()
        for member in problem.members[problem.target[option]]
    }


def _pair(key: tuple) -> Pair:
    return Pair(*(AUTO if clock is None else int(clock) for clock in key))
