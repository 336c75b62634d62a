"""What holds of the plans and the frontier, checked on this study: against a linear-programme solver, and by replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.study import Check, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Checks: the parametric flow against HiGHS, plans against bound and promise, the published plans as run",
    inputs=lambda plan: plan.solved(Check),
)
_ORDER = "bound <= split <= one clock"


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a number of microbatches; the columns are those of study.Check."""
    import pandas as pd

    return pd.DataFrame(
        {
            "microbatches": microbatches,
            "operations": own.operations,
            "records": own.records,
            "points": own.points,
            "lp_difference": f"{own.lp_difference:.1e}",
            "latest_s": own.latest_s,
            "ordered": _ORDER if own.ordered else f"NOT {_ORDER}",
            "gap_one_clock_percent": own.gap_one_clock_percent,
            "gap_split_percent": own.gap_split_percent,
            "published_latest_percent": own.published_latest_percent,
        }
        for microbatches in study["microbatches"]
        for own in study.read(microbatches, Check)
    )
