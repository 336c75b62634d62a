"""What a study's methods change: the order in which reports name them, and the bloat of a whole cluster.

A cluster: data-parallel pipelines that wait for the slowest. Accounting of the SOSP 2024 artifact: intrinsic bloat is
what runs needlessly fast inside one pipeline; extrinsic bloat is what comes on top because pipelines wait for a
straggler with iteration time T' > T.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_dvfs.change import change_percent
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.study import (
    BEST_PUBLISHED,
    BOUND,
    ONE_CLOCK,
    PER_STAGE,
    PUBLISHED,
    REALISED,
    SPLIT,
    UNIFORM,
    Method,
)

SIMPLE = (UNIFORM, PER_STAGE)
FRONTIERS = (PUBLISHED, REALISED, BEST_PUBLISHED, ONE_CLOCK, SPLIT, BOUND)


def in_order(methods: dict[str, Method], names: tuple[str, ...]) -> list[Method]:
    """Return those of `names` that a study has: the published algorithm may have found no plan."""
    return [methods[name] for name in names if name in methods]


@dataclass(frozen=True, slots=True)
class Bloat:
    """One straggling pipeline and n - 1 others. Changes against all-max in the same iteration time T', percent."""

    ratio: float  # T' / T
    pipelines: int  # n
    intrinsic_change_percent: float  # by the plan for T, then waiting
    extrinsic_change_percent: float  # on top of it, by the plan for T'
    pipeline_change_percent: float  # their sum, of a pipeline that waits
    cluster_change_percent: float  # of all n pipelines


def bloat(base: Method, at_base_j: float, waiting_j: float, blocking_w: float, ratio: float, pipelines: int) -> Bloat:
    """Return the Bloat of a cluster. base: all-max without a straggler, T its time. at_base_j: effective energy of the
    plan for T; waiting_j: of that for T'. blocking_w: of the whole pipeline.

    The straggler itself is slowed in everything it does (a cooler that fails, a shared GPU): it runs the plan for T
    stretched to T', so its energy grows with T' / T, as in the artifact. Raises InputError.
    """
    if not (ratio >= 1 and pipelines >= 1):
        raise InputError(f"emulation: T'/T = {ratio}, {pipelines} pipelines: expected at least 1 of each")
    # no plan changes what transfers between stages draw
    transfer_j = base.energy_j - base.effective_energy_j - blocking_w * base.time_s
    blocking_j = blocking_w * (base.time_s * ratio) + transfer_j
    all_max_j = base.effective_energy_j + blocking_j
    intrinsic_j, plan_j = at_base_j + blocking_j, waiting_j + blocking_j
    straggler_j, straggler_base_j = (
        ratio * (cost_j + transfer_j + blocking_w * base.time_s) for cost_j in (at_base_j, base.effective_energy_j)
    )
    others = pipelines - 1
    return Bloat(
        ratio=ratio,
        pipelines=pipelines,
        intrinsic_change_percent=change_percent(intrinsic_j, all_max_j),
        extrinsic_change_percent=100 * (plan_j - intrinsic_j) / all_max_j,
        pipeline_change_percent=change_percent(plan_j, all_max_j),
        cluster_change_percent=change_percent(straggler_j + others * plan_j, straggler_base_j + others * all_max_j),
    )
