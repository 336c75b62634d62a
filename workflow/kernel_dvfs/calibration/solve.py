"""Least squares where some unknowns act on all points and the others on the points of one kernel only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_array

from kernel_dvfs.calibration.constants import Constant, values, with_values

if TYPE_CHECKING:
    from kernel_dvfs.calibration.points import Point
    from kernel_dvfs.gpu.kernel import Kernel

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
    calibration.constants). starts: where x may start; each kernel takes the best.
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
