"""CUDA kernels against the C reference: the same operation, the same values, compared element by element.

`cases` are the rows of small models that show that the kernels are right, `check_row` compares one of them. Works on a
machine with a GPU; `cuda` and `cpu` are the loaded extensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernel_dvfs.workload.dataflow import bindings
from kernel_dvfs.workload.models import FUSED, Model
from kernel_dvfs.workload.operations import Settings
from kernel_dvfs.workload.rows import Row, kernel_rows
from kernel_dvfs_clocks.errors import InputError

# A bf16 result may fall to either side of a rounding boundary, and once more where the reference rounded in between:
# one unit in the last place. What cancels to almost nothing has the rounding errors of its neighbours.
RELATIVE = 2.0**-7
OF_TYPICAL = 2.0**-12
FLOAT32_RELATIVE = 2e-4
# Fused attention rounds its weights, and backward the gradients of its scores, to bf16 before they are multiplied: an
# error of the terms of a sum, which cancel, most of all in the first positions, whose terms are large. A model of that
# rounding in NumPy deviates by up to 0.033 of the typical value beyond RELATIVE, in 31 million elements of unit normal
# values; cuDNN on an H200 by as much, in 84 million
FUSED_OF_TYPICAL = 2.0**-4
FUSED_OPERATIONS = ("attention_forward", "attention_backward")
# channels of the longest row that each way of layernorm_backward to read rows takes (native/cuda/layernorm.cu)
LAYERNORM_READING = {"one_ahead": 6144, "one_by_one": 12288, "twice": 16384}
# further forms of an operation that give the same result
_VARIANTS = {
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

Arrays = dict[str, np.ndarray]  # {tensor of the row's operation: its values}


def _small(
    name: str, channels: int, heads: int, sequence: int = 64, vocab: int = 1003, padded_vocab: int = 1024
) -> Model:
    return Model(name, 1, channels, heads, vocab, padded_vocab, sequence)


TINY = _small("tiny", channels=256, heads=2)
# (model, batch, degrees, operations to leave out)
_CASES: tuple[tuple[Model, int, tuple[int, ...], tuple[str, ...]], ...] = (
    (TINY, 2, (1, 2), ()),
    # a vocabulary that ends in the middle of a pack, a sequence that is no power of two, 3 sequences
    (_small("odd", channels=264, heads=3, sequence=72, vocab=509, padded_vocab=512), 3, (1,), ()),
    (_small("xl-wide", channels=2048, heads=16, sequence=128), 2, (1, 2, 4, 8, 16), ()),
    # head sizes 64, 96, 80 and the widest rows; their products differ from the above in size only
    (_small("125m-wide", channels=768, heads=12), 1, (1,), ("gemm",)),
    (_small("760m-wide", channels=1536, heads=16), 1, (1,), ("gemm",)),
    (_small("2.7b-wide", channels=2560, heads=32), 1, (1,), ("gemm",)),
    (_small("13b-wide", channels=5120, heads=40), 1, (1,), ("gemm",)),
    (_small("175b-wide", channels=12288, heads=96), 1, (1,), ("gemm",)),
    # the whole vocabulary and a full row of attention
    (_small("long", channels=256, heads=2, sequence=1024, vocab=50257, padded_vocab=50304), 1, (1,), ("gemm",)),
    # fused attention: the same sizes of its own, and heads of 64, 80, 96 and 128 channels
    *(
        (replace(_small(name, channels, heads, sequence), attention=FUSED), 2, degrees, ())
        for name, channels, heads, sequence, degrees in (
            ("xl-fused", 2048, 16, 128, (1, 16)),
            ("125m-fused", 768, 12, 64, (1,)),
            ("2.7b-fused", 640, 8, 192, (1,)),
            ("760m-fused", 384, 4, 72, (1,)),
            ("long-fused", 256, 2, 1024, (1,)),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A tensor of a row's operation against the reference."""

    row: str  # its id
    op: str
    settings: Settings
    tensor: str
    excess: float  # largest deviation as a share of the allowed one: at most 1 in a kernel that is right
    error: float  # the largest absolute deviation


def cases(sm_count: int, threads_per_sm: int, fused: bool = True) -> Iterator[tuple[Model, int, int, str, Row]]:
    """Return (model, batch, degree, split, row) of every check, split "table1" and "llmc" for a GPU of that size.

    Every row, tails, tensor parallelism, both splits of the bias gradients, heads and widths of all models; small
    enough for the C reference.
    """
    for model, batch, degrees, left_out in _CASES:
        if model.attention == FUSED and not fused:
            continue
        for degree in degrees:
            # llm.c's split asks for more partial sums than a rank of a small model has tokens
            for split in ("table1", "llmc") if degree == 1 else ("table1",):
                rows = kernel_rows(
                    model, batch, degree, bias_split=split, sm_count=sm_count, threads_per_sm=threads_per_sm
                )
                for row in rows:
                    of_split = row.family in ("bias", "bias_reduce")
                    wanted = row.op in FUSED_OPERATIONS if model.attention == FUSED else row.op not in left_out
                    if wanted and (split == "table1" or of_split):
                        yield model, batch, degree, split, row


def variants(row: Row) -> tuple[str, ...]:
    """Return the forms in which a row can be launched, the default first."""
    if row.op == "layernorm_backward":
        channels = int(row.settings["C"])
        return ("vector", *(name for name, longest in LAYERNORM_READING.items() if channels <= longest))
    return ("vector", *_VARIANTS.get(row.op, ()))


def widen(bits: np.ndarray) -> np.ndarray:
    """Return bf16 bits (uint16) as float32, exact; other types as they are."""
    bits = np.asarray(bits)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32) if bits.dtype == np.uint16 else bits


def check_row(
    cuda: Any, cpu: Any, arena: Any, row: Row, model: str | Model, variant: str = "vector"
) -> list[Deviation]:
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


def _reference(cpu: Any, row: Row, inputs: Arrays, untouched: Arrays) -> Arrays:
    if row.op == "gemm" and row.flop > WHOLE_PRODUCT_FLOP:
        return _sampled_product(cpu, row, inputs)
    return cpu.run(row.op, row.settings, inputs | untouched, dtype="bf16")


def _rows_sampled(row: Row) -> np.ndarray | None:
    """Return which of the M rows of a large product are compared; None: all."""
    if row.op != "gemm" or row.flop <= WHOLE_PRODUCT_FLOP:
        return None
    return np.linspace(0, int(row.settings["M"]) - 1, SAMPLED_ROWS).astype(int)


def _sampled(row: Row, result: np.ndarray) -> np.ndarray:
    rows = _rows_sampled(row)
    return result if rows is None else result[..., rows, :]


def _sampled_product(cpu: Any, row: Row, inputs: Arrays) -> Arrays:
    rows = _rows_sampled(row)
    assert rows is not None  # it is a large product
    few = dict(inputs)
    few["a"] = np.ascontiguousarray(few["a"][..., rows] if row.settings["layout"] == "NT" else few["a"][..., rows, :])
    if "c" in few:
        few["c"] = np.ascontiguousarray(few["c"][..., rows, :])
    return cpu.run("gemm", row.settings | {"M": len(rows)}, few, dtype="bf16")


def _deviation(op: str, result: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Return (excess, error) of arrays of one type; what neither side wrote is equal bit for bit."""
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
    is_bf16 = result.dtype == np.uint16
    relative = RELATIVE if is_bf16 else FLOAT32_RELATIVE
    of_typical = FUSED_OF_TYPICAL if is_bf16 and op in FUSED_OPERATIONS else OF_TYPICAL
    allowed = relative * np.abs(np.where(written, want, 0.0)) + of_typical * typical
    return float(np.max(error / np.maximum(allowed, 1e-300))), float(error.max())
