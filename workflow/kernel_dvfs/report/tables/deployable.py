"""What the same study can deploy at known latencies, beside the choice for each kernel that assumes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="What can be deployed where a change of clocks takes time and the GPU stands still for a moment: claimed "
    "changes against auto, and the gap to the best choice of the same kind in percentage points of energy",
    title="What can be deployed",
    text="A clock for each kernel assumes changes that cost nothing. Below it, what is left where a change takes "
    "effect so many ms after it was asked for, and the GPU stands still as its core or memory clock changes. Costs: "
    "measured by kernel-dvfs latency, or assumed, since nobody has published them. Chosen by the same data, with as "
    "much time in reserve as the strict schedule keeps; claimed, not measured again, so optimistic. Gap: what a "
    "better choice of the same kind could save at most, in points.",
    section="choosing",
    place=0,
    kinds=MEASURED,
    when=lambda plan: plan.is_deployable,
    inputs=lambda plan: [plan.schedule(STRICT), plan.deployable_file],
)


def make(results: Results) -> pd.DataFrame:
    """Rows of `schedules/deployable.json`: times in ms, changes in percent, negative = less, gaps in points."""
    import pandas as pd

    frame = pd.DataFrame(results.deployable)
    return frame.round({"time_change_percent": 4, "energy_change_percent": 4, "gap_points": 4})
