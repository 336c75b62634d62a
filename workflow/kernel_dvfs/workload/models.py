"""The GPT-3 model shapes, in one table.

Source: Brown et al., "Language Models are Few-Shot Learners" (arXiv 2005.14165), Table 2.1, with the
corrections noted below. Every model here has GPT-2's vocabulary of 50257, padded to a multiple of 128,
and sequences of 1024 tokens: the length of the DVFS study reproduced here, not the 2048 of the GPT-3 paper. Each is
also there with fused attention, as most people train it: `gpt3-xl-flash`.
"""

from dataclasses import dataclass, replace

from kernel_dvfs_clocks.errors import InputError

# attention as llm.c computes it, the scores stored as squares; or in one launch each way (FlashAttention)
UNFUSED, FUSED = "unfused", "fused"
_FLASH = "-flash"  # behind a model's name: the same with fused attention


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of a GPT-3-like model."""

    name: str
    layers: int  # L
    channels: int  # C, the width of the residual stream
    heads: int  # NH, each C/NH wide
    vocab: int  # V, tokens
    padded_vocab: int  # Vp, tokens
    sequence: int  # T, tokens
    attention: str = UNFUSED  # or FUSED: which rows compute it, see table1.entries


def _gpt3(name: str, layers: int, channels: int, heads: int) -> Model:
    return Model(name, layers, channels, heads, vocab=50257, padded_vocab=50304, sequence=1024)


MODELS = {
    shape.name: shape
    for shape in (
        _gpt3("gpt3-125m", 12, 768, 12),
        _gpt3("gpt3-350m", 24, 1024, 16),
        _gpt3("gpt3-760m", 24, 1536, 16),
        # the GPT-3 paper prints 24 heads of 128, which make 3072 channels, not 2048: 16 heads, as llm.c
        _gpt3("gpt3-xl", 24, 2048, 16),
        _gpt3("gpt3-2.7b", 32, 2560, 32),
        _gpt3("gpt3-6.7b", 32, 4096, 32),
        # the GPT-3 paper prints 5140 channels, which 40 heads do not divide: 40 heads of 128 make 5120
        _gpt3("gpt3-13b", 40, 5120, 40),
        _gpt3("gpt3-175b", 96, 12288, 96),
    )
}


def model(name: str | Model) -> Model:
    """Return the Model called `name`, of MODELS or one of them with `-flash` behind its name; a Model is passed through
    if its heads divide its channels.

    Raises InputError naming the known models.
    """
    if isinstance(name, Model):
        if name.channels % name.heads:
            raise InputError(f"model {name.name!r}: {name.heads} heads do not divide {name.channels} channels")
        return name
    if not is_model(name):
        raise InputError(
            f"model {name!r} is unknown: known are {', '.join(MODELS)}, each with fused attention too (gpt3-xl{_FLASH})"
        )
    base = name.removesuffix(_FLASH)
    return MODELS[base] if name == base else replace(MODELS[base], name=name, attention=FUSED)


def is_model(name: object) -> bool:
    """Return whether `name` is that of a model of this project."""
    return isinstance(name, str) and name.removesuffix(_FLASH) in MODELS


def tensor_parallel_degrees(model: Model) -> list[int]:
    """Return degrees that split `model` evenly, ascending: they divide its heads and (sequence parallel) T."""
    return [
        degree for degree in range(1, model.heads + 1) if model.heads % degree == 0 and model.sequence % degree == 0
    ]
