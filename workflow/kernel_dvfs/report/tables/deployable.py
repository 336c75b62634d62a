"""What the same study can deploy at known latencies, beside the choice for each kernel that assumes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import MEASURED, Output

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="What can be deployed if a clock change takes time and stalls the GPU for a moment: claimed changes "
    "against auto, and the gap to the best choice of the same kind in percentage points of energy",
    title="What can be deployed",
    text="Clocks for each kernel assume that a change costs nothing: you cannot realise this saving today. The "
    "other rows say what is left if a change takes effect some ms after its request and stalls the GPU for a "
    "moment. Costs are measured by kernel-dvfs latency, or assumed, because nobody has "
    "published them. The changes are claimed and not measured again, so they are optimistic; each schedule "
    "keeps as much time in reserve as the strict one. Gap: what a better choice of the same kind could save "
    "at most, in points.",
    section="choosing",
    place=0,
    kinds=MEASURED,
    of_choice=True,
    when=lambda plan: plan.is_deployable,
    inputs=lambda plan: [plan.schedule(STRICT), plan.deployable_file],
)


def make(results: Results) -> pd.DataFrame:
    """Rows of `schedules/deployable.json`: times in ms, changes in percent, negative = less, gaps in points."""
    import pandas as pd

    frame = pd.DataFrame(results.deployable)
    return frame.round({"time_change_percent": 4, "energy_change_percent": 4, "gap_points": 4})
