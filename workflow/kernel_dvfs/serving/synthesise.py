"""Made-up traces, always called synthetic: Poisson loads, an hour of conversation, a week of published shape.

Token pairs come from lengths.py. The week's shape is ours: per day one smooth hill with its top at 14 h, lower on
Saturday and Sunday, bent until minimum, mean and peak of the 10-minute request rate are those digitised from the
plots of the Azure 2024 data set (AzurePublicDataset). Arrivals are Poisson within each minute.
"""

from collections import namedtuple

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.serving.lengths import CONVERSATION_MIX, draw_mix
from kernel_dvfs.serving.trace import Trace, make_trace

Shape = namedtuple("Shape", "least mean peak first_day")
Shape.__doc__ = "requests/s over 10 minutes; first_day: 0 is Monday."
# 2024: conversation 05-12 (a Sunday) to 18, coding 05-10 (a Friday) to 16
WEEKS = {"conversation": Shape(20.4, 45.15, 76.8, 6), "coding": Shape(2.31, 27.78, 87.6, 4)}
# shares of classes in the 2023 coding trace, percent: published arithmetic, in the order of CLASSES
CODING_MIX = (15.44, 0.51, 0.10, 20.74, 1.01, 0.06, 59.44, 2.35, 0.35)
MIXES = {"conversation": CONVERSATION_MIX, "coding": CODING_MIX}

DAY_S, WEEK_S = 86_400, 604_800
_TOP_H = 14.0
_WEEKEND = 0.55  # height of a weekend's hill, of a weekday's
_SLOT_S = 60


def week_rate(service: str, scale: float = 1.0) -> np.ndarray:
    """Requests/s in each minute of a week, shape (10080,)."""
    shape = WEEKS[service]
    minutes = np.arange(WEEK_S // _SLOT_S)
    hill = 0.5 * (1 + np.cos(2 * np.pi * (minutes / 60 - _TOP_H) / 24))
    weekend = (minutes // 1440 + shape.first_day) % 7 >= 5
    height = hill * np.where(weekend, _WEEKEND, 1.0)
    wanted = (shape.mean - shape.least) / (shape.peak - shape.least)
    # the mean falls as the hill narrows: bisect the exponent
    low, high = 0.05, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.mean(height**middle) > wanted else (low, middle)
    return scale * (shape.least + (shape.peak - shape.least) * height**low)


def week(service: str, scale: float, seed: int, days: float = 7.0) -> Trace:
    """A synthetic week (or its first days). scale: of the published request rate."""
    if service not in WEEKS:
        raise InputError(f"week of '{service}'; allowed: {', '.join(WEEKS)}")
    rate = week_rate(service, scale)[: max(1, int(days * 1440))]
    return _poisson(rate, MIXES[service], seed, f"synthetic {days:g}-day {service} load, {scale:g} of the 2024 rate")


def hour(requests_per_s: float, seed: int, span_s: int = 3600, service: str = "conversation", swing=0.6) -> Trace:
    """A synthetic hour: one slow wave about the mean rate, `swing` of it up and down."""
    minutes = np.arange(max(1, span_s // _SLOT_S))
    rate = requests_per_s * (1 + swing * np.sin(2 * np.pi * minutes / len(minutes)))
    return _poisson(rate, MIXES[service], seed, f"synthetic {service} trace, {requests_per_s:g} requests/s")


def poisson(tokens_per_s: float, span_s: int, seed: int, service: str = "conversation") -> Trace:
    """A constant load of so many tokens/s, prompt and answer together."""
    inputs, outputs = draw_mix(MIXES[service], 20_000, np.random.default_rng(0))
    rate = tokens_per_s / float((inputs + outputs).mean())
    return _poisson(np.full(max(1, span_s // _SLOT_S), rate), MIXES[service], seed, f"synthetic {service} load")


def _poisson(rate: np.ndarray, mix, seed: int, subject: str) -> Trace:
    """rate: requests/s in each minute."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate * _SLOT_S)
    if not counts.sum():
        raise InputError(f"{subject}: no request in {len(rate)} minutes; raise the rate")
    starts = np.repeat(np.arange(len(rate), dtype=float) * _SLOT_S, counts)
    arrival_s = np.sort(starts + rng.uniform(0, _SLOT_S, counts.sum()))
    return make_trace(arrival_s, *draw_mix(mix, counts.sum(), rng), subject, len(rate) * _SLOT_S)
