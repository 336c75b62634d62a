"""Measured points as the model sees them: clocks asked for and reached, time, energy, capped or not.

Reads through profile.table, so units, pooling of repeats and malformed tables are dealt with there.

A kernel's class says what holds it back when nothing is locked, so that the model's savings can be compared with real
ones class by class. It follows from the mean power of the kernel's auto row, and from how its fitted model splits time
and power at auto clocks: no row that a choice could take instead of auto decides by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.model import launch_time_s
from kernel_dvfs.profile.table import import_table
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Clock, Pair, check
from kernel_dvfs_clocks.errors import InputError

# What the specimen of a public data set has of its own by its fit, where the spec is that of another board of the type.
# The exponent of the model is physics, and so the type's.
_SPECIMENS = {
    "rtx_3080_ti": {
        "energy_pj": {"dram_byte": 92},
        "clocks": {"auto_core_mhz": 1958, "top": {"above_auto_mhz": 4, "mhz_per_w": 0.30, "above_w": 162}},
        "core": {"v_over_v0": [[1050, 1.0], [1470, 1.041], [1760, 1.402], [1890, 1.541], [1962, 1.723]]},
        "memory": {"static_w": {"405": 30.3, "810": 31.1, "5001": 64.6, "9251": 89.1, "9501": 89.8}},
        "governor": {"cap_w": 340, "hunting_mhz": 60, "auto_extra_power": 0.022},
    }
}


def measured_board(gpu: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """The spec of a simulated GPU as the very board of the data set that it was fitted to. overrides: as gpu.spec has
    them. Raises InputError for an unknown GPU."""
    return specs.resolve(gpu, specs.merge(_SPECIMENS.get(gpu, {}), overrides or {}))


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel at one requested pair of clocks, repeats pooled."""

    kernel: int  # its index in Points.kernels
    pair: Pair  # requested
    time_s: float  # per launch
    energy_j: float  # per launch
    core_mhz: float | None = None  # clock that it ran at, where something else than the model tells it


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a table."""

    kernels: list[str]  # names
    below: list[Point]  # clocks locked, mean power clear of the cap
    capped: list[Point]  # locked, but so close to the cap that the clock may be below the label
    auto: list[Point]  # not locked
    auto_below: list[Point]  # those of them whose mean power is clear of the cap


def of_kernels(points: Points, kept: Sequence[int]) -> Points:
    """The points of some kernels (indices in Points.kernels) alone, renumbered in the order of `kept`."""
    place = {number: index for index, number in enumerate(kept)}

    def own(some: list[Point]) -> list[Point]:
        return [replace(point, kernel=place[point.kernel]) for point in some if point.kernel in place]

    groups = (points.below, points.capped, points.auto, points.auto_below)
    return Points([points.kernels[number] for number in kept], *map(own, groups))


_CAP_SPREAD_W = 15  # power-capped runs of a board spread by about 6 W (sd) around its cap


def clear_of_cap_w(spec: dict[str, Any]) -> float:
    """Mean power below which a run with locked clocks surely ran at them, W."""
    return spec["governor"]["cap_w"] - _CAP_SPREAD_W


def power_w(point: Point) -> float:
    """Mean board power of a point, W."""
    return point.energy_j / point.time_s


def read_points(path: str | PathLike[str], spec: dict[str, Any], below_w: float) -> Points:
    """The points of a measured table (see profile.table.import_table) for the GPU of `spec`.

    below_w: mean power from which a locked point counts as capped, W (see clear_of_cap_w).
    Raises InputError: a malformed table, a clock the GPU lacks, a kernel without locked points below the cap.
    """
    columns = import_table(path).columns
    names = list(dict.fromkeys(columns["target"]))
    index = {name: number for number, name in enumerate(names)}
    points = Points(names, [], [], [], [])
    wanted = ("target", "core_mhz", "mem_mhz", "time_s", "energy_j")
    rows = zip(*(columns[column] for column in wanted), strict=True)
    for name, core, mem, time_s, energy_j in rows:
        pair = Pair(_clock(core), _clock(mem))
        check(spec["clocks"], pair, f"{path}, fitted as {spec['name']}")
        point = Point(index[name], pair, time_s, energy_j)
        if pair.core_mhz == AUTO:
            points.auto.append(point)
            if power_w(point) < below_w:
                points.auto_below.append(point)
        elif power_w(point) < below_w:
            points.below.append(point)
        else:
            points.capped.append(point)
    lost = set(range(len(names))) - {point.kernel for point in points.below}
    if lost:
        raise InputError(f"{path}: kernel {names[min(lost)]} has no locked point below {below_w:g} W to fit")
    return points


def _clock(mhz: float | None) -> Clock:
    return AUTO if mhz is None else round(mhz)


STREAMING, DEEPLY_CAPPED, NEAR_CAP, CORE_BOUND, LATENCY_BOUND = CLASSES = (
    "streaming",
    "deeply capped",
    "near the cap",
    "core-bound, cool",
    "latency-bound",
)
_DEEP = 1.2  # power that a kernel would draw at auto without a cap, relative to the cap
_NEAR = 0.9  # its mean power at auto, relative to the cap
_BOUND = 0.5  # share of a change of the clock that a launch follows
_STEP = 1.01


def class_of(spec: dict[str, Any], kernel: Kernel, auto_power_w: float) -> str:
    """The class of a kernel; auto_power_w: the mean power of its auto row.

    Deeply capped: without the cap it would draw far more. Streaming: time follows the memory clock. Near the cap: by
    the power of its auto row. What is left is cool, and core-bound where time follows the core clock.
    """
    cap_w, warm_c = spec["governor"]["cap_w"], spec["thermal"]["reference_c"]
    free = spec | {"governor": spec["governor"] | {"cap_w": 10 * cap_w}}
    if settle(free, [(kernel, 1)], BASELINE, warm_c).power_w > _DEEP * cap_w:
        return DEEPLY_CAPPED
    ghz = spec["clocks"]["auto_core_mhz"] / 1000
    time_s = launch_time_s(kernel, ghz, 1.0)
    by_core, by_memory = (
        (slower / time_s - 1) / (_STEP - 1)
        for slower in (launch_time_s(kernel, ghz / _STEP, 1.0), launch_time_s(kernel, ghz, 1 / _STEP))
    )
    if by_memory >= _BOUND:
        return STREAMING
    if auto_power_w >= _NEAR * cap_w:
        return NEAR_CAP
    return CORE_BOUND if by_core >= _BOUND else LATENCY_BOUND
