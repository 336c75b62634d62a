"""What slow changes of clocks leave of the saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.study import PipelineStudy, SlowChange

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Changes of clocks that take time: percent saved at the time of all-max, each change a stop at the "
    "blocking power",
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
            "energy_saved_percent": 100 * (1 - own.energy_j / own.base_energy_j),
            "switches": own.switches,
            "late_s": own.late_s,
        }
        for microbatches in study["microbatches"]
        for own in study.read(microbatches, SlowChange)
    )
