"""FLOP and bytes of each operation, per launch; knows sizes, but no row of the table and no GPU.

A function is named as its operation is everywhere: in operations.py, in the C reference, in the CUDA kernels.

Bytes are compulsory DRAM traffic: every operand once, in whole tensors, plus one read of C where a GEMM
accumulates. FLOP of kernels other than GEMM are operation counts (fma 2; exp, tanh, division 1), good to
about 30 %. bf16 tensors; fp32 for mean, rstd, losses and bias partial sums; int32 token ids.

Resident bytes are the buffers of a drift-free launch: one that may be repeated for seconds without changing
its own input. In-place kernels run out of place, accumulating ones write elsewhere than they read, and
buffers count whole even where a launch touches a part (token table, squares above the diagonal, padding).

Special-function operations (ex2, rcp, tanh class) are counted for GELU, softmax and classifier; the one
reciprocal square root per row of a layernorm is ignored.
"""

from collections import namedtuple

BF16, FP32, INT32 = 2, 4, 4  # bytes

# Traffic that follows from the expected number of different tokens is rounded to a thousandth of a byte:
# so it is equal on every machine, whatever the last digit of its logarithm
EXPECTED_DIGITS = 3


class Work(namedtuple("Work", "flop read_byte write_byte resident_byte sfu_op")):
    """Work of one launch: flop (operations), read_byte and write_byte (B of DRAM traffic),
    resident_byte (B of buffers, drift-free), sfu_op (special-function operations)."""

    __slots__ = ()


class Gemm(namedtuple("Gemm", "count m n k layout bias_epilogue beta")):
    """`count` products of (m,k) and (k,n), row-major: m output rows. `layout`: BLAS transposes, TN | NN | NT
    (column-major). `bias_epilogue` (bool): adds a vector of n. `beta`: 1 accumulates onto C, 0 overwrites."""

    __slots__ = ()


def _work(flop, read_byte, write_byte, resident_byte=None, sfu_op=0):
    if resident_byte is None:
        resident_byte = read_byte + write_byte
    return Work(flop, read_byte, write_byte, resident_byte, sfu_op)


def gemm(g):
    """2·count·m·n·k FLOP; both factors, bias and accumulator read once, result written once."""
    result = g.count * g.m * g.n * BF16
    read = g.count * (g.m * g.k + g.k * g.n) * BF16
    read += g.n * BF16 if g.bias_epilogue else 0
    read += result if g.beta else 0
    return _work(2 * g.count * g.m * g.n * g.k, read, result)


def embedding_forward(s):
    """enc(Ms,C) = wte[ids] + wpe[t]: U rows of wte are read, all of it is resident."""
    table_free = s.Ms * INT32 + s.T_tp * s.C * BF16
    out = s.Ms * s.C * BF16
    return _work(
        s.Ms * s.C,
        read_byte=round(table_free + s.U * s.C * BF16, EXPECTED_DIGITS),
        write_byte=out,
        resident_byte=table_free + s.Vp * s.C * BF16 + out,
    )


def layernorm_forward(s):
    """ln(Ms,C), mean and rstd (Ms) from x(Ms,C), weight and bias (C)."""
    return _work(
        8 * s.Ms * s.C,
        read_byte=(s.Ms + 2) * s.C * BF16,
        write_byte=s.Ms * s.C * BF16 + 2 * s.Ms * FP32,
    )


def residual_layernorm(s):
    """res(Ms,C) = a + b, then its layernorm: two tensors in, two out."""
    return _work(
        9 * s.Ms * s.C,
        read_byte=(2 * s.Ms + 2) * s.C * BF16,
        write_byte=2 * s.Ms * s.C * BF16 + 2 * s.Ms * FP32,
    )


def layernorm_backward(s):
    """dres(Ms,C) += from dout, x, mean, rstd; dweight and dbias (C) +=."""
    return _work(
        15 * s.Ms * s.C,
        read_byte=(3 * s.Ms + 3) * s.C * BF16 + 2 * s.Ms * FP32,
        write_byte=(s.Ms + 2) * s.C * BF16,
    )


def permute_qkv_forward(s):
    """(B,T,3,NH,HS) to three (B,NH,T,HS)."""
    moved = s.M * s.C3_tp * BF16
    return _work(0, moved, moved)


def permute_qkv_backward(s):
    """Three (B,NH,T,HS) to (B,T,3,NH,HS)."""
    return permute_qkv_forward(s)


def permute_heads_forward(s):
    """(B,NH,T,HS) to (B,T,NH,HS)."""
    moved = s.M * s.C_tp * BF16
    return _work(0, moved, moved)


def permute_heads_backward(s):
    """(B,T,NH,HS) to (B,NH,T,HS)."""
    return permute_heads_forward(s)


def softmax_forward(s):
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


def softmax_backward(s):
    """dpre from att and datt, lower triangles; zeros are written above the diagonal."""
    triangle, square = s.heads * s.tri, s.heads * s.T * s.T
    return _work(
        5 * triangle,
        read_byte=2 * triangle * BF16,
        write_byte=square * BF16,
        resident_byte=3 * square * BF16,
    )


def gelu_forward(s):
    """GELU in its tanh form over (M,4C/tp); a tanh is one ex2 and one rcp."""
    n = s.M * s.C4_tp
    return _work(9 * n, n * BF16, n * BF16, sfu_op=2 * n)


def gelu_backward(s):
    """dfch = dg∘GELU'(fch); sech² = 1 - tanh², so again one tanh an element."""
    n = s.M * s.C4_tp
    return _work(20 * n, 2 * n * BF16, n * BF16, sfu_op=2 * n)


def classifier(s):
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


def bias_backward(rows, columns, split):
    """Column sums of (rows,columns): `split` fp32 partial sums per column, or the finished bf16 sums if 1."""
    read = rows * columns * BF16
    if split > 1:
        return _work(rows * columns, read, split * columns * FP32)
    old = columns * BF16  # drift-free it adds to a gradient kept apart; llm.c overwrites, so no traffic
    return _work(rows * columns, read, columns * BF16, resident_byte=read + columns * BF16 + old)


def bias_reduce(rows, columns, split):
    """dbias(columns) += sum of `split` fp32 partial sums; the number of `rows` no longer matters."""
    return _work(split * columns, split * columns * FP32 + columns * BF16, columns * BF16)


def wpe_backward(s):
    """dwpe(T/tp,C) += sum over the batch of dres."""
    table = s.T_tp * s.C * BF16
    return _work(s.Ms * s.C, s.Ms * s.C * BF16 + table, table)


def wte_backward(s):
    """dwte[ids] += dres: one bucket per different token and group of 256 channels (16 B a bucket, 4 B a token
    in it). Resident: the whole table before and after, and room for as many buckets as there can be."""
    groups = -(-s.C // 256)
    dres = s.Ms * s.C * BF16
    touched = s.U * s.C * BF16
    return _work(
        s.Ms * s.C,
        read_byte=round(dres + touched + groups * (16 * s.U + INT32 * s.Ms), EXPECTED_DIGITS),
        write_byte=round(touched, EXPECTED_DIGITS),
        resident_byte=dres + 2 * s.Vp * s.C * BF16 + groups * (16 * min(s.Ms, s.V) + INT32 * s.Ms),
    )
