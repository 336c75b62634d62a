"""The served models' shapes; knows nothing of batches, parallelism or kernels.

Sources: the published configurations of Llama 2 (arXiv 2307.09288) and Llama 3 (arXiv 2407.21783). All weights and
the KV cache are bf16.
"""

from collections import namedtuple

from kernel_dvfs.errors import InputError

BF16 = 2


class ServedModel(namedtuple("ServedModel", "name layers hidden heads kv_heads ffn vocab")):
    """Shape of a decoder with grouped-query attention and a gated MLP.

    layers; hidden: width of the residual stream; heads, kv_heads: of queries and of keys and values, each
    hidden/heads wide; ffn: width of the MLP; vocab: tokens.
    """

    __slots__ = ()

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    @property
    def weights_byte(self) -> int:
        """Bytes of all weights: attention, MLP, norms, embedding and output matrix."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        return BF16 * (self.layers * layer + 2 * self.vocab * self.hidden + self.hidden)

    @property
    def kv_byte_per_token(self) -> int:
        """Bytes of keys and values that one token leaves in the cache, all layers and heads."""
        return 2 * BF16 * self.layers * self.kv_heads * self.head


MODELS = {
    shape.name: shape
    for shape in (
        ServedModel("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
        ServedModel("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
        # Llama 3, 3.1 and 3.3 of 70B share these shapes
        ServedModel("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
    )
}


def served(name) -> ServedModel:
    """The model called `name`; a ServedModel is passed through. Raises InputError naming those known."""
    if isinstance(name, ServedModel):
        return name
    if name not in MODELS:
        raise InputError(f"serving: model {name!r} is unknown; allowed: {', '.join(MODELS)}")
    return MODELS[name]


def check_degree(model: ServedModel, tp: int) -> int:
    """`tp` if it splits the model's heads and MLP evenly. Raises InputError."""
    allowed = [degree for degree in range(1, model.kv_heads + 1) if model.kv_heads % degree == 0]
    if tp not in allowed:
        raise InputError(f"serving: tp {tp} does not split {model.name}; allowed: {', '.join(map(str, allowed))}")
    return tp
