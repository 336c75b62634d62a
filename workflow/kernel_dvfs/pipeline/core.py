"""The compiled part of the search for plans (native/pipeline), where `kernel-dvfs build` has made it.

Everything works without it, slower, and one clock per operation then loses a little more (docs/pipeline.md): the
frontier, the bound and every promise are the same, which tests/pipeline/test_core.py checks.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.native.load import load
from kernel_dvfs.pipeline.curve import Curve

if TYPE_CHECKING:
    from kernel_dvfs.pipeline.graph import Graph
    from kernel_dvfs.pipeline.rounding import Offered


def core(results_dir: str | os.PathLike[str] = "results") -> Any | None:
    """The extension module, or None where it is not built."""
    return _loaded(os.path.abspath(results_dir))


@cache
def _loaded(results_dir: str) -> Any | None:
    try:
        return load("pipeline", results_dir)
    except InputError:
        return None


def edges(module: Any, graph: Graph) -> Any:
    """The graph's edges as the core takes them."""
    return module.Edges(graph.tail, graph.head, graph.lag_ticks)


def network(module: Any, graph: Graph, curves: list[Curve], offered: Offered) -> Any:
    """The linear programme of a graph. curves, offered: one per operation; every vertex of a curve is offered."""
    first = np.concatenate([[0], np.cumsum([len(curve.ticks) for curve in curves])])
    ticks = np.concatenate([curve.ticks for curve in curves])
    cost_j = np.concatenate([curve.cost_j for curve in curves])
    # one price a vertex: that of the segment on its fast side, of which the fastest has none
    price_uw = np.concatenate([np.append(0, curve.price_uw) for curve in curves])
    hull = module.Choices(first, ticks, cost_j)
    options = module.Choices(offered.first, offered.ticks, offered.cost_j)
    return module.Network(edges(module, graph), hull, price_uw, options)
