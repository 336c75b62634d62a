"""The folded sections of a page: titles, and the tables and figures that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_dvfs.outputs import Outputs
from kernel_dvfs.report.page.render import Figure, Figures
from kernel_dvfs.report.page.tables import Table, table
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError


@dataclass(frozen=True, slots=True)
class Section:
    """A section with what it shows."""

    id: str
    title: str
    tables: list[Table]
    figures: list[Figure]


def sections_of(
    folders: Sequence[Path],
    titles: Mapping[str, tuple[str, Sequence[str]]],
    outputs: Outputs,
    missing: list[InputError],
) -> list[Section]:
    """Return those that have something to show, of a study beside the road.

    folders: where its tables/ and figures/ lie. titles: {id: (title, names of outputs)}, in the order of the page.
    missing: told of a file that cannot be read, in a line.
    """
    of_tables, of_figures, inside = outputs.of("table"), outputs.of("figure"), Figures()
    shown = []
    for id_, (title, names) in titles.items():
        section = Section(id_, title, [], [])
        for name in names:
            for folder in folders:
                try:
                    path = folder / "figures" / f"{name}.png"
                    if path.is_file() and name in of_figures:
                        section.figures.append(inside.figure(path, of_figures[name]))
                    path = folder / "tables" / f"{name}.json"
                    if path.is_file() and name in of_tables and (rows := read_rows(path)):
                        section.tables.append(table(name, rows, of_tables[name]))
                except InputError as error:
                    missing.append(error)
        if section.tables or section.figures:
            shown.append(section)
    return shown
