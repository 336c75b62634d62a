"""Tables of the pipeline study: those of the Perseus paper with its figures beside ours, and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.change import change_of_reduction
from kernel_dvfs.outputs import Outputs
from kernel_dvfs_pipeline.report import paper
from kernel_dvfs_pipeline.report.savings import FRONTIERS, SIMPLE, bloat, in_order
from kernel_dvfs_pipeline.study import (
    ALL_MAX,
    BLOAT_RATIO,
    BOUND,
    ONE_CLOCK,
    SPLIT,
    Check,
    LevelEnergy,
    Method,
    PipelineStudy,
    SlowChange,
)

if TYPE_CHECKING:
    import pandas as pd

OUTPUTS = Outputs()


@OUTPUTS.table(
    "No straggler: changes of energy and time against all clocks at their highest (negative = saved; Table 3)",
    inputs=lambda plan: plan.solved(Method),
)
def no_straggler(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a workload and method."""
    import pandas as pd

    rows = []
    for microbatches in study["microbatches"]:
        methods = study.methods(microbatches)
        base = methods[ALL_MAX]
        for result in in_order(methods, (*SIMPLE, *FRONTIERS)):
            changes = result.energy_change_percent, result.time_change_percent
            rows.append(
                _no_straggler_row(
                    paper.OURS, study["name"], microbatches, result.method, changes, base.time_s, base.energy_j
                )
            )
    for zeus, (gpus, model, perseus, envpipe, time_s, energy_j) in zip(paper.ZEUS_PER_STAGE, paper.NO_STRAGGLER):
        published = (
            (paper.SOURCE, "Perseus", perseus),
            (paper.SOURCE, "EnvPipe", envpipe),
            (paper.DERIVED, "Zeus per stage, least energy", zeus),
        )
        for source, method, (reduction, slowdown) in published:
            changes = change_of_reduction(reduction), slowdown
            microbatches = int(model.rpartition("x")[2].rstrip(")"))
            rows.append(
                _no_straggler_row(source, f"{model}, {gpus}", microbatches, method, changes, time_s, float(energy_j))
            )
    return paper.whose(pd.DataFrame(rows), study.subject)


def _no_straggler_row(
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


@OUTPUTS.table(
    "Straggler: a waiting pipeline's change of energy against the highest clocks (negative = saved), by T'/T (Table 4)",
    inputs=lambda plan: plan.solved(Method),
)
def straggler(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a workload, method and T'/T."""
    import pandas as pd

    rows = [
        _straggler_row(paper.OURS, study["name"], microbatches, result.method, ratio, result.energy_change_percent)
        for microbatches in study["microbatches"]
        for ratio in study["straggler"]
        for result in in_order(study.methods(microbatches, ratio), FRONTIERS)
    ]
    for workload, perseus, envpipe in paper.STRAGGLER:
        for method, saved in (("Perseus", perseus), ("EnvPipe", envpipe)):
            rows += [
                _straggler_row(paper.SOURCE, workload, None, method, ratio, change_of_reduction(percent))
                for ratio, percent in zip(paper.STRAGGLER_RATIOS, saved)
            ]
    return paper.whose(pd.DataFrame(rows).astype({"microbatches": "Int64"}), study.subject)


def _straggler_row(
    source: str, workload: str, microbatches: int | None, method: str, ratio: float, change: float
) -> dict:
    return {
        "source": source,
        "workload": workload,
        "microbatches": microbatches,
        "method": method,
        "straggler_ratio": float(ratio),
        "energy_change_percent": change,
    }


_PAPER_GPUS = 8 * 8
_PAPER_BATCH = 1536


@OUTPUTS.table(
    "Emulated clusters without a straggler: each pipeline's change of energy against the highest clocks "
    "(negative = saved; Table 6)",
    inputs=lambda plan: plan.solved(Method),
)
def emulation(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a workload, number of microbatches and method."""
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
                "method": result.method,
                "energy_change_percent": result.energy_change_percent,
                "base_time_s": result.base_time_s,
            }
            for result in in_order(study.methods(microbatches), FRONTIERS)
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
    return paper.whose(pd.DataFrame(rows), study.subject)


@OUTPUTS.table(
    "Where the energy bloat lies with one straggler: change of energy (negative = saved) by planning within a "
    "pipeline (intrinsic) and by waiting more slowly (extrinsic) (Figure 7)",
    inputs=lambda plan: plan.solved(Method),
)
def breakdown(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a workload, number of microbatches and method, at T'/T = 1.2."""
    import pandas as pd

    rows: list[dict] = []
    for microbatches in study["microbatches"]:
        at_base, waiting = (study.methods(microbatches, ratio) for ratio in (1.0, BLOAT_RATIO))
        for method in (ONE_CLOCK, SPLIT, BOUND):
            changes = bloat(
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
                    "intrinsic_change_percent": changes.intrinsic_change_percent,
                    "extrinsic_change_percent": changes.extrinsic_change_percent,
                    "pipeline_change_percent": changes.pipeline_change_percent,
                    "cluster_change_percent": changes.cluster_change_percent,
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
    return paper.whose(pd.DataFrame(rows), study.subject)


@OUTPUTS.table(
    "Levels of choice: change of energy against the highest clocks (negative = saved), in their time and while "
    "waiting for a straggler; changes of clocks are free, or take time within an operation where a row says so",
    when=lambda plan: plan.knows_kernels,
    inputs=lambda plan: plan.solved(LevelEnergy)[:1],
)
def levels(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a level and T'/T, for the first number of microbatches."""
    import pandas as pd

    microbatches = study["microbatches"][0]
    return pd.DataFrame(
        {
            "level": record.level,
            "microbatches": microbatches,
            "straggler_ratio": record.straggler_ratio,
            "energy_change_percent": record.energy_change_percent,
        }
        for record in study.read(microbatches, LevelEnergy)
    )


@OUTPUTS.table(
    "Changes of clocks that take time: change of energy against the highest clocks in the same time (negative "
    "= saved), each change of clocks a stop at the blocking power",
    inputs=lambda plan: plan.solved(SlowChange),
)
def switching(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a number of microbatches, kind of plan and latency; each plan keeps the time of all-max."""
    import pandas as pd

    return pd.DataFrame(
        {
            "microbatches": microbatches,
            "asked": record.asked,
            "latency_ms": 1e3 * record.latency_s,
            "best_plan": record.best_plan,
            "energy_change_percent": record.energy_change_percent,
            "switches": record.switches,
            "late_s": record.late_s,
        }
        for microbatches in study["microbatches"]
        for record in study.read(microbatches, SlowChange)
    )


_ORDER = "bound <= split <= one clock"


@OUTPUTS.table(
    "Checks: the parametric flow against HiGHS, plans against bound and promise, the published plans as run",
    inputs=lambda plan: plan.solved(Check),
)
def certificate(study: PipelineStudy) -> pd.DataFrame:
    """Return one row a number of microbatches; the columns are those of study.Check."""
    import pandas as pd

    return pd.DataFrame(
        {
            "microbatches": microbatches,
            "operations": record.operations,
            "records": record.records,
            "points": record.points,
            "lp_difference": f"{record.lp_difference:.1e}",
            "latest_s": record.latest_s,
            "ordered": _ORDER if record.ordered else f"NOT {_ORDER}",
            "gap_one_clock_percent": record.gap_one_clock_percent,
            "gap_split_percent": record.gap_split_percent,
            "published_latest_percent": record.published_latest_percent,
        }
        for microbatches in study["microbatches"]
        for record in study.read(microbatches, Check)
    )
