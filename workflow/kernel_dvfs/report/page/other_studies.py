"""Further studies (pipeline, serving): whatever tables and figures their folders hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernel_dvfs.outputs import Output, Outputs
from kernel_dvfs.report.page.render import Figure, Figures
from kernel_dvfs.report.page.tables import Table, table
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError

_LONGEST_ROWS = 60


@dataclass(frozen=True, slots=True)
class OtherStudy:
    """What a folder of another study holds."""

    id: str
    title: str
    tables: list[Table]
    figures: list[Figure]
    long: list[str]  # tables that are too long to be shown


def studies_in(root: str | Path, missing: list[InputError], inside: Figures, known: Outputs) -> list[OtherStudy]:
    """Return the studies below a root such as results/pipeline: one for each folder with `tables` or `figures`, where
    it holds any. missing: as in study_page.

    known: what their tables and figures say of themselves; all other tables are only named.
    """
    root = Path(root)
    folders = sorted({path.parent for name in ("tables", "figures") for path in root.rglob(name) if path.is_dir()})
    studies = (_study(folder, root, missing, inside, known) for folder in folders)
    return [study for study in studies if study.tables or study.figures or study.long]


def _study(folder: Path, root: Path, missing: list[InputError], inside: Figures, known: Outputs) -> OtherStudy:
    of_tables, of_figures = known.of("table"), known.of("figure")
    tables, long, figures = [], [], []
    for path in sorted(folder.rglob("tables/*.json")):
        try:
            rows = read_rows(path)
        except InputError as error:
            missing.append(error)
            continue
        if len(rows) > _LONGEST_ROWS or path.stem not in of_tables:
            long.append(path.relative_to(folder).as_posix())
        elif rows:
            shown = table(path.stem, rows, of_tables[path.stem])
            tables.append(replace(shown, text=shown.text or _sentence(of_tables[path.stem]), folded=len(rows) > 12))
    for path in sorted(folder.rglob("*.png")):
        try:
            figure = inside.figure(path, of_figures.get(path.stem))
            figures.append(replace(figure, text=figure.text or _sentence(of_figures.get(path.stem))))
        except InputError as error:
            missing.append(error)
    name = "-".join(folder.relative_to(root.parent).parts)
    return OtherStudy(name, folder.relative_to(root).as_posix(), tables, figures, long)


def _sentence(about: Output | None) -> str:
    """Return what a table or figure without a text for pages says of itself in its caption."""
    return f"{about.caption}." if about else ""
