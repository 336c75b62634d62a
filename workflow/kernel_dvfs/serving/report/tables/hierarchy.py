"""What deciding by levels loses against deciding at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.serving.study import ServingStudy

OUTPUT = Output(
    "The hierarchy's optimality gap: power planned by levels and at once for the same loads (hindsight, changes free)",
    inputs=lambda plan: plan.reads("hierarchy"),
)


def make(study: ServingStudy) -> pd.DataFrame:
    """One row a slot of the trace, clocks per instance or per kernel; gap: percent of the joint optimum."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "clocks": "per kernel" if each["kernel_level"] else "per instance",
                "start_s": each["start_s"],
                "load_tps": each["load_tps"],
                "static_w": each["static_w"],
                "levels_w": each["levels_w"],
                "joint_w": each["joint_w"],
                "gap_percent": 100 * (each["levels_w"] / each["joint_w"] - 1),
                "levels_servers": each["levels_servers"],
                "joint_servers": each["joint_servers"],
                "levels_shed_tps": each["levels_shed_tps"],
                "joint_shed_tps": each["joint_shed_tps"],
                "joint_columns": each["joint_columns"],
            }
            for each in study.experiment("hierarchy")
        ]
    )
