"""In which order a real GPU measures: one clock pair after the other, shuffled, auto at regular places between them.

A drift over hours then looks like noise instead of an effect of the clocks, auto shows the drift, and clocks change
once a pair.
"""

from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.draws import uniform
from kernel_dvfs.measurement.campaign import repeats


def points(pairs: list, auto_repeats: int, seed: int) -> list:
    """[(Pair, repeat)]: every pair once, the baseline `auto_repeats` times, first and last and evenly between."""
    others = sorted((pair for pair in pairs if pair != BASELINE), key=lambda pair: uniform(seed, "order", *pair))
    count = repeats(BASELINE, auto_repeats) if BASELINE in pairs else 0
    ordered = []
    for place in range(max(count, 1)):
        if place < count:
            ordered.append((BASELINE, place))
        gaps = max(count - 1, 1)
        if place < gaps:
            ordered += [(pair, 0) for pair in others[place * len(others) // gaps : (place + 1) * len(others) // gaps]]
    return ordered
