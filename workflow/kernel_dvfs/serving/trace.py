"""Requests over time: the CSV form of the Azure LLM inference traces, read strictly.

Columns TIMESTAMP, ContextTokens, GeneratedTokens. TIMESTAMP is a date and time, or seconds. Times of a Trace count
from its first request.
"""

import hashlib
from collections import namedtuple

import numpy as np
import pandas as pd

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import whole
from kernel_dvfs.serving.classes import CLASSES, classify

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

# known traces by the SHA-256 of the file
KNOWN = {
    "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8": "Azure LLM inference trace 2023, conversation",
}

Trace = namedtuple("Trace", "arrival_s input_tokens output_tokens span_s subject")
Trace.__doc__ = """arrival_s (n,): s, ascending, from 0. input_tokens, output_tokens (n,): whole numbers >= 1. span_s:
how long the trace lasts. subject: what captions call it; a made-up one is called synthetic."""


def sha256(path) -> str:
    """Digest of a file, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_trace(path, expected_sha256: str | None = None) -> Trace:
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
    arrival_s = _times(path, frame["TIMESTAMP"])
    tokens = [_tokens(path, name, frame[name]) for name in COLUMNS[1:]]
    name = str(path).replace("\\", "/").rpartition("/")[2]
    subject = KNOWN.get(digest) or (name if "synthetic" not in name else f"synthetic trace ({name})")
    return make_trace(arrival_s - arrival_s[0], *tokens, subject=subject)


def make_trace(arrival_s, input_tokens, output_tokens, subject: str, span_s: float | None = None) -> Trace:
    """A Trace of arrays. span_s: None, until the last arrival."""
    arrival_s = np.asarray(arrival_s, dtype=np.float64)
    span_s = float(arrival_s[-1]) if span_s is None else float(span_s)
    return Trace(arrival_s, np.asarray(input_tokens, np.int32), np.asarray(output_tokens, np.int32), span_s, subject)


def write_trace(path, trace: Trace) -> None:
    """Write a trace in the same form, times in seconds with three decimals."""
    frame = pd.DataFrame(dict(zip(COLUMNS, (trace.arrival_s, trace.input_tokens, trace.output_tokens))))
    with whole(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.3f", lineterminator="\n")


def summary(trace: Trace) -> dict:
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


def _times(path, column) -> np.ndarray:
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
    return values


def _tokens(path, name: str, column) -> np.ndarray:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    bad = np.flatnonzero(~(values >= 1) | (values != np.floor(values)) | (values > 1e7))
    if bad.size:
        raise InputError(
            f"{path}: line {bad[0] + 2}: {name} is '{column[bad[0]]}'; a request has a whole number of tokens >= 1: "
            "leave such rows out"
        )
    return values.astype(np.int32)
