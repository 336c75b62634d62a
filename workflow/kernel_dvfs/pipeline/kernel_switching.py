"""Clocks per kernel when every change within an operation takes time.

For a price x of time the best clocks of a sequence of launches minimise sum(c + x t) + x latency (changes): one pass of
dynamic programming (Viterbi) over the launches. All prices together give the operation's options. A change stops the
stage at the blocking power (as in switching.py), so it costs time and no effective energy. Changes from one operation
to the next are not counted here.
"""

from __future__ import annotations

import math

import numpy as np

from kernel_dvfs.choice.dominance import lower_hull, pareto
from kernel_dvfs.pipeline.stage_profile import Settings, StageProfile
from kernel_dvfs.pipeline.stages_from_kernels import Kernels, launches
from kernel_dvfs.workload.passes import launch_order

# prices of time that are tried per operation: as many, at even ranks among those of its kernels' hulls
_PRICES = 40


def switched_kernel_level(kernels: Kernels, stages: int, blocking_w: float, latency_s: float) -> StageProfile:
    """A pair of clocks per launch, changes taking `latency_s`; options with one pair for all launches among them."""
    made, clocks = {}, {}
    for key, own in launches(kernels, stages).items():
        names = launch_order(own)
        time_s = np.array([kernels.time_s[name] for name in names])
        cost = np.array([kernels.energy_j[name] for name in names]) - blocking_w * time_s
        rows = np.arange(len(names))
        choices = {(pair,) * len(names) for pair in range(len(kernels.pairs))}
        choices |= {tuple(cheapest(cost + x * time_s, x * latency_s)) for x in _prices(time_s, cost)}
        ordered = np.array(sorted(choices))
        changes = np.count_nonzero(np.diff(ordered, axis=1), axis=1)
        taken_s = np.array([time_s[rows, choice].sum() for choice in ordered]) + latency_s * changes
        spent = np.array([cost[rows, choice].sum() for choice in ordered])
        nothing = np.full(len(ordered), math.nan)
        made[key] = Settings(nothing, nothing, taken_s, spent + blocking_w * taken_s, [kernels.source] * len(ordered))
        clocks[key] = _LaunchClocks(kernels.pairs, names, ordered)
    return StageProfile(made, f"{kernels.source}, {stages} stages, kernel level, changes take {latency_s:g} s", clocks)


def _prices(time_s: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Prices of time (W) among those of all segments of the launches' hulls; none where no launch has a choice."""
    found = []
    for own_t, own_c in zip(time_s, cost):
        keep = pareto(own_t, own_c, np.arange(len(own_t)))
        hull = keep[lower_hull(own_t[keep], own_c[keep])]
        found.append(-np.diff(own_c[hull]) / np.diff(own_t[hull]))
    prices = np.concatenate(found)
    return np.quantile(prices, np.linspace(0, 1, _PRICES)) if len(prices) else prices


def cheapest(weight: np.ndarray, change: float) -> np.ndarray:
    """(launches,) the clocks of least sum of weight (launches, pairs) and `change` for each change of clocks."""
    count, pairs = weight.shape
    stay = np.arange(pairs)
    before = np.empty((count, pairs), np.int64)
    best = weight[0].copy()
    for launch in range(1, count):
        leader = int(best.argmin())
        moved = best[leader] + change
        before[launch] = np.where(best <= moved, stay, leader)
        best = np.minimum(best, moved) + weight[launch]
    choice = np.empty(count, np.int64)
    choice[-1] = best.argmin()
    for launch in range(count - 1, 0, -1):
        choice[launch - 1] = before[launch, choice[launch]]
    return choice


class _LaunchClocks:
    """Clocks of each launch at an option."""

    def __init__(self, pairs: list, names: list, choices: np.ndarray):
        self.pairs, self.names, self.choices = pairs, names, choices

    def at(self, option: int) -> dict:
        """{"<place>:<kernel id>": (core, memory)}, MHz, None = auto; only where the clocks change."""
        made, now = {}, None
        for place, (name, pair) in enumerate(zip(self.names, self.choices[option].tolist())):
            if pair != now:
                made[f"{place}:{name}"] = tuple(None if math.isnan(mhz) else mhz for mhz in self.pairs[pair])
                now = pair
        return made
