"""Data parallelism: smaller batches with the clocks of the batch that was swept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import MEASURED, Output
from kernel_dvfs.report import carried

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Data parallelism: the schedule carried to other batches, and clocks chosen there",
    title="The schedule at other batches",
    text="The same clocks with fewer sequences per GPU and, with reoptimise, a choice made there. Brackets: 95 % "
    "interval over the repeats. Loss from reusing clocks: against a choice made there, percentage points. "
    + carried.CHOSEN_THERE_IS,
    section="carried",
    place=1,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.is_compared and bool(plan.batches),
    inputs=lambda plan: carried.inputs(plan, "batch"),
    options=lambda plan: carried.options(plan, "batch", plan.batches),
)


def make(
    results: Results, values: list[float], repeats: int, reoptimised: bool, setups: dict[str, str], sessions: int
) -> pd.DataFrame:
    """See carried.table."""
    own = results.workload["batch"]
    return carried.table(results, "batch", values, own, repeats, reoptimised, setups, sessions)
