"""Requests: nine classes by length of prompt and answer, the latencies promised to each, lengths drawn within a class.

A class is named by two letters, the prompt's first: SM is a short prompt with a middling answer. Bounds and promised
latencies are those published about DynamoLLM (docs/serving.md names the source of each).

Lengths within a class are truncated log-normal, two figures for the prompt and two for the answer. Medians and log
standard deviations summarise the Azure LLM inference trace 2023, conversation (Microsoft, AzurePublicDataset,
CC-BY-4.0; 19,366 requests); SL rests on 10 requests and is widened. Prompt and answer are drawn independently within a
class (their log correlation there is within +-0.2, except in LS and LM: -0.33). Whatever is drawn from this is
synthetic and has to be called so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

LETTERS = "SML"
CLASSES = tuple(first + second for first in LETTERS for second in LETTERS)
INPUT_BOUNDS = (256, 1024)  # tokens: S below the first, M below the second
OUTPUT_BOUNDS = (100, 350)
TTFT_SLO_S = {"S": 0.250, "M": 0.400, "L": 2.000}  # by the prompt's letter
TBT_SLO_S = 0.100

# the least answer that is beyond a class, by place of the answer's letter: there a prediction turns out too small
OUTPUT_LIMIT = (*OUTPUT_BOUNDS, None)


def ttft_slo_s(name: str) -> float:
    """Return the promised time to the first token of a class, s."""
    return TTFT_SLO_S[name[0]]


def index(name: str) -> int:
    """Return the place of a class in CLASSES."""
    return CLASSES.index(name)


def classify(input_tokens: np.ndarray, output_tokens: np.ndarray) -> np.ndarray:
    """Return indices into CLASSES, of arrays of token counts."""
    return 3 * np.digitize(input_tokens, INPUT_BOUNDS) + np.digitize(output_tokens, OUTPUT_BOUNDS)


def dominates(larger: int, smaller: int) -> bool:
    """Return whether a class is at least as demanding as another, by index: neither prompt nor answer shorter."""
    return larger // 3 >= smaller // 3 and larger % 3 >= smaller % 3


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through the cluster: two requests are never equal.

    `generated` is brought up to date when the request leaves an instance, not with each token.
    """

    number: int  # place in its trace
    arrival_s: float  # on the simulation's clock, as all moments here
    input: int  # tokens of the prompt
    output: int  # tokens of the answer
    kind: int = 0  # index of its true class
    predicted: int = 0  # index of the class it is taken for
    slo_s: float = 2.0  # promised time to the first token, s
    stop_at: int | None = None  # tokens after which an instance hands it back: its prediction was wrong; None: never
    contents: tuple[object, ...] = ()  # of the prompt's full blocks, where prompts share some
    computed: int = 0  # tokens in the KV cache, while it does not decode
    generated: int = 0  # tokens of the answer, likewise
    decodes: bool = False  # the scheduler's: whether it gets a token a step
    since: int = 0  # the scheduler's: tokens in the cache less steps done, while it decodes
    admission: int = 0  # the scheduler's: its place among those admitted
    blocks: int = 0  # the scheduler's: of the KV cache, while it does not decode
    held: list[int] = field(default_factory=list)  # the scheduler's: which
    slow: int = 0  # gaps between its tokens that were longer than promised
    slow_from: int = 0  # such steps of its instance, when it began to decode there
    first_s: float | None = None  # moment of the first token
    last_s: float = 0.0  # moment of the latest token, once it has left an instance
    finish_s: float | None = None
    deadline_s: float = 0.0  # for the first token; set from arrival and promise

    def __post_init__(self) -> None:
        self.deadline_s = self.arrival_s + self.slo_s

    @property
    def length(self) -> int:
        """Return how many tokens are known: its prompt and what has been answered."""
        return self.input + self.generated

    @property
    def goal(self) -> int:
        """Return the tokens of the answer with which it leaves its instance."""
        return self.stop_at or self.output

    @property
    def started(self) -> bool:
        """Return whether it has anything in a cache."""
        return self.computed > 0

    def begin_again(self) -> None:
        """Nothing has been done for it."""
        self.computed = self.generated = self.slow = 0


# -- lengths -----------------------------------------------------------------------------------------------------------

LONGEST_INPUT, LONGEST_OUTPUT = 8192, 1000
# class: median and log standard deviation of the prompt, of the answer
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


# {class: (prompt, answer tokens)} of requests that were seen: what is drawn from instead of the figures above
Seen = dict[str, tuple[np.ndarray, np.ndarray]]
# of a class: fewer say little of their distribution's tail, which P99 latencies hang on
LEAST_SEEN = 100


def seen_lengths(input_tokens: np.ndarray, output_tokens: np.ndarray) -> Seen:
    """Return the lengths of a trace's own requests by class, of those classes that have LEAST_SEEN."""
    kinds = classify(input_tokens, output_tokens)
    parts = {name: kinds == place for place, name in enumerate(CLASSES)}
    return {
        name: (np.asarray(input_tokens)[members], np.asarray(output_tokens)[members])
        for name, members in parts.items()
        if members.sum() >= LEAST_SEEN
    }


def draw_lengths(
    name: str, count: int, rng: np.random.Generator, seen: Seen | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (input_tokens, output_tokens), integer arrays of shape (count,), all of the class `name`.

    seen: drawn from these pairs, with replacement, where the class is among them.
    """
    if seen and name in seen:
        places = rng.integers(len(seen[name][0]), size=count)
        return seen[name][0][places].astype(np.int64), seen[name][1][places].astype(np.int64)
    prompt, prompt_sd, answer, answer_sd = _SHAPE[name]
    row, column = divmod(index(name), 3)
    inputs = (1, *INPUT_BOUNDS, LONGEST_INPUT + 1)
    outputs = (1, *OUTPUT_BOUNDS, LONGEST_OUTPUT + 1)
    return (
        _truncated(prompt, prompt_sd, inputs[row], inputs[row + 1], count, rng),
        _truncated(answer, answer_sd, outputs[column], outputs[column + 1], count, rng),
    )


def draw_mix(shares: Sequence[float], count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return (input_tokens, output_tokens) of a mix: `shares` of the classes in the order of CLASSES."""
    parts = np.asarray(shares, dtype=float)
    drawn = rng.choice(len(CLASSES), size=count, p=parts / parts.sum())
    inputs, outputs = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for place, name in enumerate(CLASSES):
        places = np.flatnonzero(drawn == place)
        inputs[places], outputs[places] = draw_lengths(name, places.size, rng)
    return inputs, outputs


def mean_tokens(name: str, draws: int = 20_000) -> tuple[float, float]:
    """Return (mean input, mean output) tokens of a class, of a fixed large draw."""
    inputs, outputs = draw_lengths(name, draws, np.random.default_rng(0))
    return float(inputs.mean()), float(outputs.mean())


def _truncated(median: float, log_sd: float, low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return log-normal whole numbers in [low, high), by drawing again whatever falls outside."""
    values = np.empty(0)
    while values.size < count:
        drawn = median * np.exp(log_sd * rng.standard_normal(max(2 * (count - values.size), 16)))
        values = np.concatenate([values, drawn[(drawn >= low) & (drawn < high)]])
    return values[:count].astype(np.int64)
