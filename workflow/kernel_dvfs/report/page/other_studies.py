"""Further studies (pipeline, serving): whatever tables and figures their folders hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.outputs import Output, Outputs
from kernel_dvfs.report.page.render import Figure, Figures
from kernel_dvfs.report.page.tables import Table, read_rows, table

_LONGEST_ROWS = 60


@dataclass(frozen=True, slots=True)
class OtherStudy:
    """What a folder of another study holds."""

    id: str
    title: str
    tables: list[Table]
    figures: list[Figure]
    long: list[tuple[str, int]]  # (file, rows) of tables that are not shown


def studies_in(root: str | Path, missing: list[str], inside: Figures, known: Outputs) -> list[OtherStudy]:
    """The studies below a root such as results/pipeline: one for each folder with `tables` or `figures`, where it holds
    any. missing: as in study_page.

    known: what their tables and figures say of themselves; all other tables are only named, because they are what these
    are made from.
    """
    root = Path(root)
    folders = sorted({path.parent for name in ("tables", "figures") for path in root.rglob(name) if path.is_dir()})
    found = (_study(folder, root, missing, inside, known) for folder in folders)
    return [study for study in found if study.tables or study.figures or study.long]


def _study(folder: Path, root: Path, missing: list[str], inside: Figures, known: Outputs) -> OtherStudy:
    of_tables, of_figures = known.of("table"), known.of("figure")
    tables, long, figures = [], [], []
    for path in sorted(folder.rglob("*.csv")):
        try:
            rows = read_rows(path)
        except InputError as error:
            missing.append(str(error))
            continue
        is_material = path.stem not in of_tables or path.parent.name != "tables"
        if len(rows) > _LONGEST_ROWS or is_material:
            long.append((path.relative_to(folder).as_posix(), len(rows)))
        elif rows:
            shown = table(path.stem, rows, of_tables[path.stem])
            tables.append(replace(shown, text=shown.text or _sentence(of_tables[path.stem]), folded=len(rows) > 12))
    for path in sorted(folder.rglob("*.png")):
        try:
            figure = inside.figure(path, of_figures.get(path.stem))
            figures.append(replace(figure, text=figure.text or _sentence(of_figures.get(path.stem))))
        except InputError as error:
            missing.append(str(error))
    name = "-".join(folder.relative_to(root.parent).parts)
    return OtherStudy(name, folder.relative_to(root).as_posix(), tables, figures, long)


def _sentence(about: Output | None) -> str:
    """What a table or figure without a text for pages says of itself in its caption."""
    return f"{about.caption}." if about else ""
