"""What one operation may take: its options in time and effective energy, their convex curve, and splits between two.

Time is on a grid of picoseconds: sums are exact in any order, so a plan that keeps its promise keeps it exactly.
Durations are rounded up: what is measured is never longer than what is planned with. float64 holds up to 9,000 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernel_dvfs.choice.dominance import lower_hull, pareto

TICKS_PER_S = 10**12
UW_PER_W = 10**6
# a measured duration may be longer than its ticks by this share: one rounding of float64
_ROUNDING = 4e-16


def duration_ticks(seconds: ArrayLike) -> np.ndarray:
    """Return durations (s, any shape) as int64 ticks, rounded up."""
    ticks = np.asarray(seconds, float) * TICKS_PER_S
    return np.ceil(ticks * (1 - _ROUNDING)).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class OperationOptions:
    """The undominated options of an operation, fastest first: time rises, effective energy falls, both strictly.

    An operation runs `share` of its kernels at `slower`, the others at `setting`.
    """

    ticks: np.ndarray  # (n,) int64
    cost_j: np.ndarray  # (n,) effective energy
    setting: np.ndarray  # (n,) int, rows of the profile's settings
    slower: np.ndarray  # (n,) int, likewise
    share: np.ndarray  # (n,) 0 where one clock is enough

    def pick(self, rows: np.ndarray) -> OperationOptions:
        """Return the options at positions `rows`."""
        return OperationOptions(
            *(column[rows] for column in (self.ticks, self.cost_j, self.setting, self.slower, self.share))
        )


@dataclass(frozen=True, slots=True, eq=False)
class TradeOffCurve:
    """Vertices of the lower convex hull, from the fastest option to the one of least effective energy."""

    ticks: np.ndarray  # (K+1,) int64, rising
    price_uw: np.ndarray  # (K,) int64, what each segment saves per time, falling, >= 1
    cost_j: np.ndarray  # (K+1,)
    vertex: np.ndarray  # (K+1,) positions in the OperationOptions that it was made of


def options_of(time_s: np.ndarray, energy_j: np.ndarray, blocking_w: float) -> OperationOptions:
    """Return the undominated options of one operation by time and effective energy c = e - P_blk t."""
    ticks = duration_ticks(time_s)
    cost = energy_j - blocking_w * np.asarray(time_s)
    keep = pareto(ticks, cost, np.arange(len(ticks)))
    return OperationOptions(ticks[keep], cost[keep], keep, keep, np.zeros(len(keep)))


def curve_of(options: OperationOptions) -> TradeOffCurve:
    """Return the hull of `options`. Prices are rounded to whole microwatts; a segment below that is left out."""
    hull = np.array(lower_hull(options.ticks, options.cost_j))
    ticks, cost = options.ticks[hull], options.cost_j[hull]
    price = (cost[:-1] - cost[1:]) / np.diff(ticks) * (TICKS_PER_S * UW_PER_W)
    # what does not fit stays too dear for the search, which refuses it, and does not wrap around
    price = np.rint(np.minimum(price, 2.0**62)).astype(np.int64)
    vertices = 1 + int(np.count_nonzero(price >= 1))
    return TradeOffCurve(ticks[:vertices], price[: vertices - 1], cost[:vertices], hull[:vertices])


def split_options(options: OperationOptions, curve: TradeOffCurve, kernels: int) -> OperationOptions:
    """Return `options`, and those that change clocks once, at one of `kernels` - 1 boundaries: undominated, rising.

    An operation of n equal kernels runs the first of them at one clock and the rest at the next on the hull. The time
    is rounded to the slow side, so what is planned is never shorter than what is run. curve: the hull of `options`.
    What a change costs is counted where plans are run (slow_changes.py).
    """
    if len(curve.ticks) < 2 or kernels < 2:
        return options
    share = np.arange(1, kernels) / kernels
    fast, slow = curve.vertex[:-1], curve.vertex[1:]

    def between(values: np.ndarray) -> np.ndarray:
        return (values[fast][:, None] + np.diff(values[curve.vertex])[:, None] * share).ravel()

    ticks = np.ceil(between(options.ticks)).astype(np.int64)
    cost = between(options.cost_j)
    candidates = OperationOptions(
        np.concatenate([options.ticks, ticks]),
        np.concatenate([options.cost_j, cost]),
        np.concatenate([options.setting, np.repeat(options.setting[fast], len(share))]),
        np.concatenate([options.slower, np.repeat(options.setting[slow], len(share))]),
        np.concatenate([options.share, np.tile(share, len(fast))]),
    )
    return candidates.pick(pareto(candidates.ticks, candidates.cost_j, candidates.share))
