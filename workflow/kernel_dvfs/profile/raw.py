"""A table as its file has it, before anything is understood: cells, and the place of each in the file.

CSV and Parquet are read here; a Kernel Tuner file becomes the same shape in kernel_tuner.py. What a column means is in
units.py and table.py.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError

if TYPE_CHECKING:
    from io import BufferedReader
    from os import PathLike


@dataclass(frozen=True, slots=True)
class Raw:
    """Cells by column."""

    path: str | PathLike[str]  # of the file, as the user named it
    columns: dict[str, list[Any]]  # name -> cells (text, number or None), all of one length
    place: Callable[[int], str]  # index of a row -> where it is in the file, such as "line 12"
    header: str | None = None  # where the names are in the file
    shown: dict[str, str] = field(default_factory=dict)  # column -> the name it has in the file, where that differs

    def fault(self, message: str, column: str | None = None, row: int | None = None) -> InputError:
        """The error to raise: file, place and column, then the message."""
        where = [str(self.path)]
        place = self.header if row is None else self.place(row)
        if place is not None:
            where.append(place)
        if column is not None:
            where.append(f"column {self.shown.get(column, column)}")
        return InputError(f"{', '.join(where)}: {message}")

    def numbers(self, column: str) -> list[float | None]:
        """The column as floats, None where a cell is empty. NaN and infinity are errors too."""
        cells = self.columns[column]
        if set(map(type, cells)) <= {float, str}:  # the plain case at speed; in any doubt, the loop below decides
            try:
                plain = list(map(float, cells))
            except ValueError:
                plain = [math.nan]
            if all(-1e300 < value < 1e300 for value in plain) and not any("_" in str(cell) for cell in cells):
                return [*plain]
        found: list[float | None] = []
        for row, cell in enumerate(cells):
            if is_empty(cell):
                found.append(None)
                continue
            value = to_number(cell)
            if value is None:
                raise self.fault(f"{quote(cell)} is not a number", column, row)
            if not -1e300 < value < 1e300:
                raise self.fault(f"{quote(cell)} is not a finite number", column, row)
            found.append(value)
        return found


def is_empty(cell: object) -> bool:
    """Whether a cell says nothing: null, or blank text."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def to_number(cell: Any) -> float | None:
    """The cell as a float (NaN and infinity included), None if it is no number."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):  # float() reads 1_000 as a thousand
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def quote(cell: object) -> str:
    """A cell for a message: quoted, and shortened where it is long."""
    text = str(cell)
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"


def open_bytes(path: str | PathLike[str]) -> BufferedReader:
    """The open file. Raises InputError where it is missing, a folder, or may not be read."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_text(path: str | PathLike[str]) -> str:
    """The file's content as UTF-8, without a byte order mark. Raises InputError naming the line otherwise."""
    with open_bytes(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def read_csv(path: str | PathLike[str]) -> Raw:
    """A comma-separated table with one header line; rows keep the number of their (first) physical line."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] | None = None
    lines: list[int] = []
    cells_in_order: list[str] = []  # flat: a hundred thousand small lists would keep the garbage collector busy
    start = 1
    try:
        for cells in reader:
            if not cells:  # a blank line
                pass
            elif header is None:
                header = [name.strip() for name in cells]
                header_place = f"line {start}"
                _check_header(path, header, header_place)
            elif len(cells) != len(header):
                found = f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}"
                raise InputError(f"{path}, line {start}: {found} where the header names {len(header)} columns")
            else:
                cells_in_order += cells
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {start}: not readable as CSV: {error}") from None
    if header is None:
        raise InputError(f"{path}, line 1: the file is empty; a table needs a header line and rows")
    if not lines:
        raise InputError(f"{path}, {header_place}: the table has a header but no rows")
    columns = {name: cells_in_order[index :: len(header)] for index, name in enumerate(header)}
    return Raw(path, columns, lambda row: f"line {lines[row]}", header_place)


def _check_header(path: str | PathLike[str], header: list[str], place: str) -> None:
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InputError(f"{path}, {place}: one column named {quote(header[0])}; separate columns by commas")
    _check_names(path, header, f", {place}")


def _check_names(path: str | PathLike[str], names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}{where}, column {name}: the name appears twice; keep one of the columns")


def read_parquet(path: str | PathLike[str]) -> Raw:
    """A Parquet table; null is an empty cell, rows count from 1."""
    from kernel_dvfs.profile import store

    open_bytes(path).close()  # a missing file in our words, not the library's
    table = store.read_parquet(path, "give a whole Parquet file, or export the table as CSV")
    _check_names(path, table.column_names, "")
    if not table.num_rows:
        raise InputError(f"{path}: the table has no rows")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    return Raw(path, columns, lambda row: f"row {row + 1}")
