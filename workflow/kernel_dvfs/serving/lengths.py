"""Prompt and answer lengths within a class: truncated log-normal, two figures per side.

Medians and log standard deviations summarise the Azure LLM inference trace 2023, conversation (Microsoft,
AzurePublicDataset, CC-BY-4.0; 19,366 requests); SL rests on 10 requests and is widened. Prompt and answer are drawn
independently within a class (their log correlation there is within +-0.2 but for LS and LM, -0.33). Whatever is drawn
from this is synthetic and has to be called so.
"""

import numpy as np

from kernel_dvfs.serving.classes import CLASSES, INPUT_BOUNDS, OUTPUT_BOUNDS, index

LONGEST_INPUT, LONGEST_OUTPUT = 8192, 1000
# class: median and log sd of the prompt, of the answer
_SHAPE = {
    "SS": (202, 0.45, 64, 0.80),
    "SM": (195, 0.45, 167, 0.23),
    "SL": (181, 0.40, 600, 0.40),
    "MS": (397, 0.26, 85, 0.37),
    "MM": (404, 0.24, 114, 0.17),
    "ML": (985, 0.07, 405, 0.11),
    "LS": (2600, 0.48, 59, 0.34),
    "LM": (1800, 0.45, 143, 0.26),
    "LL": (1091, 0.08, 409, 0.13),
}
# share of requests in each class, in the order of CLASSES: the same trace
CONVERSATION_MIX = (0.0358, 0.0980, 0.0005, 0.1900, 0.1041, 0.0774, 0.1509, 0.0877, 0.2556)


def draw_lengths(name: str, count: int, rng: np.random.Generator) -> tuple:
    """(input_tokens, output_tokens), integer arrays of shape (count,), all of the class `name`."""
    prompt, prompt_sd, answer, answer_sd = _SHAPE[name]
    row, column = divmod(index(name), 3)
    inputs = (1, *INPUT_BOUNDS, LONGEST_INPUT + 1)
    outputs = (1, *OUTPUT_BOUNDS, LONGEST_OUTPUT + 1)
    return (
        _truncated(prompt, prompt_sd, inputs[row], inputs[row + 1], count, rng),
        _truncated(answer, answer_sd, outputs[column], outputs[column + 1], count, rng),
    )


def draw_mix(shares, count: int, rng: np.random.Generator) -> tuple:
    """(input_tokens, output_tokens) of a mix: `shares` of the classes in the order of CLASSES."""
    shares = np.asarray(shares, dtype=float)
    drawn = rng.choice(len(CLASSES), size=count, p=shares / shares.sum())
    inputs, outputs = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for place, name in enumerate(CLASSES):
        own = np.flatnonzero(drawn == place)
        inputs[own], outputs[own] = draw_lengths(name, own.size, rng)
    return inputs, outputs


def mean_tokens(name: str, draws: int = 20_000) -> tuple:
    """(mean input, mean output) tokens of a class, of a fixed large draw."""
    inputs, outputs = draw_lengths(name, draws, np.random.default_rng(0))
    return float(inputs.mean()), float(outputs.mean())


def _truncated(median: float, log_sd: float, low: int, high: int, count: int, rng) -> np.ndarray:
    """Log-normal whole numbers in [low, high), by drawing again whatever falls outside."""
    values = np.empty(0)
    while values.size < count:
        drawn = median * np.exp(log_sd * rng.standard_normal(max(2 * (count - values.size), 16)))
        values = np.concatenate([values, drawn[(drawn >= low) & (drawn < high)]])
    return values[:count].astype(np.int64)
