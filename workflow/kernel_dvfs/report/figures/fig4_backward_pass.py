"""Figure 4: the backward pass at every clock pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, MEASURED, Output

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="The backward pass at every clock pair: time over auto (logarithmic) and change of energy against auto "
    "(negative = saved), one curve per memory clock; the blue square is better than auto, the best is the lowest in it",
    title="Figure 4. The backward pass at each clock pair",
    text="Time and energy against auto clocks. In the blue square no time is lost and energy is saved. Pairs in the "
    "grey box of the lower view differ from auto by no more than measurements scatter.",
    section="passes",
    place=2,
    formats=FIGURE_FORMATS,
    kinds=MEASURED,
    workload="model",
    of_choice=True,
    when=lambda plan: plan.has_passes,
)


def draw(results: Results) -> p9.ggplot:
    """See clock_plane.draw."""
    from kernel_dvfs.report import clock_plane

    return clock_plane.draw(results, "backward")
