"""A CSV as a table to be read and sorted: headings with units, a change and its interval in one cell."""

import csv
from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.report.page.captions import caption
from kernel_dvfs.report.page.cells import number, shown, title

Table = namedtuple("Table", "name title text columns rows folded")
Table.__doc__ = """columns: [Column]; rows: lists of Cell. folded: long and of use to few, so shown on demand."""
Column = namedtuple("Column", "name title kind")
Column.__doc__ = "kind: number, text, long (sentences) or verdict."
Cell = namedtuple("Cell", "text value")
Cell.__doc__ = "text: as shown. value: as the CSV has it, which is what is sorted by."

_LONG_CHARACTERS = 40
_FOLD_ROWS = 24
_VERDICTS = ("verdict", "status")
# the same in every row, and said on top of the page
_CONSTANT = ("gpu",)


def read_rows(path) -> list:
    """A CSV as [{column: text}]. Raises InputError naming the file."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"table {path}: {error}; delete it and run snakemake report") from None
    rows = list(csv.DictReader(text.splitlines()))
    if not text.strip() or any(None in row or None in row.values() for row in rows):
        raise InputError(f"table {path}: empty, or a line with too few or too many fields; delete it and run snakemake")
    return rows


def table(name: str, rows: list, drop: tuple = _CONSTANT, folds: bool = True) -> Table:
    """The table of a CSV's rows (`read_rows`). Columns without a value are left out."""
    names = [each for each in (rows[0] if rows else ()) if each not in drop and any(row[each] for row in rows)]
    # a change takes its interval in
    bounds = {each: _bounds(each, names) for each in names}
    names = [each for each in names if each not in {bound for pair in bounds.values() if pair for bound in pair}]
    columns = [Column(each, _heading(each, bounds[each]), _kind(each, rows)) for each in names]
    cells = [[_cell(row, each, bounds[each]) for each in names] for row in rows]
    about = caption(name)
    return Table(name, about.title, about.text, columns, cells, folds and len(rows) > _FOLD_ROWS)


def _bounds(column: str, names: list):
    """(low, high) of a column's interval, or None."""
    stem, found, unit = column.rpartition("_change_percent")
    pair = (f"{stem}_low_percent", f"{stem}_high_percent")
    return pair if found and not unit and all(each in names for each in pair) else None


def _heading(column: str, bounds) -> str:
    return f"{title(column)} (95 % interval)" if bounds else title(column)


def _kind(column: str, rows: list) -> str:
    if column in _VERDICTS:
        return "verdict"
    values = [row[column] for row in rows if row[column]]
    # clocks: numbers and `auto`
    if all(number(value) is not None or value == "auto" for value in values):
        return "number"
    return "long" if max(map(len, values)) > _LONG_CHARACTERS else "text"


def _cell(row: dict, column: str, bounds) -> Cell:
    text = shown(column, row[column])
    if bounds and row[column] and all(row[each] for each in bounds):
        text += " ({} to {})".format(*(shown(each, row[each]) for each in bounds))
    return Cell(text, row[column])
