"""The page of all GPUs, specimens and workloads in a results folder, and of pipeline and serving studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_dvfs import registry
from kernel_dvfs.report import comparison
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.other_studies import studies_in
from kernel_dvfs.report.page.render import Figures, render
from kernel_dvfs.report.page.tables import table
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError, Missing

TABLE = "gpus.json"
_FIRST = ("gpu", "workload", "kind")


def make(folder: str | Path) -> tuple[str, list[InputError]]:
    """Return (the page as HTML, [what is missing]) of `results/comparison`. Raises InputError where gpus.json cannot be
    read."""
    folder = Path(folder)
    missing: list[InputError] = []
    known = comparison.OUTPUTS.of("table")
    rows = read_rows(folder / TABLE)
    lacking = [column for column in _FIRST if rows and column not in rows[0]]
    if lacking:
        raise InputError(f"table {folder / TABLE}: no column {', '.join(lacking)}; delete it and run snakemake report")
    further = []
    for path in sorted(folder.glob("*.json")):
        if path.name != TABLE:
            try:
                further.append(table(path.stem, read_rows(path), known.get(path.stem), drop=()))
            except InputError as error:
                missing.append(error)
    root, inside = folder.parent, Figures()
    drawn = []
    for name, about in comparison.OUTPUTS.of("figure").items():
        if (path := folder / "figures" / f"{name}.png").is_file():
            drawn.append(inside.figure(path, about))
        else:
            missing.append(Missing(f"figure {name}: not made yet; run snakemake --cores 1 report"))
    others = [
        (name, kind.title, studies_in(root / name, missing, inside, registry.outputs(name)))
        for name, kind in registry.kinds().items()
        if kind.schema
    ]
    page = render(
        "comparison.html.j2",
        gpus=table(
            "gpus", [_measured_again_first(row) for row in rows], known["gpus"], drop=(), against=comparison.BASELINE
        ),
        simulated=sum(row["kind"] == "simulated" for row in rows),
        drawn=drawn,
        pages=_pages(root),
        further=further,
        others=[other for other in others if other[2]],
        written=provenance.now(),
        program=provenance.of_program(),
        missing=missing,
    )
    return page, missing


def _measured_again_first(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a reader compares in front: which, then what was measured again: of energy and time."""
    ranked = sorted(
        row, key=lambda name: (name not in _FIRST, not name.startswith("kernel_fresh_energy"), "fresh" not in name)
    )
    return {name: row[name] for name in ranked}


def _pages(root: Path) -> list[tuple[str, str]]:
    """Return [(title, relative address)] of the studies' own pages."""
    paths = sorted(path.relative_to(root) for path in root.glob("*/*/report.html"))
    return [(path.parent.as_posix(), f"../{path.as_posix()}") for path in paths]
