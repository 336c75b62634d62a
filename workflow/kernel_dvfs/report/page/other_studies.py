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


def study_below(
    folder: str | Path, missing: list[str], inside: Figures | None = None, known: Outputs | None = None
) -> OtherStudy | None:
    """The study in a folder and all below it; None where it holds no table and no figure. missing: as in study_page.

    known: what its tables and figures say of themselves; all other tables are then only named, because they are what
    these are made from. None: all are shown as they are.
    """
    folder, inside = Path(folder), inside or Figures()
    of_tables, of_figures = (known.of("table"), known.of("figure")) if known else ({}, {})
    tables, long, figures = [], [], []
    for path in sorted(folder.rglob("*.csv")):
        try:
            rows = read_rows(path)
        except InputError as error:
            missing.append(str(error))
            continue
        is_material = known is not None and not (path.stem in of_tables and path.parent.name == "tables")
        if len(rows) > _LONGEST_ROWS or is_material:
            long.append((path.relative_to(folder).as_posix(), len(rows)))
        elif rows:
            shown = table(path.stem, rows, of_tables.get(path.stem))
            tables.append(replace(shown, text=shown.text or _sentence(of_tables.get(path.stem)), folded=len(rows) > 12))
    for path in sorted(folder.rglob("*.png")):
        try:
            figure = inside.figure(path, of_figures.get(path.stem))
            figures.append(replace(figure, text=figure.text or _sentence(of_figures.get(path.stem))))
        except InputError as error:
            missing.append(str(error))
    if not (tables or long or figures):
        return None
    return OtherStudy(folder.name, folder.name.replace("_", " "), tables, figures, long)


def _sentence(about: Output | None) -> str:
    """What a table or figure without a text for pages says of itself in its caption."""
    return f"{about.caption}." if about else ""


def studies_in(root: str | Path, missing: list[str], inside: Figures, known: Outputs | None = None) -> list[OtherStudy]:
    """The studies below a root such as results/pipeline: one for each folder with `tables` or `figures`.

    known: as of study_below.
    """
    root = Path(root)
    folders = sorted({path.parent for name in ("tables", "figures") for path in root.rglob(name) if path.is_dir()})
    found = [(folder, study_below(folder, missing, inside, known)) for folder in folders]
    return [
        replace(study, id="-".join(folder.relative_to(root.parent).parts), title=folder.relative_to(root).as_posix())
        for folder, study in found
        if study
    ]
