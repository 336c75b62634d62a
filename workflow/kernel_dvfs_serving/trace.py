"""Requests over time: traces read as they are published, and made-up ones, which are always called synthetic.

A file has the form of the Azure LLM inference traces: columns TIMESTAMP, ContextTokens, GeneratedTokens. TIMESTAMP is a
date and time, or seconds. Those of BurstGPT, splitwise-sim, vidur and Mooncake are read by their own headings, too.
Times of a Trace count from its first request.

Made-up traces are Poisson loads, an hour of conversation, and a week of published shape; their lengths are drawn by
requests.draw_mix. The week's shape is ours: per day one smooth hill with its top at 14 h, lower on Saturday and Sunday,
bent until minimum, mean and peak of the 10-minute request rate are those digitised from the plots of the Azure 2024
data set (AzurePublicDataset). Arrivals are Poisson within each minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernel_dvfs.profile.raw import RawTable, quote, read_csv, read_text, some
from kernel_dvfs.profile.units import UNITS, plain, unit_of_epoch
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import digest, parse_json, whole
from kernel_dvfs_serving.models import MODELS
from kernel_dvfs_serving.requests import CLASSES, CONVERSATION_MIX, classify, draw_lengths, draw_mix, mean_tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

# known traces by the SHA-256 of the file
KNOWN = {
    "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8": "Azure LLM inference trace 2023, conversation",
}


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests over time."""

    arrival_s: np.ndarray  # (n,) s, ascending, from 0
    input_tokens: np.ndarray  # (n,) whole numbers >= 1
    output_tokens: np.ndarray  # (n,) whole numbers >= 1
    span_s: float  # how long the trace lasts
    subject: str  # what captions call it; a made-up one is called synthetic
    notices: tuple[str, ...] = ()  # what of its file was left out or guessed, a line each


# how a column is called in small letters: by Azure (2023 and 2024), BurstGPT, splitwise-sim, vidur, Mooncake
_HEADINGS = {
    **dict(zip(COLUMNS, COLUMNS)),
    **dict.fromkeys(("timestamp", "arrival_timestamp", "arrived_at", "arrival_time"), "TIMESTAMP"),
    **dict.fromkeys(("timestamp_ms", "arrival_time_ms", "arrival_ms"), "TIMESTAMP"),
    **dict.fromkeys(("contexttokens", "context_tokens", "request_tokens", "prompt_size"), "ContextTokens"),
    **dict.fromkeys(("num_prefill_tokens", "input_length", "input_tokens", "prompt_tokens"), "ContextTokens"),
    **dict.fromkeys(("generatedtokens", "generated_tokens", "response_tokens", "token_size"), "GeneratedTokens"),
    **dict.fromkeys(("num_decode_tokens", "output_length", "output_tokens"), "GeneratedTokens"),
}


def read_trace(path: str | Path, expected_sha256: str | None = None, columns: Mapping[str, str] | None = None) -> Trace:
    """Return the trace in a file: CSV, or JSON lines. Raises InputError: file and line, what is wrong, the remedy.

    expected_sha256: refuse a file of another content. columns: {one of COLUMNS: its heading} where no heading says it.
    Its subject: a known trace's name, else the file's. Requests without a prompt or an answer, which failed where the
    trace was taken, are left out and counted in its notices.
    """
    try:
        sha256 = digest(path)
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; the Azure 2023 traces are at github.com/Azure/AzurePublicDataset"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if expected_sha256 and sha256 != expected_sha256:
        raise InputError(f"{path}: its SHA-256 is {sha256}, expected {expected_sha256}; fetch the file again")
    text = read_text(path)
    raw = _json_lines(path, text) if text[:1] == "{" else read_csv(path, _HEADINGS.get, columns, text=text)
    missing = [name for name in COLUMNS if name not in raw.columns]
    if missing:
        raise raw.fault(
            f"no column {', '.join(missing)}; a trace has {', '.join(COLUMNS)}; it has {some(raw.columns)}: name them, "
            f"--columns {missing[0]}=HEADING"
        )
    counts = [_tokens(raw, name) for name in COLUMNS[1:]]
    complete = (counts[0] > 0) & (counts[1] > 0)
    if not complete.any():
        raise raw.fault("no request has both a prompt and an answer", None, 0)
    raw = raw.without(np.flatnonzero(~complete).tolist(), "a request without a prompt or an answer")
    arrival_s, notices = _times(raw)
    name = str(path).replace("\\", "/").rpartition("/")[2]
    subject = KNOWN.get(sha256) or (name if "synthetic" not in name else f"synthetic trace ({name})")
    trace = make_trace(arrival_s - arrival_s[0], counts[0][complete], counts[1][complete], subject)
    return replace(trace, notices=(*raw.notices, *notices))


def _json_lines(path: str | Path, text: str) -> RawTable:
    """Return a trace of one JSON object a line, as Mooncake's."""
    names: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    lines: list[int] = []
    shown: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            request = parse_json(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: not JSON ({error}); a request is one object a line") from None
        keys = {} if not isinstance(request, dict) else {_HEADINGS.get(plain(key)): key for key in request}
        if missing := [name for name in COLUMNS if name not in keys]:
            raise InputError(f"{path}, line {number}: no {', '.join(missing)}; a request is one object a line")
        for name in COLUMNS:
            names[name].append(request[keys[name]])
            shown[name] = keys[name]
        lines.append(number)
    return RawTable(path, names, lambda row: f"line {lines[row]}", None, shown, (), len(lines))


def make_trace(
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    output_tokens: np.ndarray,
    subject: str,
    span_s: float | None = None,
) -> Trace:
    """Return a Trace of arrays. span_s: None, until the last arrival."""
    arrival_s = np.asarray(arrival_s, dtype=np.float64)
    span_s = float(arrival_s[-1]) if span_s is None else float(span_s)
    return Trace(arrival_s, np.asarray(input_tokens, np.int32), np.asarray(output_tokens, np.int32), span_s, subject)


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace in the same form, times in seconds with three decimals."""
    frame = pd.DataFrame(dict(zip(COLUMNS, (trace.arrival_s, trace.input_tokens, trace.output_tokens))))
    with whole(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.3f", lineterminator="\n")


def summary(trace: Trace) -> dict[str, float]:
    """Return the figures that tell traces apart: requests, rate, tokens per s, share of each class in percent."""
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


def _times(raw: RawTable) -> tuple[np.ndarray, list[str]]:
    """Return (seconds, ascending; of dates and times, since the first; notices)."""
    cells = raw.columns["TIMESTAMP"]
    values = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(dtype=float)
    notices: list[str] = []
    are_numbers = not np.isnan(values).all()
    if not are_numbers:
        # two forms of digits may be mixed: with and without a fraction
        parsed = pd.to_datetime(pd.Series(cells, dtype=str), errors="coerce", format="ISO8601", utc=True)
        if not parsed.isna().all():
            # from the first on: seconds since 1970 leave too few digits of a float for 100 ns
            values = np.where(parsed.isna(), np.nan, (parsed - parsed.dropna().iloc[0]).dt.total_seconds())
    elif (values < 0).any():
        row = int(np.flatnonzero(values < 0)[0])
        raise raw.fault(f"{quote(cells[row])} is negative; times count from 0 s", "TIMESTAMP", row)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        row = int(bad[0])
        raise raw.fault(f"{quote(cells[row])} is neither a date and time nor seconds", "TIMESTAMP", row)
    unit, why = _unit_of_times(raw, values) if are_numbers else (None, "")
    if unit:
        values = (values - values[0]) / UNITS["time"][unit]
        notices.append(f"{raw.path}: {raw.name('TIMESTAMP')} is taken to be in {unit}, {why}")
    back = np.flatnonzero(np.diff(values) < 0)
    if back.size:
        raise raw.fault("earlier than on the line before; sort the trace", "TIMESTAMP", int(back[0]) + 1)
    late = np.flatnonzero(values - values[0] > _LONGEST_S)
    if late.size:
        # each slot of time takes memory, with or without requests
        row = int(late[0])
        days = (values[row] - values[0]) / DAY_S
        raise raw.fault(
            f"{quote(cells[row])} is {days:.0f} days after the first; a trace lasts at most {_LONGEST_S // DAY_S}: "
            "leave such rows out, or write seconds",
            "TIMESTAMP",
            row,
        )
    return values, notices


def _unit_of_times(raw: RawTable, values: np.ndarray) -> tuple[str | None, str]:
    """Return (the unit of the times where it is not s, how that is known)."""
    heading = plain(raw.name("TIMESTAMP"))
    if heading.endswith("_ms"):
        return "ms", "as its heading says"
    if unit := unit_of_epoch(float(values.min()), float(values.max())):
        return unit, "as Unix time"
    if raw.name("ContextTokens") == "input_length":
        return "ms", "as in traces of Mooncake"
    return None, ""


def _tokens(raw: RawTable, name: str) -> np.ndarray:
    values = pd.to_numeric(pd.Series(raw.columns[name], dtype=object), errors="coerce").to_numpy(dtype=float)
    bad = np.flatnonzero(~(values >= 0) | (values != np.floor(values)) | (values > 1e7))
    if bad.size:
        row = int(bad[0])
        what = f"{quote(raw.columns[name][row])}; a request has a whole number of tokens: leave such rows out"
        raise raw.fault(what, name, row)
    return values.astype(np.int32)


def held(trace: Trace, most_tokens: int, of: str, too_long: str = "keep") -> Trace:
    """Return the trace with what is said, left out or refused of requests that are longer than `of`, most_tokens of
    prompt and answer together, can hold. Raises InputError for `refuse`, and where none is left."""
    tokens = trace.input_tokens.astype(np.int64) + trace.output_tokens
    longer = tokens > most_tokens
    if not longer.any():
        return trace
    many = f"{longer.sum()} of {len(tokens)} requests ({100 * longer.mean():.2g} %)"
    notice = f"{trace.subject}: {many} have more tokens than {of} ({most_tokens}), the longest {tokens.max()}"
    if too_long == "refuse" or (too_long == "leave-out" and longer.all()):
        raise InputError(f"{notice}; leave them out: --too-long leave-out, or plan with them: --too-long keep")
    if too_long == "keep":
        choices = "planned with all the same: --too-long leave-out or refuse"
        return replace(trace, notices=(*trace.notices, f"{notice}; {choices}"))
    short = ~longer
    rest = make_trace(
        trace.arrival_s[short],
        trace.input_tokens[short],
        trace.output_tokens[short],
        f"{trace.subject} without {longer.sum()} long requests",
        trace.span_s,
    )
    return replace(rest, notices=(*trace.notices, f"{notice}; left out"))


def held_by_model(trace: Trace, model: str, too_long: str = "keep") -> Trace:
    """Return what `held` does for the context of a served model; any other is not known to have one."""
    if model not in MODELS:
        return trace
    return held(trace, MODELS[model].context, f"the context of {model}", too_long)


def model_len(trace: Trace, model: str) -> int:
    """Return the context that an engine must be given: the model's, or more where a request of the trace is longer."""
    longest = int((trace.input_tokens.astype(np.int64) + trace.output_tokens).max())
    return max(longest, MODELS[model].context if model in MODELS else 0)


# -- made-up traces ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WeekRates:
    """Request rates of a published week, over 10 minutes."""

    least: float  # requests/s
    mean: float  # requests/s
    peak: float  # requests/s
    first_day: int  # 0 is Monday


# 2024: conversation 05-12 (a Sunday) to 18, coding 05-10 (a Friday) to 16
WEEKS = {"conversation": WeekRates(20.4, 45.15, 76.8, 6), "coding": WeekRates(2.31, 27.78, 87.6, 4)}
# shares of classes in the 2023 coding trace, percent: published arithmetic, in the order of CLASSES
CODING_MIX = (15.44, 0.51, 0.10, 20.74, 1.01, 0.06, 59.44, 2.35, 0.35)
MIXES = {"conversation": CONVERSATION_MIX, "coding": CODING_MIX}

DAY_S, WEEK_S = 86_400, 604_800
_LONGEST_S = 366 * DAY_S
_TOP_H = 14.0
_WEEKEND = 0.55  # height of a weekend's hill, of a weekday's
_SLOT_S = 60


def week_rate(service: str, scale: float = 1.0) -> np.ndarray:
    """Return the requests/s in each minute of a week, shape (10080,)."""
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
    """Return a synthetic week (or its first days). scale: of the published request rate."""
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
    """Return a synthetic trace: one slow wave about the mean rate, `swing` of it up and down, and bursts on top.

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
    """Return the trace with each request `times` times, the copies up to `jitter_s` later: it is as bursty, and so many
    times the load.

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
    inputs, outputs = (np.tile(lengths, times)[order] for lengths in (trace.input_tokens, trace.output_tokens))
    span_s = max(trace.span_s, float(arrival_s.max()))
    subject = f"{trace.subject}, {times} copies of each request"
    return replace(make_trace(arrival_s[order], inputs, outputs, subject, span_s), notices=trace.notices)


def dealt(trace: Trace, cells: int) -> Trace:
    """Return what one of so many cells gets of a trace whose requests are dealt to them in turn."""
    in_turn = slice(None, None, cells)
    arrays = trace.arrival_s[in_turn], trace.input_tokens[in_turn], trace.output_tokens[in_turn]
    return make_trace(*arrays, f"{trace.subject}, one of {cells} cells", trace.span_s) if cells > 1 else trace


def halves(trace: Trace) -> tuple[Trace, Trace]:
    """Return both halves of a trace's time, each a trace of its own; twice the same where one half has all requests."""
    middle_s, parts = trace.span_s / 2, []
    first = trace.arrival_s < middle_s
    if first.all() or not first.any():
        return trace, trace
    for start_s, members in ((0.0, first), (middle_s, ~first)):
        arrays = trace.arrival_s[members] - start_s, trace.input_tokens[members], trace.output_tokens[members]
        parts.append(make_trace(*arrays, f"half of {trace.subject}", middle_s))
    return parts[0], parts[1]


def of_loads(loads_tps: Mapping[str, float], span_s: float, seed: int) -> Trace:
    """Return Poisson arrivals of classes that bring so many tokens/s each, prompt and answer together."""
    rng = np.random.default_rng(seed)
    parts = []
    for name, tps in loads_tps.items():
        count = rng.poisson(tps * span_s / sum(mean_tokens(name)))
        parts.append((np.sort(rng.uniform(0, span_s, count)), *draw_lengths(name, count, rng)))
    arrival_s, inputs, outputs = (np.concatenate(arrays) for arrays in zip(*parts))
    if not len(arrival_s):
        raise InputError(f"no request in {span_s:g} s at these loads; give higher loads")
    order = np.argsort(arrival_s, kind="stable")
    loads = ", ".join(f"{name} {tps:g}" for name, tps in loads_tps.items())
    return make_trace(arrival_s[order], inputs[order], outputs[order], f"synthetic load, tokens/s: {loads}", span_s)


def poisson(tokens_per_s: float, span_s: int, seed: int, service: str = "conversation") -> Trace:
    """Return a constant load of so many tokens/s, prompt and answer together."""
    inputs, outputs = draw_mix(MIXES[service], 20_000, np.random.default_rng(0))
    rate = tokens_per_s / float((inputs + outputs).mean())
    return _poisson(np.full(max(1, span_s // _SLOT_S), rate), MIXES[service], seed, f"synthetic {service} load")


def _poisson(rate: np.ndarray, mix: Sequence[float], seed: int, subject: str) -> Trace:
    """Return a trace of Poisson arrivals. rate: requests/s in each minute."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate * _SLOT_S)
    if not counts.sum():
        raise InputError(f"{subject}: no request in {len(rate)} minutes; raise the rate")
    starts = np.repeat(np.arange(len(rate), dtype=float) * _SLOT_S, counts)
    arrival_s = np.sort(starts + rng.uniform(0, _SLOT_S, counts.sum()))
    return make_trace(arrival_s, *draw_mix(mix, counts.sum(), rng), subject, len(rate) * _SLOT_S)
