"""Rows of an iteration as plans of the CUDA extension, and passes of them. Knows no clock and no window.

`cuda` is the loaded extension (kernel_dvfs.native.load), everywhere.
"""

from kernel_dvfs.workload.dataflow import bindings


def row_plan(cuda, arena, row, model, tensor_parallel=1, algorithm="heuristic", **options):
    """The Plan of a workload row of that degree, its tensors shared by name with the arena's other plans.

    algorithm: of its GEMM, if it is one; options: the others of cuda.Plan (variant, rotate, seed, zipf_exponent).
    Raises cuda.ShapeError, cuda.OutOfMemory.
    """
    if row.gemm:
        options["algorithm"] = algorithm
    return cuda.Plan(arena, row.op, row.settings, tensors=bindings(row, model, tensor_parallel), **options)


def pass_groups(steps) -> list:
    """[(row id, repeat), ...] of workload.passes as [([row id, ...], repeat), ...]: neighbours with the same repeat
    are one layer, cycled as a whole."""
    groups = []
    for row_id, repeat in steps:
        if groups and groups[-1][1] == repeat:
            groups[-1][0].append(row_id)
        else:
            groups.append(([row_id], repeat))
    return groups


def pass_of(cuda, plans, steps):
    """The cuda.Pass of [(row id, repeat), ...], of plans by row id."""
    return cuda.Pass([([plans[row_id] for row_id in ids], repeat) for ids, repeat in pass_groups(steps)])
