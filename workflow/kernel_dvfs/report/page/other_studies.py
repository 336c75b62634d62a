"""Studies beside the road (pipeline, serving, beyond the paper): whatever tables and figures their folders hold."""

from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.report.page.figures import Figures
from kernel_dvfs.report.page.tables import read_rows, table

OtherStudy = namedtuple("OtherStudy", "id title tables figures long")
OtherStudy.__doc__ = "tables: [tables.Table]; figures: [figures.Figure]; long: [(file, rows)] too long to be shown."

_LONGEST_ROWS = 60


def study_below(folder, missing: list, inside: Figures | None = None) -> OtherStudy | None:
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
            tables.append(table(path.stem, rows)._replace(folded=len(rows) > 12))
    for path in sorted(folder.rglob("*.png")):
        try:
            figures.append(inside.figure(path))
        except InputError as error:
            missing.append(str(error))
    if not (tables or long or figures):
        return None
    return OtherStudy(folder.name, folder.name.replace("_", " "), tables, figures, long)


def studies_in(root, missing: list, inside: Figures) -> list:
    """The studies below a root such as results/pipeline: one for each folder with `tables` or `figures`."""
    root = Path(root)
    folders = sorted({path.parent for name in ("tables", "figures") for path in root.rglob(name) if path.is_dir()})
    found = [(folder, study_below(folder, missing, inside)) for folder in folders]
    return [
        study._replace(id="-".join(folder.relative_to(root.parent).parts), title=folder.relative_to(root).as_posix())
        for folder, study in found
        if study
    ]
