"""Whether launches that should be identical agree: their data are pooled unless a test says that they differ.

Caches and neighbours can make two launches of the same kernel and shape differ. A member is set apart where its mean
differs from the others' over their common settings by more than TOLERANCE and by more than chance allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernel_dvfs.student import t_quantile

# relative; a smaller difference is not worth losing the pooled data for: a pair's own measurement is no better
TOLERANCE = 0.005
# chance that any target is set apart although all agree; all tests of a profile share it
FAMILY_ERROR = 0.01

# {target: {key: value}}
Values = Mapping[str, Mapping[Any, float]]


@dataclass(frozen=True, slots=True)
class Apart:
    """A target that is not pooled with its replicate group, and by how much it differs from the others."""

    target: str
    group: str
    time_percent: float  # its mean time against that of the others
    energy_percent: float  # its mean energy against that of the others


def apart(groups: Mapping[str, Iterable[str]], time: Values, energy: Values) -> list[Apart]:
    """Return the targets that differ from their replicate group, in the order of `groups`.

    groups: {group: [targets]}. time, energy: {target: {key: value > 0}}, any unit. The difference at each common key is
    one observation of a t-test over keys, so noise needs no model; below three common keys nothing can be said.
    """
    together = {group: list(members) for group, members in groups.items()}
    tests = 2 * sum(len(members) for members in together.values() if len(members) > 1)
    separate = []
    for group, members in together.items():
        while len(members) > 1:
            worst = _worst(members, time, energy, FAMILY_ERROR / tests)
            if worst is None:
                break
            place, percents = worst
            separate.append(Apart(members.pop(place), group, *percents))
    return separate


def _worst(members: list[str], time: Values, energy: Values, error: float) -> tuple[int, tuple[float, float]] | None:
    """Return (place, (time %, energy %)) of the member that differs most, or None where all agree."""
    keys = [key for key in time[members[0]] if all(key in time[member] for member in members)]
    if len(keys) < 3:
        return None
    percents, strength = [], []
    for values in (time, energy):
        logs = np.log([[values[member][key] for key in keys] for member in members])
        # against the mean of the others
        difference = (logs - logs.mean(axis=0)) * len(members) / (len(members) - 1)
        mean, sd = difference.mean(axis=1), difference.std(axis=1, ddof=1)
        t = np.abs(mean) / np.maximum(sd / np.sqrt(len(keys)), 1e-12)
        percents.append(100 * np.expm1(mean))
        strength.append(np.where(np.abs(mean) > TOLERANCE, t, 0.0))
    strongest = np.max(strength, axis=0)
    place = int(strongest.argmax())
    if strongest[place] == 0:
        return None
    if strongest[place] <= t_quantile(len(keys) - 1, 1 - error / 2):
        return None
    return place, (float(percents[0][place]), float(percents[1][place]))
