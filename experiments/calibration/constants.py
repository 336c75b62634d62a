"""The constants of a GPU that a fit may move, and a spec with them moved.

A constant is a list of places in the spec: what the spec gives one value moves together (e.g. the DRAM energy
scale of two memory clocks). What only sets a unit stays: bandwidth and DRAM energy at the reference memory
clock, the floor of the voltage.

`solve` fits constants, which act on all points, together with the unknowns of each kernel, which act on its own only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_array

from experiments.calibration.points import Point
from kernel_dvfs.gpu.kernel import Kernel

Place = tuple[str | int, ...]  # keys and indices that lead to a value in a spec
Constant = Sequence[Place]  # the places that share the value

_MOVED = ("clocks", "memory", "core", "governor")


def time_constants(spec: dict[str, Any], mem_mhz: set[int]) -> list[Constant]:
    """The constants of time: effective core clocks, and bandwidth at each memory clock in `mem_mhz`."""
    clocks: list[Place] = [
        ("clocks", "effective_core_mhz", mhz) for mhz in spec["clocks"].get("effective_core_mhz", {})
    ]
    return [[place] for place in clocks + _by_memory("eta", mem_mhz - {spec["memory"]["reference_mhz"]})]


def power_constants(spec: dict[str, Any], mem_mhz: set[int]) -> list[Constant]:
    """The constants of power except voltage: static power and DRAM energy scale at `mem_mhz`, clock tree."""
    reference = ("memory", "dram_energy_scale", str(spec["memory"]["reference_mhz"]))
    scales: dict[float, list[Place]] = {}
    for place in _by_memory("dram_energy_scale", mem_mhz):
        scales.setdefault(read(spec, place), []).append(place)
    scales.pop(read(spec, reference), None)
    static: list[Constant] = [[place] for place in _by_memory("static_w", mem_mhz)]
    return [*static, [("core", "clock_w_per_ghz")], *scales.values()]


def voltages(spec: dict[str, Any]) -> list[Constant]:
    """Every point of the voltage curve, the floor first; without the last where that is the top (top.py)."""
    count = len(spec["core"]["v_over_v0"]) - ("top" in spec["clocks"])
    return [[("core", "v_over_v0", number, 1)] for number in range(count)]


def _by_memory(table: str, mem_mhz: Iterable[int]) -> list[Place]:
    return [("memory", table, str(mhz)) for mhz in sorted(mem_mhz)]


def read(spec: dict[str, Any], place: Iterable[str | int]) -> Any:
    """The value at a place of the spec."""
    node: Any = spec
    for step in place:
        node = node[step]
    return node


def values(spec: dict[str, Any], constants: Iterable[Constant]) -> list[float]:
    """The value of each constant."""
    return [float(read(spec, places[0])) for places in constants]


def with_values(spec: dict[str, Any], constants: Sequence[Constant], new: Iterable[float]) -> dict[str, Any]:
    """A copy of the spec with each constant at its new value."""
    spec = spec | {group: copy.deepcopy(spec[group]) for group in _MOVED}
    for places, value in zip(constants, new, strict=True):
        for *way, last in places:
            read(spec, way)[last] = float(value)
    return spec


def label(spec: dict[str, Any], constant: Constant) -> str:
    """A constant in words: `memory.static_w 405`, `core.v_over_v0 1470`."""
    group, table, *key = constant[0]
    if table == "v_over_v0":
        key = [spec["core"]["v_over_v0"][key[0]][0]]
    others = [place[-1] for place in constant[1:]]
    return " ".join([f"{group}.{table}", *map(str, [*key, *others])])


Spec = dict[str, Any]
Unknowns = dict[int, np.ndarray]  # {index of a kernel: its unknowns, about 1}

_STEP = 1e-6  # of finite differences: all unknowns are scaled to about 1
_TOLERANCE = 1e-8  # relative change of cost or unknowns at which a fit ends


def solve(
    points: Sequence[Point],
    measured: Sequence[float],
    predict: Callable[[Spec, Kernel, Point], float],
    kernel: Callable[[int, np.ndarray], Kernel],
    spec: Spec,
    constants: Sequence[Constant],
    starts: Iterable[Sequence[float]],
) -> tuple[Spec, list[Kernel]]:
    """Minimise the squares of predict / measured - 1; all unknowns stay >= 0.

    points, measured: list of Point and what was measured there. predict(spec, kernel, point): the model's.
    kernel(number, x): the Kernel of that index with unknowns x (array, about 1). constants: to fit too (see
    Constant). starts: where x may start; each kernel takes the best.
    Returns (spec with the constants fitted, list of Kernel).
    """
    rows: dict[int, list[int]] = {number: [] for number in sorted({point.kernel for point in points})}
    for row, point in enumerate(points):
        rows[point.kernel].append(row)
    seen = np.array(measured)

    def fit(used: Sequence[int], constants: Sequence[Constant], start: Unknowns) -> tuple[Spec, Unknowns, float]:
        chosen = [points[row] for row in used]
        return _least_squares(chosen, seen[used], predict, kernel, spec, constants, start)

    own: Unknowns = {}
    for number, used in rows.items():
        tries = [fit(used, [], {number: np.array(start)}) for start in starts]
        own |= min(tries, key=lambda one: one[2])[1]
    if constants:
        spec, own, _ = fit(range(len(points)), constants, own)
    return spec, [kernel(number, x) for number, x in own.items()]


def _least_squares(
    points: Sequence[Point],
    measured: np.ndarray,
    predict: Callable[[Spec, Kernel, Point], float],
    kernel: Callable[[int, np.ndarray], Kernel],
    spec: Spec,
    constants: Sequence[Constant],
    own: Unknowns,
) -> tuple[Spec, Unknowns, float]:
    """(spec, own, cost): the best constants, and unknowns {kernel: array} by kernel, from the given start."""
    numbers, first = list(own), np.array(values(spec, constants))
    count, width = len(first), len(own[numbers[0]])
    place = {number: index for index, number in enumerate(numbers)}
    owner = np.array([place[point.kernel] for point in points])

    def unpack(x: np.ndarray) -> tuple[Spec, Unknowns]:
        moved = with_values(spec, constants, x[:count] * first) if constants else spec
        return moved, dict(zip(numbers, x[count:].reshape(-1, width), strict=True))

    def residual(x: np.ndarray) -> np.ndarray:
        moved, own = unpack(x)
        kernels = {number: kernel(number, own[number]) for number in numbers}
        return np.array([predict(moved, kernels[point.kernel], point) for point in points]) / measured - 1

    def jacobian(x: np.ndarray) -> Any:
        base = residual(x)

        def slope(unknowns: int | slice) -> np.ndarray:
            moved = x.copy()
            moved[unknowns] += _STEP
            return (residual(moved) - base) / _STEP

        of_constants = [slope(unknown) for unknown in range(count)]
        # no point belongs to two kernels, so the unknowns of all kernels move at once
        of_kernels = [slope(slice(count + unknown, None, width)) for unknown in range(width)]
        slopes = np.concatenate([*of_constants, *of_kernels])
        row = np.tile(np.arange(len(points)), count + width)
        own_columns = [count + owner * width + unknown for unknown in range(width)]
        column = np.concatenate([np.repeat(np.arange(count), len(points)), *own_columns])
        sparse = csr_array((slopes, (row, column)), shape=(len(points), len(x)))
        return sparse if constants else sparse.toarray()

    start = np.concatenate([np.ones(count), *own.values()])
    result = least_squares(residual, start, jacobian, bounds=(0, np.inf), ftol=_TOLERANCE, xtol=_TOLERANCE)
    return *unpack(result.x), result.cost
