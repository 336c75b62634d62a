"""The published algorithm's view of one operation: options on a grid of unit times, and an exponential through them.

As lowtime 0.3.0 and the SOSP 2024 artifact do it; the default algorithm (curve.py) needs neither grid nor fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from kernel_dvfs.errors import InputError

FILTERS = ("raw", "effective")
# options that survive must number more than this, or the filter is repeated with a tolerance
_FEW, _TOLERANCE = 3, 0.95


@dataclass(frozen=True, eq=False)
class UnitCurve:
    """units: (n,) int unit times of the options kept, falling; cost_j: (n,); setting: (n,) rows of the profile.

    at_unit: {unit time: cost in J} of the fitted exponential, for every unit time from the fastest to the slowest.
    """

    units: np.ndarray
    cost_j: np.ndarray
    setting: np.ndarray
    at_unit: dict

    @property
    def fastest(self) -> int:
        return int(self.units[-1])

    @property
    def slowest(self) -> int:
        return int(self.units[0])

    def setting_at(self, units: int) -> int:
        """The slowest option that takes at most `units` by its floored time, else the fastest."""
        fits = np.flatnonzero(self.units <= units)
        return int(self.setting[fits[0] if len(fits) else -1])


def unit_curve(time_s, energy_j, blocking_w: float, unit_s: float = 0.001, filter_on: str = "raw") -> UnitCurve:
    """Filter, floor to units of `unit_s`, subtract the blocking energy, fit.

    filter_on: "raw" drops by energy, then subtracts (the artifact); "effective" subtracts first (Zeus's later code).
    Raises InputError where a floored time is zero.
    """
    time_s, energy_j = np.asarray(time_s, float), np.asarray(energy_j, float)
    units = np.floor_divide(time_s, unit_s).astype(np.int64)
    if units.min() < 1:
        raise InputError(
            f"published algorithm: an option takes less than the unit time {unit_s:g} s; lower unit_time_s"
        )
    waiting = blocking_w * units * unit_s
    compared = energy_j if filter_on == "raw" else energy_j - waiting
    kept = _undominated(time_s, compared, 1.0)
    if len(kept) <= _FEW:
        kept = _undominated(time_s, compared, _TOLERANCE)
    dearest = {}
    for option in kept.tolist():
        other = dearest.get(units[option])
        if other is None or compared[option] > compared[other]:
            dearest[units[option]] = option
    rows = np.array([dearest[unit] for unit in sorted(dearest, reverse=True)])
    own, cost = units[rows], (energy_j - waiting)[rows]
    grid = np.arange(own[-1], own[0] + 1)
    fitted = _exponential(own, cost)(grid) if len(own) > 1 else cost
    return UnitCurve(own, cost, rows, dict(zip(grid.tolist(), np.asarray(fitted).tolist())))


def _undominated(time, cost, factor: float) -> np.ndarray:
    """Options for which no other is faster and cheaper, both by `factor`."""
    worse = (time[None, :] < factor * time[:, None]) & (cost[None, :] < factor * cost[:, None])
    return np.flatnonzero(~worse.any(axis=1))


def _exponential(units: np.ndarray, cost: np.ndarray):
    """c(q) = a exp(b q) + k of least squares with a >= 0. For a fixed b it is linear in a and k."""
    q = (units - units.min()) / (units.max() - units.min())

    def linear(b):
        shape = np.exp(b * q - max(b, 0.0))
        centred = shape - shape.mean()
        a = max(float(centred @ cost / (centred @ centred)), 0.0)
        k = float((cost - a * shape).mean())
        return a, k, float(((a * shape + k - cost) ** 2).sum())

    def residual(log_b, sign):
        return linear(sign * np.exp(log_b))[2]

    coarse = np.linspace(np.log(1e-3), np.log(60), 120)
    found = []
    for sign in (-1, 1):
        best = coarse[int(np.argmin([residual(log_b, sign) for log_b in coarse]))]
        step = coarse[1] - coarse[0]
        bounds = (best - step, best + step)
        fine = minimize_scalar(residual, bounds=bounds, args=(sign,), method="bounded", options={"xatol": 1e-11})
        found.append((fine.fun, sign * float(np.exp(fine.x))))
    b = min(found)[1]
    a, k, _ = linear(b)
    low, span = units.min(), units.max() - units.min()
    return lambda at: a * np.exp(b * (at - low) / span - max(b, 0.0)) + k
