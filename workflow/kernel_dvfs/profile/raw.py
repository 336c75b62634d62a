"""A file of numbers as people have it, before anything is understood: cells by column, and where each is in the file.

Every table of the package is read here: measurements, stages of pipelines, serving profiles, traces, power logs. A
Kernel Tuner file becomes the same shape in kernel_tuner.py. What a column means is in units.py and in the reader of
each kind of file.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.profile.units import (
    HIGHEST_MHZ,
    LEAST_MHZ,
    UNIT_NAMES,
    UNITS,
    clock_unit,
    guess,
    is_possible,
    known_as,
    plain,
    quantity,
)
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import is_sealed, read_limited, unsealed

if TYPE_CHECKING:
    from io import BufferedReader
    from os import PathLike
    from typing import TypeAlias

    # a heading in small letters and underscores -> the column that it stands for
    Known: TypeAlias = Callable[[str], str | None]

# of one table: more is no table that somebody measured
MOST_COLUMNS, MOST_BYTE = 4096, 2 << 30
# how many times as long, or as much energy, no repeat takes: warm-up, noise and clocks together make less
MOST_SCATTER = 1.5
COMMENT = "#"
# what people and tools write where nothing was measured
_NOT_THERE = {"n/a", "[n/a]", "na", "[not supported]", "[unknown error]", "null", "none", "-"}


@dataclass(frozen=True, slots=True)
class RawTable:
    """Cells by column."""

    path: str | PathLike[str]  # of the file, as the user named it
    columns: dict[str, list[Any]]  # name -> cells (text, number or None), all of one length
    place: Callable[[int], str]  # index of a row -> where it is in the file, such as "line 12"
    header: str | None = None  # where the names are in the file
    shown: dict[str, str] = field(default_factory=dict)  # column -> the name it has in the file, where that differs
    notices: tuple[str, ...] = ()  # what of the file was left out, one line each
    rows: int = 0

    def fault(self, message: str, column: str | None = None, row: int | None = None) -> InputError:
        """Return the error to raise: file, place and column, then the message."""
        where = [str(self.path)]
        place = self.header if row is None else self.place(row)
        if place is not None:
            where.append(place)
        if column is not None:
            where.append(f"column {self.name(column)}")
        return InputError(f"{', '.join(where)}: {message}")

    def name(self, column: str) -> str:
        """Return the heading that a column has in the file."""
        return self.shown.get(column, column)

    def column(self, name: str) -> str | None:
        """Return the column of this name, or of this heading; None where there is none."""
        if name in self.columns:
            return name
        return next((column for column, heading in self.shown.items() if heading == name), None)

    def numbers(self, column: str) -> list[float | None]:
        """Return the column as floats, None where a cell is empty. NaN and infinity are errors too."""
        cells = self.columns[column]
        if set(map(type, cells)) <= {float, str}:  # the plain case at speed; in any doubt, the loop below decides
            try:
                plainly = list(map(float, cells))
            except ValueError:
                plainly = [math.nan]
            if all(-1e300 < value < 1e300 for value in plainly) and not any("_" in str(cell) for cell in cells):
                return [*plainly]
        numbers: list[float | None] = []
        for row, cell in enumerate(cells):
            if is_empty(cell):
                numbers.append(None)
                continue
            value = to_number(cell)
            if value is None:
                raise self.fault(f"{quote(cell)} is not a number; write the number alone", column, row)
            if not -1e300 < value < 1e300:
                raise self.fault(f"{quote(cell)} is not a finite number", column, row)
            numbers.append(value)
        return numbers

    def positive(self, column: str, most: float, per_unit: float = 1.0) -> list[float]:
        """Return the column in s, J, W or the like, of which `per_unit` make one: every cell a number above zero."""
        values = []
        for row, value in enumerate(self.numbers(column)):
            if value is None:
                raise self.fault("is empty; every row needs a value", column, row)
            if not 0 < value / per_unit < most:
                what = "too large to be true" if value > 0 else "not above zero"
                raise self.fault(f"{quote(self.columns[column][row])} is {what}", column, row)
            values.append(value / per_unit)
        return values

    def whole(self, column: str, least: int = 0, most: int = 10**9) -> list[int]:
        """Return the column as whole numbers."""
        values = []
        for row, cell in enumerate(self.columns[column]):
            value = to_number(cell)
            if value is None or not least <= value <= most or value != math.floor(value):
                raise self.fault(f"{quote(cell)} is not a whole number of at least {least}", column, row)
            values.append(int(value))
        return values

    def texts(self, column: str) -> list[str]:
        """Return the column as text without blanks around it."""
        return ["" if cell is None else str(cell).strip() for cell in self.columns[column]]

    def clocks(
        self, column: str, per_mhz: float | None = None, remedy: Callable[[str], str] | None = None
    ) -> list[float | None]:
        """Return the clocks asked for, MHz; None where none was locked: empty, `auto` and the like.

        per_mhz: units that make one MHz, as the user states it; None: the heading's unit or else MHz are taken, and
        what no board has is refused.
        remedy(unit): what to do where the column is in that unit; None: to write MHz.
        """
        words: dict[Any, float | None] = {}  # a table has many rows and few clocks: each word is understood once
        clocks: list[float | None] = []
        for row, cell in enumerate(self.columns[column]):
            word = cell if cell is None or isinstance(cell, (str, float)) else str(cell)
            if word not in words:
                words[word] = value = None if _is_unlocked(cell) else to_number(cell) or math.nan
                if value is not None and not 0 < value < 1e15:
                    unit = UNIT_NAMES[clock_unit(self.name(column))]
                    what = f"unknown clock {quote(cell)}: a positive number of {unit}, or auto (or empty)"
                    raise self.fault(what, column, row)
                if value is not None:
                    words[word] = self.plausible_mhz(column, row, value, per_mhz, remedy)
            clocks.append(words[word])
        return clocks

    def plausible_mhz(
        self,
        column: str,
        row: int,
        value: float,
        per_mhz: float | None = None,
        remedy: Callable[[str], str] | None = None,
    ) -> float:
        """Return the clock in MHz; see `clocks`."""
        headed = clock_unit(self.name(column))
        # 1.515 GHz is 1515 MHz, not 1514.9999999999998
        mhz = float(f"{value / (per_mhz or UNITS['clock'][headed]):.12g}")
        if is_possible("clock", mhz) or (per_mhz is not None and mhz > 0):
            return mhz
        unit = guess("clock", value) or "UNIT"
        do = remedy(unit) if remedy else f"write MHz; is it in {UNIT_NAMES.get(unit, 'another unit')}?"
        least, most = (f"{bound * UNITS['clock'][headed]:.12g}" for bound in (LEAST_MHZ, HIGHEST_MHZ))
        what = f"is no clock in {UNIT_NAMES[headed]} ({least} to {most})"
        raise self.fault(f"{quote(self.columns[column][row])} {what}; {do}", column, row)

    def refuse_scatter(
        self, column: str, values: Sequence[float], groups: Iterable[list[int]], of: Callable[[int], str]
    ) -> None:
        """Raise InputError for rows of equal settings that differ by more than repeats of one workload do.

        groups: of rows with equal settings. of(row): what they measured, for the message.
        """
        for rows in groups:
            if len(rows) < 2:
                continue
            least, most = (pick(rows, key=values.__getitem__) for pick in (min, max))
            if values[most] > MOST_SCATTER * values[least]:
                raise self.fault(
                    f"{quote(self.columns[column][most])} here but {quote(self.columns[column][least])} in "
                    f"{self.place(least)}, both {of(most)}: no repeats of one workload differ {MOST_SCATTER:g} times; "
                    "tell the workloads apart by a column, or leave the wrong row out",
                    column,
                    most,
                )

    def without(self, rows: Collection[int], why: str) -> RawTable:
        """Return the table without these rows, which it counts, and says why they are left out."""
        if not rows:
            return self
        gone = set(rows)
        left = [row for row in range(self.rows) if row not in gone]
        columns = {name: [cells[row] for row in left] for name, cells in self.columns.items()}
        notice = f"{self.path}, {self.place(min(gone))}: {many(len(gone), 'row')} of {self.rows} left out: {why}"
        place = self.place
        return replace(
            self,
            columns=columns,
            place=lambda row: place(left[row]),
            notices=(*self.notices, notice),
            rows=len(left),
        )


def exactly(*names: str) -> Known:
    """Return what headings stand for that are these names, in small letters or as here, and no others."""
    return {name: name for name in names}.get


def is_empty(cell: object) -> bool:
    """Return whether a cell says nothing: null, or blank text."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def is_not_there(cell: object) -> bool:
    """Return whether a cell says that nothing was measured: N/A and the like."""
    return isinstance(cell, str) and cell.strip().lower() in _NOT_THERE


def _is_unlocked(cell: object) -> bool:
    """Return whether a cell of a clock asked for says that none was: -1, too, as several tools write it."""
    if is_empty(cell):
        return True
    return str(cell).strip().lower() in ("auto", "default", "unlocked", "-1", "-1.0")


def to_number(cell: Any) -> float | None:
    """Return the cell as a float (NaN and infinity included), None if it is no number."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):  # float() reads 1_000 as a thousand
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def quote(cell: object) -> str:
    """Return a cell for a message: quoted, and shortened where it is long."""
    text = str(cell)
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"


def open_bytes(path: str | PathLike[str]) -> BufferedReader:
    """Return the open file. Raises InputError where it is missing, a folder, or may not be read."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_text(path: str | PathLike[str], most_byte: int = MOST_BYTE) -> str:
    """Return the file's content, UTF-8 or by its byte order mark UTF-16. Raises InputError naming the line
    otherwise."""
    with open_bytes(path) as file:
        content = read_limited(path, file, most_byte)
    if content[:2] == b"\x1f\x8b":
        raise InputError(f"{path}: is compressed; unpack it first (gunzip)")
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return content.decode("utf-16")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def read_csv(
    path: str | PathLike[str],
    known: Known = known_as,
    named: Mapping[str, str] | None = None,
    may_be_cut: bool = False,
    text: str | None = None,
) -> RawTable:
    """Return a table with one header line, as people have them; rows keep the number of their (first) physical line.

    Lines that begin with # are comments, and a header that comes again is left out. Where the header has no comma,
    columns may be separated by semicolons, tabs or bars, and numbers may have decimal commas. A heading such as
    `Time [ms]` is the column time_ms, and a cell such as `1.5 ms` there is the number.

    known: what a heading stands for. named: {column: heading} as the user says it. may_be_cut: the last line may be, as
    of a log whose writer was ended. text: of the file, where it was read before. Raises InputError.
    """
    text = read_text(path) if text is None else text
    if is_sealed(text):
        try:
            unsealed(text)
        except ValueError as error:
            remedy = "make it again, or take its column `seal` away if the change is yours"
            raise InputError(f"{path}: {error}; {remedy}") from None
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    header: list[str] | None = None
    lines: list[int] = []
    cells_in_order: list[str] = []  # flat: a hundred thousand small lists would keep the garbage collector busy
    again: list[int] = []
    cut: InputError | None = None  # the last line is too short, if no other follows
    start = 1
    try:
        for cells in reader:
            if cut is not None:
                raise cut
            if not any(map(str.strip, cells)) or cells[0].lstrip().startswith(COMMENT):
                pass
            elif header is None:
                header = [name.strip() for name in cells]
                header_place = f"line {start}"
                _check_names(path, header, f", {header_place}")
            elif len(cells) != len(header):
                cut = InputError(
                    f"{path}, line {start}: {many(len(cells), 'cell')} where the header names {len(header)} columns"
                )
                if not (may_be_cut and len(cells) < len(header)):
                    raise cut
            elif cells[0].strip() == header[0] and [cell.strip() for cell in cells] == header:
                again.append(start)
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
    names = _named(path, header, known, named or {}, header_place)
    columns = {
        name: _cells(name, heading, cells_in_order[index :: len(header)], separator != ",", known(name) is not None)
        for index, (name, heading) in enumerate(zip(names, header, strict=True))
    }
    if is_sealed(text):
        del columns[header[-1]]
    shown = {name: given for name, given in zip(names, header, strict=True) if name != given}
    notices = []
    if again:
        times = "once" if len(again) == 1 else f"{len(again)} times"
        notices.append(f"{path}, line {again[0]}: the header again, left out ({times} in the file)")
    if cut is not None:
        notices.append(f"{path}: its last line is cut off, and left out")
    return RawTable(path, columns, lambda row: f"line {lines[row]}", header_place, shown, tuple(notices), len(lines))


def _separator(text: str) -> str:
    """Return what separates columns, by the first line that is no comment."""
    lines = (line for line in io.StringIO(text) if line.strip() and not line.lstrip().startswith(COMMENT))
    header = next(lines, "")
    return "," if "," in header else next((mark for mark in ";\t|" if mark in header), ",")


def _named(
    path: str | PathLike[str], header: list[str], known: Known, named: Mapping[str, str], where: str | None
) -> list[str]:
    """Return the headings, those that stand for a known column under its name: `Time [ms]` as time_ms; what the user
    names comes first."""
    plainly = [plain(given) for given in header]
    chosen: dict[int, str] = {}
    for column, heading in named.items():
        at = [place for place, given in enumerate(header) if given == heading.strip()]
        at = at or [place for place, given in enumerate(plainly) if given == plain(heading)]
        if len(at) != 1 or at[0] in chosen:
            what = "no column" if not at else "several columns" if len(at) > 1 else "named twice: column"
            place = f", {where}" if where else ""
            raise InputError(f"{path}{place}: {what} {quote(heading)}, named as {column}; it has {some(header)}")
        chosen[at[0]] = column
    # what has such a heading of its own is then something else
    chosen |= {at: f"{given} as headed" for at, given in enumerate(header) if given in named and at not in chosen}
    names = [
        # MJ and MW are not mJ and mW
        chosen.get(place) or (None if _MEGA.search(given) else known(name))
        for place, (name, given) in enumerate(zip(plainly, header, strict=True))
    ]
    # of two columns that may stand for one, the user's or the one of that very name does
    sure = {*chosen.values(), *header}
    taken = Counter(filter(None, names))
    return [
        name if name and (place in chosen or name == given or (taken[name] == 1 and name not in sure)) else given
        for place, (name, given) in enumerate(zip(names, header, strict=True))
    ]


_MEGA = re.compile(r"(?<![A-Za-z])M[JW](?![A-Za-z])")


def many(count: int, what: str) -> str:
    """Return how many of something, for a message."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def some(words: Collection[str]) -> str:
    """Return the first of them, for a message, and how many there are more."""
    listed = list(words)
    return ", ".join(listed) if len(listed) <= 12 else f"{', '.join(listed[:12])} and {len(listed) - 12} more"


def _cells(name: str, heading: str, cells: list[str], may_have_commas: bool, is_known: bool) -> list[str]:
    """Return a column of numbers with decimal commas as points, and without the column's own unit behind them."""
    if not is_known:
        return cells
    unit = clock_unit(heading) if quantity(name) == "clock" else name.rpartition("_")[2]  # core_mhz may be headed kHz
    if unit in _UNITS and any(cell.rstrip().lower().endswith(unit) for cell in cells):
        # as it is written: MJ is not mJ
        pattern = re.compile(rf"\s*([-+.,\deE]+)\s*({unit}|{UNIT_NAMES.get(unit, unit)})\s*")
        cells = [match[1] if (match := pattern.fullmatch(cell)) else cell for cell in cells]
    if may_have_commas and not any("." in cell for cell in cells):
        cells = [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]
    return cells


_UNITS = {unit for known in UNITS.values() for unit in known}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")


def _check_names(path: str | PathLike[str], names: list[str], where: str) -> None:
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{path}{where}: {len(names)} columns; at most {MOST_COLUMNS} are read: leave out the others")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{path}{where}, column {twice[0]}: the name appears twice; keep one of the columns")


def read_parquet(path: str | PathLike[str], named: Mapping[str, str] | None = None) -> RawTable:
    """Return a Parquet table, its columns named as those of a CSV; null is an empty cell, rows count from 1."""
    from kernel_dvfs.profile import store  # pyarrow, which a CSV does without

    open_bytes(path).close()  # a missing file in our words, not the library's
    table = store.read_parquet(path, "give a whole Parquet file, or export the table as CSV")
    _check_names(path, table.column_names, "")
    if not table.num_rows:
        raise InputError(f"{path}: the table has no rows")
    names = _named(path, table.column_names, known_as, named or {}, None)
    columns = {name: table[given].to_pylist() for name, given in zip(names, table.column_names, strict=True)}
    shown = {name: given for name, given in zip(names, table.column_names, strict=True) if name != given}
    return RawTable(path, columns, lambda row: f"row {row + 1}", None, shown, (), table.num_rows)
