"""Latency of a clock change: a distribution, never a constant. All figures are assumptions (gpu specs say so).

Log-normal around a median, with a factor per target clock fixed by the seed: which clock is asked for matters more
than which one is left. The old clocks rule until the change is through.
"""

import math

from kernel_dvfs.gpu.draws import normal

_Z99 = 2.3263  # standard normal quantile of 0.99


def latency_s(switching: dict, seed: int, before, after, *key) -> float:
    """Seconds from request to effect of a change between two (core, memory) pairs; 0 where nothing changes."""
    slowest = 0.0
    for domain, old, new in (("core", before[0], after[0]), ("mem", before[1], after[1])):
        if old == new:
            continue
        median_s, p99_s = switching[domain]["median_s"], switching[domain]["p99_s"]
        spread = math.log(p99_s / median_s) / _Z99
        # half of the variance belongs to the target clock, half to the moment
        z = (normal(seed, "switch", domain, new) + normal(seed, "switch", domain, new, *key)) / math.sqrt(2)
        slowest = max(slowest, median_s * math.exp(spread * z))
    return slowest
