"""Where a search is tried out: what measuring would say at every pair, and the truth.

Of a simulated GPU both are known. Of a measured table only the rows are known: a search is shown those it asks for and
is scored on all of them. Targets are what a choice is made for: tied launches are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.searches.sampling import per_launch, true_points
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.measurement.campaign import SWEEP, Bench
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.profile.table import import_table
from kernel_dvfs.search.candidates import Candidates, Context, Seen
from kernel_dvfs.search.guided import candidates_of


@dataclass(frozen=True, slots=True, eq=False)
class Testbed:
    """K targets at P pairs: what measuring would say of each, and the truth.

    every, in the methods: all copies are measured at every pair (an exhaustive search), not one besides the baseline.
    """

    candidates: Candidates  # what can be measured
    time_s: np.ndarray  # (K, P) as measured at one copy of a target, NaN where not offered
    energy_j: np.ndarray  # (K, P) likewise
    all_time_s: np.ndarray  # (K, P) means over the copies of a target
    all_energy_j: np.ndarray  # (K, P) likewise
    base_time_s: np.ndarray  # (K, R) single measurements of the baseline, means over the copies; R = 1 in a table
    base_energy_j: np.ndarray  # (K, R) likewise
    core_mhz: np.ndarray  # (K, P) clock recorded, NaN where none
    mem_mhz: np.ndarray  # (K, P) likewise
    true_time_s: np.ndarray  # (K, P) what a choice is scored on
    true_energy_j: np.ndarray  # (K, P) likewise

    @property
    def measurements(self) -> int:
        """What an exhaustive search takes: every pair once, the baseline as often as there are measurements of it."""
        return self.candidates.everything(self.base_time_s.shape[1])

    def shown(self, baselines: int, every: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(K, P) measured times and energies, the baseline being the mean of its first `baselines` measurements."""
        time, energy = (self.all_time_s, self.all_energy_j) if every else (self.time_s, self.energy_j)
        time, energy = time.copy(), energy.copy()
        rows = np.arange(len(time)), self.candidates.baseline
        time[rows] = self.base_time_s[:, :baselines].mean(1)
        energy[rows] = self.base_energy_j[:, :baselines].mean(1)
        return time, energy

    def seen(self, measured: np.ndarray, baselines: int, every: bool = False) -> Seen:
        """The points of a mask (K, P)."""
        target, pair = np.nonzero(measured)
        time, energy = self.shown(baselines, every)
        at = target, pair
        n = np.where(pair == self.candidates.baseline[target], baselines, 1.0)
        return Seen(target, pair, time[at], energy[at], n, self.core_mhz[at], self.mem_mhz[at])

    def choose(self, measured: np.ndarray, baselines: int, slack: float, every: bool = False) -> np.ndarray:
        """(K,) pairs of the global choice of least energy among the measured ones, by what was measured."""
        return choose(self.candidates, *self.shown(baselines, every), measured, slack)

    def oracle(self, slack: float) -> np.ndarray:
        """(K,) pairs of the best choice by the truth."""
        return choose(self.candidates, self.true_time_s, self.true_energy_j, self.candidates.offered, slack)

    def score(self, choice: np.ndarray) -> tuple[float, float]:
        """(energy saved, change of time) of a choice (K,), shares of the baseline, by the truth."""
        rows, weight = np.arange(len(choice)), self.candidates.weight
        base = self.candidates.baseline
        time, energy = ((weight * table[rows, choice]).sum() for table in (self.true_time_s, self.true_energy_j))
        base_time, base_energy = (
            (weight * table[rows, base]).sum() for table in (self.true_time_s, self.true_energy_j)
        )
        return float(1 - energy / base_energy), float(time / base_time - 1)


def choose(candidates: Candidates, time: np.ndarray, energy: np.ndarray, known: np.ndarray, slack: float) -> np.ndarray:
    """(K,) the global choice of pairs on (K, P) times and energies, among those `known` (K, P) and offered."""
    options = [np.flatnonzero(own) for own in known & candidates.offered]
    problem = Problem.of(
        [weight * time[k, own] for k, (weight, own) in enumerate(zip(candidates.weight, options))],
        [weight * energy[k, own] for k, (weight, own) in enumerate(zip(candidates.weight, options))],
        [int(np.flatnonzero(own == base)[0]) for own, base in zip(options, candidates.baseline)],
        [own.tolist() for own in options],
    )
    answer = solve(problem, "global", "waste", slack, effort=0)
    if answer.option is None:
        raise InputError(f"no choice keeps the limit of {100 * slack:g} % slowdown; raise the slack")
    return np.array([problem.keys[problem.key[option]] for option in answer.option])


def of_table(path: str | Path, weights: str) -> Testbed:
    """The testbed of a measured table (profile.table); weights: raw or equal-time. Recorded clocks are not believed."""
    imported = import_table(path)
    columns = imported.columns
    keys = list(zip(*(columns[setting] for setting in imported.settings)))
    names, pairs = dict.fromkeys(columns["target"]), dict.fromkeys(keys)
    target = {name: number for number, name in enumerate(names)}
    place = {pair: number for number, pair in enumerate(pairs)}
    time = np.full((len(names), len(pairs)), np.nan)
    energy, baseline = time.copy(), np.zeros(len(names), dtype=int)
    wanted = ("target", "time_s", "energy_j", "is_baseline")
    for key, name, time_s, energy_j, base in zip(keys, *(columns[column] for column in wanted)):
        at = target[name], place[key]
        time[at], energy[at] = time_s, energy_j
        if base:
            baseline[at[0]] = at[1]
    rows = np.arange(len(names)), baseline
    weight = np.ones(len(names)) if weights == "raw" else 1 / time[rows]
    nothing = np.full(time.shape, np.nan)
    candidates = Candidates(
        tuple(names), tuple(pairs), ~np.isnan(time), weight, baseline, np.ones(len(names), dtype=int)
    )
    base_time, base_energy = time[rows][:, None], energy[rows][:, None]
    return Testbed(candidates, time, energy, time, energy, base_time, base_energy, nothing, nothing, time, energy)


def of_setup(
    setup: Setup,
    pairs: Sequence[Pair],
    auto_repeats: int,
    truth: tuple[np.ndarray, np.ndarray] | None = None,
) -> Testbed:
    """The testbed of a simulated study; truth: (time, energy) of an earlier one of the same GPU and work."""
    members, candidates = candidates_of(Context(setup, pairs, auto_repeats, [0.0], "tied", None, {}))
    shape = len(members), len(pairs)
    time, energy, one_time, one_energy, core, mem = np.zeros((6, *shape))
    base_time, base_energy = np.zeros((2, len(members), auto_repeats))
    exact_time, exact_energy = np.zeros((2, *shape)) if truth is None else truth
    for k, names in enumerate(members):
        for name in names:
            bench, share = Bench(setup, Target("kernel", name)), 1 / len(names)
            for p, pair in enumerate(pairs):
                for repeat in range(auto_repeats if pair == BASELINE else 1):
                    point = bench.point(pair, SWEEP, repeat)
                    time_s, energy_j = per_launch(point)
                    if pair == BASELINE:
                        base_time[k, repeat] += share * time_s
                        base_energy[k, repeat] += share * energy_j
                    if repeat == 0:
                        time[k, p] += share * time_s
                        energy[k, p] += share * energy_j
                        if name == names[0]:
                            one_time[k, p], one_energy[k, p] = time_s, energy_j
                        core[k, p] += share * point["reached"]["core_mhz"]
                        mem[k, p] += share * point["reached"]["mem_mhz"]
        if truth is None:
            exact_time[k], exact_energy[k], _ = true_points(setup, names[0], pairs)
    seen = one_time, one_energy, time, energy, base_time, base_energy, core, mem
    return Testbed(candidates, *seen, exact_time, exact_energy)
