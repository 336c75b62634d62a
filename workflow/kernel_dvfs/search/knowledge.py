"""What visits have shown so far: pooled for a table, and as believed for a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kernel_dvfs.search import belief
from kernel_dvfs.search.belief import AUTO_SD, REPEAT_SD, Belief, Cells
from kernel_dvfs.search.parts import ChoiceLevel, Part, Space
from kernel_dvfs.search.prior import prior

_DRAWS = 24


class Observation(NamedTuple):
    """What one visit showed."""

    session: int
    pair: int
    time_s: np.ndarray  # (K,) of one launch
    power_w: Mapping[int, float]  # of each part that was metered


class Pooled(NamedTuple):
    """What a study measured of every kernel, at every pair it visited: the one table a profile is made of."""

    names: tuple[str, ...]  # (K,)
    pairs: tuple[int, ...]  # (V,) places of the pairs
    time_s: np.ndarray  # (K, V) of one launch
    energy_j: np.ndarray  # (K, V) of one launch; NaN where a kernel was timed alone
    time_se_s: np.ndarray  # (K, V)
    energy_se_j: np.ndarray  # (K, V)
    sessions: np.ndarray  # (K, V) that the times come from


class Knowledge:
    """The looks of a study, and what is believed by them."""

    def __init__(self, space: Space, seed: int):
        self.looks: list[Observation] = []
        self.parts: tuple[Part, ...] = ()
        self._space, self._seed = space, seed
        self._prior = prior(space.pairs)
        self._cells: tuple[Cells, Cells] | None = None
        self._beliefs: dict[tuple, tuple[Belief, Belief]] = {}

    def divide(self, parts: Sequence[Part]) -> None:
        """Say what the parts of an iteration are."""
        self.parts = tuple(parts)

    def add(self, look: Observation) -> None:
        """Take in what a visit showed."""
        self.looks.append(look)
        self._cells = None
        self._beliefs.clear()

    @property
    def is_seen(self) -> np.ndarray:
        """(C,) bool: the pairs that all parts were metered at, auto among them."""
        time, power = self.cells()
        return np.all((time.visits > 0) & (power.visits > 0), axis=0)

    def cells(self) -> tuple[Cells, Cells]:
        """Log time and log power of every part, as measured."""
        if self._cells is None:
            member = np.array([np.bincount(part, minlength=len(self._space.names)) for part in self.parts])
            times = np.log([member @ (self._space.launches * look.time_s) for look in self.looks])
            powers = np.full(times.shape, np.nan)
            for row, look in zip(powers, self.looks):
                row[list(look.power_w)] = np.log(list(look.power_w.values()))
            pairs, count = [look.pair for look in self.looks], len(self._space.pairs)
            self._cells = belief.cells_of(times, pairs, count), belief.cells_of(powers, pairs, count)
        return self._cells

    def believed(self, draws: int = _DRAWS, stream: int = 0) -> tuple[Belief, Belief]:
        """Log time and log power of every part at every pair."""
        key = draws, stream
        if key not in self._beliefs:
            beliefs = []
            seen = self.is_seen
            for number, (field, cells) in enumerate(zip(self._prior, self.cells())):
                only = cells._replace(visits=np.where(seen, cells.visits, 0))
                variance = belief.repeat_variance(cells, REPEAT_SD[number])
                seed = self._seed, 1, len(self.looks), stream, number
                beliefs.append(belief.believed(field, only, variance, AUTO_SD[number], seed, draws))
            self._beliefs[key] = beliefs[0], beliefs[1]
        return self._beliefs[key]

    def of_level(
        self, level: ChoiceLevel, draws: int = _DRAWS, stream: int = 0
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return (J, C) time and energy as believed, percent of the iteration's at auto, and (S, J, C) draws of
        both."""
        time, power = self.believed(draws, stream)
        auto_time, auto_energy = np.exp(time.mean[:, 0]).sum(), np.exp(time.mean[:, 0] + power.mean[:, 0]).sum()
        mean, drawn = (
            (100 * np.exp(log_time) / auto_time, 100 * np.exp(log_time + log_power) / auto_energy)
            for log_time, log_power in ((time.mean, power.mean), (time.draws, power.draws))
        )
        return level.share @ mean[0], level.share @ mean[1], (level.share @ drawn[0], level.share @ drawn[1])


def pooled(space: Space, parts: Sequence[Part], looks: Sequence[Observation]) -> Pooled:
    """Return the table of a study's looks: means over visits. A kernel's energy is its time x its part's power."""
    pairs, count = [look.pair for look in looks], len(space.pairs)
    time = belief.cells_of(np.log([look.time_s for look in looks]), pairs, count)
    powers = np.full((len(looks), len(space.names)), np.nan)
    for row, look in zip(powers, looks):
        for part, watts in look.power_w.items():
            row[list(parts[part])] = np.log(watts)
    power = belief.cells_of(powers, pairs, count)
    visited = sorted(set(pairs))
    time_se, power_se = (
        np.sqrt(belief.repeat_variance(cells, guess)[:, None] / np.maximum(cells.visits, 1))[:, visited]
        for cells, guess in ((time, REPEAT_SD[0]), (power, REPEAT_SD[1]))
    )
    time_s = np.exp(time.mean[:, visited])
    energy_j = time_s * np.exp(power.mean[:, visited])
    sessions = np.array([len({look.session for look in looks if look.pair == pair}) for pair in visited])
    return Pooled(
        names=space.names,
        pairs=tuple(visited),
        time_s=time_s,
        energy_j=energy_j,
        time_se_s=time_s * time_se,
        energy_se_j=energy_j * np.hypot(time_se, power_se),
        sessions=np.broadcast_to(sessions, time_s.shape),
    )
