"""How much each level of choice adds: clocks per kernel alone, clocks per operation in the pipeline, both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.study import Level, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Levels of choice: change of energy against the highest clocks (negative = saved), in their time and while "
    "waiting for a straggler; changes of clocks are free, or take time within an operation where a row says so",
    when=lambda plan: plan.knows_kernels,
    inputs=lambda plan: plan.solved(Level)[:1],
)


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a level and T'/T, for the first number of microbatches."""
    import pandas as pd

    microbatches = study["microbatches"][0]
    return pd.DataFrame(
        {
            "level": own.level,
            "microbatches": microbatches,
            "straggler_ratio": own.straggler_ratio,
            "energy_change_percent": own.energy_change_percent,
        }
        for own in study.read(microbatches, Level)
    )
