"""Parts of an iteration that share a clock pair, and what a choice is made for: kernels, or passes.

A part is a target (a kernel, or copies of it that are tied) or a group of light targets that slow down alike. Every
kernel is timed in every pass; a part is metered in one window, its kernels in turn, so that many short kernels cost no
more windows than a few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from kernel_dvfs.measurement.visit import HEAVY_SHARE
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

MOST = 40  # targets that are metered by themselves
GROUPS = 3  # of light kernels at least
GROUP_SHARE = 0.04  # of the iteration's time, above which there are more
KERNEL, PASS = "kernel", "pass"


class Space(NamedTuple):
    """What a study is about."""

    names: tuple[str, ...]  # (K,) kernels
    launches: np.ndarray  # (K,) in an iteration
    groups: tuple[str | None, ...]  # (K,) replicate group: copies share data and choice
    passes: Mapping[str, Mapping[str, float]]  # {pass: {kernel: launches in it}}; {}: none is chosen for
    pairs: tuple[Pair, ...]  # BASELINE, then locked core clocks

    def checked(self) -> Space:
        """Return itself; raises InputError where a study cannot be made of it."""
        count = len(self.names)
        if not count or len(self.launches) != count or len(self.groups) != count:
            raise InputError(
                f"study: {count} kernels with {len(self.launches)} counts of launches and {len(self.groups)} replicate "
                "groups; give at least one kernel, and one of each for every kernel"
            )
        if self.pairs[:1] != (BASELINE,) or len(self.pairs) < 2 or any(core == AUTO for core, _ in self.pairs[1:]):
            raise InputError("study: needs auto,auto first, then at least one pair with a locked core clock")
        unknown = {name for counts in self.passes.values() for name in counts} - set(self.names)
        if unknown:
            raise InputError(f"study: the passes launch {sorted(unknown)[0]}, which is no kernel of the step; add it")
        return self


# kernels that share a clock pair and a window of power
Part: TypeAlias = tuple[int, ...]


class ChoiceLevel(NamedTuple):
    """What a choice is made for: J targets of U parts."""

    name: str
    targets: tuple[tuple[str, ...], ...]  # (J,) the names that a target stands for
    launches: np.ndarray  # (J, K) of each kernel within each target
    share: np.ndarray  # (J, U) of each part's time within each target


def targets_of(groups: Sequence[str | None]) -> list[tuple[int, ...]]:
    """Return the kernels of each target: copies together, in the order of their first."""
    members: dict[object, list[int]] = {}
    for kernel, group in enumerate(groups):
        members.setdefault(group or kernel, []).append(kernel)
    return [tuple(kernels) for kernels in members.values()]


def parts_of(space: Space, auto_s: np.ndarray, probed_s: Sequence[np.ndarray]) -> tuple[Part, ...]:
    """Return the parts of an iteration, by (K,) times of a launch at auto and at some other pairs.

    Heavy are the targets of most time that hold HEAVY_SHARE of the iteration, MOST at most; they come first. The others
    are parted by how they slow down.
    """
    targets = targets_of(space.groups)
    member = np.array([np.bincount(target, minlength=len(space.names)) for target in targets])
    time = member @ (space.launches * auto_s)
    order = np.argsort(-time, kind="stable")
    before = np.cumsum(time[order]) - time[order]
    heavy = order[: min(int((before < HEAVY_SHARE * time.sum()).sum()), MOST)]
    parts = [targets[target] for target in sorted(heavy.tolist())]
    light = np.setdiff1d(np.arange(len(targets)), heavy)
    if len(light):
        slower = np.log([(member @ (space.launches * pair_s) / time)[light] for pair_s in probed_s]).T
        groups = max(GROUPS, int(np.ceil(time[light].sum() / time.sum() / GROUP_SHARE)))
        for group in alike(slower, time[light], groups):
            kernels = [kernel for target in light[group] for kernel in targets[target]]
            parts.append(tuple(sorted(kernels)))
    return tuple(parts)


def alike(features: np.ndarray, weight: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the rows of (N, P) features in `count` groups of likes, fewer where there are fewer rows.

    Always the group and the feature of most spread is next, and is halved by weight.
    """
    groups = [np.arange(len(features))]
    while len(groups) < min(count, len(features)):
        spreads = []
        for group in groups:
            values, share = features[group], weight[group][:, None]
            apart = (share * (values - (share * values).sum(0) / share.sum()) ** 2).sum(0)
            spreads.append(apart if len(group) > 1 else apart - 1)
        place, feature = np.unravel_index(np.argmax(spreads), (len(groups), features.shape[1]))
        group = groups.pop(int(place))
        group = group[np.argsort(features[group, feature], kind="stable")]
        sums = np.cumsum(weight[group])
        half = 1 + int(abs(sums[:-1] - sums[-1] / 2).argmin())
        groups += [group[:half], group[half:]]
    return groups


def levels_of(space: Space, parts: Sequence[Part], auto_s: np.ndarray) -> tuple[ChoiceLevel, ...]:
    """Return the level of kernels, and that of passes where there are any. auto_s: (K,) of a launch at auto."""
    member = np.array([np.bincount(part, minlength=len(space.names)) for part in parts], dtype=float)
    whole = member @ (space.launches * auto_s)
    names = tuple(tuple(space.names[kernel] for kernel in part) for part in parts)
    levels = [ChoiceLevel(KERNEL, names, member * space.launches, np.eye(len(parts)))]
    if space.passes:
        launches = np.array([[counts.get(name, 0.0) for name in space.names] for counts in space.passes.values()])
        share = (launches * auto_s) @ member.T / whole
        levels.append(ChoiceLevel(PASS, tuple((name,) for name in space.passes), launches, share))
    return tuple(levels)
