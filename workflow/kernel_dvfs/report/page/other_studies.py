"""Further studies (pipeline, serving, beyond the paper): whatever tables and figures their folders hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernel_dvfs.errors import InputError
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
    long: list[tuple[str, int]]  # (file, rows) of tables that are too long to be shown


def study_below(folder: str | Path, missing: list[str], inside: Figures | None = None) -> OtherStudy | None:
    """The study in a folder and all below it; None where it holds no table and no figure. missing: as in study_page."""
    folder, inside = Path(folder), inside or Figures()
    tables, long, figures = [], [], []
    for path in sorted(folder.rglob("*.csv")):
        try:
            rows = read_rows(path)
        except InputError as error:
            missing.append(str(error))
            continue
        if len(rows) > _LONGEST_ROWS:
            long.append((path.relative_to(folder).as_posix(), len(rows)))
        elif rows:
            tables.append(replace(table(path.stem, rows), folded=len(rows) > 12))
    for path in sorted(folder.rglob("*.png")):
        try:
            figures.append(inside.figure(path))
        except InputError as error:
            missing.append(str(error))
    if not (tables or long or figures):
        return None
    return OtherStudy(folder.name, folder.name.replace("_", " "), tables, figures, long)


def studies_in(root: str | Path, missing: list[str], inside: Figures) -> list[OtherStudy]:
    """The studies below a root such as results/pipeline: one for each folder with `tables` or `figures`."""
    root = Path(root)
    folders = sorted({path.parent for name in ("tables", "figures") for path in root.rglob(name) if path.is_dir()})
    found = [(folder, study_below(folder, missing, inside)) for folder in folders]
    return [
        replace(study, id="-".join(folder.relative_to(root.parent).parts), title=folder.relative_to(root).as_posix())
        for folder, study in found
        if study
    ]
