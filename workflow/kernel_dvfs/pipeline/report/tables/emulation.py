"""Table 6: large clusters emulated from stage profiles, one global batch on ever fewer pipelines."""

import pandas as pd

from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.tables.savings import ORDER, by_method
from kernel_dvfs.pipeline.study import published_base

CAPTION = "Emulated clusters without a straggler: energy saved by each pipeline (Table 6)"
_PAPER_GPUS = 8 * 8
_PAPER_BATCH = 1536


def make(study) -> pd.DataFrame:
    """One row a workload, number of microbatches and method."""
    rows = []
    for microbatches in study["microbatches"]:
        found = by_method(study, microbatches, simple=False)
        floored_s, _ = published_base(study, microbatches)
        shared = {
            "source": "ours",
            "workload": study["name"],
            "microbatches": microbatches,
            "pipelines": study.pipelines(microbatches),
            "gpus": study.gpus(microbatches),
        }
        rows += [
            shared
            | {
                "method": method,
                "energy_saved_percent": found[method][0],
                "base_time_s": floored_s if method == "published, as promised" else study.base(microbatches).time_s,
            }
            for method in ORDER
            if method in found
        ]
    for workload, perseus, envpipe, floored in paper.EMULATION:
        for method, saved in (("Perseus", perseus), ("EnvPipe", envpipe)):
            for microbatches, own, time_s in zip(paper.MICROBATCHES, saved, floored):
                pipelines = _PAPER_BATCH // microbatches
                rows.append(
                    {
                        "source": paper.SOURCE,
                        "workload": workload,
                        "microbatches": microbatches,
                        "pipelines": pipelines,
                        "gpus": pipelines * _PAPER_GPUS,
                        "method": method,
                        "energy_saved_percent": own,
                        "base_time_s": time_s,
                    }
                )
    return pd.DataFrame(rows)
