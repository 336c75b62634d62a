"""An iteration as arrays: which kernel each launch runs, and what it takes at every pair of clocks.

It is made from a profile through the choice problem, so that the same rows count, replicates are pooled in the same way
and the same faults are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.schedule import problem_from, profile_columns
from kernel_dvfs.workload.workload import launch_order, pass_begins
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import read

if TYPE_CHECKING:
    from typing import TypeAlias

    from kernel_dvfs.choice.schedule import Profile

    Pair: TypeAlias = tuple[float | None, float | None]  # (core, memory) MHz, None = auto


# without slots, which leave cached properties no place
@dataclass(frozen=True, eq=False)
class Sequence:
    """One iteration: N launches of K kernels, P pairs of clocks."""

    names: tuple[str, ...]  # (N,) kernel id of each launch
    kernel: np.ndarray  # (N,) row of each launch in time_s and energy_j
    time_s: np.ndarray  # (K, P) of a launch
    energy_j: np.ndarray  # (K, P) of a launch
    pairs: tuple[Pair, ...]
    baseline: int | None  # index of the pair that every percentage is against; None: it is no pair to choose
    stall_w: np.ndarray  # (P,) power of the GPU while its stream stands still at a pair
    passes: tuple[tuple[str, int], ...] = ()  # (name, first launch) where the workload has passes
    reference: tuple[float, float] = (math.nan, math.nan)  # of an iteration at the baseline, s and J, where it is None

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def launch_time_s(self) -> np.ndarray:
        """Return (N, P) time of each launch."""
        return self.time_s[self.kernel]

    @cached_property
    def launch_energy_j(self) -> np.ndarray:
        """Return (N, P) energy of each launch."""
        return self.energy_j[self.kernel]

    @cached_property
    def until_s(self) -> np.ndarray:
        """Return (N + 1, P) time from the iteration's begin to each boundary, all at one pair."""
        return cumulated(self.launch_time_s)

    @cached_property
    def until_j(self) -> np.ndarray:
        """Return (N + 1, P) energy from the iteration's begin to each boundary, all at one pair."""
        return cumulated(self.launch_energy_j)

    @property
    def baseline_time_s(self) -> float:
        """Return the time of the iteration at the baseline."""
        return self.reference[0] if self.baseline is None else float(self.until_s[-1, self.baseline])

    @property
    def baseline_energy_j(self) -> float:
        """Return the energy of the iteration at the baseline."""
        return self.reference[1] if self.baseline is None else float(self.until_j[-1, self.baseline])

    def only(self, pairs: np.ndarray) -> Sequence:
        """Return the same launches at these pairs (indices) alone; percentages are against the same baseline."""
        at = np.flatnonzero(pairs == self.baseline)
        return Sequence(
            names=self.names,
            kernel=self.kernel,
            time_s=self.time_s[:, pairs],
            energy_j=self.energy_j[:, pairs],
            pairs=tuple(self.pairs[pair] for pair in pairs),
            baseline=int(at[0]) if len(at) else None,
            stall_w=self.stall_w[pairs],
            passes=self.passes,
            reference=(self.baseline_time_s, self.baseline_energy_j),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """An iteration with what its profile says of itself."""

    sequence: Sequence
    gpu: dict[str, Any]  # as the profile has them
    workload: dict[str, Any]
    weights: str  # of the choice problem that it was made through
    notices: list[str]  # lines for the user


def read_sequence(
    profile: Profile,
    order: str = "profile",
    stall_w: float | None = None,
    shared_pairs: bool = False,
    ties: str = "tied",
) -> Read:
    """Return the iteration of a profile (as choice.schedule takes it).

    order: "profile", launches in the order of the profile's rows, layers repeated by their launches per iteration; or
    a JSON file with a list of kernel ids. stall_w: power while the stream stands still, W; None: at each pair the
    least mean power of any kernel there, since a GPU without work draws no more than one that works.
    shared_pairs: leave out pairs that a kernel lacks, instead of refusing the profile.
    Raises InputError.
    """
    if stall_w is not None and not (np.isfinite(stall_w) and stall_w >= 0):
        raise InputError(f"stall_w {stall_w:g}: expected a number of W >= 0")
    columns, metadata, where = profile_columns(profile)
    settings = metadata.get("settings", ["core_mhz", "mem_mhz"])
    if list(settings) != ["core_mhz", "mem_mhz"]:
        raise InputError(
            f"{where}: settings {', '.join(settings[2:])} cannot be changed from launch to launch as clocks can; "
            "import one value of each"
        )
    problem = problem_from(profile, "kernel", "raw", ties)
    kernels, time_s, energy_j, pairs, notices = _full(problem, shared_pairs, where)
    (baseline,) = set(problem.key[problem.baseline].tolist())
    baseline = pairs.index(problem.keys[baseline])
    names = _order(order, columns, metadata.get("workload", {}))
    row = {name: number for number, name in enumerate(kernels)}
    unknown = [name for name in names if name not in row]
    if unknown:
        raise InputError(f"{order}: kernel {unknown[0]} is not in {where}; it has {', '.join(list(kernels)[:4])}, ...")
    power = energy_j / time_s
    sequence = Sequence(
        names=tuple(names),
        kernel=np.array([row[name] for name in names], dtype=np.intp),
        time_s=time_s,
        energy_j=energy_j,
        pairs=tuple(pairs),
        baseline=baseline,
        stall_w=power.min(axis=0) if stall_w is None else np.full(len(pairs), float(stall_w)),
        passes=pass_begins(metadata.get("workload", {}), names) if order == "profile" else (),
    )
    return Read(sequence, metadata.get("gpu", {}), metadata.get("workload", {}), problem.weights, notices)


def _full(
    problem: Problem, shared_pairs: bool, where: str
) -> tuple[list[str], np.ndarray, np.ndarray, list[Pair], list[str]]:
    """Return (kernel ids, time (K, P), energy (K, P), pairs, notices) with every kernel at every pair."""
    if len(set(problem.key[problem.baseline].tolist())) > 1:
        raise InputError(f"{where}, column is_baseline: kernels have different baselines; an iteration needs one")
    count, size = len(problem.targets), len(problem.keys)
    place = np.full((count, size), -1, dtype=np.intp)
    place[problem.target, problem.key] = np.arange(len(problem.time))
    lacking = np.argwhere(place < 0)
    notices: list[str] = []
    if len(lacking):
        target, key = lacking[0]
        pair = "-".join("auto" if mhz is None else f"{mhz:g}" for mhz in problem.keys[key])
        lost = (
            f"{where}: kernel {problem.targets[target]} has no usable row at pair {pair} (columns core_mhz, mem_mhz; "
            f"{len(lacking)} such)"
        )
        if not shared_pairs:
            raise InputError(f"{lost}; measure them, or leave those pairs out with --shared-pairs")
        notices.append(f"{lost}: left out")
    shared = np.flatnonzero((place >= 0).all(axis=0))
    if not len(shared) or problem.key[problem.baseline[0]] not in shared:
        raise InputError(f"{where}: the baseline is not a pair that every kernel has; measure it for all")
    # weights are 1 a member: a class of replicates counts once for each
    members = np.array(list(map(len, problem.members)), dtype=float)[:, None]
    time_s, energy_j = problem.time[place[:, shared]] / members, problem.energy[place[:, shared]] / members
    kernels: list[str] = []
    rows: list[int] = []
    for number, ids in enumerate(problem.members):
        kernels += ids
        rows += [number] * len(ids)
    return kernels, time_s[rows], energy_j[rows], [problem.keys[key] for key in shared], notices


def _order(order: str, columns: Mapping[str, Any], workload: Mapping[str, Any]) -> list[str]:
    if order == "profile":
        rows: dict[str, int] = {}
        for study, name, count in zip(columns["study"], columns["target"], columns["launches_per_iteration"]):
            if study == "kernel":
                rows.setdefault(name, count)
        return launch_order(workload, rows)
    expected = "a JSON list of kernel ids is expected, one a launch, in order; or `profile`"
    names = read(order, list[str], "", expected)
    if not names:
        raise InputError(f"{order}: it is empty; {expected}")
    return names


def cumulated(values: np.ndarray) -> np.ndarray:
    """Return (N + 1, P) sums of (N, P) up to each boundary."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
