"""The rows of a CSV that users write: a header, then lines that are either empty or as wide as it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from kernel_dvfs.errors import InputError


def read_rows(path: Path | str, what: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """(columns, (line, cells) of each row that holds something), in UTF-8, with a byte order mark or without.

    what: the file holds, for messages. No columns: an empty file. Raises InputError, a row of another width when it is
    its turn.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
    except OSError as error:
        raise InputError(f"{what} {path}: {error.strerror}; name a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{what} {path}: {error}; name a CSV file") from None
    header = [column.strip() for column in rows[0]] if rows else []
    return header, _filled(path, rows[1:], len(header))


def _filled(path: Path | str, rows: list[list[str]], columns: int) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate(rows, 2):
        if any(cell.strip() for cell in row):
            if len(row) != columns:
                raise InputError(f"{path}: line {line}: {len(row)} cells under {columns} columns")
            yield line, row
