"""Table 4: change of energy of a pipeline that waits for a straggler, over T'/T."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_of_reduction
from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.savings import FRONTIERS, in_order
from kernel_dvfs.pipeline.study import Method, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Straggler: a waiting pipeline's change of energy against the highest clocks (negative = saved), by T'/T "
    "(Table 4)",
    inputs=lambda plan: plan.solved(Method),
)


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a workload, method and T'/T."""
    import pandas as pd

    rows = [
        _row(paper.OURS, study["name"], microbatches, own.method, ratio, own.energy_change_percent)
        for microbatches in study["microbatches"]
        for ratio in study["straggler"]
        for own in in_order(study.methods(microbatches, ratio), FRONTIERS)
    ]
    for workload, perseus, envpipe in paper.STRAGGLER:
        for method, saved in (("Perseus", perseus), ("EnvPipe", envpipe)):
            rows += [
                _row(paper.SOURCE, workload, None, method, ratio, change_of_reduction(own))
                for ratio, own in zip(paper.STRAGGLER_RATIOS, saved)
            ]
    return pd.DataFrame(rows).astype({"microbatches": "Int64"})


def _row(source: str, workload: str, microbatches: int | None, method: str, ratio: float, change: float) -> dict:
    return {
        "source": source,
        "workload": workload,
        "microbatches": microbatches,
        "method": method,
        "straggler_ratio": float(ratio),
        "energy_change_percent": change,
    }
