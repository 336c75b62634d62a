"""What could be measured and what has been: targets, clock pairs, points. Knows no model.

A pair is a core and a memory clock and, in a table that has more setting columns (a power cap, a block size), one value
of each of those: pairs that differ in any of them are different pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_dvfs.gpu.clocks import Pair
from kernel_dvfs.measurement.setup import Setup


@dataclass(frozen=True, slots=True)
class Context:
    """What may be known, besides the profile so far, when a round is proposed."""

    setup: Setup  # resolved GPU, work and multiplicity of each target, protocol with the seed
    pairs: Sequence[Pair]  # of the grid, the baseline first
    auto_repeats: int  # measurements of the baseline in a sweep
    slacks_percent: Sequence[float]  # tolerated slowdowns that are chosen for
    ties: str  # as in choice.schedule.choose
    weights: str | None  # as in choice.schedule.choose
    options: Mapping[str, Any]  # keys of the configuration of whoever proposes: `guided`


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What a search may ask for: K targets at P clock pairs."""

    targets: tuple[str, ...]  # K names
    pairs: tuple[tuple[Any, ...], ...]  # P of (core, mem) MHz, None = left to the governor, and further settings
    offered: np.ndarray  # (K, P) bool, what can be measured
    weight: np.ndarray  # (K,) launches per iteration, or any other weight of the totals
    baseline: np.ndarray  # (K,) index of a target's baseline pair
    copies: np.ndarray  # (K,) identical launches that are one target: all are measured at the baseline, one elsewhere
    work: tuple[tuple[float, float] | None, ...] | None = None  # (tensor-core FLOP, DRAM bytes) of a launch, if known

    @property
    def core_mhz(self) -> np.ndarray:
        """(P,) requested core clocks, NaN where left to the governor."""
        return np.array([np.nan if core is None else core for core, *_ in self.pairs], dtype=float)

    @property
    def mem_mhz(self) -> np.ndarray:
        """(P,) requested memory clocks, NaN where left to the governor."""
        return np.array([np.nan if mem is None else mem for _, mem, *_ in self.pairs], dtype=float)

    @property
    def steps(self) -> np.ndarray:
        """(P, S) each setting's place among its values in rising order; empty (left to the governor) is the highest."""
        columns = []
        for column in zip(*self.pairs):
            known = sorted({value for value in column if value is not None})
            place = {value: step for step, value in enumerate(known)}
            columns.append([place.get(value, max(len(known) - 1, 0)) for value in column])
        return np.array(columns, dtype=float).T

    def beside_baseline(self, target: int) -> np.ndarray:
        """(P,) bool: pairs whose further settings are those of a target's baseline (all pairs where there are none)."""
        own = self.pairs[self.baseline[target]][2:]
        return np.array([pair[2:] == own for pair in self.pairs])

    def spent(self, measured: np.ndarray, baselines: int) -> int:
        """Measurements that the pairs of a mask (K, P) take, the baseline of every copy measured `baselines` times."""
        return int((measured.sum(1) - 1 + baselines * self.copies).sum())

    def everything(self, baselines: int) -> int:
        """Measurements of an exhaustive search: every copy at every pair, `baselines` times at the baseline."""
        return int(((self.offered.sum(1) - 1 + baselines) * self.copies).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """N measured points, one for each target and pair (repeats pooled)."""

    target: np.ndarray  # (N,) indices into the targets of Candidates
    pair: np.ndarray  # (N,) indices into its pairs
    time_s: np.ndarray  # (N,) of one launch
    energy_j: np.ndarray  # (N,) of one launch
    n: np.ndarray  # (N,) measurements pooled
    core_mhz: np.ndarray  # (N,) clock that the GPU said it reached, NaN where nothing was recorded
    mem_mhz: np.ndarray  # (N,) likewise

    @property
    def power_w(self) -> np.ndarray:
        """(N,) mean power of the board."""
        return self.energy_j / self.time_s

    def tables(self, candidates: Candidates) -> tuple[np.ndarray, np.ndarray]:
        """(K, P) times and energies, infinite where not measured."""
        time = np.full(candidates.offered.shape, np.inf)
        energy = time.copy()
        time[self.target, self.pair] = self.time_s
        energy[self.target, self.pair] = self.energy_j
        return time, energy


def seen_of(rows: Sequence[Mapping[str, Any]]) -> Seen:
    """Points from mappings with target, pair, time_s, energy_j and, if known, n, core_mhz, mem_mhz (reached)."""

    def column(name: str, default: float, kind: type = float) -> np.ndarray:
        values = [row.get(name, default) for row in rows]
        return np.array([default if value is None else value for value in values], dtype=kind)

    return Seen(
        column("target", 0, int),
        column("pair", 0, int),
        column("time_s", np.nan),
        column("energy_j", np.nan),
        column("n", 1),
        column("core_mhz", np.nan),
        column("mem_mhz", np.nan),
    )
