"""Time on a grid of picoseconds: sums are exact in any order, so a plan that keeps its promise keeps it exactly.

Durations are rounded up: what is measured is never longer than what is planned with. float64 holds up to 9,000 s.
"""

import numpy as np

TICKS_PER_S = 10**12
# a measured duration may be longer than its ticks by this share: one rounding of float64
_ROUNDING = 4e-16


def duration_ticks(seconds) -> np.ndarray:
    """Durations (s, any shape) as int64 ticks, rounded up."""
    ticks = np.asarray(seconds, float) * TICKS_PER_S
    return np.ceil(ticks * (1 - _ROUNDING)).astype(np.int64)


def seconds(ticks):
    """Ticks as seconds."""
    return ticks / TICKS_PER_S
