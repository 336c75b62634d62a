"""Nine classes of requests by length of prompt and answer, and the latencies each is promised.

The input letter stands first: SM is a short prompt with a middling answer. Bounds and latencies are those published
about DynamoLLM (docs/serving.md names the source of each).
"""

import numpy as np

LETTERS = "SML"
CLASSES = tuple(first + second for first in LETTERS for second in LETTERS)
INPUT_BOUNDS = (256, 1024)  # tokens: S below the first, M below the second
OUTPUT_BOUNDS = (100, 350)
TTFT_SLO_S = {"S": 0.250, "M": 0.400, "L": 2.000}  # by input letter
TBT_SLO_S = 0.100

# the least output that is beyond a class, by output index: where a prediction shows itself to have been too small
OUTPUT_LIMIT = (*OUTPUT_BOUNDS, None)


def ttft_slo_s(name: str) -> float:
    """Promised time to the first token of a class, s."""
    return TTFT_SLO_S[name[0]]


def tbt_slo_s(name: str) -> float:
    """Promised time between tokens of a class, s: the same for all."""
    return TBT_SLO_S


def index(name: str) -> int:
    """Place of a class in CLASSES."""
    return CLASSES.index(name)


def classify(input_tokens, output_tokens) -> np.ndarray:
    """Indices into CLASSES, of arrays of token counts."""
    return 3 * np.digitize(input_tokens, INPUT_BOUNDS) + np.digitize(output_tokens, OUTPUT_BOUNDS)


def dominates(larger: int, smaller: int) -> bool:
    """Whether a class is at least as demanding as another, by index: neither prompt nor answer shorter."""
    return larger // 3 >= smaller // 3 and larger % 3 >= smaller % 3
