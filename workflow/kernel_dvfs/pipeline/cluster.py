"""A whole cluster: data-parallel pipelines that wait for the slowest, and where its energy bloat lies.

Accounting of the SOSP 2024 artifact. Intrinsic bloat is what runs needlessly fast inside one pipeline; extrinsic bloat
is what comes on top because pipelines wait for a straggler with iteration time T' > T.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.plan import Plan


@dataclass(frozen=True)
class Emulation:
    """One straggling pipeline beside n - 1 others. Percent of the energy of all-max, in the same iteration time T'.

    ratio: T' / T. intrinsic_percent: saved by the plan for T, then waiting; extrinsic_percent: saved in addition by
    the plan for T'; pipeline_percent: their sum, of a pipeline that waits; cluster_percent: of all n pipelines.
    """

    ratio: float
    pipelines: int
    intrinsic_percent: float
    extrinsic_percent: float
    pipeline_percent: float
    cluster_percent: float


def emulate(base: Plan, at_base: float, waiting: float, ratio: float, pipelines: int) -> Emulation:
    """base: the all-max plan, T its time. at_base: effective energy (J) of the plan for T; waiting: of that for T'.

    The straggler itself is slowed in everything it does (a cooler that fails, a shared GPU): it runs the plan for T
    stretched to T', so its energy grows with T' / T, as in the artifact. Raises InputError.
    """
    if not (ratio >= 1 and pipelines >= 1):
        raise InputError(f"emulation: T'/T = {ratio}, {pipelines} pipelines: expected at least 1 of each")
    time_s = base.time_s * ratio
    blocking_j = base.blocking_w * time_s
    all_max_j = base.cost_j + blocking_j
    intrinsic_j, plan_j = at_base + blocking_j, waiting + blocking_j
    straggler_j, straggler_base_j = (ratio * (cost + base.blocking_w * base.time_s) for cost in (at_base, base.cost_j))
    others = pipelines - 1
    return Emulation(
        ratio=ratio,
        pipelines=pipelines,
        intrinsic_percent=100 * (1 - intrinsic_j / all_max_j),
        extrinsic_percent=100 * (intrinsic_j - plan_j) / all_max_j,
        pipeline_percent=100 * (1 - plan_j / all_max_j),
        cluster_percent=100 * (1 - (straggler_j + others * plan_j) / (straggler_base_j + others * all_max_j)),
    )
