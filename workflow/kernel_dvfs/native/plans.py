"""Rows of an iteration as plans of the CUDA extension, and passes of them.

`cuda` is the loaded extension (kernel_dvfs.native.load), everywhere; what it makes is typed Any.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kernel_dvfs.workload.dataflow import bindings
from kernel_dvfs.workload.models import Model
from kernel_dvfs.workload.rows import Row


def row_plan(
    cuda: Any,
    arena: Any,
    row: Row,
    model: str | Model,
    tensor_parallel: int = 1,
    algorithm: Any = "heuristic",
    choices: Any = None,
    **options: Any,
) -> Any:
    """Return the Plan of a workload row of that degree, its tensors shared by name with the arena's other plans.

    algorithm: of its GEMM, if it is one. choices: those of earlier processes (measurement.real.gemm_algorithms),
    taken where the algorithm is to be "timed", and told of a new choice. options: the others of cuda.Plan (variant,
    rotate, seed, zipf_exponent). Raises cuda.ShapeError, cuda.OutOfMemory.
    """
    is_kept = choices is not None and bool(row.gemm) and algorithm == "timed"
    known = choices.known(row.settings) if is_kept else None
    if row.gemm:
        options["algorithm"] = known or algorithm
    plan = cuda.Plan(arena, row.op, row.settings, tensors=bindings(row, model, tensor_parallel), **options)
    if is_kept and known is None:
        choices.keep(row.settings, plan.info())
    return plan


def pass_groups(steps: Iterable[tuple[str, int]]) -> list[tuple[list[str], int]]:
    """Return [(row id, repeat), ...] of workload.passes as [([row id, ...], repeat), ...]: neighbours with the same
    repeat are one layer, cycled as a whole."""
    groups: list[tuple[list[str], int]] = []
    for row_id, repeat in steps:
        if groups and groups[-1][1] == repeat:
            groups[-1][0].append(row_id)
        else:
            groups.append(([row_id], repeat))
    return groups


def pass_of(cuda: Any, plans: Mapping[str, Any], steps: Iterable[tuple[str, int]]) -> Any:
    """Return the cuda.Pass of [(row id, repeat), ...], of plans by row id."""
    return cuda.Pass([([plans[row_id] for row_id in ids], repeat) for ids, repeat in pass_groups(steps)])
