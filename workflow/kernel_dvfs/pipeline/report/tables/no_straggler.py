"""Table 3: changes of energy and time without a straggler; ours emulated, the paper's measured on its testbeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_of_reduction
from kernel_dvfs.outputs import Output
from kernel_dvfs.pipeline.report import paper
from kernel_dvfs.pipeline.report.savings import FRONTIERS, SIMPLE, in_order
from kernel_dvfs.pipeline.study import ALL_MAX, Method, PipelineStudy

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = Output(
    caption="No straggler: changes of energy and time against all clocks at their highest (negative = saved; Table 3)",
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
            changes = own.energy_change_percent, own.time_change_percent
            rows.append(_row(paper.OURS, study["name"], microbatches, own.method, changes, base.time_s, base.energy_j))
    for zeus, (gpus, model, perseus, envpipe, time_s, energy_j) in zip(paper.ZEUS_PER_STAGE, paper.NO_STRAGGLER):
        theirs = (
            (paper.SOURCE, "Perseus", perseus),
            (paper.SOURCE, "EnvPipe", envpipe),
            (paper.DERIVED, "Zeus per stage, least energy", zeus),
        )
        for source, method, (reduction, slowdown) in theirs:
            changes = change_of_reduction(reduction), slowdown
            microbatches = int(model.rpartition("x")[2].rstrip(")"))
            rows.append(_row(source, f"{model}, {gpus}", microbatches, method, changes, time_s, float(energy_j)))
    return pd.DataFrame(rows)


def _row(
    source: str,
    workload: str,
    microbatches: int,
    method: str,
    changes_percent: tuple[float, float],
    base_time_s: float,
    base_energy_j: float,
) -> dict:
    return {
        "source": source,
        "workload": workload,
        "microbatches": microbatches,
        "method": method,
        "energy_change_percent": changes_percent[0],
        "time_change_percent": changes_percent[1],
        "base_time_s": base_time_s,
        "base_energy_j": base_energy_j,
    }
