"""Rows as a table to be read and sorted: headings with units, a change and its interval in one cell.

How a value is shown follows from the name of its column, which ends in the unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_dvfs.layout import STRICT
from kernel_dvfs.outputs import Output
from kernel_dvfs.report.headings import heading_of, headings
from kernel_dvfs.report.results import Results, is_chosen

NOTHING = "–"
MINUS = "−"  # as wide as a plus
_THOUSAND = 1000.0
_LARGER = {"us": "ms", "mj": "j"}
_SIGNED = ("change", "difference", "optimism", "cost", "low", "high", "drift")
_LONG_CHARACTERS = 40
_INTERVAL = " (95 % interval)"
_FOLD_ROWS = 24
_VERDICTS = ("verdict", "status")
# the same in every row, and said on top of the page
_CONSTANT = ("gpu",)
_LAST = "id"  # column of the table of kernels
_PART = "part_of_the_saving_pp"
# its columns that fit on a phone
_BRIEF = (_LAST, "section", "core_mhz", "mem_mhz", "energy_change_percent", "time_change_percent", _PART)
MOST = 0.8  # of a saving, what "most of it" means

Rows = list[dict[str, Any]]  # of a table, as data


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table on a page."""

    name: str  # as in the rows
    title: str  # its heading
    kind: str  # number, text, long (sentences) or verdict


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a table on a page."""

    text: str  # as shown
    value: str  # as in the CSV: what is sorted by, and copied


@dataclass(frozen=True, slots=True)
class Table:
    """A table on a page."""

    name: str
    title: str
    text: str  # below the heading
    columns: list[Column]
    rows: list[list[Cell]]
    folded: bool  # long and of use to few, so shown on demand
    same: list[tuple[str, str]] = field(default_factory=list)  # (heading, text) of what every row has alike

    @property
    def is_long(self) -> bool:
        """Return whether it is made of sentences, which a phone shows one below the other."""
        return 3 * sum(column.kind == "long" for column in self.columns) > len(self.columns)


# --- cells ------------------------------------------------------------------------------------------------------------


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def shown(column: str, cell: Any) -> str:
    """Return the value as read by a person; a dash for nothing."""
    if cell is None or cell == "":
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    value = number(cell)
    if value is None:
        return str(cell)
    words = column.split("_")
    if words[-1] in ("percent", "pp", "points") and column != "slack_percent" and len(words) > 1:
        return signed(value) if any(word in _SIGNED for word in words) or words[-1] == "pp" else f"{value:.2f}"
    if words[-1] == "mhz" or isinstance(value, int):
        return f"{value:.0f}"
    # what is known exactly, such as 10.0 ms of a configuration, gets no digits that nobody measured
    exact = f"{value:g}"
    rounded = plain(value)
    is_exact = float(exact) == value and "e" not in exact and len(exact) < len(rounded)
    return exact.replace("-", MINUS) if is_exact else rounded


def signed(value: float, digits: int = 2) -> str:
    """Return a change as text: `−7.23`, `+0.24`; no sign on what rounds to zero."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", MINUS) if rounded else f"{0:.{digits}f}"


def plain(value: float) -> str:
    """Return four digits that count, no exponent where it can be helped."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("-", MINUS)
    digits = 0 if not value or abs(value) >= 1000 else 3 - math.floor(math.log10(abs(value)))
    return f"{value:.{digits}f}".replace("-", MINUS)


def duration(time_s: float) -> str:
    """Return a time in the unit that it is read in: `0.85 ms`, `624.1 ms`, `1.234 s`."""
    return f"{plain(1e3 * time_s)} ms" if abs(time_s) < 1 else f"{plain(time_s)} s"


def energy_in_words(energy_j: float) -> str:
    """Return an energy likewise: `0.46 mJ`, `441.2 J`."""
    return f"{plain(1e3 * energy_j)} mJ" if abs(energy_j) < 1 else f"{plain(energy_j)} J"


# --- tables -----------------------------------------------------------------------------------------------------------


def heading(name: str, about: Output | None) -> str:
    """Return the heading of a table or figure: its own, or its name in words."""
    return (about.title if about else "") or name.replace("_", " ").capitalize()


def table(
    name: str,
    rows: Rows,
    about: Output | None = None,
    drop: Sequence[str] = _CONSTANT,
    folds: bool = True,
    against: str = "auto",
) -> Table:
    """Return the table of rows (table_file.read_rows); about: what it says of itself; against: what its changes are
    against. Columns without a value are left out.

    Words and counts that are the same in every row stand above the table, which is narrower without them.
    """
    names = [
        column
        for column in (rows[0] if rows else ())
        if column not in drop and any(row[column] not in (None, "") for row in rows)
    ]
    titles = headings(names, against)
    same = [column for column in names[1:] if _is_same(column, rows)]
    names = [column for column in names if column not in same]
    # a change takes its interval in
    bounds = {column: _bounds(column, names) for column in names}
    names = [column for column in names if column not in {bound for pair in bounds.values() if pair for bound in pair}]
    larger = {column: unit for column in names if (unit := _larger_unit(column, rows))}
    for column, unit in larger.items():
        titles[column] = heading_of(f"{column.rpartition('_')[0]}_{unit}", against=against)
    columns = [
        Column(column, titles[column] + _INTERVAL * bool(bounds[column]), _kind(column, rows)) for column in names
    ]
    cells = [
        [_in_thousands(row[column]) if column in larger else _cell(row, column, bounds[column]) for column in names]
        for row in rows
    ]
    text = about.text if about else ""
    alike = [(titles[column], shown(column, rows[0][column])) for column in same]
    return Table(name, heading(name, about), text, columns, cells, folds and len(rows) > _FOLD_ROWS, alike)


def _is_same(column: str, rows: Rows) -> bool:
    """Return whether every row has the same word here, or count of repeats."""
    values = {row[column] for row in rows}
    return len(rows) > 1 and len(values) == 1 and (column == "repeats" or _kind(column, rows) in ("text", "long"))


def _bounds(column: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return (low, high) of a column's interval, or None."""
    stem, change, unit = column.rpartition("_change_percent")
    pair = (f"{stem}_low_percent", f"{stem}_high_percent")
    return pair if change and not unit and all(bound in names for bound in pair) else None


def _larger_unit(column: str, rows: Rows) -> str | None:
    """Return a thousand times the unit of a column, where that is what its numbers are read in: microseconds and mJ
    stand in files, ms and J on a page."""
    larger = _LARGER.get(column.rpartition("_")[2])
    values = sorted(abs(value) for row in rows if (value := number(row[column])) is not None)
    return larger if larger and values and values[-1] >= _THOUSAND else None


def _in_thousands(cell: Any) -> Cell:
    value = number(cell)
    return Cell(NOTHING if value is None else plain(value / _THOUSAND), _as_text(cell))


def _as_text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _kind(column: str, rows: Rows) -> str:
    if column in _VERDICTS:
        return "verdict"
    values = [row[column] for row in rows if row[column] not in (None, "")]
    # clocks: numbers and `auto`
    if all(number(value) is not None or value == "auto" for value in values):
        return "number"
    return "long" if max(len(str(value)) for value in values) > _LONG_CHARACTERS else "text"


def _cell(row: Mapping[str, Any], column: str, bounds: tuple[str, str] | None) -> Cell:
    text = shown(column, row[column])
    if bounds and all(row[bound] is not None for bound in (column, *bounds)):
        text += " ({} to {})".format(*(shown(bound, row[bound]) for bound in bounds))
    return Cell(text, _as_text(row[column]))


# --- the table of kernels ---------------------------------------------------------------------------------------------


def kernels(results: Results, rows: Rows, about: Output) -> Table:
    """Return the rows of kernel_clocks or chosen_clocks with what the profile adds: share, part in the saving, and the
    clocks that ran.

    Raises InputError where the profile or the schedule is missing.
    """
    schedule = results.schedule(STRICT)
    # a schedule that weighs otherwise has other totals: shares would not add up to its change
    weighed = {"counts": True, "raw": False}.get(schedule.get("weights", ""))
    profile = results.profile.query("study == 'kernel'")
    auto = profile[profile.is_baseline].set_index("target")
    chosen = profile[is_chosen(profile, schedule["targets"])].drop_duplicates("target").set_index("target")
    weights: Any = auto.launches_per_iteration if weighed else 1
    shares = {
        f"{quantity}_share_percent": 100 * auto[column] * weights / (auto[column] * weights).sum()
        for quantity, column in (("energy", "energy_j"), ("time", "time_s"))
    }
    wider = []
    for row in rows:
        name = row[_LAST]
        more: dict[str, Any] = {}
        if weighed is not None and name in auto.index:
            more = {column: float(values[name]) for column, values in shares.items()}
            change = row["energy_change_percent"]
            more[_PART] = None if change is None else more["energy_share_percent"] * change / 100
        if name in chosen.index:
            ran = chosen.loc[name]
            for column in ("reached_core_mhz", "reached_mem_mhz"):
                more[column] = None if ran[column] != ran[column] else round(ran[column])
            more["verdict"] = ran.verdict
        wider.append({key: value for key, value in row.items() if key != _LAST} | more | {_LAST: name})
    # whole, but on demand: `by_saving` shows what most want to see
    return replace(table(about.name, _even(wider), about, folds=False), folded=True)


def by_saving(full: Table) -> Table | None:
    """Return the table of `kernels` in few columns, largest savings first; None where parts of the saving are
    unknown."""
    names = [column.name for column in full.columns]
    shown = [name for name in _BRIEF if name in names]
    if _PART not in names or not full.rows:
        return None
    part = names.index(_PART)
    order = sorted(full.rows, key=lambda row: _part(row[part]))
    places = [names.index(name) for name in shown]
    return Table(
        name="kernels_by_saving",
        title="The largest part of the saving first",
        text=most([(row[names.index(_LAST)].text, _part(row[part])) for row in order]),
        columns=[full.columns[place] for place in places],
        rows=[[row[place] for place in places] for row in order],
        folded=False,
    )


def _part(cell: Cell) -> float:
    return float(cell.value or 0)


def most(parts: Sequence[tuple[str, float]]) -> str:
    """Return which kernels make most of the saving. parts: (id, part of the saving: points, negative = saved), in
    order."""
    total = sum(part for _, part in parts)
    if total >= 0:
        return "Nothing is saved."
    so_far, count = 0.0, 0
    while so_far > MOST * total:
        so_far += parts[count][1]
        count += 1
    listed = ", ".join(name for name, _ in parts[:count][:6]) + (f" and {count - 6} more" if count > 6 else "")
    return f"{count} of {len(parts)} make {100 * MOST:g} % of it: {listed}."


def _even(rows: Rows) -> Rows:
    """Return all rows with the columns of all, the last one last."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != _LAST] + [_LAST]
    return [{name: row.get(name) for name in columns} for row in rows]
