"""Table 3: energy saved and slowdown without a straggler; ours emulated, the paper's measured on its testbeds."""

import pandas as pd

from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.tables.savings import ORDER, by_method

CAPTION = "No straggler: energy saved and slowdown against all clocks at their highest (Table 3)"


def make(study) -> pd.DataFrame:
    """One row a workload and method."""
    rows = []
    for microbatches in study["microbatches"]:
        base = study.base(microbatches)
        found = by_method(study, microbatches)
        for method in [each for each in ORDER if each in found]:
            rows.append(_row("ours", study["name"], microbatches, method, found[method], base.time_s, base.energy_j()))
    for zeus, (gpus, model, perseus, envpipe, time_s, energy_j) in zip(paper.ZEUS_PER_STAGE, paper.NO_STRAGGLER):
        theirs = (
            (paper.SOURCE, "Perseus", perseus),
            (paper.SOURCE, "EnvPipe", envpipe),
            (paper.DERIVED, "Zeus per stage, least energy", zeus),
        )
        for source, method, figures in theirs:
            microbatches = int(model.rpartition("x")[2].rstrip(")"))
            rows.append(_row(source, f"{model}, {gpus}", microbatches, method, figures, time_s, float(energy_j)))
    return pd.DataFrame(rows)


def _row(source, workload, microbatches, method, figures, base_time_s, base_energy_j) -> dict:
    return {
        "source": source,
        "workload": workload,
        "microbatches": microbatches,
        "method": method,
        "energy_saved_percent": figures[0],
        "slowdown_percent": figures[1],
        "base_time_s": base_time_s,
        "base_energy_j": base_energy_j,
    }
