"""Figure 7: smaller batches, as in data parallelism, with the clocks of the batch that was swept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, MEASURED, Output
from kernel_dvfs.report import carried
from kernel_dvfs.report.tables import data_parallelism

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="Data parallelism: change of time and energy against auto at other batches, with the clocks chosen at one "
    "batch and with clocks chosen there; 95 % intervals over the validation repeats",
    title="Figure 7. The schedule at other batches",
    text="Validation repeats with 95 % intervals. Where one leaves zero on the energy axis, energy changes there.",
    section="carried",
    place=1,
    formats=FIGURE_FORMATS,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=data_parallelism.OUTPUT.when,
    inputs=lambda plan: [f"{plan.folder}/tables/data_parallelism.csv"],
)


def draw(results: Results) -> p9.ggplot:
    """See carried.draw."""
    title = f"Clocks chosen at batch {results.workload['batch']}, used at other batches"
    return carried.draw(results, "data_parallelism", "batch", "batch, sequences per GPU", title)
