"""What each operation of the native layer is told to compute: its settings, by the sizes of one rank.

A function is named as the operation is everywhere (its work in formulas.py, its struct in native/include/kdvfs/
kernels.h, its C reference and its CUDA kernel) and takes what the formula of that name takes. Its settings are
those that the native layer asks for (native/include/kdvfs/describe.hpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_dvfs.workload.formulas import Gemm
    from kernel_dvfs.workload.shapes import Shape

Settings = dict[str, int | float | str]  # {setting: value}
LAYERNORM_EPS = 1e-5
ROUNDING_SEED = 1  # of the stochastic rounding of the two table gradients


def gemm(g: Gemm) -> Settings:
    return {
        "count": g.count,
        "M": g.m,
        "N": g.n,
        "K": g.k,
        "layout": g.layout,
        "has_bias": int(g.bias_epilogue),
        "accumulate": g.beta,
    }


# The tables of the embedding hold the padded vocabulary, also where only tokens below V are looked up: the logits
# GEMM and its gradient use the same tables.


def embedding_forward(s: Shape) -> Settings:
    return {"M": s.Ms, "T": s.T_tp, "C": s.C, "V": s.Vp}


def wpe_backward(s: Shape) -> Settings:
    return {"M": s.Ms, "T": s.T_tp, "C": s.C, "seed": ROUNDING_SEED}


def wte_backward(s: Shape) -> Settings:
    return {"M": s.Ms, "V": s.Vp, "C": s.C, "seed": ROUNDING_SEED}


def layernorm_forward(s: Shape) -> Settings:
    return {"M": s.Ms, "C": s.C, "eps": LAYERNORM_EPS}


residual_layernorm = layernorm_forward


def layernorm_backward(s: Shape) -> Settings:
    return {"M": s.Ms, "C": s.C}


def permute_qkv_forward(s: Shape) -> Settings:
    return {"B": s.B, "T": s.T, "NH": s.heads // s.B, "HS": s.HS}


permute_qkv_backward = permute_heads_forward = permute_heads_backward = permute_qkv_forward


def softmax_forward(s: Shape) -> Settings:
    """Vaswani et al., "Attention Is All You Need" (2017), Eq. 1: scores are divided by the root of the head size."""
    return {"N": s.heads, "T": s.T, "scale": s.HS**-0.5}


def softmax_backward(s: Shape) -> Settings:
    return {"N": s.heads, "T": s.T, "scale": s.HS**-0.5, "skip_upper": 0}


def attention_forward(s: Shape) -> Settings:
    return permute_qkv_forward(s) | {"scale": s.HS**-0.5}


attention_backward = attention_forward


def gelu_forward(s: Shape) -> Settings:
    return {"M": s.M, "C": s.C4_tp}


gelu_backward = gelu_forward


def classifier(s: Shape) -> Settings:
    """The loss is the mean over the tokens of all ranks, so the gradient of each is 1/M."""
    return {"M": s.Ms, "V": s.V, "Vp": s.Vp, "dloss": 1 / s.M}


def bias_backward(rows: int, columns: int, split: int) -> Settings:
    return {"M": rows, "OC": columns, "G": split}


def bias_reduce(rows: int, columns: int, split: int) -> Settings:
    return {"OC": columns, "G": split}
