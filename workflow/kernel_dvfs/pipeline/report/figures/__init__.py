"""One module a figure: its OUTPUT and `draw(study: PipelineStudy) -> plotnine.ggplot`."""

import textwrap

from kernel_dvfs.pipeline.study import PipelineStudy

_CHARACTERS = 72


def subtitle(study: PipelineStudy, better: str = "", microbatches: int | None = None) -> str:
    """Whose numbers a figure shows: subject and shape; better: the direction in which numbers are better, or ""."""
    shape = f"{study['stages']} stages" + (f" x {microbatches} microbatches" if microbatches else "")
    text = f"{study.subject}, {study['name']}, {shape}" + (f"; better: {better}" if better else "")
    return textwrap.fill(text, _CHARACTERS)
