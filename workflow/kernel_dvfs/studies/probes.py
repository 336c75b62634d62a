"""How well a few probes of a kernel predict its other points, and what a choice on such predictions is worth.

Cross-validated over kernels: the GPU's constants and the prior of the kernels come from the other folds, nothing from
the GPU's spec; a kernel shows its probes (and, for the choice, its baseline row) and is scored on its other points.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernel_dvfs.search.candidates import Seen, Space
from kernel_dvfs.search.fit import fit
from kernel_dvfs.search.posterior import tables
from kernel_dvfs.studies.testbed import Ground, choose

LEAST_PROBES = 3  # capped ones do not count


class Prediction(NamedTuple):
    """time_s, energy_j: (K, P) predicted. scored: (K, P) bool, points that were neither shown nor capped."""

    time_s: np.ndarray
    energy_j: np.ndarray
    scored: np.ndarray


def predict(ground: Ground, probes: list, below_w: float, folds: int = 5, seed: int = 0) -> Prediction:
    """Predictions of every kernel of a table from its probes [(core, mem) MHz], by the other folds' kernels.

    below_w: power from which a point counts as capped: dropped as a probe, not scored.
    """
    space = ground.space
    count = len(space.targets)
    place = {pair: number for number, pair in enumerate(space.pairs)}
    shown = np.zeros(space.offered.shape, dtype=bool)
    shown[:, [place[pair] for pair in probes]] = True
    capped = ground.energy_j / ground.time_s >= below_w
    locked = space.offered & ~np.isnan(space.core_mhz)
    shown &= locked & ~capped
    time, energy = np.full((2, *space.offered.shape), np.nan)
    order = np.random.default_rng(seed).permutation(count)
    for fold in range(folds):
        test = np.isin(np.arange(count), order[fold::folds])
        known = fit(_only(space, ~test), _points(ground, space.offered & ~test[:, None], ~test))
        enough = test & (shown.sum(1) >= LEAST_PROBES)
        mine = fit(_only(space, enough), _points(ground, shown & enough[:, None], enough), known)
        log_time, log_energy = tables(mine)
        time[enough], energy[enough] = np.exp(log_time[0]), np.exp(log_energy[0])
    scored = locked & ~capped & ~shown & ~np.isnan(time)
    return Prediction(time, energy, scored)


def errors(ground: Ground, prediction: Prediction, where: np.ndarray | None = None) -> dict:
    """Mean absolute errors, percent: {time, power, energy}, over the scored points (of pairs `where`, (P,) bool)."""
    scored = prediction.scored if where is None else prediction.scored & where
    measured = {"time": ground.time_s, "power": ground.energy_j / ground.time_s, "energy": ground.energy_j}
    power = prediction.energy_j / prediction.time_s
    found = {"time": prediction.time_s, "power": power, "energy": prediction.energy_j}
    return {name: float(100 * np.abs(found[name] / table - 1)[scored].mean()) for name, table in measured.items()}


def decide(ground: Ground, prediction: Prediction, slack: float) -> dict:
    """The global choice on predictions, the baseline as measured, scored on measured rows.

    {saving, optimum: percent of energy; over: percentage points of time over the limit}. ground: its weights count.
    """
    space = ground.space
    rows = np.arange(len(space.targets))
    time, energy = prediction.time_s.copy(), prediction.energy_j.copy()
    for table, measured in ((time, ground.time_s), (energy, ground.energy_j)):
        table[rows, space.baseline] = measured[rows, space.baseline]
    saving, change = ground.score(choose(space, time, energy, ~np.isnan(time), slack))
    best, _ = ground.score(ground.oracle(slack))
    return {"saving": 100 * saving, "optimum": 100 * best, "over": 100 * max(0.0, change - slack)}


def _only(space: Space, kept: np.ndarray) -> Space:
    names = tuple(name for name, keep in zip(space.targets, kept) if keep)
    fields = (field[kept] for field in (space.offered, space.weight, space.baseline, space.copies))
    return Space(names, space.pairs, *fields)


def _points(ground: Ground, shown: np.ndarray, kept: np.ndarray) -> Seen:
    seen = ground.seen(shown, 1)
    return replace(seen, target=np.cumsum(kept)[seen.target] - 1)
