"""A profile's rows become a choice problem: which rows count, weights, and replicates tied to one choice.

It takes columns (numpy arrays or lists) as the profile's contract names them, and knows neither files nor what will be
asked of the problem.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from kernel_dvfs.choice.agreement import Apart, apart
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs_clocks.errors import InputError

WEIGHTS = ("counts", "raw", "equal-time")
TIES = ("tied", "untied")
NEEDED = ("study", "target", "launches_per_iteration", "time_s", "energy_j", "n", "verdict", "is_baseline")


def problem_of(
    columns: Mapping[str, Sequence[Any] | np.ndarray],
    settings: Sequence[str],
    granularity: str,
    weights: str = "counts",
    ties: str = "tied",
    where: str = "profile",
) -> Problem:
    """Return the problem of one study ("kernel" or "pass") of a profile.

    columns: profile columns of equal length; replicate_group and standard errors may be missing.
    settings: the columns that make a key; a null or NaN there is auto (None in the key). Rows whose verdict is in
    UNUSABLE are left out.
    weights: "counts" = launches_per_iteration, totals per iteration; "raw" = 1, every target once;
    "equal-time" = 1 / baseline time, every target one unit of time (energies then in W).
    ties: "tied" = targets of one replicate_group are one target, unless their means differ (agreement.py): data of a
    launch are pooled over those of its members that have a key (mean weighted by n), the weight is the sum of theirs;
    "untied" = own data, own choice. where: what error messages call the profile.
    Raises InputError on missing columns, no rows, no baseline, two rows of one target and key, unknown words.
    """
    if weights not in WEIGHTS or ties not in TIES:
        raise InputError(
            f"choice: weights {weights!r}, ties {ties!r}; use one of {', '.join(WEIGHTS)} and one of {', '.join(TIES)}"
        )
    missing = [name for name in (*NEEDED, *settings) if name not in columns]
    if missing:
        raise InputError(f"{where}: no column {', '.join(missing)}; is it a profile of kernel-dvfs?")
    rows = np.flatnonzero(
        (np.asarray(columns["study"], dtype=object) == granularity)
        & ~np.isin(np.asarray(columns["verdict"], dtype=str), UNUSABLE)
    )
    if not len(rows):
        raise InputError(f"{where}: no usable rows with study {granularity!r}; measure them first")
    names, member = _codes(np.asarray(columns["target"], dtype=object)[rows])
    keys, key = _key_codes([np.asarray(columns[name])[rows] for name in settings])
    is_baseline = np.asarray(columns["is_baseline"], dtype=bool)[rows]
    cell = member * len(keys) + key
    _check_rows(names, keys, member, cell, is_baseline, where)
    time, energy, n = (_floats(columns[name])[rows] for name in ("time_s", "energy_j", "n"))
    launches = _floats(columns["launches_per_iteration"])[rows]

    label = _labels(columns, rows, names, member, ties)
    separate = _separate(label, names, member, key, time, energy)
    group = _groups(label, names, separate)  # (members,) class of each member
    count, size = group.max() + 1, len(keys)
    pooled = group[member] * size + key
    total = np.bincount(pooled, weights=n, minlength=count * size)
    in_group = np.bincount(group, minlength=count)
    use = np.flatnonzero(np.bincount(pooled, minlength=count * size))  # settings that a member of the class has
    mean_time = np.bincount(pooled, weights=n * time, minlength=count * size)[use] / total[use]
    mean_energy = np.bincount(pooled, weights=n * energy, minlength=count * size)[use] / total[use]
    target = use // size
    first = np.searchsorted(target, np.arange(count))
    base_rows = np.flatnonzero(is_baseline)
    base_cell = np.zeros(count, dtype=np.intp)
    base_cell[group[member[base_rows]]] = pooled[base_rows]
    baseline = np.searchsorted(use, base_cell)
    if (baseline >= len(use)).any() or (use[np.minimum(baseline, len(use) - 1)] != base_cell).any():
        raise InputError(f"{where}: replicates have different baseline settings; choose untied")

    def pooled_error(column: str) -> np.ndarray:
        error = _floats(columns[column])[rows] if column in columns else np.full(len(rows), np.nan)
        return np.sqrt(np.bincount(pooled, weights=(n * error) ** 2, minlength=count * size)[use]) / total[use]

    least = np.full(count * size, np.inf)
    np.minimum.at(least, pooled, n)
    weight = _class_weights(weights, in_group, group, member, base_rows, launches, mean_time[baseline])
    members = tuple(tuple(names[i] for i in np.flatnonzero(group == g)) for g in range(count))
    return Problem(
        targets=tuple(names[0] for names in members),
        members=members,
        time=weight[target] * mean_time,
        energy=weight[target] * mean_energy,
        target=target,
        first=first,
        key=use % size,
        keys=keys,
        baseline=baseline,
        settings=tuple(settings),
        weights=weights,
        ties=ties,
        time_se=weight[target] * pooled_error("time_se_s"),
        energy_se=weight[target] * pooled_error("energy_se_j"),
        n=least[use],
        apart=tuple(separate),
    ).checked()


def _floats(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return values as float64, None as NaN."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(float)
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _codes(values: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """Return (names in order of first appearance, code of each value)."""
    known: dict[Any, int] = {}
    code = np.array([known.setdefault(v, len(known)) for v in values.tolist()], dtype=np.intp)
    return list(known), code


def _key_codes(columns: list[np.ndarray]) -> tuple[tuple[Any, ...], np.ndarray]:
    """Return (keys, code of each row): keys are tuples of numbers or words, None for null or NaN (auto)."""
    code = np.zeros(len(columns[0]), dtype=np.intp)
    known = []
    for column in columns:
        column = np.asarray(column)
        if column.dtype == object and any(isinstance(value, str) for value in column):
            values, codes = _codes(column)
        else:
            numbers, codes = np.unique(_floats(column), return_inverse=True)  # NaN counts as one value
            values = [None if np.isnan(number) else float(number) for number in numbers]
        known.append((values, codes))
        _, code = np.unique(code * len(values) + codes, return_inverse=True)
    _, example = np.unique(code, return_index=True)
    return tuple(tuple(values[codes[i]] for values, codes in known) for i in example), code


def _check_rows(
    names: list[str], keys: tuple[Any, ...], member: np.ndarray, cell: np.ndarray, is_baseline: np.ndarray, where: str
) -> None:
    """One row per target and key, one baseline per target; raises InputError otherwise."""
    count = np.bincount(cell)
    if count.max() > 1:
        repeated = int(count.argmax())
        raise InputError(
            f"{where}: {count[repeated]} rows of target {names[repeated // len(keys)]} at"
            f" {keys[repeated % len(keys)]}; pool records of the same setting first"
        )
    baselines = np.bincount(member[is_baseline], minlength=len(names))
    wrong = np.flatnonzero(baselines != 1)
    if len(wrong):
        raise InputError(
            f"{where}: target {names[wrong[0]]} has {baselines[wrong[0]]} usable baseline rows; it needs"
            " exactly one (auto, or the reference point of a table)"
        )


def _labels(
    columns: Mapping[str, Any], rows: np.ndarray, names: list[str], member: np.ndarray, ties: str
) -> list[str | None]:
    """Return (members,) replicate_group of each target, None where it chooses for itself."""
    label: list[str | None] = [None] * len(names)
    if ties == "tied" and "replicate_group" in columns:
        values = np.asarray(columns["replicate_group"], dtype=object)[rows]
        for i, value in zip(member.tolist(), values.tolist()):
            label[i] = value or None
    return label


def _separate(
    label: list[str | None],
    names: list[str],
    member: np.ndarray,
    key: np.ndarray,
    time: np.ndarray,
    energy: np.ndarray,
) -> list[Apart]:
    """Return the targets whose data say that they are no replicates of their group."""
    groups: dict[str, list[str]] = {}
    for name, group in zip(names, label):
        if group is not None:
            groups.setdefault(group, []).append(name)
    groups = {group: members for group, members in groups.items() if len(members) > 1}
    wanted = {name for members in groups.values() for name in members}
    times: dict[str, dict[int, float]] = {name: {} for name in wanted}
    energies: dict[str, dict[int, float]] = {name: {} for name in wanted}
    tested = np.isin(member, [i for i, name in enumerate(names) if name in wanted])
    for i, j, t, e in zip(*(values[tested].tolist() for values in (member, key, time, energy))):
        # a value that is not positive is refused later, with its place
        if t > 0 and e > 0:
            times[names[i]][j], energies[names[i]][j] = t, e
    return apart(groups, times, energies)


def _groups(label: list[str | None], names: list[str], separate: list[Apart]) -> np.ndarray:
    """Return (members,) class of each target: its own, or shared with the targets of its replicate_group."""
    alone = {target.target for target in separate}
    known: dict[Hashable, int] = {}
    return np.array(
        [
            known.setdefault((i, None) if group is None or names[i] in alone else (None, group), len(known))
            for i, group in enumerate(label)
        ],
        dtype=np.intp,
    )


def _class_weights(
    weights: str,
    in_group: np.ndarray,
    group: np.ndarray,
    member: np.ndarray,
    base_rows: np.ndarray,
    launches: np.ndarray,
    base_time: np.ndarray,
) -> np.ndarray:
    """Return (classes,) sum of the members' weights."""
    if weights == "raw":
        return in_group.astype(float)
    if weights == "equal-time":
        return in_group / base_time
    return np.bincount(group[member[base_rows]], weights=launches[base_rows], minlength=len(in_group))
