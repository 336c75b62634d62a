"""What a cluster expects: the class of a request when it arrives, and the load of each class in the time to come.

Of a request the prompt's letter is known and the answer's is predicted, with errors by a confusion matrix, or from the
prompt's length alone. Of a load, a slot's expectation is the median of the same slot in the earlier weeks; in the first
week, of the day before; on the first day, of which there is no history, the last half hour is expected again (before
the first request: the first five minutes, which an operator is taken to know).
"""

from __future__ import annotations

import numpy as np

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.requests import CLASSES, OUTPUT_BOUNDS, classify
from kernel_dvfs_serving.system import CHOICES, TOKEN_COUNT, ClusterSettings
from kernel_dvfs_serving.trace import DAY_S, WEEK_S, Trace

# -- classes of answers ------------------------------------------------------------------------------------------------


def predicted(trace: Trace, settings: ClusterSettings) -> np.ndarray:
    """Return the class that each request is taken for. Misprediction is a share of the answers, or `token-count`."""
    kinds = classify(trace.input_tokens, trace.output_tokens)
    if settings.misprediction == TOKEN_COUNT:
        return 3 * (kinds // 3) + by_token_count(trace.input_tokens, trace.output_tokens)
    if settings.misprediction == 0:
        return kinds
    return predict(kinds, confusion(float(settings.misprediction)), settings.seed)


def confusion(error: float) -> np.ndarray:
    """Return [true letter, predicted letter]: wrong with probability `error`, by either letter alike. Rows sum to 1.

    Raises InputError for an error that is no share.
    """
    if not 0 <= error <= 1:
        raise InputError(f"misprediction {error}; allowed: a share from 0 to 1")
    return np.full((3, 3), error / 2) + np.eye(3) * (1 - 1.5 * error)


def predict(kinds: np.ndarray, matrix: np.ndarray, seed: int) -> np.ndarray:
    """Return the predicted classes of true classes (n,), by the confusion matrix of the answer's letter."""
    kinds = np.asarray(kinds)
    limits = np.cumsum(matrix, axis=1)[kinds % 3]
    letter = (np.random.default_rng(seed).uniform(size=len(kinds))[:, None] > limits[:, :2]).sum(1)
    return 3 * (kinds // 3) + letter


def by_token_count(input_tokens: np.ndarray, output_tokens: np.ndarray, share: float = 0.2) -> np.ndarray:
    """Return predicted answer letters (n,) from the prompt's length alone: the commonest letter of its neighbourhood.

    Learnt from the first `share` of the requests, in ten groups of equal size by prompt length (our choice: the
    simplest predictor that there is, to show what a better one is worth).
    """
    inputs, letters = np.asarray(input_tokens), np.digitize(output_tokens, OUTPUT_BOUNDS)
    known = max(1, int(share * len(inputs)))
    edges = np.unique(np.quantile(inputs[:known], np.linspace(0, 1, 11)[1:-1]))
    known_groups, groups = np.digitize(inputs[:known], edges), np.digitize(inputs, edges)
    overall = np.bincount(letters[:known], minlength=3).argmax()
    table = np.full(len(edges) + 1, overall)
    for group in np.unique(known_groups):
        table[group] = np.bincount(letters[:known][known_groups == group], minlength=3).argmax()
    return table[groups]


LAST_S, BEGINNING_S = 1800.0, 300.0

# -- loads -------------------------------------------------------------------------------------------------------------


def slot_loads(trace: Trace, slot_s: float) -> np.ndarray:
    """Return the tokens/s arriving, prompt and answer, of shape (slots, classes)."""
    slots = max(1, int(np.ceil(trace.span_s / slot_s)))
    slot = np.minimum((trace.arrival_s / slot_s).astype(np.int64), slots - 1)
    place = slot * len(CLASSES) + classify(trace.input_tokens, trace.output_tokens)
    tokens = trace.input_tokens.astype(float) + trace.output_tokens
    return np.bincount(place, tokens, slots * len(CLASSES)).reshape(slots, len(CLASSES)) / slot_s


class LoadForecast:
    """Forecast loads, tokens/s of each class, with a margin on top."""

    def __init__(self, loads: np.ndarray, slot_s: float, method: str = "template", margin: float = 1.0):
        if method not in CHOICES["load_prediction"]:
            raise InputError(f"load prediction '{method}'; allowed: {', '.join(CHOICES['load_prediction'])}")
        self.slot_s = slot_s
        self.margin = margin
        self.loads = loads
        self.expected = loads if method == "oracle" else _template(loads, slot_s)
        # slots of which nothing is known before they come
        self._first_day = 0 if method == "oracle" else max(1, round(DAY_S / slot_s))

    def between(self, start_s: float, end_s: float, now_s: float | None = None) -> np.ndarray:
        """Return expectations of slots that meet [start_s, end_s), one at least: tokens/s, of shape (slots, classes).

        now_s: when they are asked for; None: at start_s. On the first day the last slots stand for those to come.
        """
        first = min(int(start_s / self.slot_s + 1e-9), len(self.expected) - 1)
        last = min(max(int(np.ceil(end_s / self.slot_s - 1e-9)), first + 1), len(self.expected))
        known = int((start_s if now_s is None else now_s) / self.slot_s + 1e-9)
        if max(first, known) >= min(last, self._first_day):
            return self.expected[first:last] * self.margin
        recent = self.loads[max(0, known - max(1, round(LAST_S / self.slot_s))) : known]
        if not known:
            recent = self.loads[: max(1, round(BEGINNING_S / self.slot_s))]
        # what of it is past, what the last slots say of the first day's rest, and what there is history for
        parts = (self.expected[first : min(last, known)], recent, self.expected[max(first, self._first_day) : last])
        return np.concatenate(parts) * self.margin


def _template(loads: np.ndarray, slot_s: float) -> np.ndarray:
    day, week = max(1, round(DAY_S / slot_s)), max(1, round(WEEK_S / slot_s))
    expected = loads.copy()
    for slot in range(day, len(loads)):
        earlier = loads[slot - week :: -week] if slot >= week else loads[slot - day : slot - day + 1]
        expected[slot] = np.median(earlier, axis=0)
    return expected
