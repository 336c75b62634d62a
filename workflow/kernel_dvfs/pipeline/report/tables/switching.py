"""What slow changes of clocks leave of the saving."""

import pandas as pd

from kernel_dvfs.pipeline.planner import KINDS
from kernel_dvfs.pipeline.switching import with_switches
from kernel_dvfs.pipeline.ticks import TICKS_PER_S

CAPTION = (
    "Changes of clocks that take time: percent saved at the time of all-max, each change a stop at the blocking power"
)


def make(study) -> pd.DataFrame:
    """One row a number of microbatches, kind of plan and latency; each plan keeps the time of all-max."""
    rows = []
    for microbatches in study["microbatches"]:
        planner, base = study.planner(microbatches), study.base(microbatches)
        for kind in KINDS:
            for latency_s in study["switch_latency_s"]:
                found = with_switches(planner, base.time_ticks, latency_s, kind)
                rows.append(
                    {
                        "microbatches": microbatches,
                        "asked": kind,
                        "latency_ms": 1e3 * latency_s,
                        "best_plan": found.plan.kind,
                        "energy_saved_percent": 100 * (1 - found.plan.energy_j(base.time_s) / base.energy_j()),
                        "switches": found.switches,
                        "late_s": max(0.0, (found.time_ticks - base.time_ticks) / TICKS_PER_S),
                    }
                )
    return pd.DataFrame(rows)
