"""How much each level of choice adds: clocks per kernel alone, clocks per operation in the pipeline, both."""

import pandas as pd

from kernel_dvfs.pipeline.baselines import all_max
from kernel_dvfs.pipeline.planner import ONE_CLOCK, SPLIT, Planner
from kernel_dvfs.pipeline.ticks import duration_ticks

CAPTION = (
    "Levels of choice: percent saved at the time of all-max, and while waiting for a straggler; changes of clocks are "
    "free, or take time within an operation where a row says so"
)
RATIOS = (1.0, 1.05, 1.2)


def make(study) -> pd.DataFrame:
    """One row a level and T'/T, for the first number of microbatches.

    kernels alone: every operation keeps its own time at the highest clocks, so the pipeline is left as it is.
    """
    microbatches = study["microbatches"][0]
    passes, kernels = study.planner(microbatches), study.kernel_planner(microbatches)
    base = study.base(microbatches)
    slow = {own: study.kernel_planner(microbatches, own) for own in study["switch_latency_s"] if own}
    rows = []
    for ratio in RATIOS:
        until_s = ratio * base.time_s
        wait_j = base.energy_j(until_s)
        ticks = int(ratio * base.time_ticks)
        costs = {
            "kernels alone": _kernels_alone(passes, kernels),
            "operations, one clock": passes.plan_ticks(ticks, ONE_CLOCK).cost_j,
            "operations, split": passes.plan_ticks(ticks, SPLIT).cost_j,
            "operations, bound": float(passes.frontier.cost_at(ticks)),
            "kernels in the pipeline": kernels.plan_ticks(ticks, ONE_CLOCK).cost_j,
            "kernels in the pipeline, bound": float(kernels.frontier.cost_at(ticks)),
        }
        for latency_s, planner in slow.items():
            level = f"kernels in the pipeline, changes take {1e3 * latency_s:g} ms"
            costs[level] = planner.plan_ticks(ticks, ONE_CLOCK).cost_j
        for level, cost_j in costs.items():
            rows.append(
                {
                    "level": level,
                    "microbatches": microbatches,
                    "straggler_ratio": ratio,
                    "energy_saved_percent": 100 * (1 - (cost_j + base.blocking_w * until_s) / wait_j),
                }
            )
    return pd.DataFrame(rows)


def _kernels_alone(passes: Planner, kernels: Planner) -> float:
    """Effective energy (J) when each operation takes its cheapest kernel-level option within its time at all-max."""
    base = all_max(passes)
    total = 0.0
    for key, begin, end in zip(kernels.keys, base.begin_ticks.tolist(), base.end_ticks.tolist()):
        own = kernels.options[key]
        # one rounding of the sum over kernels
        within = own.ticks <= end - begin + int(duration_ticks(1e-12))
        total += float(own.cost_j[within].min()) if within.any() else float(own.cost_j[0])
    return total
