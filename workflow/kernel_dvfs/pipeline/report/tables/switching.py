"""What slow changes of clocks leave of the saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.study import PipelineStudy, SlowChange

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Changes of clocks that take time: change of energy against the highest clocks in the same time (negative "
    "= saved), each change of clocks a stop at the blocking power",
    inputs=lambda plan: plan.solved(SlowChange),
)


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a number of microbatches, kind of plan and latency; each plan keeps the time of all-max."""
    import pandas as pd

    return pd.DataFrame(
        {
            "microbatches": microbatches,
            "asked": own.asked,
            "latency_ms": 1e3 * own.latency_s,
            "best_plan": own.best_plan,
            "energy_change_percent": own.energy_change_percent,
            "switches": own.switches,
            "late_s": own.late_s,
        }
        for microbatches in study["microbatches"]
        for own in study.read(microbatches, SlowChange)
    )
