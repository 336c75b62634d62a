"""FLOP and bytes of each operation, per launch, from the sizes of one rank.

A function is named as its operation is everywhere: in operations.py, in the C reference, in the CUDA kernels.

Bytes are compulsory DRAM traffic: every operand once, in whole tensors, plus one read of C where a GEMM
accumulates. FLOP of kernels other than GEMM are operation counts (fma 2; exp, tanh, division 1), good to
about 30 %. bf16 tensors; fp32 for mean, rstd, losses and bias partial sums; int32 token ids.

Resident bytes are the buffers of a drift-free launch: one that may be repeated for seconds without changing
its own input. In-place kernels run out of place, accumulating ones write elsewhere than they read, and
buffers count whole even where a launch touches a part (token table, squares above the diagonal, padding).

Special-function operations (ex2, rcp, tanh class) are counted for GELU, softmax, fused attention and classifier; the
one reciprocal square root per row of a layernorm is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_dvfs.workload.shapes import Shape

BF16, FP32, INT32 = 2, 4, 4  # bytes

# Traffic that follows from the expected number of different tokens is rounded to a thousandth of a byte:
# so it is equal on every machine, whatever the last digit of its logarithm
EXPECTED_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one launch. Ints, except for the traffic of the kernels that look up tokens, an expected value."""

    flop: float  # operations
    read_byte: float  # B of DRAM traffic
    write_byte: float  # B of DRAM traffic
    resident_byte: float  # B of buffers, drift-free
    sfu_op: float  # special-function operations
    tensor_flop: float = 0  # of `flop`, by tensor cores


@dataclass(frozen=True, slots=True)
class Gemm:
    """Products of (m,k) and (k,n), row-major: m output rows."""

    count: int  # products in one launch
    m: int
    n: int
    k: int
    layout: str  # BLAS transposes, TN | NN | NT (column-major)
    bias_epilogue: bool  # whether a vector of n is added
    beta: int  # 1 accumulates onto C, 0 overwrites


def _work(
    flop: float,
    read_byte: float,
    write_byte: float,
    resident_byte: float | None = None,
    sfu_op: int = 0,
    tensor_flop: float = 0,
) -> Work:
    if resident_byte is None:
        resident_byte = read_byte + write_byte
    return Work(flop, read_byte, write_byte, resident_byte, sfu_op, tensor_flop)


def gemm(g: Gemm) -> Work:
    """2·count·m·n·k FLOP; both factors, bias and accumulator read once, result written once."""
    result = g.count * g.m * g.n * BF16
    read = g.count * (g.m * g.k + g.k * g.n) * BF16
    read += g.n * BF16 if g.bias_epilogue else 0
    read += result if g.beta else 0
    flop = 2 * g.count * g.m * g.n * g.k
    return _work(flop, read, result, tensor_flop=flop)


def embedding_forward(s: Shape) -> Work:
    """enc(Ms,C) = wte[ids] + wpe[t]: U rows of wte are read, all of it is resident."""
    table_free = s.Ms * INT32 + s.T_tp * s.C * BF16
    out = s.Ms * s.C * BF16
    return _work(
        s.Ms * s.C,
        read_byte=round(table_free + s.U * s.C * BF16, EXPECTED_DIGITS),
        write_byte=out,
        resident_byte=table_free + s.Vp * s.C * BF16 + out,
    )


def layernorm_forward(s: Shape) -> Work:
    """ln(Ms,C), mean and rstd (Ms) from x(Ms,C), weight and bias (C)."""
    return _work(
        8 * s.Ms * s.C,
        read_byte=(s.Ms + 2) * s.C * BF16,
        write_byte=s.Ms * s.C * BF16 + 2 * s.Ms * FP32,
    )


def residual_layernorm(s: Shape) -> Work:
    """res(Ms,C) = a + b, then its layernorm: two tensors in, two out."""
    return _work(
        9 * s.Ms * s.C,
        read_byte=(2 * s.Ms + 2) * s.C * BF16,
        write_byte=2 * s.Ms * s.C * BF16 + 2 * s.Ms * FP32,
    )


def layernorm_backward(s: Shape) -> Work:
    """dres(Ms,C) += from dout, x, mean, rstd; dweight and dbias (C) +=."""
    return _work(
        15 * s.Ms * s.C,
        read_byte=(3 * s.Ms + 3) * s.C * BF16 + 2 * s.Ms * FP32,
        write_byte=(s.Ms + 2) * s.C * BF16,
    )


def permute_qkv_forward(s: Shape) -> Work:
    """(B,T,3,NH,HS) to three (B,NH,T,HS)."""
    moved = s.M * s.C3_tp * BF16
    return _work(0, moved, moved)


def permute_qkv_backward(s: Shape) -> Work:
    """Three (B,NH,T,HS) to (B,T,3,NH,HS)."""
    return permute_qkv_forward(s)


def permute_heads_forward(s: Shape) -> Work:
    """(B,NH,T,HS) to (B,T,NH,HS)."""
    moved = s.M * s.C_tp * BF16
    return _work(0, moved, moved)


def permute_heads_backward(s: Shape) -> Work:
    """(B,T,NH,HS) to (B,NH,T,HS)."""
    return permute_heads_forward(s)


def softmax_forward(s: Shape) -> Work:
    """Causal softmax of (heads,T,T): only the lower triangle moves. The exponential is taken twice: in the
    running sum and again when writing."""
    triangle = s.heads * s.tri
    return _work(
        10 * triangle,
        read_byte=triangle * BF16,
        write_byte=triangle * BF16,
        resident_byte=2 * s.heads * s.T * s.T * BF16,
        sfu_op=2 * triangle,
    )


def softmax_backward(s: Shape) -> Work:
    """dpre from att and datt, lower triangles; zeros are written above the diagonal."""
    triangle, square = s.heads * s.tri, s.heads * s.T * s.T
    return _work(
        5 * triangle,
        read_byte=2 * triangle * BF16,
        write_byte=square * BF16,
        resident_byte=3 * square * BF16,
    )


def attention_forward(s: Shape) -> Work:
    """Causal attention in one launch (Dao, arXiv 2307.08691): out(M,C/tp) and lse(heads,T) fp32 from qkv(M,3C/tp).

    Two products over the lower triangle, which is all that is needed; tiles that the diagonal crosses are computed
    whole, as no count here has it. Of each score: scale and shift, maximum, exponential, sum, and its share of
    rescaling what is summed so far."""
    triangle = s.heads * s.tri
    products = 2 * 2 * triangle * s.HS
    return _work(
        products + 6 * triangle,
        read_byte=s.M * s.C3_tp * BF16,
        write_byte=s.M * s.C_tp * BF16 + s.heads * s.T * FP32,
        sfu_op=triangle,
        tensor_flop=products,
    )


def attention_backward(s: Shape) -> Work:
    """dqkv(M,3C/tp) from qkv, out, dout and lse: five products over the lower triangle, one of them the scores again.

    Partial sums of dq that a library may keep in memory are no compulsory traffic."""
    triangle = s.heads * s.tri
    products = 5 * 2 * triangle * s.HS
    return _work(
        products + 6 * triangle + 2 * s.M * s.C_tp,
        read_byte=s.M * s.C3_tp * BF16 + 2 * s.M * s.C_tp * BF16 + s.heads * s.T * FP32,
        write_byte=s.M * s.C3_tp * BF16,
        sfu_op=triangle,
        tensor_flop=products,
    )


def gelu_forward(s: Shape) -> Work:
    """GELU in its tanh form over (M,4C/tp); a tanh is one ex2 and one rcp."""
    n = s.M * s.C4_tp
    return _work(9 * n, n * BF16, n * BF16, sfu_op=2 * n)


def gelu_backward(s: Shape) -> Work:
    """dfch = dg∘GELU'(fch); sech² = 1 - tanh², so again one tanh an element."""
    n = s.M * s.C4_tp
    return _work(20 * n, 2 * n * BF16, n * BF16, sfu_op=2 * n)


def classifier(s: Shape) -> Work:
    """Softmax, cross-entropy and dlogits over V of Vp columns; targets int32, losses fp32 (+=).
    Two exponentials an element: in the running sum and again when writing the gradient."""
    n = s.Ms * s.V
    return _work(
        12 * n,
        read_byte=n * BF16 + s.Ms * (INT32 + FP32),
        write_byte=n * BF16 + s.Ms * FP32,
        resident_byte=2 * s.Ms * s.Vp * BF16 + s.Ms * (INT32 + 2 * FP32),
        sfu_op=2 * n,
    )


def bias_backward(rows: int, columns: int, split: int) -> Work:
    """Column sums of (rows,columns): `split` fp32 partial sums per column, or the finished bf16 sums if 1."""
    read = rows * columns * BF16
    if split > 1:
        return _work(rows * columns, read, split * columns * FP32)
    old = columns * BF16  # drift-free it adds to a gradient kept apart; llm.c overwrites, so no traffic
    return _work(rows * columns, read, columns * BF16, resident_byte=read + columns * BF16 + old)


def bias_reduce(rows: int, columns: int, split: int) -> Work:
    """dbias(columns) += sum of `split` fp32 partial sums; the number of `rows` no longer matters."""
    return _work(split * columns, split * columns * FP32 + columns * BF16, columns * BF16)


def wpe_backward(s: Shape) -> Work:
    """dwpe(T/tp,C) += sum over the batch of dres."""
    table = s.T_tp * s.C * BF16
    return _work(s.Ms * s.C, s.Ms * s.C * BF16 + table, table)


def wte_backward(s: Shape) -> Work:
    """dwte[ids] += dres: one bucket per different token and group of 256 channels (16 B a bucket, 4 B a token
    in it). Resident: the whole table before and after, and room for as many buckets as there can be."""
    groups = -(-s.C // 256)
    dres = s.Ms * s.C * BF16
    touched = s.U * s.C * BF16
    return _work(
        s.Ms * s.C,
        read_byte=round(dres + touched + groups * (16 * s.U + INT32 * s.Ms), EXPECTED_DIGITS),
        write_byte=round(touched, EXPECTED_DIGITS),
        resident_byte=dres + 2 * s.Vp * s.C * BF16 + groups * (16 * min(s.Ms, s.Vp) + INT32 * s.Ms),
    )
