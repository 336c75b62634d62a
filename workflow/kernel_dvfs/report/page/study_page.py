"""The page of one study: what is there in `results/<gpu>/<workload>`, in the order that a reader asks for it.

Which section a table or figure belongs to is said by its declaration. A part that is missing or broken is named on the
page, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kernel_dvfs import extensions, registry
from kernel_dvfs.choice.schedule import default_weights, problem_from
from kernel_dvfs.gpu.spec import NOT_JUDGED, savings_of
from kernel_dvfs.layout import STRICT, subject
from kernel_dvfs.outputs import Output
from kernel_dvfs.report.inference import band_of
from kernel_dvfs.report.page import provenance
from kernel_dvfs.report.page.answer import (
    Answer,
    again_as_rows,
    answer,
    cautions,
    marks,
    sentence,
    shown_of,
    strict_again,
)
from kernel_dvfs.report.page.fleet import FleetEstimate
from kernel_dvfs.report.page.frontier import ChoiceSource, FirstScreen, frontier
from kernel_dvfs.report.page.provenance import VERDICTS, tally
from kernel_dvfs.report.page.render import Figure, Figures, render
from kernel_dvfs.report.page.sections import Section
from kernel_dvfs.report.page.tables import (
    Rows,
    Table,
    by_saving,
    duration,
    energy_in_words,
    kernels,
    plain,
    table,
)
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.words import PAPER_POINT, against, in_words, is_papers
from kernel_dvfs.table_file import read_rows
from kernel_dvfs_clocks.errors import InputError, Missing

Made = TypeVar("Made")

_PER_KERNEL = "kernel-global-waste-slack"
# id -> (place, title); extensions have theirs between them
_SECTIONS = {
    "kernels": (20, "Clocks of each kernel"),
    "choosing": (30, "How to choose"),
    "passes": (40, "Each pair for the whole step"),
    "published": (50, "The paper's tables and figures, as published: one sweep, no margin"),
}


def _unjudged(gpu: Mapping[str, Any]) -> str:
    """Return what the head of a page says besides of a simulated board whose savings no measurement judges."""
    is_said = gpu["kind"] == "simulated" and NOT_JUDGED in savings_of(gpu["name"])
    return f"; savings: {NOT_JUDGED}" if is_said else ""


def _own_gpu(workload: Mapping[str, Any]) -> str:
    """Return the command that studies the same on a GPU of the reader's own."""
    what = workload.get("source") or "FILE.py:FUNCTION" if "step" in workload else "nvml"
    return f"kernel-dvfs study {what}"


def make(
    folder: str | Path,
    left_out: Sequence[str] = (),
    usd_per_kwh: float | None = None,
    co2_g_per_kwh: float | None = None,
) -> tuple[str, list[InputError]]:
    """Return (the page as HTML, [what is missing]) of a results folder.

    left_out: names of tables and figures that the configuration leaves out, which are not missed. usd_per_kwh,
    co2_g_per_kwh: of the reader's grid; None: neither money nor CO2 is shown. Raises InputError where the folder holds
    nothing of a study.
    """
    folder = Path(folder)
    if not folder.is_dir():
        where = "" if folder.is_absolute() else f", in the folder that the study ran in (this is {Path.cwd()})"
        raise InputError(f"{folder}: no such folder; expected results/<gpu>/<workload>{where}")
    results = Results(folder)
    missing: list[InputError] = []
    counted = tally(folder)
    has_profile = _has_profile(results, missing)
    digests = [results.workload["setup"]] if has_profile and results.workload.get("setup") else list(counted.setups)
    setup = provenance.setup_of(results, digests)
    if not (has_profile or setup):
        raise InputError(f"{folder}: neither a profile nor records of a sweep; expected results/<gpu>/<workload>")
    gpu = setup.gpu if setup else results.gpu
    workload = setup.workload if setup else results.workload
    # without clocks to set there is nothing to choose
    is_chosen = not (setup and setup.measurement.get("clocks") == "auto-only")
    is_chosen = is_chosen and not (has_profile and results.is_baseline_alone)
    known_tables, known_figures = (_in_order(registry.outputs("gpu").of(kind)) for kind in ("table", "figure"))

    def wanted(known: Mapping[str, Output]) -> dict[str, Output]:
        """Return those that such a study can have, less what the configuration leaves out."""
        return {
            name: output
            for name, output in known.items()
            if name not in left_out and output.fits(gpu["kind"], "step" in workload, is_chosen)
        }

    rows = _tables(folder, wanted(known_tables), missing)
    validated = strict_again(rows.get("headline"))
    band = _tried(lambda: band_of(gpu["spec"], workload["name"]), missing) if "spec" in gpu else None
    strict_answer = _tried(lambda: answer(results, validated, band), missing) if has_profile and is_chosen else None
    extra = [path.stem for path in sorted(folder.glob("tables/*.json")) if path.stem not in known_tables]
    drawn = _figures(folder, wanted(known_figures), missing, Figures())
    views = {name: _view(results, name, of_table, known_tables[name]) for name, of_table in rows.items() if of_table}
    choices = _tried(lambda: _choices(results, gpu, rows.get("headline")), missing) if strict_answer else None
    warned = cautions(gpu, strict_answer, counted, views.get("chosen_clocks"), rows.get("locking"))
    to_work = _of_extension("deployment", results, workload) if strict_answer else None
    step = _of_extension("step view", workload, rows, bool(gpu.get("forecast")))
    return (
        render(
            "study.html.j2",
            subject=results.subject if has_profile else subject(gpu),
            simulated=gpu["kind"] == "simulated",
            forecast=bool(gpu.get("forecast")),
            step=step,
            costliest=_costliest(rows.get("step_kernels")) if step and not strict_answer else None,
            workload=(results.workload["name"] if has_profile else workload["name"]) + _unjudged(gpu),
            dates=provenance.dates(folder, counted),
            facts=[
                ("Device", provenance.of_gpu(gpu, counted)),
                ("Work", provenance.of_workload(workload)),
                ("Protocol", provenance.of_protocol(setup)),
                ("Program", provenance.of_program()),
                ("Native layer", _tried(lambda: provenance.of_native_layer(results), missing) or []),
                ("Made of", provenance.of_chain(results) if strict_answer else []),
            ],
            seed=setup.measurement.get("seed") if setup and gpu["kind"] == "simulated" else None,
            tally=counted,
            kinds=[verdict for verdict in VERDICTS if any(group.verdicts[verdict] for group in counted.groups)],
            profile=_size(results) if has_profile else None,
            answer=strict_answer,
            chosen=is_chosen,
            # a step says so itself, as a whole
            iteration=_iteration(results) if has_profile and "step" not in workload else None,
            in_words=in_words,
            against=against(workload),
            sentence=sentence(choices.made, choices.best_today) if choices else [],
            frontier=choices,
            marks=marks(strict_answer, warned) if strict_answer else [],
            own_gpu=_own_gpu(workload) if gpu["kind"] == "simulated" else "",
            validation=table("measured_again", again_as_rows(validated)) if validated else None,
            cautions=warned,
            deployment=to_work,
            sections=_sections(views, drawn, known_tables | known_figures, is_chosen),
            verdicts=_count(rows.get("claims", ()), "verdict"),
            omitted=views.get("omitted_pairs"),
            brief=by_saving(views["chosen_clocks"]) if strict_answer and "chosen_clocks" in views else None,
            fleet=_fleet(results, strict_answer, usd_per_kwh, co2_g_per_kwh) if strict_answer else None,
            further=[table(name, _read(folder, name, missing) or []) for name in extra],
            missing=missing,
        ),
        missing,
    )


def sections() -> dict[str, str]:
    """Return {id: title} of a page's sections, in their order."""
    ranked = sorted((_SECTIONS | extensions.merged("sections")).items(), key=lambda entry: entry[1][0])
    return {name: title for name, (_, title) in ranked}


def _of_extension(part: str, *arguments: Any) -> Any:
    """Return what a package beside the road has to say; None where there is none."""
    make = extensions.part(part)
    return make(*arguments) if make else None


# of the kernels of a step, without a choice: how many stand on the first screen, and what of them
_COSTLIEST = 5
_COSTS = ("name", "energy_per_step_j", "energy_share_percent", "time_per_step_ms", "power_w", "section")


def _costliest(kernels: Rows | None) -> Table | None:
    if not kernels:
        return None
    rows = [{name: row[name] for name in _COSTS if name in row} for row in kernels[:_COSTLIEST]]
    return replace(table("costliest", rows, folds=False), title="The costliest kernels")


def _fleet(
    results: Results, answer: Answer, usd_per_kwh: float | None, co2_g_per_kwh: float | None
) -> FleetEstimate | None:
    """Return the estimate, only of what is run over and over: an iteration, with its launches counted."""
    schedule = results.schedule(STRICT)
    if schedule.get("weights") != "counts":
        return None
    percent = answer.energy.claimed if answer.energy.validated is None else answer.energy.validated
    if percent is None:
        return None
    power_w = schedule["baseline_energy"] / schedule["baseline_time"]
    return FleetEstimate(power_w, percent, answer.how, results.gpu["kind"] == "simulated", usd_per_kwh, co2_g_per_kwh)


def _choices(results: Results, gpu: Mapping[str, Any], headline: Rows | None) -> FirstScreen:
    """Return the strict choice, those with more time that the study made, and all that lies between."""
    again = {row["schedule"]: row for row in headline or ()}
    relaxed = [name for name, row in again.items() if name.startswith(_PER_KERNEL) and row["slack_percent"]]
    shown = [shown_of(results.schedule(name), again.get(name)) for name in (STRICT, *relaxed)]
    schedule = shown[0].schedule
    options = {} if schedule["ties"] == "tied" else {"ties": schedule["ties"]}
    if schedule["weights"] != default_weights({"workload": results.workload, "gpu": results.gpu}):
        options["weights"] = schedule["weights"]
    # as the contract has it: a page that is mailed should not tell where its maker keeps files
    place = "/".join(("results", *results.folder.resolve().parts[-2:]))
    walk = f"{place}/by_clock.json" if results.has("by_clock.json") else ""
    return frontier(
        str(results.profile_path),
        problem_from(str(results.profile_path), "kernel", schedule["weights"], schedule["ties"]),
        gpu,
        shown,
        ChoiceSource(f"{place}/profile.parquet", walk, options),
        results,
        PAPER_POINT if is_papers(results.gpu["name"], results.workload["name"]) else None,
    )


def _has_profile(results: Results, missing: list[InputError]) -> bool:
    return bool(_tried(lambda: results.gpu, missing))


def _in_order(known: Mapping[str, Output]) -> dict[str, Output]:
    """Return them in the order of the page; what is in no section comes last."""
    rank = {name: number for number, name in enumerate(sections())}
    ranked = sorted(known, key=lambda name: (rank.get(known[name].section, len(rank)), known[name].place, name))
    return {name: known[name] for name in ranked}


def _tried(make: Callable[[], Made], missing: list[InputError]) -> Made | None:
    """Return what `make` gives, or None with the reason added to `missing`."""
    try:
        return make()
    except InputError as error:
        missing.append(error)
        return None


def _read(folder: Path, name: str, missing: list[InputError]) -> Rows | None:
    return _tried(lambda: read_rows(folder / "tables" / f"{name}.json"), missing)


def _tables(folder: Path, wanted: Iterable[str], missing: list[InputError]) -> dict[str, Rows]:
    """Return {name: rows} of those that are there and whole."""
    there, absent = _split(folder, wanted, "tables/{}.json")
    if absent:
        missing.append(Missing(f"tables {', '.join(absent)}: not made yet; run snakemake --cores 1 report"))
    read = {name: _read(folder, name, missing) for name in there}
    return {name: rows for name, rows in read.items() if rows is not None}


def _figures(
    folder: Path, wanted: Mapping[str, Output], missing: list[InputError], inside: Figures
) -> dict[str, Figure]:
    there, absent = _split(folder, sorted(wanted), "figures/{}.png")
    if absent:
        missing.append(Missing(f"figures {', '.join(absent)}: not made yet; run snakemake --cores 1 report"))
    paths = {name: folder / f"figures/{name}.png" for name in there}
    read = {name: _tried(partial(inside.figure, path, wanted[name]), missing) for name, path in paths.items()}
    return {name: figure for name, figure in read.items() if figure}


def _split(folder: Path, names: Iterable[str], pattern: str) -> tuple[list[str], list[str]]:
    names = list(names)
    there = [name for name in names if (folder / pattern.format(name)).is_file()]
    return there, [name for name in names if name not in there]


def _sections(
    views: Mapping[str, Table], drawn: Mapping[str, Figure], known: Mapping[str, Output], is_chosen: bool
) -> list[Section]:
    """Return those that have something to show; views and drawn are in the order of the page."""
    shown = []
    for name, title in (sections() if is_chosen else sections() | {"kernels": "All kernels"}).items():
        members = [output for output, about in known.items() if about.section == name]
        tables = [view for output, view in views.items() if output in members]
        figures = [drawn[output] for output in members if output in drawn]
        if tables or figures:
            shown.append(Section(name, title, tables, figures))
    return shown


# what a reader compares stands first: on a phone, the first columns are all that is seen without scrolling
_FIRST = {
    "claims": ("number", "verdict", "claim"),
    "headline": (
        "schedule",
        "claimed_energy_change_percent",
        "fresh_energy_change_percent",
        "claimed_time_change_percent",
        "fresh_time_change_percent",
        "slack_percent",
        "time_bound_percent",
        "verdict",
        "status",
    ),
    "strategies": (
        "granularity",
        "scope",
        "objective",
        "time_change_percent",
        "energy_change_percent",
        "fresh_time_change_percent",
        "fresh_energy_change_percent",
        "slack_percent",
        "waste_j",
        "status",
    ),
}


def _view(results: Results, name: str, rows: Rows, about: Output) -> Table:
    first = _FIRST.get(name, ())
    rows = [{column: row[column] for column in (*first, *row) if column in row} for row in rows]
    if name in ("kernel_clocks", "chosen_clocks"):
        try:
            return kernels(Results(results.folder, about.procedure), rows, about)
        except InputError:
            pass  # the schedule or the profile is missing, which is said; the table by itself still tells
    # claims are read, and what a step costs is what its page is for, however many kernels it has
    return table(name, rows, about, folds=name not in ("claims", "step_kernels"))


def _size(results: Results) -> dict[str, int]:
    """Return how much was measured: kernels, passes, clock pairs."""
    profile = results.profile
    pairs = profile.groupby(["study", "target"]).size()
    targets = profile.groupby("study").target.nunique()
    return {"kernels": int(targets.get("kernel", 0)), "passes": int(targets.get("pass", 0)), "pairs": int(pairs.max())}


def _iteration(results: Results) -> str | None:
    """Return what an iteration costs at auto, as the sum of its kernels measured alone, in words; None where launches
    are not counted."""
    profile = results.profile
    kernels = profile[(profile.study == "kernel") & profile.is_baseline]
    time_s, energy_j = (
        float((kernels.launches_per_iteration * kernels[column]).sum()) for column in ("time_s", "energy_j")
    )
    if not (time_s > 0 and energy_j > 0):
        return None
    return (
        f"At auto clocks one iteration takes {duration(time_s)} and {energy_in_words(energy_j)}, "
        f"{plain(energy_j / time_s)} W: the sum of its kernels, each measured alone"
    )


def _count(rows: Iterable[Mapping[str, str]], column: str) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in rows:
        counted[row.get(column, "")] = counted.get(row.get(column, ""), 0) + 1
    return counted
