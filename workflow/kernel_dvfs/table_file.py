"""The rows of a table on disk: tables/<name>.json, as data and under seal.

The CSV, Markdown and LaTeX beside it are for people, and nothing reads them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from kernel_dvfs.layout import TABLE
from kernel_dvfs_clocks.files import write_sealed
from kernel_dvfs_clocks.shape import read

_REMEDY = "delete it and run snakemake"


class _Table(TypedDict):
    schema: str
    rows: list[dict[str, Any]]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a table, as data: numbers, texts, booleans, None for nothing. Raises InputError where it is
    missing, no table, or not as it was written."""
    content = read(path, _Table, TABLE, _REMEDY, "table", "run snakemake report", is_sealed=True)
    return content["rows"]


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write what `read_rows` reads."""
    write_sealed(path, {"schema": TABLE, "rows": [{key: _plain(value) for key, value in row.items()} for row in rows]})


def kept_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a table of which only the CSV is kept, as in experiments/results, as data."""
    with open(path, encoding="utf-8", newline="") as file:
        return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _cell(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False, "": None}.get(text, text)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: numpy's scalars and pandas' missing values have no place there."""
    value = value.item() if hasattr(value, "item") else value
    return None if not isinstance(value, str) and str(value) in ("nan", "NaT", "<NA>") else value
