"""Figure 4: the backward pass at every clock pair."""

from kernel_dvfs.report.figures import passes

CAPTION = (
    "The backward pass at every clock pair: time and energy saved against auto, one curve per memory clock; "
    "the blue square is better than auto, the best is the highest in it"
)


def draw(results):
    """See passes.draw."""
    return passes.draw(results, "backward")
