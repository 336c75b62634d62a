"""Figure 4: the backward pass at every clock pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.outputs import FIGURE_FORMATS, MEASURED, Output

if TYPE_CHECKING:
    import plotnine as p9

    from kernel_dvfs.report.results import Results

OUTPUT = Output(
    caption="The backward pass at every clock pair: time and energy saved against auto, one curve per memory clock; "
    "the blue square is better than auto, the best is the highest in it",
    title="Figure 4. The backward pass at each clock pair",
    text="Time and energy against auto clocks. In the blue square no time is lost and energy is saved.",
    section="passes",
    place=2,
    formats=FIGURE_FORMATS,
    kinds=MEASURED,
    workload="model",
    when=lambda plan: plan.is_chosen and plan.has_passes,
)


def draw(results: Results) -> p9.ggplot:
    """See clock_plane.draw."""
    from kernel_dvfs.report import clock_plane

    return clock_plane.draw(results, "backward")
