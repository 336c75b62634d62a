"""The page of all GPUs, specimens and workloads in a results folder, and of pipeline and serving studies."""

from __future__ import annotations

from pathlib import Path

from kernel_dvfs import registry
from kernel_dvfs.errors import InputError
from kernel_dvfs.report import comparison
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.answer import Change, plane
from kernel_dvfs.report.page.other_studies import studies_in
from kernel_dvfs.report.page.render import Figures, render
from kernel_dvfs.report.page.tables import Rows, number, read_rows, table

TABLE = "gpus.csv"
_FIRST = ("gpu", "workload", "kind")
_OTHERS = {"pipeline": "Training pipelines", "serving": "Inference serving"}


def make(folder: str | Path) -> tuple[str, list[str]]:
    """(the page as HTML, [what is missing]) of `results/comparison`. Raises InputError where gpus.csv is unreadable."""
    folder = Path(folder)
    missing: list[str] = []
    known = comparison.OUTPUTS.of("table")
    rows = read_rows(folder / TABLE)
    lacking = [each for each in _FIRST if rows and each not in rows[0]]
    if lacking:
        raise InputError(f"table {folder / TABLE}: no column {', '.join(lacking)}; delete it and run snakemake report")
    further = []
    for path in sorted(folder.glob("*.csv")):
        if path.name != TABLE:
            try:
                further.append(table(path.stem, read_rows(path), known.get(path.stem), drop=()))
            except InputError as error:
                missing.append(str(error))
    root, inside = folder.parent, Figures()
    others = [
        (name, title, studies_in(root / name, missing, inside, registry.outputs(name)))
        for name, title in _OTHERS.items()
    ]
    page = render(
        "comparison.html.j2",
        gpus=table(
            "gpus", [_measured_again_first(row) for row in rows], known["gpus"], drop=(), against=comparison.BASELINE
        ),
        simulated=sum(row["kind"] == "simulated" for row in rows),
        plane=plane([(_label(row, rows), _change(row, "energy"), _change(row, "time")) for row in rows]),
        pages=_pages(root),
        further=further,
        others=[each for each in others if each[2]],
        written=provenance.now(),
        program=provenance.of_program(),
        missing=missing,
    )
    return page, missing


def _measured_again_first(row: dict[str, str]) -> dict[str, str]:
    """What a reader compares in front: which, then what was measured again: of energy and time."""
    ranked = sorted(
        row, key=lambda name: (name not in _FIRST, not name.startswith("kernel_fresh_energy"), "fresh" not in name)
    )
    return {name: row[name] for name in ranked}


def _change(row: dict[str, str], quantity: str) -> Change:
    """What the strict schedule of a row changes."""
    columns = [f"claimed_{quantity}_change", *(f"fresh_{quantity}_{bound}" for bound in ("change", "low", "high"))]
    return Change(*(number(row.get(f"kernel_{column}_percent") or "") for column in columns))


def _label(row: dict[str, str], rows: Rows) -> str:
    """GPU and workload; of two specimens of one model the folder's name, which holds the UUID's start."""
    twins = [each for each in rows if (each["gpu"], each["workload"]) == (row["gpu"], row["workload"])]
    return f"{row['gpu'] if len(twins) == 1 else row.get('slug', row['gpu'])}, {row['workload']}"


def _pages(root: Path) -> list[tuple[str, str]]:
    """[(title, relative address)] of the studies' own pages."""
    found = sorted(path.relative_to(root) for path in root.glob("*/*/report.html"))
    return [(path.parent.as_posix(), f"../{path.as_posix()}") for path in found]
