"""A captured step's plane of clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import MEASURED, Outputs
from kernel_dvfs.workload.workload import WHOLE

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUTS = Outputs()


@OUTPUTS.figure(
    "The whole step at every clock pair: time over auto (logarithmic) and change of energy against auto "
    "(negative = saved), one curve per memory clock; the blue square is better than auto",
    title="The whole step at each clock pair",
    text="One pair of clocks for the whole step, against auto clocks: what can be had without a change of clocks "
    "within a step. In the blue square no time is lost and energy is saved.",
    section="passes",
    place=1,
    kinds=MEASURED,
    workload="step",
    of_choice=True,
)
def step_plane(results: Results) -> p9.ggplot:
    """See clock_plane.draw."""
    from kernel_dvfs.report import clock_plane

    return clock_plane.draw(results, WHOLE)
