"""How many tokens per s of each class to expect: a template of earlier weeks, the day before, or hindsight.

A slot's expectation is the median of the same slot in the earlier weeks; in the first week, of the day before; on the
first day there is no history, so the truth is taken (an oracle: results say so).
"""

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.classes import CLASSES, classify
from kernel_dvfs.serving.synthesise import DAY_S, WEEK_S

METHODS = ("template", "oracle")


def slot_loads(trace, slot_s: float) -> np.ndarray:
    """Tokens/s arriving, prompt and answer, of shape (slots, classes)."""
    slots = max(1, int(np.ceil(trace.span_s / slot_s)))
    slot = np.minimum((trace.arrival_s / slot_s).astype(np.int64), slots - 1)
    place = slot * len(CLASSES) + classify(trace.input_tokens, trace.output_tokens)
    tokens = trace.input_tokens.astype(float) + trace.output_tokens
    return np.bincount(place, tokens, slots * len(CLASSES)).reshape(slots, len(CLASSES)) / slot_s


class LoadForecast:
    """Forecast loads, tokens/s of each class, with a margin on top."""

    def __init__(self, loads: np.ndarray, slot_s: float, method: str = "template", margin: float = 1.0):
        if method not in METHODS:
            raise InputError(f"load prediction '{method}'; allowed: {', '.join(METHODS)}")
        self.slot_s = slot_s
        self.margin = margin
        self.loads = loads
        self.expected = loads if method == "oracle" else _template(loads, slot_s)
        day = min(len(loads), max(1, round(DAY_S / slot_s)))
        self.oracle_share = 1.0 if method == "oracle" else day / len(loads)

    def peak(self, start_s: float, end_s: float) -> np.ndarray:
        """The highest expectation of any slot that meets [start_s, end_s), per class."""
        first = min(int(start_s / self.slot_s + 1e-9), len(self.expected) - 1)
        last = min(max(int(np.ceil(end_s / self.slot_s - 1e-9)), first + 1), len(self.expected))
        return self.expected[first:last].max(0) * self.margin


def _template(loads: np.ndarray, slot_s: float) -> np.ndarray:
    day, week = max(1, round(DAY_S / slot_s)), max(1, round(WEEK_S / slot_s))
    expected = loads.copy()
    for slot in range(day, len(loads)):
        earlier = loads[slot - week :: -week] if slot >= week else loads[slot - day : slot - day + 1]
        expected[slot] = np.median(earlier, axis=0)
    return expected
