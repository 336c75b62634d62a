"""Two clocks within one operation, changed at a kernel boundary: options between two neighbours on the hull.

An operation of n equal kernels runs the first of them at one clock and the rest at the other. The time is rounded to
the slow side, so what is planned is never shorter than what is run.
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs.choice.dominance import pareto
from kernel_dvfs.pipeline.curve import Curve, Options


def split_options(options: Options, curve: Curve, kernels: int) -> Options:
    """`options`, and those with a change at each of the `kernels` - 1 boundaries, undominated, fastest first.

    curve: the hull of `options`. What a change costs is counted where plans are run (switching.py).
    """
    if len(curve.ticks) < 2 or kernels < 2:
        return options
    share = np.arange(1, kernels) / kernels
    fast, slow = curve.vertex[:-1], curve.vertex[1:]

    def between(values):
        return (values[fast][:, None] + np.diff(values[curve.vertex])[:, None] * share).ravel()

    ticks = np.ceil(between(options.ticks)).astype(np.int64)
    cost = between(options.cost_j)
    made = Options(
        np.concatenate([options.ticks, ticks]),
        np.concatenate([options.cost_j, cost]),
        np.concatenate([options.setting, np.repeat(options.setting[fast], len(share))]),
        np.concatenate([options.slower, np.repeat(options.setting[slow], len(share))]),
        np.concatenate([options.share, np.tile(share, len(fast))]),
    )
    return made.pick(pareto(made.ticks, made.cost_j, made.share))
