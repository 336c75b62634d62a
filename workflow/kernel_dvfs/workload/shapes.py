"""The sizes one rank works with, by the letters of the formulas, and how they follow from a workload's settings.

Tensor parallelism in the manner of Megatron-LM with sequence parallelism: attention heads and the hidden layer of the
MLP are split over the ranks; embedding, layernorms, residuals and loss split the tokens instead. Two sizes need more
than a division: the number of different tokens in a batch, and llm.c's split of the bias gradients, which depends on
the GPU's size.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from kernel_dvfs.workload import models
from kernel_dvfs_clocks.errors import InputError

ROW_PARALLEL_BIAS = ("sequence", "gathered")
BIAS_SPLITS = ("table1", "llmc")

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes on one rank. All are counts."""

    B: int  # batch: sequences
    T: int  # tokens of a sequence
    C: int  # channels
    HS: int  # channels of an attention head
    V: int  # vocabulary
    Vp: int  # padded vocabulary
    M: int  # B·T tokens
    Ms: int  # M/tp tokens of a sequence-parallel rank
    Mb: int  # tokens in the bias gradient of a row-parallel layer: Ms or M
    T_tp: int  # T/tp
    C_tp: int  # C/tp
    C3_tp: int  # 3C/tp
    C4_tp: int  # 4C/tp
    heads: int  # B·NH/tp attention heads over the whole batch
    tri: int  # T(T+1)/2 elements on and below a diagonal
    U: float  # expected number of different tokens among Ms


def rank_shape(
    model: str | models.Model,
    batch: int,
    tensor_parallel: int,
    row_parallel_bias: str = "sequence",
    zipf_exponent: float | None = None,
) -> Shape:
    """Return the shape of one rank for a model (name or Model), batch and tensor-parallel degree.

    `row_parallel_bias`: the bias gradients of the row-parallel layers sum over this rank's tokens
    ("sequence") or over all of them ("gathered"). `zipf_exponent`: see expected_distinct_tokens.
    Raises InputError on an unknown model or mode, batch < 1, or a degree that does not split the model.
    """
    model = models.model(model)
    whole_number("batch", batch)
    tp = whole_number("tensor_parallel", tensor_parallel)
    one_of("row_parallel_bias", row_parallel_bias, ROW_PARALLEL_BIAS)
    degrees = models.tensor_parallel_degrees(model)
    if tp not in degrees:
        raise InputError(
            f"tensor_parallel {tp} does not divide the {model.heads} heads and {model.sequence} positions "
            f"of {model.name}: allowed are {', '.join(map(str, degrees))}"
        )
    B, T, C = batch, model.sequence, model.channels
    M, Ms = B * T, B * T // tp
    return Shape(
        B=B,
        T=T,
        C=C,
        HS=C // model.heads,
        V=model.vocab,
        Vp=model.padded_vocab,
        M=M,
        Ms=Ms,
        Mb=Ms if row_parallel_bias == "sequence" else M,
        T_tp=T // tp,
        C_tp=C // tp,
        C3_tp=3 * C // tp,
        C4_tp=4 * C // tp,
        heads=B * model.heads // tp,
        tri=T * (T + 1) // 2,
        U=expected_distinct_tokens(model.vocab, Ms, zipf_exponent),
    )


def expected_distinct_tokens(vocab: int, tokens: int, zipf_exponent: float | None = None) -> float:
    """Return the expected number of different ids among `tokens` independent draws from `vocab` ids.

    The embedding kernels touch one row of the table per different token, so their traffic is an expected value: the
    sum over ids v of 1 - (1 - p_v)^tokens. `zipf_exponent` None: uniform ids, p_v = 1/vocab; s >= 0: p_v proportional
    to rank^-s (natural text has s near 1; s = 0 is uniform).
    Raises InputError on an exponent that is negative or no number.
    """
    if zipf_exponent is None:
        return vocab * _chance_of_occurring(1 / vocab, tokens)
    if (
        isinstance(zipf_exponent, bool)
        or not isinstance(zipf_exponent, (int, float))
        or not (0 <= zipf_exponent < math.inf)
    ):
        raise InputError(f"zipf_exponent must be a finite number of at least 0, not {zipf_exponent!r}")
    weights = [rank**-zipf_exponent for rank in range(1, vocab + 1)]
    total = math.fsum(weights)
    return math.fsum(_chance_of_occurring(weight / total, tokens) for weight in weights)


def _chance_of_occurring(p: float, tokens: int) -> float:
    # 1 - (1-p)^tokens without cancellation for small p
    return 1.0 if p >= 1 else -math.expm1(tokens * math.log1p(-p))


def llmc_split(columns: int, sm_count: int, threads_per_sm: int) -> int:
    """Return the partial sums g per column for a gradient of `columns` biases, on a GPU of that size. Source: llm.c,
    llmc/matmul.cuh.

    llm.c fills the GPU with blocks: few column blocks leave room to split the rows over g blocks, whose fp32 partial
    sums a second launch ("Bias reduce") adds up. So the list of launches depends on the GPU.

    g = max(1, floor(threads_per_sm·sm_count / (block·ceil(columns/64)))): a block covers 64 columns
    (8 threads of 8 bf16) and has 768 threads where an SM holds 1536, else 1024.
    """
    block = 768 if threads_per_sm == 1536 else 1024
    column_blocks = -(-columns // 64)
    return max(1, threads_per_sm * sm_count // (block * column_blocks))


# --- refusals of impossible settings, in one line ---------------------------------------------------------------------


def whole_number(key: str, value: object) -> int:
    """Return `value` if it is an int >= 1. Raises InputError naming `key`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{key} must be a whole number of at least 1, not {value!r}")
    return value


def one_of(key: str, value: _Value, allowed: Iterable[_Value]) -> _Value:
    """Return `value` if it is in `allowed`. Raises InputError naming `key` and what is allowed."""
    if value not in allowed:
        raise InputError(f"{key} {value!r} is unknown: allowed are {', '.join(map(str, allowed))}")
    return value
