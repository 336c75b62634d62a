"""Is the saving we claim the saving you get? The same simulated GPU studied over and over, its truth known.

Two procedures on the same sweeps: the paper's (one sweep, every launch by itself, the best taken at its word) and ours
(identical launches pooled, rounds of measuring again, margin, fresh repeats). Both are judged by fresh repeats, whose
interval ought to hold the truth, and by the truth itself.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from kernel_dvfs.choice.margin import decide, guarded
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.profile.uncertainty import standard_errors
from kernel_dvfs.search.refine import contest, settled
from kernel_dvfs.studies.sampling import Campaign, Noise, measure, offsets
from kernel_dvfs.studies.truth import Truth

CONFIDENCE = 0.95
# what many.high_noise is called in tables
HIGH_NOISE = "time 1 %, power 2 % per measurement"


class Procedure(NamedTuple):
    """name; tied: pool identical launches; rounds (0: none), repeats, margin_z: as `refine` in the configuration."""

    name: str
    tied: bool
    rounds: int
    repeats: int
    margin_z: float


class Outcome(NamedTuple):
    """Changes of an iteration's time and energy against auto, percent, each [time, energy].

    claimed: by the data that chose; fresh, half: mean and half width of the 95 % interval of the fresh repeats; true.
    windows: measured to choose; fresh_windows: to judge; rounds: of measuring again.
    """

    claimed: list
    fresh: list
    half: list
    true: list
    windows: int
    fresh_windows: int
    rounds: int

    def flat(self) -> dict:
        """As a row of a table."""
        return {
            f"{quantity}_{name}_percent": getattr(self, name)[place]
            for place, quantity in enumerate(("time", "energy"))
            for name in ("claimed", "fresh", "half", "true")
        } | {name: getattr(self, name) for name in ("windows", "fresh_windows", "rounds")}


class Arena(NamedTuple):
    """A choice problem whose numbers are drawn anew for each study.

    problem: its structure (times and energies are placeholders); option: (K x C,) which option a cell belongs to;
    weight: (N,) launches an option stands for.
    """

    known: Truth
    problem: Problem
    option: np.ndarray
    weight: np.ndarray


def arena(known: Truth, tied: bool) -> Arena:
    """The problem of all kernels at all pairs; tied: kernels of a replicate group are one target."""
    places = {}
    labels = [group if tied and group else number for number, group in enumerate(known.groups)]
    target = np.array([places.setdefault(label, len(places)) for label in labels])
    count, pairs = len(places), len(known.pairs)
    blank = [np.ones(pairs)] * count
    problem = Problem.of(blank, blank, [0] * count)
    option = (target[:, None] * pairs + np.arange(pairs)).ravel()
    return Arena(known, problem, option, np.bincount(target, known.launches)[problem.target])


def pooled(own: Arena, campaigns: list) -> Problem:
    """The problem as the campaigns show it: means weighted by n, standard errors, what was measured again."""
    cell, n, time, squares, energy = (
        np.concatenate([getattr(each, name) for each in campaigns])
        for name in ("cell", "n", "time_s", "time_squares", "energy_j")
    )
    error = standard_errors(cell // len(own.known.pairs), cell, n, time, squares)
    total = np.bincount(cell, n)
    count = np.bincount(own.option, total)
    return replace(
        own.problem,
        time=own.weight * np.bincount(own.option[cell], n * time) / count,
        energy=own.weight * np.bincount(own.option[cell], n * energy) / count,
        time_se=own.weight * np.sqrt(np.bincount(own.option, (total * error) ** 2)) / count,
        repeated=np.bincount(own.option, total < 2) == 0,
    )


def study(
    own: Arena, noise: Noise, how: Procedure, slack: float, auto_repeats: int, repeats: int, seed: int
) -> Outcome | None:
    """One study from sweep to fresh repeats, as Outcome; None where no choice keeps the limit.

    slack: fraction of auto's time. repeats: fresh ones. The sweep of a seed is the same for every procedure.
    """
    draw, later, fresh = (np.random.default_rng([seed, stream]) for stream in range(3))
    known = own.known
    every = np.arange(len(own.option))
    baseline = every % len(known.pairs) == 0
    campaigns = [
        measure(known, noise, draw, every[baseline], auto_repeats),
        measure(known, noise, draw, every[~baseline], 1),
    ]
    history = []
    for _ in range(how.rounds):
        problem = pooled(own, campaigns)
        found = contest(problem, slack, how.margin_z)
        if found is None:
            return None
        history.append(found.winner.tolist())
        if settled(history):
            break
        wanted = np.concatenate([found.winner, found.runner_up, problem.baseline])
        campaigns.append(measure(known, noise, later, every[np.isin(own.option, wanted)], how.repeats))
    problem = pooled(own, campaigns)
    if how.rounds:
        final = decide(problem, slack, how.margin_z, effort=0)
    else:
        final = guarded(problem, slack, 0, effort=0)
    if final is None:
        return None
    pair = every[np.isin(own.option, final.option)] % len(known.pairs)
    shown = [_fresh(known, noise, pair, fresh) for _ in range(repeats)]
    mean, sd = np.mean(shown, axis=0), np.std(shown, axis=0, ddof=1)
    return Outcome(
        claimed=[
            100 * (values[final.option].sum() / values[problem.baseline].sum() - 1)
            for values in (problem.time, problem.energy)
        ],
        fresh=mean.tolist(),
        half=(stdtrit(repeats - 1, (1 + CONFIDENCE) / 2) * sd / np.sqrt(repeats)).tolist(),
        true=_change(known, pair),
        windows=int(sum(each.n.sum() for each in campaigns)) * noise.windows,
        fresh_windows=4 * len(pair) * repeats * noise.windows,
        rounds=len(campaigns) - 2,
    )


def _fresh(known: Truth, noise: Noise, pair: np.ndarray, draw) -> list:
    """One fresh repeat: auto, chosen, chosen, auto of every kernel in a campaign of its own; percent as `_change`."""
    auto = np.arange(len(pair)) * len(known.pairs)
    of_auto = offsets(noise, draw, len(pair))
    # a kernel left at auto is the same cell in the same campaign
    of_chosen = np.where(pair == 0, of_auto, offsets(noise, draw, len(pair)))
    before = measure(known, noise, draw, auto, 2, of_auto)
    after = measure(known, noise, draw, auto + pair, 2, of_chosen)
    return [
        100 * ((known.launches * now).sum() / (known.launches * then).sum() - 1)
        for now, then in ((after.time_s, before.time_s), (after.energy_j, before.energy_j))
    ]


def _change(known: Truth, pair: np.ndarray) -> list:
    """Percent against auto, [time, energy] of an iteration, in truth."""
    place = np.arange(len(pair))
    return [
        100 * ((known.launches * values[place, pair]).sum() / (known.launches * values[:, 0]).sum() - 1)
        for values in (known.time_s, known.energy_j)
    ]


def oracle(own: Arena, slack: float) -> list:
    """The change that the best choice would make, known to one who knows the truth; percent, [time, energy]."""
    every = np.arange(len(own.option))
    one = np.ones(len(every))
    exact = Campaign(every, one, own.known.time_s.ravel(), own.known.energy_j.ravel(), 0 * one, 0 * one)
    found = guarded(pooled(own, [exact]), slack, 0, effort=0)
    return _change(own.known, every[np.isin(own.option, found.option)] % len(own.known.pairs))
