"""Table 4: energy saved by a pipeline that waits for a straggler, over T'/T."""

import pandas as pd

from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.tables.savings import ORDER, by_method

CAPTION = "Straggler: percent of a waiting pipeline's energy saved, by T'/T (Table 4)"


def make(study) -> pd.DataFrame:
    """One row a workload, method and T'/T."""
    rows = []
    for microbatches in study["microbatches"]:
        for ratio in study["straggler"]:
            found = by_method(study, microbatches, ratio, simple=False)
            rows += [
                _row("ours", study["name"], microbatches, method, ratio, found[method][0])
                for method in ORDER
                if method in found
            ]
    for workload, perseus, envpipe in paper.STRAGGLER:
        for method, saved in (("Perseus", perseus), ("EnvPipe", envpipe)):
            rows += [
                _row(paper.SOURCE, workload, None, method, ratio, own)
                for ratio, own in zip(paper.STRAGGLER_RATIOS, saved)
            ]
    frame = pd.DataFrame(rows)
    return frame.astype({"microbatches": "Int64"})


def _row(source, workload, microbatches, method, ratio, saved) -> dict:
    return {
        "source": source,
        "workload": workload,
        "microbatches": microbatches,
        "method": method,
        "straggler_ratio": float(ratio),
        "energy_saved_percent": saved,
    }
