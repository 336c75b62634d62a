"""A table as its file has it, before anything is understood: cells, and the place of each in the file.

CSV and Parquet are read here; a Kernel Tuner file becomes the same shape in kernel_tuner.py. What a column means is in
units.py and table.py.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError
from kernel_dvfs.profile.units import UNITS, known_as

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
    """A table with one header line, as people have them; rows keep the number of their (first) physical line.

    Lines that begin with # are comments. Where the header has no comma, columns may be separated by semicolons, tabs or
    bars, and numbers may have decimal commas. A heading such as `Time [ms]` is the column time_ms, and a cell such as
    `1.5 ms` there is the number. Raises InputError.
    """
    text = read_text(path)
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    header: list[str] | None = None
    lines: list[int] = []
    cells_in_order: list[str] = []  # flat: a hundred thousand small lists would keep the garbage collector busy
    start = 1
    try:
        for cells in reader:
            if not cells or cells[0].lstrip().startswith(COMMENT):
                pass
            elif header is None:
                header = [name.strip() for name in cells]
                header_place = f"line {start}"
                _check_names(path, header, f", {header_place}")
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
    named = _named(header)
    columns = {
        name: _cells(name, cells_in_order[index :: len(header)], separator != ",") for index, name in enumerate(named)
    }
    shown = {name: given for name, given in zip(named, header, strict=True) if name != given}
    return Raw(path, columns, lambda row: f"line {lines[row]}", header_place, shown)


COMMENT = "#"


def _separator(text: str) -> str:
    """What separates columns, by the first line that is no comment."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(COMMENT))
    header = next(lines, "")
    return "," if "," in header else next((mark for mark in ";\t|" if mark in header), ",")


def _named(header: list[str]) -> list[str]:
    """The headings, those that are a known column in other letters under its name: `Time [ms]` as time_ms."""
    plain = [re.sub(r"[^a-z0-9]+", "_", given.lower()).strip("_") for given in header]
    found = [
        # MJ and MW are not mJ and mW
        None if given in plain or re.search(r"\bM[JW]\b", given) else known_as(name)
        for name, given in zip(plain, header, strict=True)
    ]
    taken = [*header, *filter(None, found)]
    return [name if name and taken.count(name) == 1 else given for name, given in zip(found, header, strict=True)]


def _cells(name: str, cells: list[str], may_have_commas: bool) -> list[str]:
    """Of a column of numbers: decimal commas as points, and without the column's own unit behind them."""
    if not known_as(name):
        return cells
    unit = name.rpartition("_")[2]
    if unit in _UNITS and any(cell.rstrip().lower().endswith(unit) for cell in cells):
        # as it is written: MJ is not mJ
        written = "MHz" if unit == "mhz" else unit[:-1] + unit[-1].upper() if unit[-1] in "jw" else unit
        pattern = re.compile(rf"\s*([-+.,\deE]+)\s*({unit}|{written})\s*")
        cells = [found[1] if (found := pattern.fullmatch(cell)) else cell for cell in cells]
    if may_have_commas and not any("." in cell for cell in cells):
        cells = [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]
    return cells


_UNITS = {unit for known in UNITS.values() for unit in known}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")


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
