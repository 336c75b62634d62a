"""Table 3: energy saved and slowdown without a straggler; ours emulated, the paper's measured on its testbeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.savings import FRONTIERS, SIMPLE, in_order
from kernel_dvfs.pipeline.study import ALL_MAX, Method, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="No straggler: energy saved and slowdown against all clocks at their highest (Table 3)",
    inputs=lambda plan: plan.solved(Method),
)


def make(study: PipelineStudy) -> pd.DataFrame:
    """One row a workload and method."""
    import pandas as pd

    rows = []
    for microbatches in study["microbatches"]:
        found = study.methods(microbatches)
        base = found[ALL_MAX]
        for own in in_order(found, (*SIMPLE, *FRONTIERS)):
            figures = own.saved_percent, own.slowdown_percent
            rows.append(_row(paper.OURS, study["name"], microbatches, own.method, figures, base.time_s, base.energy_j))
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


def _row(
    source: str,
    workload: str,
    microbatches: int,
    method: str,
    figures: tuple[float, float],
    base_time_s: float,
    base_energy_j: float,
) -> dict:
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
