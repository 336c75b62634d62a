"""Figure 7: energy bloat of a cluster with one straggler, intrinsic and extrinsic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_of_reduction
from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.savings import bloat
from kernel_dvfs.pipeline.study import ALL_MAX, BLOAT_RATIO, BOUND, ONE_CLOCK, SPLIT, Method, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="Where the energy bloat lies with one straggler: change of energy (negative = saved) by planning within a "
    "pipeline (intrinsic) and by waiting more slowly (extrinsic) (Figure 7)",
    inputs=lambda plan: plan.solved(Method),
)


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a workload, number of microbatches and method, at T'/T = 1.2."""
    import pandas as pd

    rows: list[dict] = []
    for microbatches in study["microbatches"]:
        at_base, waiting = (study.methods(microbatches, ratio) for ratio in (1.0, BLOAT_RATIO))
        for method in (ONE_CLOCK, SPLIT, BOUND):
            found = bloat(
                at_base[ALL_MAX],
                at_base[method].effective_energy_j,
                waiting[method].effective_energy_j,
                study.blocking_w,
                BLOAT_RATIO,
                study.pipelines(microbatches),
            )
            rows.append(
                {
                    "source": paper.OURS,
                    "workload": study["name"],
                    "microbatches": microbatches,
                    "gpus": study.gpus(microbatches),
                    "method": method,
                    "intrinsic_change_percent": found.intrinsic_change_percent,
                    "extrinsic_change_percent": found.extrinsic_change_percent,
                    "pipeline_change_percent": found.pipeline_change_percent,
                    "cluster_change_percent": found.cluster_change_percent,
                }
            )
    for workload, perseus, envpipe in paper.BREAKDOWN:
        for method, (cluster, pipeline) in (("Perseus", perseus), ("EnvPipe", envpipe)):
            rows.append(
                {
                    "source": paper.SOURCE,
                    "workload": workload,
                    "microbatches": 96,
                    "gpus": 1024,
                    "method": method,
                    "intrinsic_change_percent": None,
                    "extrinsic_change_percent": None,
                    "pipeline_change_percent": change_of_reduction(pipeline),
                    "cluster_change_percent": change_of_reduction(cluster),
                }
            )
    return pd.DataFrame(rows)
