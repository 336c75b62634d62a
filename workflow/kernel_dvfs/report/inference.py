"""What a shipped inference of a simulated board says: the band of the headline.

Nobody has measured all that decides what a board saves, so the boards that fit the evidence are inferred once, outside
of the study (experiments/calibration/infer_board.py). What comes of it is shipped as shipped/posterior_band.csv and
shipped/posterior_claims.csv, and holds for one board and one workload.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from typing import Any

from kernel_dvfs import shipped
from kernel_dvfs_clocks.errors import InputError

# change of an iteration's energy by the strict choice of clocks per kernel
KERNEL_ENERGY = "kernel_energy_change"
_COLUMNS = ("figure", "unit", "p05", "p50", "p95", "meaning", "source", "board", "spec_digest", "workload")


def digest(content: Mapping[str, Any]) -> str:
    """Return 12 hex digits that name a content."""
    return sha256(json.dumps({**content}, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Band:
    """Changes of energy, percent, negative = less."""

    p05: float
    p50: float | None  # None: no median is known
    p95: float
    meaning: str  # goes on after "-3 to -1 %"
    source: str  # what the numbers were made from


def band_of(spec: Mapping[str, Any], workload: str, path: str | PathLike[str] = "") -> Band | None:
    """Return the band of the strict saving by clocks per kernel; None where it is known for another board or workload.

    spec: of the simulated GPU, as a setup has it; workload: its name. path: the table; "": the one that is shipped. A
    CSV with a row a figure and these columns:
      figure       kernel_energy_change or pass_energy_change: of an iteration, by the strict choice, against auto
      unit         percent
      p05 p50 p95  percentiles, negative = less energy; p50 may be empty
      meaning      words that go on after "-3 to -1 %", such as "over the boards that fit the evidence"
      source       what the numbers were made from, in words
      board        id of the spec, for people
      spec_digest  12 hex digits: `digest` of the whole spec, overrides among it; a page has it under "spec digest"
      workload     such as gpt3-xl-b40-tp1
    Raises InputError for a file that is not such a table.
    """
    with rows_of(path or shipped.POSTERIOR_BAND, spec, workload, "band of a headline", _COLUMNS) as rows:
        for row in rows:
            if row["figure"] == KERNEL_ENERGY:
                p05, p50, p95 = (float(row[name]) if row[name] else None for name in ("p05", "p50", "p95"))
                ends = [percentile for percentile in (p05, p50, p95) if percentile is not None]
                if p05 is None or p95 is None or ends != sorted(ends) or not all(map(math.isfinite, ends)):
                    raise ValueError(f"p05, p50, p95 are {row['p05']}, {row['p50']}, {row['p95']}, expected to ascend")
                if row["unit"] != "percent":
                    raise ValueError(f"unit is {row['unit']}, expected percent")
                return Band(p05, p50, p95, row["meaning"], row["source"])
    return None


@contextmanager
def rows_of(
    path: str | PathLike[str], spec: Mapping[str, Any], workload: str, what: str, columns: Sequence[str]
) -> Iterator[list[dict[str, str]]]:
    """Yield the rows of a board and a workload; what cannot be read of them is an InputError."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        wanted = digest(spec), workload
        yield [row for row in rows if (row["spec_digest"], row["workload"]) == wanted]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{path}: no {what} ({error}): expected {', '.join(columns)}") from None
