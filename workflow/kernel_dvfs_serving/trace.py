"""Requests over time: traces read strictly from CSV, and made-up ones, which are always called synthetic.

A file has the form of the Azure LLM inference traces: columns TIMESTAMP, ContextTokens, GeneratedTokens. TIMESTAMP is a
date and time, or seconds. Times of a Trace count from its first request.

Made-up traces are Poisson loads, an hour of conversation, and a week of published shape; their lengths are drawn by
requests.draw_mix. The week's shape is ours: per day one smooth hill with its top at 14 h, lower on Saturday and Sunday,
bent until minimum, mean and peak of the 10-minute request rate are those digitised from the plots of the Azure 2024
data set (AzurePublicDataset). Arrivals are Poisson within each minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import whole
from kernel_dvfs_serving.requests import CLASSES, CONVERSATION_MIX, classify, draw_lengths, draw_mix, mean_tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

# known traces by the SHA-256 of the file
KNOWN = {
    "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8": "Azure LLM inference trace 2023, conversation",
}

# shipped: made by kernel-dvfs serving trace --hours 1 --rate 3 --seed 1
SYNTHETIC_HOUR = Path(__file__).parent / "traces" / "synthetic_hour.csv"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests over time."""

    arrival_s: np.ndarray  # (n,) s, ascending, from 0
    input_tokens: np.ndarray  # (n,) whole numbers >= 1
    output_tokens: np.ndarray  # (n,) whole numbers >= 1
    span_s: float  # how long the trace lasts
    subject: str  # what captions call it; a made-up one is called synthetic


def sha256(path: str | Path) -> str:
    """Digest of a file, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_trace(path: str | Path, expected_sha256: str | None = None) -> Trace:
    """The trace in a CSV. Raises InputError: file and line, what is wrong, the remedy.

    expected_sha256: refuse a file of another content. Its subject: a known trace's name, else the file's.
    """
    try:
        digest = sha256(path)
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; the Azure 2023 traces are at github.com/Azure/AzurePublicDataset"
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no CSV: {error}") from None
    if expected_sha256 and digest != expected_sha256:
        raise InputError(f"{path}: its SHA-256 is {digest}, expected {expected_sha256}; fetch the file again")
    missing = [name for name in COLUMNS if name not in frame]
    if missing:
        raise InputError(f"{path}: no column {', '.join(missing)}; a trace has {', '.join(COLUMNS)}")
    if not len(frame):
        raise InputError(f"{path}: no request in it")
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{path}: line 2: more fields than the heading has columns")
    arrival_s = _times(path, frame["TIMESTAMP"])
    inputs, outputs = (_tokens(path, name, frame[name]) for name in COLUMNS[1:])
    name = str(path).replace("\\", "/").rpartition("/")[2]
    subject = KNOWN.get(digest) or (name if "synthetic" not in name else f"synthetic trace ({name})")
    return make_trace(arrival_s - arrival_s[0], inputs, outputs, subject)


def make_trace(
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    subject: str,
    span_s: float | None = None,
) -> Trace:
    """A Trace of arrays. span_s: None, until the last arrival."""
    arrival_s = np.asarray(arrival_s, dtype=np.float64)
    span_s = float(arrival_s[-1]) if span_s is None else float(span_s)
    return Trace(arrival_s, np.asarray(input_tokens, np.int32), np.asarray(output_tokens, np.int32), span_s, subject)


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace in the same form, times in seconds with three decimals."""
    frame = pd.DataFrame(dict(zip(COLUMNS, (trace.arrival_s, trace.input_tokens, trace.output_tokens))))
    with whole(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.3f", lineterminator="\n")


def summary(trace: Trace) -> dict[str, float]:
    """Figures that tell traces apart: requests, rate, tokens per s, share of each class in percent."""
    kinds = np.bincount(classify(trace.input_tokens, trace.output_tokens), minlength=len(CLASSES))
    span_s = max(trace.span_s, 1e-9)
    return {
        "requests": len(trace.arrival_s),
        "span_s": trace.span_s,
        "requests_per_s": len(trace.arrival_s) / span_s,
        "input_tokens_per_s": float(trace.input_tokens.sum()) / span_s,
        "output_tokens_per_s": float(trace.output_tokens.sum()) / span_s,
        **{f"{name}_percent": float(100.0 * kinds[place] / kinds.sum()) for place, name in enumerate(CLASSES)},
    }


def _times(path: str | Path, column: pd.Series) -> np.ndarray:
    """Seconds, ascending; of dates and times, since the first."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    if np.isnan(values).all():
        # two forms of digits may be mixed: with and without a fraction
        parsed = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        if not parsed.isna().all():
            # from the first on: seconds since 1970 leave too few digits of a float for 100 ns
            values = np.where(parsed.isna(), np.nan, (parsed - parsed.dropna().iloc[0]).dt.total_seconds())
    elif (values < 0).any():
        row = int(np.flatnonzero(values < 0)[0])
        raise InputError(f"{path}: line {row + 2}: TIMESTAMP {column[row]} is negative; times count from 0 s")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise InputError(
            f"{path}: line {bad[0] + 2}: TIMESTAMP '{column[bad[0]]}' is neither a date and time nor seconds"
        )
    back = np.flatnonzero(np.diff(values) < 0)
    if back.size:
        raise InputError(f"{path}: line {back[0] + 3}: TIMESTAMP is earlier than on the line before; sort the trace")
    late = np.flatnonzero(values - values[0] > _LONGEST_S)
    if late.size:
        # each slot of time takes memory, with or without requests
        days = (values[late[0]] - values[0]) / DAY_S
        raise InputError(
            f"{path}: line {late[0] + 2}: TIMESTAMP '{column[late[0]]}' is {days:.0f} days after the first; a trace "
            f"lasts at most {_LONGEST_S // DAY_S}: leave such rows out"
        )
    return values


def _tokens(path: str | Path, name: str, column: pd.Series) -> np.ndarray:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    bad = np.flatnonzero(~(values >= 1) | (values != np.floor(values)) | (values > 1e7))
    if bad.size:
        raise InputError(
            f"{path}: line {bad[0] + 2}: {name} is '{column[bad[0]]}'; a request has a whole number of tokens >= 1: "
            "leave such rows out"
        )
    return values.astype(np.int32)


# -- made-up traces ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Request rates of a published week, over 10 minutes."""

    least: float  # requests/s
    mean: float  # requests/s
    peak: float  # requests/s
    first_day: int  # 0 is Monday


# 2024: conversation 05-12 (a Sunday) to 18, coding 05-10 (a Friday) to 16
WEEKS = {"conversation": Shape(20.4, 45.15, 76.8, 6), "coding": Shape(2.31, 27.78, 87.6, 4)}
# shares of classes in the 2023 coding trace, percent: published arithmetic, in the order of CLASSES
CODING_MIX = (15.44, 0.51, 0.10, 20.74, 1.01, 0.06, 59.44, 2.35, 0.35)
MIXES = {"conversation": CONVERSATION_MIX, "coding": CODING_MIX}

DAY_S, WEEK_S = 86_400, 604_800
_LONGEST_S = 366 * DAY_S
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


def hours(
    requests_per_s: float,
    seed: int,
    span_s: int = 3600,
    service: str = "conversation",
    swing: float = 0.6,
    bursts: int = 0,
    burst_factor: float = 10.0,
) -> Trace:
    """A synthetic trace: one slow wave about the mean rate, `swing` of it up and down, and bursts on top.

    bursts: whole minutes, at moments that the seed decides, in which requests come `burst_factor` times as fast.
    """
    minutes = np.arange(max(1, span_s // _SLOT_S))
    if bursts > len(minutes):
        raise InputError(f"{bursts} bursts of a minute do not fit into {len(minutes)} minutes; ask for fewer")
    rate = requests_per_s * (1 + swing * np.sin(2 * np.pi * minutes / len(minutes)))
    rate[np.random.default_rng([seed, bursts]).choice(len(minutes), bursts, replace=False)] *= burst_factor
    subject = f"synthetic {service} trace, {requests_per_s:g} requests/s"
    if bursts:
        subject += f", {bursts} minutes of {burst_factor:g} times as many"
    return _poisson(rate, MIXES[service], seed, subject)


def multiplied(trace: Trace, times: int, seed: int, jitter_s: float = 10.0) -> Trace:
    """The trace with every request `times` times, the copies up to `jitter_s` later: as bursty, so many times the load.

    Made of another's requests, so its subject says so. Raises InputError for fewer than one.
    """
    if times < 1:
        raise InputError(f"{times} times a trace; allowed: a whole number of at least 1")
    if times == 1:
        return trace
    late_s = np.random.default_rng(seed).uniform(0, jitter_s, (times, len(trace.arrival_s)))
    late_s[0] = 0.0
    arrival_s = (trace.arrival_s + late_s).ravel()
    order = np.argsort(arrival_s, kind="stable")
    inputs, outputs = (np.tile(each, times)[order] for each in (trace.input_tokens, trace.output_tokens))
    span_s = max(trace.span_s, float(arrival_s.max()))
    return make_trace(arrival_s[order], inputs, outputs, f"{trace.subject}, {times} copies of each request", span_s)


def dealt(trace: Trace, cells: int) -> Trace:
    """What one of so many cells gets of a trace whose requests are dealt to them in turn."""
    own = slice(None, None, cells)
    arrays = trace.arrival_s[own], trace.input_tokens[own], trace.output_tokens[own]
    return make_trace(*arrays, f"{trace.subject}, one of {cells} cells", trace.span_s) if cells > 1 else trace


def of_loads(loads_tps: Mapping[str, float], span_s: float, seed: int) -> Trace:
    """Poisson arrivals of classes that bring so many tokens/s each, prompt and answer together."""
    rng = np.random.default_rng(seed)
    parts = []
    for name, tps in loads_tps.items():
        count = rng.poisson(tps * span_s / sum(mean_tokens(name)))
        parts.append((np.sort(rng.uniform(0, span_s, count)), *draw_lengths(name, count, rng)))
    arrival_s, inputs, outputs = (np.concatenate(each) for each in zip(*parts))
    if not len(arrival_s):
        raise InputError(f"no request in {span_s:g} s at these loads; give higher loads")
    order = np.argsort(arrival_s, kind="stable")
    told = ", ".join(f"{name} {tps:g}" for name, tps in loads_tps.items())
    return make_trace(arrival_s[order], inputs[order], outputs[order], f"synthetic load, tokens/s: {told}", span_s)


def poisson(tokens_per_s: float, span_s: int, seed: int, service: str = "conversation") -> Trace:
    """A constant load of so many tokens/s, prompt and answer together."""
    inputs, outputs = draw_mix(MIXES[service], 20_000, np.random.default_rng(0))
    rate = tokens_per_s / float((inputs + outputs).mean())
    return _poisson(np.full(max(1, span_s // _SLOT_S), rate), MIXES[service], seed, f"synthetic {service} load")


def _poisson(rate: np.ndarray, mix: Sequence[float], seed: int, subject: str) -> Trace:
    """rate: requests/s in each minute."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate * _SLOT_S)
    if not counts.sum():
        raise InputError(f"{subject}: no request in {len(rate)} minutes; raise the rate")
    starts = np.repeat(np.arange(len(rate), dtype=float) * _SLOT_S, counts)
    arrival_s = np.sort(starts + rng.uniform(0, _SLOT_S, counts.sum()))
    return make_trace(arrival_s, *draw_mix(mix, counts.sum(), rng), subject, len(rate) * _SLOT_S)
