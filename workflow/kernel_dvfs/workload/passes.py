"""The order of an iteration's launches: its passes, and the rows within them.

A pass is what shares one clock pair when clocks change per pass, not per kernel. The paper sets one (memory, core)
pair per pass without saying where embedding and loss belong, so the boundary is an option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.workload.shapes import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_dvfs.workload.rows import Row

# where the rows of the loss calculation go
BOUNDARIES = {
    # llm.c: its forward function ends with the logits, its backward starts with the classifier
    "llmc": {"loss_logits_gemm": "forward", "rest": "backward"},
    # the classifier makes the loss, so it joins forward
    "loss_forward": {"loss_logits_gemm": "forward", "loss_softmax": "forward", "rest": "backward"},
    # logits, loss and their gradients in a pass of their own
    "loss_separate": {"rest": "loss"},
}

_PASS_OF_SECTION = {
    "Embedding": "forward",
    "Forward": "forward",
    "Backward": "backward",
    "Embedding backward": "backward",
}


def passes(rows: list[Row], boundary: str = "llmc") -> dict[str, list[tuple[str, int]]]:
    """Return the passes of the iteration that `rows` (from kernel_rows) make up: {name: [(row id, repeat), ...]}.

    Names in order of execution: forward, backward; forward, loss, backward for "loss_separate".
    A pass runs its rows back to back on one stream under one clock pair. `repeat` = launches in the pass.
    Neighbours with the same repeat belong together: a run of rows with repeat L is one layer, and the whole
    layer is cycled L times on one layer's buffers (not row by row). Without that repetition the logits GEMM
    would be most of the forward pass and pull its clocks.
    Raises InputError on an unknown boundary.
    """
    loss = BOUNDARIES[one_of("boundary", boundary, BOUNDARIES)]
    result: dict[str, list[tuple[str, int]]] = {}
    for row in rows:
        name = _PASS_OF_SECTION.get(row.section) or loss.get(row.id, loss["rest"])
        result.setdefault(name, []).append((row.id, row.multiplicity))
    return result


def launch_order(rows: Iterable[tuple[str, int]]) -> list[str]:
    """Return ids in order of launch. rows: [(id, repeat)] in order; neighbours with the same repeat are one layer,
    which is run through as often."""
    order: list[str] = []
    layer: list[str] = []
    repeat = 0
    for name, times in rows:
        if times != repeat:
            order += layer * repeat
            layer, repeat = [], times
        layer.append(name)
    return order + layer * repeat
