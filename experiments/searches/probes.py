"""How well a few probes of a kernel predict its other points, and what a choice on such predictions is worth.

Cross-validated over kernels: the GPU's constants and the prior of the kernels come from the other folds, nothing from
the GPU's spec; a kernel shows its probes (and, for the choice, its baseline row) and is scored on its other points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.searches.testbed import Testbed, choose
from kernel_dvfs.search.candidates import Candidates, Seen
from kernel_dvfs.search.fit import fit
from kernel_dvfs.search.posterior import tables

LEAST_PROBES = 3  # capped ones do not count


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What probes predict of K kernels at P pairs."""

    time_s: np.ndarray  # (K, P)
    energy_j: np.ndarray  # (K, P)
    scored: np.ndarray  # (K, P) bool, points that were neither shown nor capped


def predict(
    testbed: Testbed,
    probes: Sequence[tuple[float, float]],
    below_w: float,
    folds: int = 5,
    seed: int = 0,
    baseline: bool = False,
) -> Prediction:
    """Predictions of every kernel of a table from its probes [(core, mem) MHz], by the other folds' kernels.

    below_w: power from which a point counts as capped: dropped as a probe, not scored. baseline: show the kernel's
    baseline row too, as whoever chooses against it has measured it.
    """
    candidates = testbed.candidates
    count = len(candidates.targets)
    place = {pair: number for number, pair in enumerate(candidates.pairs)}
    shown = np.zeros(candidates.offered.shape, dtype=bool)
    shown[:, [place[pair] for pair in probes]] = True
    capped = testbed.energy_j / testbed.time_s >= below_w
    locked = candidates.offered & ~np.isnan(candidates.core_mhz)
    shown &= locked & ~capped
    enough_probes = shown.sum(1) >= LEAST_PROBES
    if baseline:
        shown[np.arange(count), candidates.baseline] = True
    time, energy = np.full((2, *candidates.offered.shape), np.nan)
    order = np.random.default_rng(seed).permutation(count)
    for fold in range(folds):
        test = np.isin(np.arange(count), order[fold::folds])
        known = fit(_only(candidates, ~test), _points(testbed, candidates.offered & ~test[:, None], ~test))
        enough = test & enough_probes
        mine = fit(_only(candidates, enough), _points(testbed, shown & enough[:, None], enough), known)
        log_time, log_energy = tables(mine)
        time[enough], energy[enough] = np.exp(log_time[0]), np.exp(log_energy[0])
    scored = locked & ~capped & ~shown & ~np.isnan(time)
    return Prediction(time, energy, scored)


def errors(testbed: Testbed, prediction: Prediction, where: np.ndarray | None = None) -> dict[str, float]:
    """Mean absolute errors, percent: {time, power, energy}, over the scored points (of pairs `where`, (P,) bool)."""
    scored = prediction.scored if where is None else prediction.scored & where
    measured = {"time": testbed.time_s, "power": testbed.energy_j / testbed.time_s, "energy": testbed.energy_j}
    power = prediction.energy_j / prediction.time_s
    found = {"time": prediction.time_s, "power": power, "energy": prediction.energy_j}
    return {name: float(100 * np.abs(found[name] / table - 1)[scored].mean()) for name, table in measured.items()}


def decide(testbed: Testbed, prediction: Prediction, slack: float) -> dict[str, float]:
    """The global choice on predictions, the baseline as measured, scored on measured rows.

    {saving, optimum: percent of energy; over: percentage points of time over the limit}. testbed: its weights count.
    """
    candidates = testbed.candidates
    rows = np.arange(len(candidates.targets))
    time, energy = prediction.time_s.copy(), prediction.energy_j.copy()
    for table, measured in ((time, testbed.time_s), (energy, testbed.energy_j)):
        table[rows, candidates.baseline] = measured[rows, candidates.baseline]
    saving, change = testbed.score(choose(candidates, time, energy, ~np.isnan(time), slack))
    best, _ = testbed.score(testbed.oracle(slack))
    return {"saving": 100 * saving, "optimum": 100 * best, "over": 100 * max(0.0, change - slack)}


def _only(candidates: Candidates, kept: np.ndarray) -> Candidates:
    names = tuple(name for name, keep in zip(candidates.targets, kept) if keep)
    fields = (field[kept] for field in (candidates.offered, candidates.weight, candidates.baseline, candidates.copies))
    return Candidates(names, candidates.pairs, *fields)


def _points(testbed: Testbed, shown: np.ndarray, kept: np.ndarray) -> Seen:
    seen = testbed.seen(shown, 1)
    return replace(seen, target=np.cumsum(kept)[seen.target] - 1)
