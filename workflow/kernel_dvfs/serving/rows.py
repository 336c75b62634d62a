"""One engine step of a served model as kernel rows on one rank: launches, FLOP, DRAM bytes.

A step runs T new tokens through every layer (prompt chunks and one token of each decoding sequence together), attends
for the prompt tokens over `pairs` (token, earlier token) pairs, and for the decoding sequences over their whole cached
`context`. Rows of the first kind depend on T alone; the work of attention is linear in pairs and in context, so it is
given per pair and per cached token. Compulsory DRAM traffic: every operand once.

Tensor parallelism in the manner of Megatron-LM: heads, MLP and vocabulary split over the ranks, two all-reduces a
layer. Knows no GPU and no clock.
"""

from collections import namedtuple

from kernel_dvfs.gpu.kernel import Work
from kernel_dvfs.serving.models import BF16, ServedModel

FP32 = 4
# sequences whose next token is drawn in one step, at most: the output matrix sees no more rows
SAMPLED = 256

Row = namedtuple("Row", "id launches family tensor_flop fp32_flop sfu_op read_byte write_byte")
Row.__doc__ = (
    """One kernel of a step on one rank, per launch. launches: per step. family: of gpu/specs/families.yaml."""
)


def work(row: Row) -> Work:
    """What a GPU needs to know of a row."""
    return Work(row.family, row.tensor_flop, row.fp32_flop, row.sfu_op, row.read_byte + row.write_byte)


def _linear(name, launches, rows, columns, inner):
    """rows x inner times inner x columns; weights are read once."""
    return Row(
        name,
        launches,
        "linear",
        2 * rows * columns * inner,
        0,
        0,
        BF16 * (rows * inner + inner * columns),
        BF16 * rows * columns,
    )


def _norm(name, launches, model, tokens):
    """Residual add and RMS norm in one: two tensors read, two written, about 6 operations an element."""
    size = tokens * model.hidden
    return Row(name, launches, "residual", 0, 6 * size, tokens, 2 * BF16 * size, 2 * BF16 * size)


def token_rows(model: ServedModel, tp: int, tokens: int) -> list:
    """The rows of a step with `tokens` new tokens, in order, all but attention over the cache and communication."""
    H, L, D = model.hidden, model.layers, model.head
    q, kv, ffn, vocab = model.heads * D // tp, model.kv_heads * D // tp, model.ffn // tp, model.vocab // tp
    sampled = min(tokens, SAMPLED)
    qkv = tokens * (q + 2 * kv) * BF16
    return [
        # gather of embedding rows; the table is split over the vocabulary
        Row("embedding", 1, "embedding", 0, 0, 0, tokens * H * BF16, tokens * H * BF16),
        _norm("attention_norm", L, model, tokens),
        _linear("qkv_linear", L, tokens, q + 2 * kv, H),
        # rotate queries and keys in place, write keys and values to the cache
        Row("rotary_cache", L, "permute", 0, 6 * tokens * (q + kv), 0, qkv, qkv),
        # attention's own input and output; what it reads of the cache is linear in pairs or context
        Row("attention_io", L, "decode_attention", 0, 0, 0, tokens * q * BF16, tokens * q * BF16),
        _linear("output_linear", L, tokens, H, q),
        _norm("mlp_norm", L, model, tokens),
        _linear("gate_up_linear", L, tokens, 2 * ffn, H),
        Row("silu", L, "gelu", 0, 5 * tokens * ffn, 2 * tokens * ffn, 2 * tokens * ffn * BF16, tokens * ffn * BF16),
        _linear("down_linear", L, tokens, H, ffn),
        _norm("last_norm", 1, model, tokens),
        _linear("logits_linear", 1, sampled, vocab, H),
        # softmax and draw of the next token over fp32 logits
        Row("sample", 1, "softmax", 0, 5 * sampled * vocab, sampled * vocab, sampled * vocab * FP32, sampled * FP32),
    ]


def prompt_attention(model: ServedModel, tp: int, pairs: float) -> Row:
    """Attention of prompt tokens over `pairs` (token, token at or before it), FlashAttention: compute alone counts."""
    heads = model.heads // tp
    return Row(
        "prompt_attention", model.layers, "flash_attention", 4 * heads * model.head * pairs, 0, heads * pairs, 0, 0
    )


def decode_attention(model: ServedModel, tp: int, context: float) -> Row:
    """Attention of decoding sequences over `context` cached tokens, summed over sequences: the cache is read once."""
    heads, kv = model.heads // tp, model.kv_heads // tp
    return Row(
        "decode_attention",
        model.layers,
        "decode_attention",
        4 * heads * model.head * context,
        0,
        heads * context,
        2 * kv * model.head * BF16 * context,
        0,
    )


def all_reduces(model: ServedModel, tokens: int) -> tuple:
    """(how many a step, bytes each): one after the attention and one after the MLP of every layer."""
    return 2 * model.layers, tokens * model.hidden * BF16
