"""CUDA kernels against the C reference: the same operation, the same values, compared element by element.

Works on a machine with a GPU; `cuda` and `cpu` are the loaded extensions.
"""

from collections import namedtuple

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.workload.dataflow import bindings

# A bf16 result may fall to either side of a rounding boundary, and once more where the reference rounded in between:
# one unit in the last place. What cancels to almost nothing has the rounding errors of its neighbours.
RELATIVE = 2.0**-7
OF_TYPICAL = 2.0**-12
FLOAT32_RELATIVE = 2e-4
# further forms of an operation that give the same result
VARIANTS = {
    "permute_qkv_forward": ("scalar",),
    "permute_qkv_backward": ("scalar",),
    "permute_heads_forward": ("scalar",),
    "permute_heads_backward": ("scalar",),
    "softmax_backward": ("scalar",),
}
EXACT = ("permute_qkv_forward", "permute_qkv_backward", "permute_heads_forward", "permute_heads_backward")
# products beyond this are compared in a few of their rows only
WHOLE_PRODUCT_FLOP = 2e8
SAMPLED_ROWS = 8


class Deviation(namedtuple("Deviation", "row op settings tensor excess error")):
    """A tensor of a row's operation against the reference.

    excess: largest deviation as a share of the allowed one, at most 1 in a kernel that is right;
    error: the largest absolute deviation.
    """

    __slots__ = ()


def widen(bits):
    """bf16 bits (uint16) as float32, exact; other types as they are."""
    bits = np.asarray(bits)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32) if bits.dtype == np.uint16 else bits


def check_row(cuda, cpu, arena, row, model, variant="vector") -> list[Deviation]:
    """Run one launch of `row` on the GPU and on the C reference; a Deviation per output.

    Outputs are poisoned before, so an element that is not written shows. Also raises InputError if a second launch
    gives other bits than the first.
    """
    fills = {tensor: {"fill": binding["fill"]} for tensor, binding in bindings(row, model).items()}
    plan = cuda.Plan(arena, row.op, row.settings, tensors=fills, variant=variant)
    inputs, untouched = {}, {}
    for name, role, dtype, shape in plan.tensors():
        if role == "input":
            inputs[name] = plan.read(name)
        else:
            poison = np.full(shape, 0x7FC1 if dtype == "uint16" else np.nan, dtype)
            plan.write(name, poison)
            untouched[name] = poison
    plan.run(1)
    results = {name: plan.read(name) for name in untouched}
    before = plan.checksum()
    plan.run(3)
    if plan.checksum() != before:
        raise InputError(f"{row.id}: repeating the launch changes its result ({plan.info()['shape']})")
    wanted = _reference(cpu, row, inputs, untouched)
    return [
        Deviation(row.id, row.op, row.settings, name, *_deviation(row.op, _sampled(row, result), wanted[name]))
        for name, result in results.items()
    ]


def _reference(cpu, row, inputs, untouched) -> dict:
    if row.op == "gemm" and row.flop > WHOLE_PRODUCT_FLOP:
        return _sampled_product(cpu, row, inputs)
    return cpu.run(row.op, row.settings, inputs | untouched, dtype="bf16")


def _rows_sampled(row):
    """Which of the M rows of a large product are compared; None: all."""
    if row.op != "gemm" or row.flop <= WHOLE_PRODUCT_FLOP:
        return None
    return np.linspace(0, row.settings["M"] - 1, SAMPLED_ROWS).astype(int)


def _sampled(row, result):
    rows = _rows_sampled(row)
    return result if rows is None else result[..., rows, :]


def _sampled_product(cpu, row, inputs) -> dict:
    rows = _rows_sampled(row)
    few = dict(inputs)
    few["a"] = np.ascontiguousarray(few["a"][..., rows] if row.settings["layout"] == "NT" else few["a"][..., rows, :])
    if "c" in few:
        few["c"] = np.ascontiguousarray(few["c"][..., rows, :])
    return cpu.run("gemm", row.settings | {"M": len(rows)}, few, dtype="bf16")


def _deviation(op, result, wanted) -> tuple:
    """(excess, error) of arrays of one type; what neither side wrote is equal bit for bit."""
    same = result == wanted
    if result.dtype != np.uint16:
        same |= np.isnan(result) & np.isnan(wanted)
    if same.all():
        return 0.0, 0.0
    if op in EXACT or result.dtype == np.int32:
        return float("inf"), float("nan")
    got, want = widen(result).astype(np.float64), widen(wanted).astype(np.float64)
    error = np.where(same, 0.0, np.abs(got - want))
    if np.isnan(error).any():
        return float("inf"), float("nan")
    written = np.isfinite(want)
    typical = np.sqrt(np.mean(np.square(want[written]))) if written.any() else 0.0
    relative = RELATIVE if result.dtype == np.uint16 else FLOAT32_RELATIVE
    allowed = relative * np.abs(np.where(written, want, 0.0)) + OF_TYPICAL * typical
    return float(np.max(error / np.maximum(allowed, 1e-300))), float(error.max())
