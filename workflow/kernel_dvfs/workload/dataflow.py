"""Which tensors each row reads and writes, by name, and what a tensor holds while nothing has computed it.

The names are those of one layer's buffers on one rank, in bf16 training as llm.c does it:
  res1, res2, res3   the residual stream before, within and after the layer; ln1, ln2, lnf: their layernorms
  wqkv bqkv, wo bo, wfc bfc, wp bp   weights and biases of the four linear layers; wte, wpe: the embedding
  dX                 gradient of X. Gradients of parameters, and those of the residual stream, are added up without
                     a tensor that is both read and written: dX = dX_in + what the row adds
  X_gathered         all tokens of an X whose tokens the ranks divide: behind an all-gather
  X_partial          what one rank adds to X: a reduce-scatter makes X of it
Without tensor parallelism X, X_gathered and X_partial are one tensor.

The layers of a pass share these buffers: row 14 leaves its layernorm in lnf and row 44 its gradient in dres1, rather
than in the ln1 and dres3 they stand for in the next layer, so a layer repeated for seconds computes the same thing.
The sizes of the tensors are in native/include/kdvfs/describe.hpp.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernel_dvfs.workload import models
from kernel_dvfs.workload.table1 import UNSPLIT

if TYPE_CHECKING:
    from kernel_dvfs.workload.models import Model
    from kernel_dvfs.workload.rows import Row


def _normed(x: str) -> dict[str, str]:
    """Return what a forward layernorm reads and writes besides its input."""
    return {
        "gamma": f"{x}_gamma",
        "beta": f"{x}_beta",
        "out": x,
        "mean": f"{x}_mean",
        "rstd": f"{x}_rstd",
    }


def _layernorm_backward(x: str, inp: str, dinp_in: str, dinp_out: str) -> dict[str, str]:
    return {
        "dout": f"d{x}",
        "inp": inp,
        "gamma": f"{x}_gamma",
        "mean": f"{x}_mean",
        "rstd": f"{x}_rstd",
        "dinp_in": dinp_in,
        "dgamma_in": f"d{x}_gamma_in",
        "dbeta_in": f"d{x}_beta_in",
        "dinp_out": dinp_out,
        "dgamma_out": f"d{x}_gamma",
        "dbeta_out": f"d{x}_beta",
    }


def _bias_backward(x: str, dout: str) -> dict[str, str]:
    """Return the finished gradient, or partial sums of it: bindings() takes those that the split asks for."""
    return {"dout": dout, "partials": f"d{x}_partials", "dbias_in": f"d{x}_in", "dbias_out": f"d{x}"}


def _bias_reduce(x: str) -> dict[str, str]:
    return {"partials": f"d{x}_partials", "dbias_in": f"d{x}_in", "dbias_out": f"d{x}"}


# {row id: {tensor of the row's operation: name}}
DATAFLOW = {
    "embedding_wte_wpe": {"ids": "ids", "wte": "wte", "wpe": "wpe", "out": "res1"},
    "embedding_layernorm": {"inp": "res1", **_normed("ln1")},
    # forward
    "forward_qkv_gemm": {"a": "ln1_gathered", "b": "wqkv", "bias": "bqkv", "d": "qkv"},
    "forward_qkv_permute": {"inp": "qkv", "q": "q", "k": "k", "v": "v"},
    "forward_scores_gemm": {"a": "q", "b": "k", "d": "pre"},
    "forward_attention_softmax": {"pre": "pre", "att": "att"},
    "forward_context_gemm": {"a": "att", "b": "v", "d": "y"},
    "forward_heads_permute": {"inp": "y", "out": "atty"},
    # in place of the rows from the permute of qkv to this one
    "forward_attention": {"qkv": "qkv", "out": "atty", "lse": "lse"},
    "forward_attproj_gemm": {"a": "atty", "b": "wo", "bias": "bo", "d": "ao_partial"},
    "forward_attention_residual": {"a": "res1", "b": "ao", "sum": "res2", **_normed("ln2")},
    "forward_fc_gemm": {"a": "ln2_gathered", "b": "wfc", "bias": "bfc", "d": "fch"},
    "forward_gelu": {"inp": "fch", "out": "fg"},
    "forward_fcproj_gemm": {"a": "fg", "b": "wp", "bias": "bp", "d": "mo_partial"},
    "forward_mlp_residual": {"a": "res2", "b": "mo", "sum": "res3", **_normed("lnf")},
    # loss calculation: wte's gradient has two parts, this one and that of the lookup
    "loss_logits_gemm": {"a": "lnf", "b": "wte", "d": "logits"},
    "loss_softmax": {
        "logits": "logits",
        "targets": "targets",
        "losses_in": "losses_in",
        "dlogits": "dlogits",
        "losses_out": "losses",
    },
    "loss_dlnf_gemm": {"a": "dlogits", "b": "wte", "d": "dlnf"},
    "loss_dwte_gemm": {"a": "dlogits", "b": "lnf", "c": "dwte_in", "d": "dwte_of_logits"},
    "loss_layernorm": _layernorm_backward("lnf", "res3", "dres3_in", "dres3"),
    # backward
    "backward_gelu_recompute": {"inp": "fch", "out": "fg"},
    "backward_fcproj_bias": _bias_backward("bp", "dres3"),
    "backward_fcproj_bias_reduce": _bias_reduce("bp"),
    "backward_fcproj_dinp_gemm": {"a": "dres3_gathered", "b": "wp", "d": "dfg"},
    "backward_gelu": {"inp": "fch", "dout": "dfg", "dinp": "dfch"},
    "backward_fcproj_dweight_gemm": {"a": "dres3_gathered", "b": "fg", "c": "dwp_in", "d": "dwp"},
    "backward_fc_bias": _bias_backward("bfc", "dfch"),
    "backward_fc_bias_reduce": _bias_reduce("bfc"),
    "backward_fc_dinp_gemm": {"a": "dfch", "b": "wfc", "d": "dln2_partial"},
    "backward_fc_dweight_gemm": {"a": "dfch", "b": "ln2_gathered", "c": "dwfc_in", "d": "dwfc"},
    "backward_mlp_layernorm": _layernorm_backward("ln2", "res2", "dres3", "dres2"),
    "backward_attproj_bias": _bias_backward("bo", "dres2"),
    "backward_attproj_bias_reduce": _bias_reduce("bo"),
    "backward_attproj_dinp_gemm": {"a": "dres2_gathered", "b": "wo", "d": "datty"},
    "backward_attproj_dweight_gemm": {"a": "dres2_gathered", "b": "atty", "c": "dwo_in", "d": "dwo"},
    "backward_heads_permute": {"dout": "datty", "dinp": "dy"},
    "backward_datt_gemm": {"a": "dy", "b": "v", "d": "datt"},
    "backward_dv_gemm": {"a": "att", "b": "dy", "d": "dv"},
    "backward_attention_softmax": {"att": "att", "datt": "datt", "dpre": "dpre"},
    "backward_dq_gemm": {"a": "dpre", "b": "k", "d": "dq"},
    "backward_dk_gemm": {"a": "dpre", "b": "q", "d": "dk"},
    "backward_qkv_permute": {"dq": "dq", "dk": "dk", "dv": "dv", "dinp": "dqkv"},
    "backward_attention": {"qkv": "qkv", "out": "atty", "lse": "lse", "dout": "datty", "dqkv": "dqkv"},
    "backward_qkv_bias": _bias_backward("bqkv", "dqkv"),
    "backward_qkv_bias_reduce": _bias_reduce("bqkv"),
    "backward_qkv_dinp_gemm": {"a": "dqkv", "b": "wqkv", "d": "dln1_partial"},
    "backward_qkv_dweight_gemm": {"a": "dqkv", "b": "ln1_gathered", "c": "dwqkv_in", "d": "dwqkv"},
    "backward_attention_layernorm": _layernorm_backward("ln1", "res1", "dres2", "dres1"),
    # embedding backward
    "embedding_backward_wpe": {"dout": "dres1", "dwpe_in": "dwpe_in", "dwpe_out": "dwpe"},
    "embedding_backward_wte": {"ids": "ids", "dout": "dres1", "dwte_in": "dwte_of_logits", "dwte_out": "dwte"},
}

_WEIGHTS = ("wte", "wpe", "wqkv", "bqkv", "wo", "bo", "wfc", "bfc", "wp", "bp")

# rows that make gradients of weights and biases alone: no other row waits for them
WEIGHT_GRADIENTS = frozenset(
    row
    for row, names in DATAFLOW.items()
    if {name.removesuffix("_of_logits") for name in names.values()} & {f"d{weight}" for weight in _WEIGHTS}
)


def bindings(row: Row, model: str | Model, tensor_parallel: int = 1) -> dict[str, dict[str, Any]]:
    """Return the tensors of `row` (from kernel_rows at this degree), as a plan of the native layer takes them.

    model: name in MODELS, or a Model. Returns {tensor of the row's operation: {"name": str, "fill": dict}}: tensors of
    one name are one tensor, across all rows; for the fill see `fill`. Raises InputError on an unknown model.
    """
    model = models.model(model)
    names = dict(DATAFLOW[row.id])
    if row.op == "bias_backward":
        is_split = row.bias_split is not None and row.bias_split > 1
        for unused in ("dbias_in", "dbias_out") if is_split else ("partials",):
            del names[unused]
        if row.tp_rule == UNSPLIT:
            names["dout"] += "_gathered"  # of a row-parallel layer, over the tokens of all ranks
    if tensor_parallel == 1:
        names = {tensor: _before_collective(name) for tensor, name in names.items()}
    return {tensor: {"name": name, "fill": fill(name, model)} for tensor, name in names.items()}


def fill(name: str, model: Model) -> dict[str, Any]:
    """Return what the tensor `name` holds until a row computes it, at the scale it has in training: the power that a
    GEMM draws varies by almost 40 % with its operands (Gregersen, Patel, Choukse, arXiv 2409.18324).

    Returns {"kind": "ids", "vocabulary"}: random token ids; {"kind": "causal"}: squares that are zero above the
    diagonal, their rows sum to 1; or {"kind": "normal", "mean", "sd", "rows", "columns"}: random numbers in the first
    `rows` and `columns` of the last two axes (0: in all), zero in the padding behind them; "lower" instead of
    "normal": zero above the diagonal too.
    """
    if name in ("ids", "targets"):
        return {"kind": "ids", "vocabulary": model.vocab}
    if name == "att":
        return {"kind": "causal"}
    mean, sd = _moments(_before_collective(name), model)
    # padding of the vocabulary: never looked up, and neither classifier nor lookup writes its gradient
    rows = model.vocab if name.removeprefix("d").startswith("wte") else 0
    columns = model.vocab if name in ("logits", "dlogits") else 0
    kind = "lower" if name == "dpre" else "normal"
    return {"kind": kind, "mean": mean, "sd": sd, "rows": rows, "columns": columns}


def _moments(name: str, model: Model) -> tuple[float, float]:
    """Return the mean and standard deviation."""
    if name.startswith("d"):
        return 0, 1e-3
    if name.endswith(("_gamma", "_rstd")):
        return 1, 0.02
    if name in _WEIGHTS or name.endswith(("_beta", "_mean")):
        return 0, 0.02
    if name == "lse":
        return math.log(model.sequence) + 0.5, 0.1  # of unit normal scores, whose exponentials are exp(1/2) on average
    if name == "pre":
        return 0, (model.channels // model.heads) ** 0.5  # products of unit normal queries and keys
    return 0, 1


def _before_collective(name: str) -> str:
    return name.removesuffix("_gathered").removesuffix("_partial")
