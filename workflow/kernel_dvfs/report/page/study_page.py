"""The page of one study: what is there in `results/<gpu>/<workload>`, in the order that a reader asks for it.

Knows what belongs together; how a part is made is in the modules beside it. A part that is missing or broken is
named on the page, and the rest is shown.
"""

from collections import namedtuple
from pathlib import Path

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import TABLE_FORMATS
from kernel_dvfs.report.figures import NAMES
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.answer import answer, in_words
from kernel_dvfs.report.page.cautions import cautions
from kernel_dvfs.report.page.deployment import deployment
from kernel_dvfs.report.page.figures import Figures
from kernel_dvfs.report.page.intervals import chart
from kernel_dvfs.report.page.kernels import kernels
from kernel_dvfs.report.page.other_studies import study_below
from kernel_dvfs.report.page.render import render
from kernel_dvfs.report.page.tables import read_rows, table
from kernel_dvfs.report.page.tally import VERDICTS, tally
from kernel_dvfs.report.results import Results

Section = namedtuple("Section", "id title tables figures")

# (id, title, tables, figures); what is in no section comes last
_SECTIONS = (
    ("kernels", "Clocks of each kernel", ("kernel_clocks", "baseline"), ("fig5_kernels",)),
    (
        "choosing",
        "How to choose",
        ("headline", "strategies", "relaxed"),
        ("fig6_relaxed_waste", "fig2_desirability"),
    ),
    ("passes", "Forward and backward pass", (), ("fig3_forward_pass", "fig4_backward_pass")),
    (
        "carried",
        "The same clocks elsewhere",
        ("data_parallelism", "tensor_parallelism"),
        ("fig7_data_parallelism", "fig8_tensor_parallelism"),
    ),
    ("rests-on", "What the headline rests on", ("tensor_energy",), ()),
    ("claims", "The paper's claims", ("claims",), ()),
)
# what a kind of GPU has no use for, so that nobody waits for it
_NEVER = {
    "table": {
        *("baseline", "validation", "headline", "data_parallelism", "tensor_parallelism", "tensor_energy"),
        *("omitted_pairs", "passes", "locking", "fig3_forward_pass", "fig4_backward_pass"),
        *("fig7_data_parallelism", "fig8_tensor_parallelism"),
    },
    "simulated": {"baseline", "passes", "locking"},
    "nvml": {"tensor_energy"},
}


def make(folder, left_out: tuple = ()) -> tuple:
    """(the page as HTML, [what is missing]) of a results folder.

    left_out: names of tables and figures that the configuration leaves out, which are not missed. Raises InputError
    where the folder holds nothing of a study.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected results/<gpu>/<workload>")
    results, missing = Results(folder), []
    counted = tally(folder)
    has_profile = _has_profile(results, missing)
    digests = [results.workload["setup"]] if has_profile and results.workload.get("setup") else list(counted.setups)
    setup = provenance.setup_of(results, digests)
    if not (has_profile or setup):
        raise InputError(f"{folder}: neither a profile nor records of a sweep; expected results/<gpu>/<workload>")
    gpu = setup.gpu if setup else results.gpu
    wanted = [name for name in (*TABLE_FORMATS, *NAMES) if name not in _NEVER[gpu["kind"]] and name not in left_out]

    rows = _tables(folder, wanted, missing)
    # without clocks to set there is nothing to choose
    chosen = "kernel_clocks" not in left_out
    found = _tried(lambda: answer(results, rows.get("validation")), missing) if has_profile and chosen else None
    extra = [path.stem for path in sorted(folder.glob("tables/*.csv")) if path.stem not in TABLE_FORMATS]
    figures = _figures(folder, wanted, missing, Figures())
    views = {name: _view(results, name, each) for name, each in rows.items() if each}
    return (
        render(
            "study.html.j2",
            subject=results.subject if has_profile else _subject(gpu),
            simulated=gpu["kind"] == "simulated",
            workload=(results if has_profile else setup).workload["name"],
            dates=provenance.dates(folder, counted),
            facts=[
                ("Device", provenance.of_gpu(gpu, counted)),
                ("Work", provenance.of_workload((setup or results).workload)),
                ("Protocol", provenance.of_protocol(setup)),
                ("Program", provenance.of_program()),
            ],
            seed=setup.measurement.get("seed") if setup and gpu["kind"] == "simulated" else None,
            tally=counted,
            kinds=[verdict for verdict in VERDICTS if any(group.verdicts[verdict] for group in counted.groups)],
            profile=_size(results) if has_profile else None,
            answer=found,
            chosen=chosen,
            in_words=in_words,
            chart=found and chart([("energy", found.energy), ("time", found.time)]),
            validation=views.get("validation"),
            cautions=cautions(gpu["kind"], found, counted, views.get("kernel_clocks"), rows.get("tensor_energy")),
            deployment=deployment(results) if found else None,
            sections=_sections(views, figures),
            verdicts=_count(rows.get("claims", ()), "verdict"),
            omitted=views.get("omitted_pairs"),
            further=[table(name, _read(folder, name, missing) or []) for name in extra],
            beyond=study_below(folder / "beyond", missing),
            missing=missing,
        ),
        missing,
    )


def _has_profile(results, missing: list) -> bool:
    return bool(_tried(lambda: results.gpu, missing))


def _tried(make, missing: list):
    """What `make` gives, or None with the reason added to `missing`."""
    try:
        return make()
    except InputError as error:
        missing.append(str(error))
        return None


def _read(folder: Path, name: str, missing: list):
    return _tried(lambda: read_rows(folder / "tables" / f"{name}.csv"), missing)


def _tables(folder: Path, wanted: list, missing: list) -> dict:
    """{name: rows} of those that are there and whole."""
    there, absent = _split(folder, [name for name in wanted if name in TABLE_FORMATS], "tables/{}.csv")
    if absent:
        missing.append(f"tables {', '.join(absent)}: not made yet; run snakemake --cores 1 report")
    read = {name: _read(folder, name, missing) for name in there}
    return {name: rows for name, rows in read.items() if rows is not None}


def _figures(folder: Path, wanted: list, missing: list, inside: Figures) -> dict:
    there, absent = _split(folder, [name for name in wanted if name in NAMES], "figures/{}.png")
    if absent:
        missing.append(f"figures {', '.join(absent)}: not made yet; run snakemake --cores 1 report")
    read = {name: _tried(lambda name=name: inside.figure(folder / f"figures/{name}.png"), missing) for name in there}
    return {name: figure for name, figure in read.items() if figure}


def _split(folder: Path, names: list, pattern: str) -> tuple:
    there = [name for name in names if (folder / pattern.format(name)).is_file()]
    return there, [name for name in names if name not in there]


def _sections(views: dict, figures: dict) -> list:
    """Those that have something to show."""
    found = []
    for name, title, tables, drawn in _SECTIONS:
        shown = [views[each] for each in tables if each in views]
        seen = [figures[each] for each in drawn if each in figures]
        if shown or seen:
            found.append(Section(name, title, shown, seen))
    return found


def _view(results, name: str, rows: list):
    if name == "kernel_clocks":
        try:
            return kernels(results, rows)
        except InputError:
            pass  # the schedule or the profile is missing, which is said; the table by itself still tells
    if name == "claims":
        # on a phone the first columns are all that is seen without scrolling
        first = ("number", "verdict", "claim")
        rows = [{column: row[column] for column in (*first, *row) if column in row} for row in rows]
        return table(name, rows, folds=False)
    return table(name, rows)


def _subject(gpu: dict) -> str:
    return f"simulated {gpu['name']}" if gpu["kind"] == "simulated" else gpu["name"]


def _size(results) -> dict:
    """How much was measured: kernels, passes, clock pairs."""
    profile = results.profile
    pairs = profile.groupby(["study", "target"]).size()
    targets = profile.groupby("study").target.nunique()
    return {"kernels": int(targets.get("kernel", 0)), "passes": int(targets.get("pass", 0)), "pairs": int(pairs.max())}


def _count(rows, column: str) -> dict:
    counted = {}
    for row in rows:
        counted[row.get(column, "")] = counted.get(row.get(column, ""), 0) + 1
    return counted
