"""One module a figure: its OUTPUT and `draw(study: PipelineStudy) -> plotnine.ggplot`."""

import textwrap

from kernel_dvfs.pipeline.study import (
    ALL_MAX,
    BEST_PUBLISHED,
    BOUND,
    ONE_CLOCK,
    PER_STAGE,
    REALISED,
    SPLIT,
    UNIFORM,
    PipelineStudy,
)

_CHARACTERS = 68


def subtitle(study: PipelineStudy, better: str = "", microbatches: int | None = None) -> str:
    """Whose numbers a figure shows: subject and shape; better: the direction in which numbers are better, or ""."""
    shape = f"{study['stages']} stages" + (f" x {microbatches} microbatches" if microbatches else "")
    text = f"{study.subject}, {study['name']}, {shape}" + (f"; better: {better}" if better else "")
    return textwrap.fill(text, _CHARACTERS, break_on_hyphens=False)


# what figures call a method whose name in the tables is shorthand
NAMES = {
    ALL_MAX: "highest clocks",
    UNIFORM: "one clock for all",
    PER_STAGE: "one clock per stage",
    BOUND: "proven lower bound",
    ONE_CLOCK: "one clock per operation",
    SPLIT: "split operations",
    REALISED: "published plan, as run",
    BEST_PUBLISHED: "published plan, best in time",
}
