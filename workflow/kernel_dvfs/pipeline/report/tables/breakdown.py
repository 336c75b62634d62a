"""Figure 7: energy bloat of a cluster with one straggler, intrinsic and extrinsic."""

import pandas as pd

from kernel_dvfs.pipeline.cluster import emulate
from kernel_dvfs.pipeline.planner import ONE_CLOCK, SPLIT
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.tables.savings import BOUND

CAPTION = (
    "Where the energy bloat lies with one straggler: within a pipeline (intrinsic), in waiting (extrinsic) (Figure 7)"
)
RATIO = 1.2


def make(study) -> pd.DataFrame:
    """One row a workload, number of microbatches and method, at T'/T = 1.2."""
    rows = []
    for microbatches in study["microbatches"]:
        planner, base = study.planner(microbatches), study.base(microbatches)
        waiting = min(int(base.time_ticks * RATIO), planner.frontier.slowest_ticks)
        costs = {
            kind: [planner.plan_ticks(ticks, kind).cost_j for ticks in (base.time_ticks, waiting)]
            for kind in (ONE_CLOCK, SPLIT)
        }
        costs[BOUND] = [float(planner.frontier.cost_at(ticks)) for ticks in (base.time_ticks, waiting)]
        for method, pair in costs.items():
            found = emulate(base, *pair, RATIO, study.pipelines(microbatches))
            rows.append(
                {
                    "source": "ours",
                    "workload": study["name"],
                    "microbatches": microbatches,
                    "gpus": study.gpus(microbatches),
                    "method": method,
                    "intrinsic_percent": found.intrinsic_percent,
                    "extrinsic_percent": found.extrinsic_percent,
                    "pipeline_percent": found.pipeline_percent,
                    "cluster_percent": found.cluster_percent,
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
                    "intrinsic_percent": None,
                    "extrinsic_percent": None,
                    "pipeline_percent": pipeline,
                    "cluster_percent": cluster,
                }
            )
    return pd.DataFrame(rows)
