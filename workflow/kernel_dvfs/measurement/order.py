"""The order in which a real GPU measures: clock pair after clock pair, shuffled, with auto at regular places between.

A drift over hours then looks like noise instead of an effect of the clocks, auto shows the drift, and clocks change
once per pair.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_dvfs.gpu.clocks import BASELINE, Pair
from kernel_dvfs.gpu.draws import uniform
from kernel_dvfs.measurement.campaign import repeats


def points(pairs: Sequence[Pair], auto_repeats: int, seed: int) -> list[tuple[Pair, int]]:
    """[(Pair, repeat)]: every pair once, the baseline `auto_repeats` times, first and last and evenly between."""
    others = sorted((pair for pair in pairs if pair != BASELINE), key=lambda pair: uniform(seed, "order", *pair))
    count = repeats(BASELINE, auto_repeats) if BASELINE in pairs else 0
    ordered: list[tuple[Pair, int]] = []
    for place in range(max(count, 1)):
        if place < count:
            ordered.append((BASELINE, place))
        gaps = max(count - 1, 1)
        if place < gaps:
            ordered += [(pair, 0) for pair in others[place * len(others) // gaps : (place + 1) * len(others) // gaps]]
    return ordered
