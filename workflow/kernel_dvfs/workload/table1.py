"""Table 1 of the paper as data: the kernels of one training iteration, in order of execution.

Each entry names its operation, a function of formulas.py and of operations.py, and its sizes, fields of
shapes.Shape; it holds no number that depends on model, batch, parallelism or GPU. The order is that of llm.c's
bf16 trainer without cuDNN, GELU apart from the GEMM and recomputed in backward.

Entries without a number are not in Table 1. Two of them llm.c launches only on GPUs where those bias gradients are
split (shapes.llmc_split); two are fused attention, which takes the place of other rows (`entries`).
"""

from dataclasses import dataclass

from kernel_dvfs.workload.models import UNFUSED

# what tensor parallelism does to a row
SPLIT = "hidden_or_heads"  # hidden layer or heads are divided over the ranks
SEQUENCE = "sequence"  # the tokens are divided over the ranks
UNSPLIT = "unsplit"  # every rank does all of it

# sections launched once per layer; the others once per iteration
PER_LAYER = ("Forward", "Backward")


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products whose sizes are names of Shape fields; formulas.Gemm has them as numbers."""

    count: str | None  # None: one product
    m: str
    n: str
    k: str
    layout: str  # TN | NN | NT, see formulas.Gemm
    bias_epilogue: bool = False
    beta: int = 0


@dataclass(frozen=True, slots=True)
class Bias:
    """Bias gradient over (rows,columns), names of Shape fields."""

    rows: str
    columns: str
    table1_split: int  # partial sums per column in Table 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table."""

    number: int | None  # as printed in Table 1; None: not there
    id: str  # unique
    name: str  # as printed in Table 1
    family: str  # see rows.Row
    tp_rule: str  # SPLIT, SEQUENCE or UNSPLIT
    replicate_group: str | None  # shared by rows that are the same launch
    op: str  # its operation
    gemm: Product | None = None
    bias: Bias | None = None


def _gemm(
    number: int, id: str, tp_rule: str, m: str, n: str, k: str, layout: str, bias: bool = False, beta: int = 0
) -> Entry:
    return Entry(number, id, "GEMM", "gemm", tp_rule, None, "gemm", gemm=Product(None, m, n, k, layout, bias, beta))


def _attention(number: int, id: str, m: str, n: str, k: str, layout: str, group: str) -> Entry:
    gemm = Product("heads", m, n, k, layout)
    return Entry(number, id, "GEMM", "attention_gemm", SPLIT, group, "gemm", gemm=gemm)


def _bias(number: int, id: str, tp_rule: str, rows: str, columns: str, split: int, group: str | None = None) -> Entry:
    return Entry(number, id, "Bias", "bias", tp_rule, group, "bias_backward", bias=Bias(rows, columns, split))


def _reduce(
    number: int | None, id: str, tp_rule: str, rows: str, columns: str, split: int, group: str | None = None
) -> Entry:
    return Entry(
        number, id, "Bias reduce", "bias_reduce", tp_rule, group, "bias_reduce", bias=Bias(rows, columns, split)
    )


def _row(number: int | None, id: str, name: str, family: str, tp_rule: str, op: str, group: str | None = None) -> Entry:
    return Entry(number, id, name, family, tp_rule, group, op)


# Rows that share a replicate group are the same kernel on the same shapes: free replicates of one another.
# fmt: off
TABLE1 = {
    "Embedding": (
        _row(1, "embedding_wte_wpe", "WTE & WPE", "embedding", SEQUENCE, "embedding_forward"),
        _row(2, "embedding_layernorm", "Layernorm", "layernorm", SEQUENCE, "layernorm_forward"),
    ),
    "Forward": (
        _gemm(3, "forward_qkv_gemm", SPLIT, "M", "C3_tp", "C", "TN", bias=True),
        _row(4, "forward_qkv_permute", "Permute", "permute", SPLIT, "permute_qkv_forward"),
        _attention(5, "forward_scores_gemm", "T", "T", "HS", "TN", "gemm_tts_tn"),
        _row(6, "forward_attention_softmax", "Softmax", "softmax", SPLIT, "softmax_forward"),
        _attention(7, "forward_context_gemm", "T", "HS", "T", "NN", "gemm_tst_nn"),
        _row(8, "forward_heads_permute", "Permute", "permute", SPLIT, "permute_heads_forward"),
        _gemm(9, "forward_attproj_gemm", SPLIT, "M", "C", "C_tp", "TN", bias=True),
        _row(10, "forward_attention_residual", "Residual", "residual", SEQUENCE, "residual_layernorm", "residual"),
        _gemm(11, "forward_fc_gemm", SPLIT, "M", "C4_tp", "C", "TN", bias=True),
        _row(12, "forward_gelu", "GELU", "gelu", SPLIT, "gelu_forward", "gelu_forward"),
        _gemm(13, "forward_fcproj_gemm", SPLIT, "M", "C", "C4_tp", "TN", bias=True),
        _row(14, "forward_mlp_residual", "Residual", "residual", SEQUENCE, "residual_layernorm", "residual"),
    ),
    "Loss calculation": (
        _gemm(15, "loss_logits_gemm", SEQUENCE, "Ms", "Vp", "C", "TN"),
        _row(16, "loss_softmax", "Softmax", "softmax", SEQUENCE, "classifier"),
        _gemm(17, "loss_dlnf_gemm", SEQUENCE, "Ms", "C", "Vp", "NN"),
        _gemm(18, "loss_dwte_gemm", SEQUENCE, "Vp", "C", "Ms", "NT", beta=1),
        _row(19, "loss_layernorm", "Layernorm", "layernorm", SEQUENCE, "layernorm_backward", "layernorm_backward"),
    ),
    "Backward": (
        _row(20, "backward_gelu_recompute", "GELU", "gelu", SPLIT, "gelu_forward", "gelu_forward"),
        _bias(21, "backward_fcproj_bias", SEQUENCE, "Mb", "C", 5, "bias_c"),
        _reduce(22, "backward_fcproj_bias_reduce", UNSPLIT, "Mb", "C", 5, "bias_reduce_c"),
        _gemm(23, "backward_fcproj_dinp_gemm", SPLIT, "M", "C4_tp", "C", "NN"),
        _row(24, "backward_gelu", "GELU", "gelu", SPLIT, "gelu_backward"),
        _gemm(25, "backward_fcproj_dweight_gemm", SPLIT, "C", "C4_tp", "M", "NT", beta=1),
        _bias(26, "backward_fc_bias", SPLIT, "M", "C4_tp", 1),
        _reduce(None, "backward_fc_bias_reduce", SPLIT, "M", "C4_tp", 1),
        _gemm(27, "backward_fc_dinp_gemm", SPLIT, "M", "C", "C4_tp", "NN"),
        _gemm(28, "backward_fc_dweight_gemm", SPLIT, "C4_tp", "C", "M", "NT", beta=1),
        _row(29, "backward_mlp_layernorm", "Layernorm", "layernorm", SEQUENCE, "layernorm_backward",
             "layernorm_backward"),
        _bias(30, "backward_attproj_bias", SEQUENCE, "Mb", "C", 5, "bias_c"),
        _reduce(31, "backward_attproj_bias_reduce", UNSPLIT, "Mb", "C", 5, "bias_reduce_c"),
        _gemm(32, "backward_attproj_dinp_gemm", SPLIT, "M", "C_tp", "C", "NN"),
        _gemm(33, "backward_attproj_dweight_gemm", SPLIT, "C", "C_tp", "M", "NT", beta=1),
        _row(34, "backward_heads_permute", "Permute", "permute", SPLIT, "permute_heads_backward"),
        _attention(35, "backward_datt_gemm", "T", "T", "HS", "TN", "gemm_tts_tn"),
        _attention(36, "backward_dv_gemm", "T", "HS", "T", "NT", "gemm_tst_nt"),
        _row(37, "backward_attention_softmax", "Softmax", "softmax", SPLIT, "softmax_backward"),
        _attention(38, "backward_dq_gemm", "T", "HS", "T", "NN", "gemm_tst_nn"),
        _attention(39, "backward_dk_gemm", "T", "HS", "T", "NT", "gemm_tst_nt"),
        _row(40, "backward_qkv_permute", "Permute", "permute", SPLIT, "permute_qkv_backward"),
        _bias(41, "backward_qkv_bias", SPLIT, "M", "C3_tp", 1),
        _reduce(None, "backward_qkv_bias_reduce", SPLIT, "M", "C3_tp", 1),
        _gemm(42, "backward_qkv_dinp_gemm", SPLIT, "M", "C", "C3_tp", "NN"),
        _gemm(43, "backward_qkv_dweight_gemm", SPLIT, "C3_tp", "C", "M", "NT", beta=1),
        _row(44, "backward_attention_layernorm", "Layernorm", "layernorm", SEQUENCE,
             "layernorm_backward", "layernorm_backward"),
    ),
    "Embedding backward": (
        _row(45, "embedding_backward_wpe", "WPE", "embedding", SEQUENCE, "wpe_backward"),
        _row(46, "embedding_backward_wte", "WTE", "embedding", SEQUENCE, "wte_backward"),
    ),
}
# fmt: on

# Fused attention: the rows from the first to the last of a section become one. Queries, keys and values are read where
# the projection wrote them, so that the permutes go too.
_FUSED = {
    "Forward": (
        ("forward_qkv_permute", "forward_heads_permute"),
        _row(None, "forward_attention", "Attention", "flash_attention", SPLIT, "attention_forward"),
    ),
    "Backward": (
        ("backward_heads_permute", "backward_qkv_permute"),
        _row(None, "backward_attention", "Attention", "flash_attention_backward", SPLIT, "attention_backward"),
    ),
}


def entries(attention: str) -> dict[str, tuple[Entry, ...]]:
    """Return {section: its rows in order} of a model's attention (models.UNFUSED: Table 1; models.FUSED)."""
    return TABLE1 if attention == UNFUSED else {section: _fused(section, rows) for section, rows in TABLE1.items()}


def _fused(section: str, rows: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if section not in _FUSED:
        return rows
    ends, attention = _FUSED[section]
    first, last = ([row.id for row in rows].index(end) for end in ends)
    return (*rows[:first], attention, *rows[last + 1 :])
