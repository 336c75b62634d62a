"""Figure 8: one rank of tensor parallelism (with sequence parallelism, no communication), clocks of one degree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, MEASURED, Output
from kernel_dvfs.report import carried
from kernel_dvfs.report.tables import tensor_parallelism

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Tensor parallelism, one rank, communication left out: change of time and energy against auto at other "
    "degrees, with the clocks chosen at one degree and with clocks chosen there; 95 % intervals over the validation "
    "repeats",
    title="Figure 8. The schedule at other tensor-parallel degrees",
    text="Validation repeats with 95 % intervals, one rank, no communication.",
    section="carried",
    place=2,
    formats=FIGURE_FORMATS,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=tensor_parallelism.OUTPUT.when,
    inputs=lambda plan: [f"{plan.folder}/tables/tensor_parallelism.csv"],
)


def draw(results: Results) -> p9.ggplot:
    """See carried.draw."""
    degree = results.workload["tensor_parallel"]
    title = f"Clocks chosen at degree {degree}, used at other degrees"
    axis = "tensor-parallel degree (one rank, no communication)"
    return carried.draw(results, "tensor_parallelism", "tensor_parallel", axis, title)
