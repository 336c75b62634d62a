"""Whose numbers a figure of the pipeline study shows."""

import textwrap

_CHARACTERS = 72


def subtitle(study, better: str = "", microbatches: int | None = None) -> str:
    """The study's subject and shape; better: the direction in which numbers are better, or ""."""
    shape = f"{study['stages']} stages" + (f" x {microbatches} microbatches" if microbatches else "")
    text = f"{study.subject}, {study['name']}, {shape}" + (f"; better: {better}" if better else "")
    return textwrap.fill(text, _CHARACTERS)
