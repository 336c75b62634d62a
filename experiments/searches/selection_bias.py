"""Is the saving we claim the saving you get? The same simulated GPU studied over and over, its truth known.

Procedures on the same sweeps: the paper's (one sweep, every launch by itself, the best believed), and ours, piece by
piece: identical launches pooled, rounds of measuring again, margin, check. All are judged by validation repeats, whose
interval ought to hold the truth, and by the truth itself: the expectation over everything that is drawn.

    python experiments/searches/selection_bias.py --first-seed 20000 --seeds 200 --jobs 2

studies the simulated GPU of config.yaml at three noises, and at one with 1.0 pJ a tensor FLOP. It writes
selection_bias.csv (every figure), selection_bias.md (before and after in one table) and selection_bias_studies.csv (one
row a study) into experiments/results. Seeds of development were 0 to 9999.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "workflow"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np
import pandas as pd

from experiments.searches.sampling import (
    Campaign,
    Noise,
    Truth,
    high_noise,
    measure,
    noise_of,
    offsets,
    truth,
)
from kernel_dvfs.choice.margin import decide, guarded
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_text
from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.plan.config import load, resolved
from kernel_dvfs.plan.study import plan
from kernel_dvfs.profile.aggregate import standard_errors
from kernel_dvfs.search.refine import contest, shortlist
from kernel_dvfs.student import Change, interval

ROOT = Path(__file__).resolve().parents[2]
SPEC_NOISE = "as the GPU's spec"
# what sampling.high_noise is called in tables
HIGH_NOISE = "time 1 %, power 2 % per measurement"
# of larger offsets: of a kernel at a pair, and of all locked clocks against auto
SESSION_SD, LOCKED_SD = 0.01, 0.001
SESSION_NOISE = "sessions differ by 1 % a kernel and pair, 0.1 % locked against auto"
# the margin that was used without a check: it was meant to cover what a choice flatters itself by (procedures)
UNCHECKED_Z = 2.6
CONFIG = ROOT / "config.yaml"
QUICK = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": [], "headline_map": None}
CHEAP = {"energy_pj": {"tensor_bf16_flop": 1.0}}
# what tables call the GPU, figures of its spec that are replaced, noise, and how many of the procedures, the last ones
CASES = (
    ("as the spec", {}, SPEC_NOISE, 4),
    ("as the spec", {}, HIGH_NOISE, 2),
    ("as the spec", {}, SESSION_NOISE, 2),
    ("1.0 pJ/FLOP", CHEAP, SPEC_NOISE, 2),
)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A way to choose from noisy measurements; the last four are keys of `refine` in the configuration."""

    name: str
    tied: bool  # whether identical launches are pooled
    rounds: int = 0  # of measuring again, at most; 0: none
    gain: float = 0.0  # the rounds end where another one is expected to gain less, standard errors of the claim
    checks: int = 0  # measurements that the last choice rests on; 0: it rests on all
    margin_z: float = 0.0  # standard errors of the total time that are kept free


@dataclass(frozen=True, slots=True)
class Outcome:
    """Changes of an iteration's time and energy against auto, percent, each [time, energy]; and what they took."""

    claimed: list[float]  # by the data that chose
    fresh: list[float]  # mean of the validation repeats, each in a session of its own
    half: list[float]  # half width of their 95 % interval, over sessions
    together: list[float]  # mean of as many repeats made in one session
    together_half: list[float]  # half width of their interval, within that session
    true: list[float]  # in truth
    windows: int  # measured to choose
    fresh_windows: int  # measured to validate
    rounds: int  # of measuring again

    def flat(self) -> dict[str, float]:
        """As a row of a table."""
        return {
            f"{quantity}_{name}_percent": getattr(self, name)[place]
            for place, quantity in enumerate(("time", "energy"))
            for name in ("claimed", "fresh", "half", "together", "together_half", "true")
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


def pooled(
    own: Arena,
    campaigns: Sequence[Campaign],
    checks: Sequence[Campaign] = (),
    proposed: Sequence[int] | np.ndarray = (),
) -> Problem:
    """The problem as the campaigns show it, pooled as by profile.aggregate: what was checked by its checks alone.

    proposed: options that the checks are of; they measure every baseline too.
    """
    seen = np.unique(np.concatenate([each.cell for each in checks])) if checks else np.zeros(0, dtype=np.intp)
    rows = [each.of(~np.isin(each.cell, seen)) for each in campaigns] + list(checks)
    cell, n, time, energy, time_squares, energy_squares = (
        np.concatenate([getattr(each, name) for each in rows])
        for name in ("cell", "n", "time_s", "energy_j", "time_squares", "energy_squares")
    )
    total = np.bincount(cell, n)
    count = np.bincount(own.option, total)

    def mean(values: np.ndarray) -> np.ndarray:
        return own.weight * np.bincount(own.option[cell], n * values) / count

    def error(values: np.ndarray, squares: np.ndarray) -> np.ndarray:
        errors = standard_errors(cell // len(own.known.pairs), cell, n, values, squares)
        return own.weight * np.sqrt(np.bincount(own.option, (total * errors) ** 2)) / count

    members = np.bincount(own.option)
    return replace(
        own.problem,
        time=mean(time),
        energy=mean(energy),
        time_se=error(time, time_squares),
        energy_se=error(energy, energy_squares),
        # all members are measured alike
        n=count / members,
        is_checked=np.isin(np.arange(len(members)), proposed),
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
    checks: list[Campaign] = []
    problem = pooled(own, campaigns)
    rounds = 0
    while rounds < how.rounds:
        found = contest(problem, slack, how.margin_z)
        if found is None:
            return None
        if rounds and found.has_settled(how.gain):
            break
        wanted = np.concatenate([found.winner, found.runner_up, problem.baseline])
        campaigns.append(measure(known, noise, later, every[np.isin(own.option, wanted)], 1))
        problem = pooled(own, campaigns)
        rounds += 1
    if how.checks:
        proposed = shortlist(problem, slack, how.margin_z)
        if proposed is None:
            return None
        cells = every[np.isin(own.option, np.union1d(proposed, problem.baseline))]
        checks = [measure(known, noise, later, cells, 1) for _ in range(how.checks)]
        problem = pooled(own, campaigns, checks, proposed)
    choose = decide if how.rounds or how.checks else guarded
    final = choose(problem, slack, how.margin_z, effort=0)
    if final is None:
        return None
    pair = every[np.isin(own.option, final.option)] % len(known.pairs)
    time, energy = _validated(known, noise, pair, validation, repeats, apart=True)
    time_together, energy_together = _validated(known, noise, pair, validation, repeats, apart=False)
    return Outcome(
        claimed=[
            100 * (values[final.option].sum() / values[problem.baseline].sum() - 1)
            for values in (problem.time, problem.energy)
        ],
        fresh=[time.mean, energy.mean],
        half=[time.high - time.mean, energy.high - energy.mean],
        together=[time_together.mean, energy_together.mean],
        together_half=[each.high - each.mean for each in (time_together, energy_together)],
        true=_change(known, pair),
        windows=int(sum(each.n.sum() for each in [*campaigns, *checks])) * noise.windows,
        fresh_windows=4 * len(pair) * repeats * noise.windows,
        rounds=rounds,
    )


def _validated(
    known: Truth, noise: Noise, pair: np.ndarray, draw: np.random.Generator, repeats: int, apart: bool
) -> tuple[Change, Change]:
    """Validation repeats, each auto, chosen, chosen, auto of every kernel: (time change, energy change).

    apart: each in a session of its own; else all in one.
    """
    at_auto = np.zeros(len(pair), dtype=np.intp)
    cell = np.arange(len(pair)) * len(known.pairs)
    shown, sessions = [], []
    for repeat in range(repeats):
        if apart or not repeat:
            of_auto = offsets(noise, draw, at_auto)
            # a kernel left at auto is the same cell in the same session
            of_chosen = np.where(pair == 0, of_auto, offsets(noise, draw, pair))
        before = measure(known, noise, draw, cell, 2, of_auto)
        after = measure(known, noise, draw, cell + pair, 2, of_chosen)
        shown.append(
            [
                100 * ((known.launches * now).sum() / (known.launches * then).sum() - 1)
                for now, then in ((after.time_s, before.time_s), (after.energy_j, before.energy_j))
            ]
        )
        sessions.append(str(repeat if apart else 0))
    time, energy = (interval([each[place] for each in shown], sessions) for place in (0, 1))
    return time, energy


def _change(known: Truth, pair: np.ndarray) -> list[float]:
    """Percent against auto, [time, energy] of an iteration, in truth."""
    place = np.arange(len(pair))
    return [
        100 * ((known.launches * values[place, pair]).sum() / (known.launches * values[:, 0]).sum() - 1)
        for values in (known.time_s, known.energy_j)
    ]


def procedures(rounds: int, gain: float, checks: int, margin_z: float) -> list[Procedure]:
    """The ways to choose that are compared; the last is that of the configuration's `refine`.

    Beside it, those that believe the data that chose: one sweep, and all rounds with a margin that is wide enough for
    the noise of the GPU's spec.
    """
    return [
        Procedure("one sweep", False),
        Procedure("one sweep, replicates pooled", True),
        Procedure("10 rounds and margin, no check", True, 10, 0, 0, UNCHECKED_Z),
        Procedure("rounds until settled, check, margin", True, rounds, gain, checks, margin_z),
    ]


def noises(setup: Setup, known: Truth) -> dict[str, Noise]:
    """The noises that are compared: {what tables call it: Noise}."""
    own = noise_of(setup, known)
    return {
        SPEC_NOISE: own,
        HIGH_NOISE: high_noise(setup, known),
        SESSION_NOISE: replace(own, offset_sd=SESSION_SD, locked_sd=LOCKED_SD),
    }


def rows(
    setup: Setup,
    pairs: Sequence[Pair],
    ways: Sequence[Procedure],
    seeds: Sequence[int],
    slack: float,
    auto_repeats: int,
    repeats: int,
    at: Sequence[str] = (SPEC_NOISE, HIGH_NOISE, SESSION_NOISE),
) -> list[dict[str, Any]]:
    """Studies of a simulated GPU by each procedure and seed, at its own noise and at higher ones.

    slack: fraction of auto's time. auto_repeats: of a sweep. repeats: of the validation. at: names of noises.
    Raises InputError where no choice keeps the limit.
    """
    known = truth(setup, pairs)
    found = []
    for name in at:
        noise = noises(setup, known)[name]
        for how in ways:
            own = arena(known, how.tied)
            for seed in seeds:
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


def make(studies: pd.DataFrame, limit_percent: float) -> pd.DataFrame:
    """One row for each noise and procedure: claimed, validated and true change, means over the seeds.

    studies: one for each study, of `rows`. Coverage: share of studies whose 95 % interval of the validation holds the
    truth. over_budget: share whose true time exceeds the limit.
    """
    return pd.DataFrame(
        [
            {"noise": noise, "procedure": procedure, **_row(own, limit_percent)}
            for (noise, procedure), own in studies.groupby(["noise", "procedure"], sort=False)
        ]
    )


def _row(own: pd.DataFrame, limit_percent: float) -> dict[str, float]:
    row = {
        "studies": len(own),
        "first_seed": own.seed.min(),
        "rounds": own.rounds.mean(),
        "windows": own.windows.mean(),
        "fresh_windows": own.fresh_windows.mean(),
    }
    for quantity in ("time", "energy"):
        claimed, fresh, half, true = (
            own[f"{quantity}_{name}_percent"] for name in ("claimed", "fresh", "half", "true")
        )
        together, together_half = (own[f"{quantity}_{name}_percent"] for name in ("together", "together_half"))
        row |= {
            f"{quantity}_claimed_percent": claimed.mean(),
            f"{quantity}_fresh_percent": fresh.mean(),
            f"{quantity}_true_percent": true.mean(),
            # of the truth, so that the scatter of validation repeats plays no part
            f"{quantity}_optimism_pp": (true - claimed).mean(),
            f"{quantity}_half_width_pp": half.mean(),
            f"{quantity}_coverage": ((fresh - true).abs() <= half).mean(),
            f"{quantity}_half_width_in_one_session_pp": together_half.mean(),
            f"{quantity}_coverage_in_one_session": ((together - true).abs() <= together_half).mean(),
        }
    return row | {"over_budget": (own.time_true_percent > limit_percent).mean()}


def studied(case: tuple[str, dict, str, int], seeds: range) -> pd.DataFrame:
    """The studies of a case."""
    name, overrides, noise, count = case
    config = load(str(CONFIG))
    with tempfile.TemporaryDirectory() as folder:
        study = plan(config | QUICK | {"gpu_overrides": overrides}, folder)
        assert study.setup, "a simulated GPU has a setup"
        setup = read(study.setup.write())
    refine, slack = config["refine"], config["slack_percent"] / 100
    ways = procedures(refine["rounds"], refine["gain"], refine["checks"], refine["margin_z"])[-count:]
    repeats = resolved(config)["auto_repeats"], config["validation_repeats"]
    found = rows(setup, study.pairs, ways, seeds, slack, *repeats, at=(noise,))
    _, best = oracle(arena(truth(setup, study.pairs), True), slack)
    return pd.DataFrame(found).assign(tensor_energy=name, best_possible_energy_percent=best)


def text(compared: pd.DataFrame, seeds: range) -> str:
    """Before and after, a pair of rows for each case."""
    head = (
        f"Simulated RTX 3080 Ti, GPT-3-xl; {len(seeds)} studies of each (seeds {seeds[0]} to {seeds[-1]}). Percent of "
        "auto. Before: ten rounds, margin of 2.6 standard errors, claim of the data that chose, all validation "
        "repeats in one session. After: rounds until settled, check, claim of the check, each validation repeat in a "
        "session of its own.\n\n"
    )
    columns = ["tensor energy", "noise", "", "rounds", "windows", "energy claimed", "true", "best possible"]
    columns += ["optimism, points: energy / time", "over the limit", "interval holds the true time / energy"]
    columns += ["its half width, time / energy"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for place, row in enumerate(compared.to_dict("records")):
        before = not place % 2
        where = "_in_one_session" if before else ""
        held = [100 * row[f"{each}_coverage{where}"] for each in ("time", "energy")]
        half = [row[f"{each}_half_width{where}_pp"] for each in ("time", "energy")]
        cells = [row["tensor_energy"], row["noise"], "before" if before else "after", f"{row['rounds']:.1f}"]
        cells += [f"{row['windows']:,.0f}"]
        cells += [f"{row['energy_claimed_percent']:.2f}", f"{row['energy_true_percent']:.2f}"]
        cells += [f"{row['best_possible_energy_percent']:.2f}"]
        cells += [f"{row['energy_optimism_pp']:+.2f} / {row['time_optimism_pp']:+.3f}"]
        cells += [f"{100 * row['over_budget']:.1f} %", f"{held[0]:.1f} / {held[1]:.1f} %"]
        lines.append(f"| {' | '.join([*cells, f'{half[0]:.2f} / {half[1]:.2f}'])} |")
    return head + "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=20000, metavar="N")
    parser.add_argument("--seeds", type=int, default=200, metavar="N")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("-o", "--output", default=str(ROOT / "experiments/results"), metavar="DIR")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        studies = list(pool.map(studied, CASES, itertools.repeat(seeds)))
    slack = load(str(CONFIG))["slack_percent"]
    own = ["tensor_energy", "best_possible_energy_percent"]
    tables = [make(each, slack).assign(**{name: each[name].iloc[0] for name in own}) for each in studies]
    whole = pd.concat(tables)
    write_text(f"{options.output}/selection_bias.csv", whole.to_csv(index=False, float_format="%.5g"))
    rest = pd.concat(studies).drop(columns="best_possible_energy_percent")
    write_text(f"{options.output}/selection_bias_studies.csv", rest.to_csv(index=False, float_format="%.5g"))
    write_text(f"{options.output}/selection_bias.md", text(pd.concat(each.tail(2) for each in tables), seeds))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
