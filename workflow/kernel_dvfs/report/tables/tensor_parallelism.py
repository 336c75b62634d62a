"""Tensor parallelism (with sequence parallelism, communication left out): one rank with the clocks of one degree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import MEASURED, Output
from kernel_dvfs.report import carried

if TYPE_CHECKING:
    import pandas as pd

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Tensor parallelism, one rank, no communication: the schedule carried to other degrees, and chosen there",
    title="The schedule at other tensor-parallel degrees",
    text="The same clocks on one rank of a larger tensor-parallel group, without communication and, with reoptimise, "
    "a choice made there. Brackets: 95 % interval over the repeats. " + carried.CHOSEN_THERE_IS,
    section="carried",
    place=2,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.is_compared and bool(plan.degrees),
    inputs=lambda plan: carried.inputs(plan, "tp"),
    options=lambda plan: carried.options(plan, "tp", plan.degrees),
)


def make(
    results: Results, values: list[float], repeats: int, reoptimised: bool, setups: dict[str, str], sessions: int
) -> pd.DataFrame:
    """See carried.table."""
    return carried.table(
        results, "tp", values, results.workload["tensor_parallel"], repeats, reoptimised, setups, sessions
    )
