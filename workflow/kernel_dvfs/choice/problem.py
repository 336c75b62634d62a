"""The choice problem as arrays: per target its options with weighted time and energy, and its baseline.

It does not know where the numbers come from (see from_profile.py) nor what is asked of them (see scopes.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.choice.agreement import Apart

TOLERANCE = 1e-9  # every "time <= limit" of this package means time <= limit * (1 + TOLERANCE)


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """Options of K targets, N in all, flat and sorted by target."""

    targets: tuple[str, ...]  # K names
    members: tuple[tuple[str, ...], ...]  # the names that each target stands for: its own, or its replicates'
    time: np.ndarray  # (N,) weight x s (any other unit works as well)
    energy: np.ndarray  # (N,) weight x J (likewise)
    target: np.ndarray  # (N,) index of each option's target
    first: np.ndarray  # (K,) where each target's options begin
    key: np.ndarray  # (N,) index into keys
    keys: tuple[Any, ...]  # the option keys, such as (1470.0, 9251.0) MHz; None in a key is auto
    baseline: np.ndarray  # (K,) flat index of each target's baseline option
    settings: tuple[str, ...] = ()  # names of a key's parts
    weights: str = "raw"  # one of from_profile.WEIGHTS
    ties: str = "untied"  # one of from_profile.TIES
    time_se: np.ndarray | None = None  # (N,) standard errors of `time`, NaN where unknown; None: all unknown
    energy_se: np.ndarray | None = None  # (N,) likewise of `energy`
    n: np.ndarray | None = None  # (N,) measurements, of the member that was measured least; None: unknown
    apart: tuple[Apart, ...] = ()  # replicates that are not pooled

    @classmethod
    def of(
        cls,
        time: Sequence[Sequence[float] | np.ndarray],
        energy: Sequence[Sequence[float] | np.ndarray],
        baseline: Sequence[int],
        keys: Sequence[Sequence[Hashable]] | None = None,
        targets: Sequence[str] | None = None,
        **more: Any,
    ) -> Problem:
        """Return a problem from arrays of times and energies per target; baseline[k] counts within target k.

        keys: per target the options' keys (any hashable), default 0, 1, 2, ...; targets: names, default "0",
        "1", ...; more: further fields of a Problem.
        Raises InputError on empty targets, unequal lengths, non-finite or non-positive values, repeated keys.
        """
        count = len(time)
        targets = tuple(targets) if targets is not None else tuple(str(k) for k in range(count))
        if not count or len(energy) != count or len(baseline) != count or len(targets) != count:
            raise InputError(
                f"choice: {count} targets with times, {len(energy)} with energies, {len(baseline)}"
                " baselines; give each at least one target and one of each"
            )
        sizes = [len(t) for t in time]
        for name, size, other, base in zip(targets, sizes, map(len, energy), baseline):
            if not size or size != other or not 0 <= base < size:
                raise InputError(
                    f"choice: target {name} has {size} times, {other} energies, baseline {base}; give"
                    " equally many, at least one, and a baseline among them"
                )
        known: dict[Hashable, int] = {}
        key = []
        for k in range(count):
            option_keys = list(range(sizes[k])) if keys is None else list(keys[k])
            if len(option_keys) != sizes[k] or len(set(option_keys)) != sizes[k]:
                raise InputError(
                    f"choice: target {targets[k]} has {sizes[k]} options but {len(set(option_keys))} different"
                    " keys; pool records of the same setting first"
                )
            key += [known.setdefault(o, len(known)) for o in option_keys]
        first = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)
        return cls(
            targets=targets,
            members=tuple((name,) for name in targets),
            time=np.concatenate(time).astype(float),
            energy=np.concatenate(energy).astype(float),
            target=np.repeat(np.arange(count), sizes),
            first=first,
            key=np.array(key, dtype=np.intp),
            keys=tuple(known),
            baseline=first + np.asarray(baseline, dtype=np.intp),
            **more,
        ).checked()

    def checked(self) -> Problem:
        """Return itself; raises InputError where a time or energy is not a positive finite number."""
        for name, values in (("time", self.time), ("energy", self.energy)):
            wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
            if len(wrong):
                i = wrong[0]
                raise InputError(
                    f"choice: {name} of target {self.targets[self.target[i]]} at"
                    f" {self.keys[self.key[i]]} is {values[i]}; it must be a positive number"
                )
        return self

    @property
    def baseline_time(self) -> float:
        """Total time of the baseline, weighted."""
        return float(self.time[self.baseline].sum())

    @property
    def baseline_energy(self) -> float:
        """Total energy of the baseline, weighted."""
        return float(self.energy[self.baseline].sum())

    @property
    def is_baseline(self) -> np.ndarray:
        """(N,) bool: the options that are their target's baseline."""
        mark = np.zeros(len(self.time), dtype=bool)
        mark[self.baseline] = True
        return mark

    def subset(self, option: np.ndarray) -> Problem:
        """Return the same problem with only the options `option` (ascending flat indices, baselines included)."""
        target = self.target[option]
        return replace(
            self,
            time=self.time[option],
            energy=self.energy[option],
            target=target,
            first=np.searchsorted(target, np.arange(len(self.targets))),
            key=self.key[option],
            baseline=np.searchsorted(option, self.baseline),
            time_se=_of(self.time_se, option),
            energy_se=_of(self.energy_se, option),
            n=_of(self.n, option),
        )


def _of(values: np.ndarray | None, option: np.ndarray) -> np.ndarray | None:
    return None if values is None else values[option]


def best_per_target(score: np.ndarray, target: np.ndarray, first: np.ndarray, *ties: np.ndarray) -> np.ndarray:
    """Return (K,) flat index of each target's least score; equal scores are decided by `ties`, then by order."""
    low = np.minimum.reduceat(score, first)
    least = np.flatnonzero(score == low[target])
    if len(least) > len(first):
        least = least[np.lexsort([tie[least] for tie in reversed(ties)] + [target[least]])]
        least = least[np.searchsorted(target[least], np.arange(len(first)))]
    return least
