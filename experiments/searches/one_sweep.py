"""The paper's way, thousands of times: one sweep of a simulated GPU, the best of it believed, then measured again.

Also measured tables, as arrays to choose from: a choice is the exact one of least energy within a limit of time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.searches.sampling import Campaign, Noise, Truth, measure, noise_of, truth
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import ALONE, plan
from kernel_dvfs.profile.table import import_table
from kernel_dvfs_clocks.clocks import Pair, clock_of, supported_core_mhz
from kernel_dvfs_clocks.errors import InputError

CONFIG = Path(__file__).resolve().parents[2] / "config.yaml"
TABLES = CONFIG.parents[1] / "shared/data/measured"  # measured tables, where there are any
FINE_FROM_MHZ = 1300  # below it no strict choice comes near
REPEATS = 10  # of a choice that is measured again
# what measures cells, each so many times, in a session of its own
Measure = Callable[[np.ndarray, int], Campaign]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """K kernels at P pairs, as measured."""

    targets: tuple[str, ...]
    pairs: tuple[tuple, ...]
    offered: np.ndarray  # (K, P) bool: there is a row
    weight: np.ndarray  # (K,) launches of an iteration, or what stands for them
    baseline: np.ndarray  # (K,) place of the baseline
    time_s: np.ndarray  # (K, P) NaN where there is no row
    energy_j: np.ndarray  # (K, P) likewise

    def choose(self, time: np.ndarray, energy: np.ndarray, rows: np.ndarray, slack: float) -> np.ndarray:
        """Return the (R,) pairs of the kernels `rows`: the choice of least energy by the (K, P) tables given.

        slack: fraction of the baseline's time. Raises InputError where nothing keeps that limit.
        """
        offered = [np.flatnonzero(self.offered[row]) for row in rows]
        problem = Problem.of(
            *(
                [self.weight[row] * values[row, own] for row, own in zip(rows, offered)]
                for values in (np.asarray(time), np.asarray(energy))
            ),
            [int(np.flatnonzero(own == self.baseline[row])[0]) for row, own in zip(rows, offered)],
            [own.tolist() for own in offered],
        )
        answer = solve(problem, "global", "waste", slack, effort=0)
        if answer.option is None:
            raise InputError(f"no choice keeps the limit of {100 * slack:g} % slowdown; raise the slack")
        return np.array([problem.keys[problem.key[option]] for option in answer.option])

    def change(self, values: np.ndarray, rows: np.ndarray, choice: np.ndarray) -> float:
        """Return the change of a total of the kernels `rows` at the (R,) pairs `choice`, percent of the baseline's."""
        spent, base = (self.weight[rows] @ values[rows, pair] for pair in (choice, self.baseline[rows]))
        return float(100 * (spent / base - 1))


def of_table(path: str | Path, weights: str) -> Table:
    """Return a measured table (profile.table). weights: raw or equal-time. Raises InputError."""
    imported = import_table(path)
    columns = imported.columns
    keys = list(zip(*(columns[setting] for setting in imported.settings)))
    targets, pairs = tuple(dict.fromkeys(columns["target"])), tuple(dict.fromkeys(keys))
    row, place = ({each: number for number, each in enumerate(names)} for names in (targets, pairs))
    time, energy = np.full((2, len(targets), len(pairs)), np.nan)
    baseline = np.zeros(len(targets), dtype=int)
    wanted = ("target", "time_s", "energy_j", "is_baseline")
    for key, name, time_s, energy_j, is_baseline in zip(keys, *(columns[column] for column in wanted)):
        at = row[name], place[key]
        time[at], energy[at] = time_s, energy_j
        if is_baseline:
            baseline[at[0]] = at[1]
    weight = np.ones(len(targets)) if weights == "raw" else 1 / time[np.arange(len(targets)), baseline]
    return Table(targets, pairs, ~np.isnan(time), weight, baseline, time, energy)


def table_truth(path: Path) -> Truth:
    """Return a measured table as the truth, every kernel for the same share of the time. Raises InputError."""
    if not path.exists():
        raise InputError(f"skipped: measured data not found at {path}")
    own = of_table(path, "equal-time")
    first = own.baseline[0]
    if len(own.pairs[0]) != 2 or (own.baseline != first).any():
        raise InputError(f"{path}: needs core and memory clocks, no other setting, and one baseline for all kernels")
    order = [first, *(place for place in range(len(own.pairs)) if place != first)]
    pairs = [Pair(*map(clock_of, own.pairs[place])) for place in order]
    time_s, energy_j = own.time_s[:, order], own.energy_j[:, order]
    names = list(own.targets)
    return Truth(names, own.weight, [None] * len(names), pairs, time_s, energy_j, np.full(time_s.shape, np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What is measured: a truth, and the scatter about it."""

    known: Truth
    noise: Noise

    def best(self, slack: float) -> np.ndarray:
        """Return [time, energy]: the change that one would make who knows the truth, percent."""
        return self.change(self.choose(self.known.time_s, self.known.energy_j, slack))

    def choose(self, time_s: np.ndarray, energy_j: np.ndarray, slack: float) -> np.ndarray:
        """Return the (K,) pairs of least energy by (K, C) times and energies of a launch, every kernel by itself."""
        return self._table.choose(time_s, energy_j, np.arange(len(time_s)), slack)

    def change(self, choice: np.ndarray) -> np.ndarray:
        """Return [time, energy]: the change that a choice makes in truth, percent."""
        every = np.arange(len(choice))
        return np.array([self._table.change(own, every, choice) for own in (self.known.time_s, self.known.energy_j)])

    @property
    def _table(self) -> Table:
        own = self.known
        offered, auto = np.ones(own.time_s.shape, dtype=bool), np.zeros(len(own.names), dtype=int)
        return Table(tuple(own.names), tuple(own.pairs), offered, own.launches, auto, own.time_s, own.energy_j)


def setup_of(overrides: Mapping[str, Any] | None = None) -> tuple[Setup, list[Pair]]:
    """Return the setup of config.yaml with figures of its GPU replaced, and the pairs of its sweep."""
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(load(str(CONFIG)) | ALONE | {"gpu_overrides": dict(overrides or {})}, folder)
        assert planned.setup, "a simulated GPU has a setup"
        return read(planned.setup.write()), list(planned.pairs)


def ground_of(overrides: Mapping[str, Any] | None = None, fine: bool = False) -> Ground:
    """Return the simulated GPU of config.yaml. fine: with all its clocks that a strict choice might take."""
    setup, pairs = setup_of(overrides)
    if fine:
        clocks = [core for core in supported_core_mhz(setup.gpu["spec"]["clocks"]) if core >= FINE_FROM_MHZ]
        mems = dict.fromkeys(pair.mem_mhz for pair in pairs)
        pairs += [Pair(core, mem) for mem in mems for core in clocks if Pair(core, mem) not in pairs]
    known = truth(setup, pairs)
    return Ground(known, noise_of(setup.gpu["spec"], setup.measurement, known))


def one_sweep(ground: Ground, measured: Measure, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the (K,) pairs that one sweep shows to be best, and [time, energy]: the change claimed, percent."""
    known, every = ground.known, np.arange(len(ground.known.names))
    sweep = measured(np.arange(known.time_s.size), 1)
    time_s, energy_j = (values.reshape(known.time_s.shape) for values in (sweep.time_s, sweep.energy_j))
    choice = ground.choose(time_s, energy_j, slack)
    changes = [_change(known.launches, own[every, choice], own[:, 0]) for own in (time_s, energy_j)]
    return choice, np.array(changes)


def measured_again(ground: Ground, choice: np.ndarray, measured: Measure) -> np.ndarray:
    """Return [time, energy]: the mean change that REPEATS sessions of auto, chosen, chosen, auto show, percent."""
    known, pairs = ground.known, len(ground.known.pairs)
    moved = np.flatnonzero(choice)
    if not len(moved):
        return np.zeros(2)
    share = [values[:, 0] @ known.launches for values in (known.time_s, known.energy_j)]
    changes = []
    for _ in range(REPEATS):
        session = measured(np.concatenate([moved * pairs, moved * pairs + choice[moved]]), 2)
        auto, chosen = (
            [known.launches[moved] @ own for own in (session.time_s[half], session.energy_j[half])]
            for half in (slice(len(moved)), slice(len(moved), None))
        )
        changes.append([100 * (one - other) / whole for one, other, whole in zip(chosen, auto, share)])
    return np.array(changes).mean(0)


def measuring(ground: Ground, draw: np.random.Generator) -> Measure:
    """Return what measures on a ground, drawn from `draw`."""
    return partial(measure, ground.known, ground.noise, draw)


def _change(launches: np.ndarray, values: np.ndarray, auto: np.ndarray) -> float:
    return float(100 * (launches @ values / (launches @ auto) - 1))
