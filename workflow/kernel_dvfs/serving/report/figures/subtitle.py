"""Whose numbers a figure of the serving study shows."""

import textwrap

_CHARACTERS = 72


def subtitle(study, better: str = "") -> str:
    """The study's subject and size; better: the direction in which numbers are better, or ""."""
    own = study["settings"]
    text = f"{study.subject}, {own['servers']} servers of 8 GPUs" + (f"; better: {better}" if better else "")
    return textwrap.fill(text, _CHARACTERS)
