"""The served models: their shapes, and one engine step of each as kernel rows (launches, FLOP, DRAM bytes) on one rank.

A step runs T new tokens through every layer (prompt chunks and one token of each decoding sequence together), attends
for the prompt tokens over `pairs` (token, earlier token) pairs, and for the decoding sequences over their whole cached
`context`. The rows of token_rows depend on T alone; the work of attention is linear in pairs and in context. Compulsory
DRAM traffic: every operand once. Tensor parallelism in the manner of Megatron-LM: heads, MLP and vocabulary split over
the ranks, two all-reduces a layer.

A mixture of experts has several MLPs a layer, of which a router picks some for each token: their products are grouped,
and the weights that a step reads are those of the experts that it hits, by expectation over routes that are all alike
(real routers prefer some experts, so fewer are hit). Each rank holds a slice of every expert.

Sources of the shapes: the published configurations of Llama 2 (arXiv 2307.09288), Llama 3 (arXiv 2407.21783), Mixtral
8x7B (arXiv 2401.04088) and 8x22B (its model card). All weights and the KV cache are bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_dvfs_clocks.errors import InputError

BF16 = 2  # bytes
FP32 = 4
# sequences whose next token is drawn in one step, at most: the output matrix sees no more rows
SAMPLED = 256


# -- shapes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Shape of a decoder with grouped-query attention and gated MLPs."""

    name: str
    layers: int
    hidden: int  # width of the residual stream
    heads: int  # of queries, each hidden/heads wide
    kv_heads: int  # of keys and values, as wide
    ffn: int  # width of the MLP
    vocab: int  # tokens
    context: int  # tokens of a request, prompt and answer, at most
    experts: int = 1  # MLPs of a layer
    taken: int = 1  # of them, by each token

    @property
    def head(self) -> int:
        """Return the width of a head."""
        return self.hidden // self.heads

    @property
    def weights_byte(self) -> int:
        """Return the bytes of all weights: attention, MLPs, router, norms, embedding and output matrix."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        router = self.hidden * self.experts if self.experts > 1 else 0
        layer = attention + self.experts * 3 * self.hidden * self.ffn + router + 2 * self.hidden
        return BF16 * (self.layers * layer + 2 * self.vocab * self.hidden + self.hidden)

    @property
    def kv_byte_per_token(self) -> int:
        """Return the bytes of keys and values that one token leaves in the cache, all layers and heads."""
        return 2 * BF16 * self.layers * self.kv_heads * self.head

    def experts_hit(self, tokens: int) -> float:
        """Return how many experts of a layer a step of so many tokens needs, expected: each is left out by a token with
        probability 1 - taken / experts."""
        return self.experts * (1 - (1 - self.taken / self.experts) ** tokens)


MODELS = {
    shape.name: shape
    for shape in (
        ServedModel("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096),
        ServedModel("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096),
        ServedModel("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096),
        # Llama 3 and 3.1, and 3.3 of 70B, share these shapes; the context is that of the last two
        ServedModel("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 131072),
        ServedModel("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 131072),
        ServedModel("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 32768, experts=8, taken=2),
        ServedModel("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, 65536, experts=8, taken=2),
    )
}


def served(name: str | ServedModel) -> ServedModel:
    """Return the model called `name`; a ServedModel is passed through. Raises InputError naming those known."""
    if isinstance(name, ServedModel):
        return name
    if name not in MODELS:
        raise InputError(f"serving: model {name!r} is unknown; allowed: {', '.join(MODELS)}")
    return MODELS[name]


def check_degree(model: ServedModel, tp: int) -> int:
    """Return `tp` if it splits the model's heads and MLP evenly. Raises InputError."""
    allowed = [degree for degree in range(1, model.kv_heads + 1) if model.kv_heads % degree == 0]
    if tp not in allowed:
        raise InputError(f"serving: tp {tp} does not split {model.name}; allowed: {', '.join(map(str, allowed))}")
    return tp


# -- kernel rows of a step ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepKernel:
    """One kernel of a step on one rank; work per launch."""

    id: str
    launches: int  # per step
    family: str  # of gpu/specs/families.yaml
    tensor_flop: float
    fp32_flop: float
    sfu_op: float  # special-function operations
    read_byte: float
    write_byte: float
    launches_none: bool = False  # part of another row's kernel: no latency of its own
    rows_each: float = 0  # of products: rows that meet each weight matrix, mean


def _linear(name: str, launches: int, rows: int, columns: int, inner: int) -> StepKernel:
    """Return the kernel of rows x inner times inner x columns; weights are read once."""
    return StepKernel(
        name,
        launches,
        "linear",
        2 * rows * columns * inner,
        0,
        0,
        BF16 * (rows * inner + inner * columns),
        BF16 * rows * columns,
        rows_each=rows,
    )


def _grouped(name: str, model: ServedModel, tokens: int, columns: int, inner: int) -> StepKernel:
    """Return the kernel of every token times the matrices of its experts; those of the experts hit are read once."""
    rows, hit = model.taken * tokens, model.experts_hit(tokens)
    return StepKernel(
        name,
        model.layers,
        "grouped_linear",
        2 * rows * columns * inner,
        0,
        0,
        BF16 * (rows * inner + hit * inner * columns),
        BF16 * rows * columns,
        rows_each=rows / hit,
    )


def _mlp(model: ServedModel, tokens: int, ffn: int) -> list[StepKernel]:
    """Return the rows of a layer's MLP, `ffn` wide on this rank; a mixture of experts has router, dispatch and sum."""
    H, L = model.hidden, model.layers
    rows = model.taken * tokens
    act = StepKernel("silu", L, "gelu", 0, 5 * rows * ffn, 2 * rows * ffn, 2 * rows * ffn * BF16, rows * ffn * BF16)
    if model.experts == 1:
        up, down = _linear("gate_up_linear", L, tokens, 2 * ffn, H), _linear("down_linear", L, tokens, H, ffn)
        return [up, act, down]
    scores = tokens * model.experts
    return [
        _linear("router_linear", L, tokens, model.experts, H),
        # softmax over the experts, the best of them and their weights, rows sorted by expert
        StepKernel("route", L, "softmax", 0, 5 * scores, scores, scores * FP32, rows * 2 * FP32),
        _grouped("expert_gate_up", model, tokens, 2 * ffn, H),
        act,
        _grouped("expert_down", model, tokens, H, ffn),
        # weighted sum of what the experts of a token made
        StepKernel("expert_sum", L, "residual", 0, 2 * rows * H, 0, rows * H * BF16, tokens * H * BF16),
    ]


def _norm(name: str, launches: int, model: ServedModel, tokens: int) -> StepKernel:
    """Return the kernel of residual add and RMS norm: two tensors read, two written, about 6 operations an element."""
    size = tokens * model.hidden
    return StepKernel(name, launches, "residual", 0, 6 * size, tokens, 2 * BF16 * size, 2 * BF16 * size)


def token_rows(model: ServedModel, tp: int, tokens: int) -> list[StepKernel]:
    """Return the rows of a step of `tokens` new tokens, in order, but for attention over the cache and
    communication."""
    H, L, D = model.hidden, model.layers, model.head
    q, kv, ffn, vocab = model.heads * D // tp, model.kv_heads * D // tp, model.ffn // tp, model.vocab // tp
    sampled = min(tokens, SAMPLED)
    qkv = tokens * (q + 2 * kv) * BF16
    return [
        # gather of embedding rows; the table is split over the vocabulary
        StepKernel("embedding", 1, "embedding", 0, 0, 0, tokens * H * BF16, tokens * H * BF16),
        _norm("attention_norm", L, model, tokens),
        _linear("qkv_linear", L, tokens, q + 2 * kv, H),
        # rotate queries and keys in place, write keys and values to the cache
        StepKernel("rotary_cache", L, "permute", 0, 6 * tokens * (q + kv), 0, qkv, qkv),
        # attention's own input and output; what it reads of the cache is linear in pairs or context
        StepKernel(
            "attention_io", L, "decode_attention", 0, 0, 0, tokens * q * BF16, tokens * q * BF16, launches_none=True
        ),
        _linear("output_linear", L, tokens, H, q),
        _norm("mlp_norm", L, model, tokens),
        *_mlp(model, tokens, ffn),
        _norm("last_norm", 1, model, tokens),
        _linear("logits_linear", 1, sampled, vocab, H),
        # softmax and draw of the next token over fp32 logits
        StepKernel(
            "sample", 1, "softmax", 0, 5 * sampled * vocab, sampled * vocab, sampled * vocab * FP32, sampled * FP32
        ),
    ]


def prompt_attention(model: ServedModel, tp: int, pairs: float) -> StepKernel:
    """Return prompts' attention over `pairs` (token, token at or before it), FlashAttention: compute alone counts."""
    heads = model.heads // tp
    return StepKernel(
        "prompt_attention", model.layers, "flash_attention", 4 * heads * model.head * pairs, 0, heads * pairs, 0, 0
    )


def decode_attention(model: ServedModel, tp: int, context: float) -> StepKernel:
    """Return decoding sequences' attention over `context` cached tokens, summed over them: the cache is read once."""
    heads, kv = model.heads // tp, model.kv_heads // tp
    return StepKernel(
        "decode_attention",
        model.layers,
        "decode_attention",
        4 * heads * model.head * context,
        0,
        heads * context,
        2 * kv * model.head * BF16 * context,
        0,
    )


def all_reduces(model: ServedModel, tokens: int) -> tuple[int, int]:
    """Return (how many a step, bytes each): one after the attention and one after the MLP of every layer."""
    return 2 * model.layers, tokens * model.hidden * BF16
