"""One operation's options as a convex curve of effective energy over time, on the grid of the flow network.

Must not know which operation it is, nor the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.dominance import lower_hull, pareto
from kernel_dvfs.pipeline.ticks import TICKS_PER_S, duration_ticks

UW_PER_W = 10**6


@dataclass(frozen=True, eq=False)
class Options:
    """The options of an operation worth a look, fastest first: time rises, effective energy falls, both strictly.

    ticks: (n,) int64. cost_j: (n,) effective energy. setting, slower: (n,) int, rows of the profile's options: an
    operation runs `share` of its kernels at `slower`, the others at `setting`; share 0 where one clock is enough.
    """

    ticks: np.ndarray
    cost_j: np.ndarray
    setting: np.ndarray
    slower: np.ndarray
    share: np.ndarray

    def pick(self, rows: np.ndarray) -> Options:
        """The options at positions `rows`."""
        return Options(*(column[rows] for column in (self.ticks, self.cost_j, self.setting, self.slower, self.share)))


@dataclass(frozen=True, eq=False)
class Curve:
    """Vertices of the lower convex hull, from the fastest option to the one of least effective energy.

    ticks: (K+1,) int64, ascending. price_uw: (K,) int64, what each segment saves per time, falling, >= 1.
    cost_j: (K+1,). vertex: (K+1,) positions in the Options it was made of.
    """

    ticks: np.ndarray
    price_uw: np.ndarray
    cost_j: np.ndarray
    vertex: np.ndarray


def options_of(time_s: np.ndarray, energy_j: np.ndarray, blocking_w: float) -> Options:
    """The undominated options of one operation by time and effective energy c = e - P_blk t."""
    ticks = duration_ticks(time_s)
    cost = energy_j - blocking_w * np.asarray(time_s)
    keep = pareto(ticks, cost, np.arange(len(ticks)))
    return Options(ticks[keep], cost[keep], keep, keep, np.zeros(len(keep)))


def curve_of(options: Options) -> Curve:
    """The hull of `options`. Prices are rounded to whole microwatts; a segment below that is left out."""
    hull = np.array(lower_hull(options.ticks, options.cost_j))
    ticks, cost = options.ticks[hull], options.cost_j[hull]
    price = np.rint((cost[:-1] - cost[1:]) / np.diff(ticks) * (TICKS_PER_S * UW_PER_W)).astype(np.int64)
    kept = 1 + int(np.count_nonzero(price >= 1))
    return Curve(ticks[:kept], price[: kept - 1], cost[:kept], hull[:kept])
