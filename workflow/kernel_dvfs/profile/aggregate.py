"""Aggregate measured points into a profile: one row per target and pair, repeats weighted alike, in s and J.

A row also says how far its pooled mean may be off. Repeats of one session share its conditions, so averaging them does
not remove what is particular to it; only repeats of other sessions show it. `standard_errors` counts both. A session is
one measuring process of a real GPU, one campaign of a simulated one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kernel_dvfs.measurement.campaign import Bench, of_repeat
from kernel_dvfs.measurement.request import merged, sweep
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.verdict import UNUSABLE
from kernel_dvfs.profile.records import PooledPoint, Records, changed, point_of
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.workload.workload import study_of
from kernel_dvfs_clocks.clocks import BASELINE, Pair, key_of
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import ArrayLike

    from kernel_dvfs.measurement.point import Quantity
    from kernel_dvfs.measurement.request import PointRequest
    from kernel_dvfs.measurement.setup import Setup

    # (target) -> (pair, repeat) -> its point; None where it was left out
    Points: TypeAlias = Callable[[MeasurementTarget], Callable[[Pair, int], PooledPoint | None]]
    # of one row of a profile: ((study, target), [(session, point)])
    Group: TypeAlias = tuple[tuple[str, str], list[tuple[str, PooledPoint]]]


def from_records(
    setup: Setup,
    folder: str,
    requests: Sequence[PointRequest],
    auto_repeats: int,
    output: str,
    published: str = "",
) -> None:
    """Write to `output` the profile of the records under `folder` (kernel/ and pass/) that `requests` name.

    published: where the profile of their first measurements goes; "": nowhere. output: "": nowhere. Raises InputError
    naming a bad record.
    """
    records = Records(setup, folder)
    if output:
        _write(setup, columns(setup, requests, auto_repeats, records.points), output)
    if published:
        _write(setup, columns(setup, requests, auto_repeats, records.points, is_first=True), published)


def from_visits(setup: Setup, folder: str, read: Mapping[str, str], rows: dict[str, list[Any]], output: str) -> None:
    """Write to `output` the profile of what a study by clock visited. folder: of its records. read: {path below it:
    SHA-256} of those that it read. rows: {column: values}. Raises InputError where one is gone or has changed since."""
    if gone := changed(folder, read):
        raise InputError(
            f"record {folder}/{gone[0]}: is gone or was changed since the study by clock read it; run snakemake again, "
            "which makes both again"
        )
    _write(setup, rows, output)


def from_bench(
    setup: Setup, pairs: Sequence[Pair], auto_repeats: int, output: str, studies: Sequence[str] = ("kernel", "pass")
) -> None:
    """Write to `output` the profile of a sweep measured in this process, as if from records of the same setup."""

    def points(target: MeasurementTarget) -> Callable[[Pair, int], PooledPoint | None]:
        bench = Bench(setup, target)
        return lambda pair, repeat: point_of(bench.point(pair, of_repeat(pair, repeat, auto_repeats), repeat))

    _write(setup, columns(setup, sweep(setup, pairs, auto_repeats, studies), auto_repeats, points), output)


def columns(
    setup: Setup, requests: Sequence[PointRequest], auto_repeats: int, points: Points, is_first: bool = False
) -> dict[str, list[Any]]:
    """Return {column: values} of a profile: one row per target and pair, in the order of the setup's targets and the
    requests.

    points(target)(pair, repeat): the point, as in a record; None where it was left out. is_first: of the repeats of a
    point, only the first usable one counts.
    """
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    groups: list[Group] = []
    asked = merged(requests)
    for study in setup.targets:
        for name, about in setup.targets[study].items():
            if (study, name) not in asked:
                continue
            about = about if study == "kernel" else {"launches_per_iteration": 1, "replicate_group": None}
            point = points(MeasurementTarget(study, name))
            for pair, repeats in asked[study, name].items():
                pooled = {repeat: point(pair, repeat) for repeat in repeats}
                measured = usable(
                    [
                        (record["session"] or of_repeat(pair, repeat, auto_repeats), record)
                        for repeat, record in pooled.items()
                        if record is not None
                    ]
                )
                if not measured:
                    continue
                if is_first:
                    measured = measured[:1]
                groups.append(((study, name), measured))
                row = _row(pair, [record for _, record in measured]) | {
                    "study": study_of(setup.workload, study, name),
                    "target": name,
                    "launches_per_iteration": about["launches_per_iteration"],
                    "replicate_group": about["replicate_group"],
                }
                for column, values in row.items():
                    rows[column].append(values)
    rows["time_se_s"] = _errors(groups, "time_us", 1e-6)
    rows["energy_se_j"] = _errors(groups, "energy_mj", 1e-3)
    return rows


def usable(measured: list[tuple[str, PooledPoint]]) -> list[tuple[str, PooledPoint]]:
    """Return the measurements without repeats that say nothing, unless there are no others: then the row's verdict says
    so."""
    return [repeat for repeat in measured if repeat[1]["verdict"] not in UNUSABLE] or measured


def _errors(groups: list[Group], field: Quantity, unit: float) -> list[float | None]:
    """Return standard errors of the rows' means, None where they are unknown."""
    if not groups:
        return []
    places: dict[tuple[str, str], int] = {}
    target: list[int] = []
    cell: list[int] = []
    n: list[int] = []
    mean: list[float] = []
    squares: list[float] = []
    for number, (name, measured) in enumerate(groups):
        by_session: dict[str, list[float]] = {}
        for session, point in measured:
            by_session.setdefault(session, []).append(point["summary"][field] * unit)
        for values in by_session.values():
            target.append(places.setdefault(name, len(places)))
            cell.append(number)
            n.append(len(values))
            mean.append(_average(values))
            squares.append(math.fsum((value - mean[-1]) ** 2 for value in values))
    errors = standard_errors(target, cell, n, mean, squares)
    return [None if math.isnan(error) else error for error in errors.tolist()]


def _write(setup: Setup, rows: dict[str, list[Any]], output: str) -> None:
    keys: tuple[str, ...] = ("kind", "name", "slug", "forecast", "power_modelled")
    gpu = {key: setup.gpu[key] for key in keys if key in setup.gpu}
    workload = setup.workload | {"setup": setup.digest, "kernels": _labels(setup.targets["kernel"])}
    write_profile(output, rows, gpu, workload, ["core_mhz", "mem_mhz"])


# what a setup knows of a kernel that only who measures it and who pools it ask for
_OF_MEASURING = ("work", "launches_per_iteration", "replicate_group")


def _labels(kernels: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what a report knows of each kernel."""
    return {
        name: {key: value for key, value in about.items() if key not in _OF_MEASURING}
        for name, about in kernels.items()
    }


def _row(pair: Pair, records: list[PooledPoint]) -> dict[str, Any]:
    core_mhz, mem_mhz = key_of(pair)
    mean = partial(_mean, records)
    odd = [record["verdict"] for record in records if record["verdict"] != "ok"]
    return {
        "core_mhz": core_mhz,
        "mem_mhz": mem_mhz,
        "reached_core_mhz": _average([record["reached"]["core_mhz"] for record in records]),
        "reached_mem_mhz": _average([record["reached"]["mem_mhz"] for record in records]),
        "time_s": mean("time_us") * 1e-6,
        "time_sd_s": _scale(_sd(records, "time_us", "time_sd_us"), 1e-6),
        "energy_j": mean("energy_mj") * 1e-3,
        "energy_sd_j": _scale(_sd(records, "energy_mj", "energy_sd_mj"), 1e-3),
        "n": len(records),
        "verdict": odd[0] if odd else "ok",
        "is_baseline": pair == BASELINE,
    }


def _mean(records: list[PooledPoint], field: Quantity) -> float:
    return _average([record["summary"][field] for record in records])


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sd(records: list[PooledPoint], field: Quantity, within: Literal["time_sd_us", "energy_sd_mj"]) -> float | None:
    """Return the scatter between records where there are several, else the standard error over the windows of the
    one."""
    values = [record["summary"][field] for record in records]
    if len(values) > 1:
        mean = _average(values)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    summary = records[0]["summary"]
    sd = summary[within]
    return None if sd is None else sd / math.sqrt(summary["n"])


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def standard_errors(
    target: ArrayLike, cell: ArrayLike, n: ArrayLike, mean: ArrayLike, squares: ArrayLike
) -> np.ndarray:
    """Return (cells,) standard error of each cell's mean, in the unit of `mean`; NaN where it is unknown.

    A cell is a target at a clock pair; each entry of the (G,) arrays is what one session measured of a cell: target,
    cell: indices; n: measurements; mean; squares: sum of (measurement - mean)^2. A cell's mean is weighted by n.

    Relative variances are pooled per target: `within` from sessions with several measurements, `between` by the
    method of moments (DerSimonian and Laird 1986, with weights n) from cells that several sessions measured:
    E sum_c n_c (m_c - m)^2 = (C - 1) within + (N - sum_c n_c^2 / N) between.
    """
    target, cell = np.asarray(target), np.asarray(cell)
    n, mean, squares = (np.asarray(values, dtype=float) for values in (n, mean, squares))
    cells, targets = cell.max() + 1, target.max() + 1
    total = np.bincount(cell, n, cells)
    centre = np.bincount(cell, n * mean, cells) / total
    owner = np.zeros(cells, dtype=np.intp)
    owner[cell] = target
    scale = centre[cell]

    freedom = np.bincount(target, n - 1, targets)
    within = _ratio(np.bincount(target, squares / scale**2, targets), freedom)
    sessions = np.bincount(cell, minlength=cells)
    concentration = np.bincount(cell, n**2, cells) / total
    scatter = np.bincount(target, n * (mean / scale - 1) ** 2, targets)
    chances = np.bincount(owner, sessions - 1, targets)
    spread = np.bincount(owner, total - concentration, targets)
    between = np.maximum(_ratio(scatter - chances * np.nan_to_num(within), spread), 0)
    variance = np.nan_to_num(between)[owner] * concentration / total + np.nan_to_num(within)[owner] / total
    known = (freedom > 0) | (chances > 0)
    return np.where(known[owner], centre * np.sqrt(variance), np.nan)


def _ratio(value: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.divide(value, by, out=np.full(len(value), np.nan), where=by > 0)
