"""Table 6: large clusters emulated from stage profiles, one global batch on ever fewer pipelines."""

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
    caption="Emulated clusters without a straggler: each pipeline's change of energy against the highest clocks "
    "(negative = saved; Table 6)",
    inputs=lambda plan: plan.solved(Method),
)
_PAPER_GPUS = 8 * 8
_PAPER_BATCH = 1536


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a workload, number of microbatches and method."""
    import pandas as pd

    rows: list[dict] = []
    for microbatches in study["microbatches"]:
        shared = {
            "source": paper.OURS,
            "workload": study["name"],
            "microbatches": microbatches,
            "pipelines": study.pipelines(microbatches),
            "gpus": study.gpus(microbatches),
        }
        rows += [
            shared
            | {
                "method": own.method,
                "energy_change_percent": own.energy_change_percent,
                "base_time_s": own.base_time_s,
            }
            for own in in_order(study.methods(microbatches), FRONTIERS)
        ]
    for workload, perseus, envpipe, floored in paper.EMULATION:
        for method, saved in (("Perseus", perseus), ("EnvPipe", envpipe)):
            for microbatches, percent, time_s in zip(paper.MICROBATCHES, saved, floored):
                pipelines = _PAPER_BATCH // microbatches
                rows.append(
                    {
                        "source": paper.SOURCE,
                        "workload": workload,
                        "microbatches": microbatches,
                        "pipelines": pipelines,
                        "gpus": pipelines * _PAPER_GPUS,
                        "method": method,
                        "energy_change_percent": change_of_reduction(percent),
                        "base_time_s": time_s,
                    }
                )
    return pd.DataFrame(rows)
