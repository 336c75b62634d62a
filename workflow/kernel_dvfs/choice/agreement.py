"""Do launches that should be identical agree? Their data are pooled only if nothing says otherwise.

Caches and neighbours can make two launches of the same kernel and shape differ. A member stands apart where its mean
differs from the others' over their common settings by more than TOLERANCE and by more than chance allows.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping

import numpy as np

# a smaller difference is not worth losing the pooled data for: a pair's own measurement is no better
TOLERANCE = 0.005
# chance that anything is set apart although all agree: shared by all tests of a profile
FAMILY_ERROR = 0.01

Apart = namedtuple("Apart", "target group time_percent energy_percent")
Apart.__doc__ = "A target that is not pooled with its replicate group, and by how much it differs from the others."


def apart(groups: Mapping, time: Mapping, energy: Mapping) -> list:
    """[Apart], in the order of `groups`.

    groups: {group: [targets]}. time, energy: {target: {key: value > 0}}, any unit. The difference at each common key is
    one observation of a t-test over keys, so noise needs no model; below three common keys nothing can be said.
    """
    tests = 2 * sum(len(members) for members in groups.values() if len(members) > 1)
    found = []
    for group, members in groups.items():
        members = list(members)
        while len(members) > 1:
            worst = _worst(members, time, energy, FAMILY_ERROR / tests)
            if worst is None:
                break
            place, percents = worst
            found.append(Apart(members.pop(place), group, *percents))
    return found


def _worst(members: list, time: Mapping, energy: Mapping, error: float) -> tuple | None:
    """(place, (time %, energy %)) of the member that differs most, or None where all agree."""
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
    # slow to import, and hardly ever needed
    from scipy.special import stdtrit

    if strongest[place] <= stdtrit(len(keys) - 1, 1 - error / 2):
        return None
    return place, tuple(float(each[place]) for each in percents)
