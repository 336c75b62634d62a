"""Is the saving we claim the saving you get? The same simulated GPU studied over and over, its truth known.

Two procedures on the same sweeps: the paper's (one sweep, every launch by itself, the best believed) and ours
(identical launches pooled, rounds of measuring again, margin, validation). Both are judged by validation repeats, whose
interval ought to hold the truth, and by the truth itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from kernel_dvfs.choice.margin import decide, guarded
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.profile.aggregate import standard_errors
from kernel_dvfs.search.refine import contest, settled
from kernel_dvfs.studies.sampling import Campaign, Noise, Truth, high_noise, measure, noise_of, offsets, truth

CONFIDENCE = 0.95
# what sampling.high_noise is called in tables
HIGH_NOISE = "time 1 %, power 2 % per measurement"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A way to choose from noisy measurements."""

    name: str
    tied: bool  # whether identical launches are pooled
    rounds: int  # of measuring again, at most; 0: none
    repeats: int  # measurements in a round, as `refine` in the configuration
    margin_z: float  # standard errors of the total time that are kept free, as in `refine`


@dataclass(frozen=True, slots=True)
class Outcome:
    """Changes of an iteration's time and energy against auto, percent, each [time, energy]; and what they took."""

    claimed: list[float]  # by the data that chose
    fresh: list[float]  # mean of the validation repeats
    half: list[float]  # half width of their 95 % interval
    true: list[float]  # in truth
    windows: int  # measured to choose
    fresh_windows: int  # measured to validate
    rounds: int  # of measuring again

    def flat(self) -> dict[str, float]:
        """As a row of a table."""
        return {
            f"{quantity}_{name}_percent": getattr(self, name)[place]
            for place, quantity in enumerate(("time", "energy"))
            for name in ("claimed", "fresh", "half", "true")
        } | {name: getattr(self, name) for name in ("windows", "fresh_windows", "rounds")}


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """A choice problem with N options whose numbers are drawn again for each study."""

    known: Truth
    problem: Problem  # its structure; times and energies are placeholders
    option: np.ndarray  # (K x C,) which option a cell belongs to
    weight: np.ndarray  # (N,) launches that an option stands for


def arena(known: Truth, tied: bool) -> Arena:
    """The problem of all kernels at all pairs; tied: kernels of a replicate group are one target."""
    places: dict = {}
    labels = [group if tied and group else number for number, group in enumerate(known.groups)]
    target = np.array([places.setdefault(label, len(places)) for label in labels])
    count, pairs = len(places), len(known.pairs)
    blank = [np.ones(pairs)] * count
    problem = Problem.of(blank, blank, [0] * count)
    option = (target[:, None] * pairs + np.arange(pairs)).ravel()
    return Arena(known, problem, option, np.bincount(target, known.launches)[problem.target])


def pooled(own: Arena, campaigns: list[Campaign]) -> Problem:
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
    """One study from sweep to validation; None where no choice keeps the limit.

    slack: fraction of auto's time. repeats: of the validation. The sweep of a seed is the same for every procedure.
    """
    draw, later, validation = (np.random.default_rng([seed, stream]) for stream in range(3))
    known = own.known
    every = np.arange(len(own.option))
    baseline = every % len(known.pairs) == 0
    campaigns = [
        measure(known, noise, draw, every[baseline], auto_repeats),
        measure(known, noise, draw, every[~baseline], 1),
    ]
    history: list[list[int]] = []
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
    shown = [_validated(known, noise, pair, validation) for _ in range(repeats)]
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


def _validated(known: Truth, noise: Noise, pair: np.ndarray, draw: np.random.Generator) -> list[float]:
    """One validation repeat: auto, chosen, chosen, auto of every kernel in its own campaign; percent as `_change`."""
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


def _change(known: Truth, pair: np.ndarray) -> list[float]:
    """Percent against auto, [time, energy] of an iteration, in truth."""
    place = np.arange(len(pair))
    return [
        100 * ((known.launches * values[place, pair]).sum() / (known.launches * values[:, 0]).sum() - 1)
        for values in (known.time_s, known.energy_j)
    ]


def procedures(rounds: int, repeats: int, margin_z: float) -> list[Procedure]:
    """The ways to choose that are compared: without rounds, with `rounds` of them, and with the margin as well."""
    return [
        Procedure("one sweep", False, 0, 0, 0),
        Procedure("one sweep, replicates pooled", True, 0, 0, 0),
        Procedure("rounds", True, rounds, repeats, 0),
        Procedure("rounds and margin", True, rounds, repeats, margin_z),
    ]


def rows(
    setup: Setup,
    pairs: Sequence[Pair],
    ways: Sequence[Procedure],
    seeds: int,
    slack: float,
    auto_repeats: int,
    repeats: int,
) -> list[dict[str, Any]]:
    """Studies 0 to `seeds` - 1 of a simulated GPU by each procedure, at its own noise and at a higher one.

    slack: fraction of auto's time. auto_repeats: of a sweep. repeats: of the validation. Raises InputError where no
    choice keeps the limit.
    """
    known = truth(setup, pairs)
    noises = {"as the GPU's spec": noise_of(setup, known), HIGH_NOISE: high_noise(setup, known)}
    found = []
    for name, noise in noises.items():
        for how in ways:
            own = arena(known, how.tied)
            for seed in range(seeds):
                outcome = study(own, noise, how, slack, auto_repeats, repeats, seed)
                if outcome is None:
                    raise InputError(f"--slack {100 * slack:g}: no choice keeps the limit; raise it")
                found.append({"noise": name, "procedure": how.name, "seed": seed, **outcome.flat()})
    return found


def oracle(own: Arena, slack: float) -> list[float]:
    """The change that the best choice would make, known to one who knows the truth; percent, [time, energy]."""
    every = np.arange(len(own.option))
    one = np.ones(len(every))
    exact = Campaign(every, one, own.known.time_s.ravel(), own.known.energy_j.ravel(), 0 * one, 0 * one)
    found = guarded(pooled(own, [exact]), slack, 0, effort=0)
    if found is None:
        raise InputError(f"no choice keeps the limit of {100 * slack:g} % slowdown; raise the slack")
    return _change(own.known, every[np.isin(own.option, found.option)] % len(own.known.pairs))
