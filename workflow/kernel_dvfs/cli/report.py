"""`kernel-dvfs report`: a results folder, or a profile and a schedule, as one page that can be mailed."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from kernel_dvfs.cli.arguments import number
from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import PAGE


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs report results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument(
        "folder", metavar="FOLDER|P.parquet", help="results/<gpu>/<workload>, results/comparison, or a profile"
    )
    parser.add_argument("schedule", nargs="?", metavar="S.json", help="for a profile: the schedule chosen from it")
    parser.add_argument("--usd-per-kwh", type=number(0, 1000, "USD"), metavar="USD", help="price, for a fleet's day")
    parser.add_argument(
        "--co2-g-per-kwh", type=number(0, 1e5, "g"), metavar="G", help="CO2 of the grid, g per kWh, for a fleet's day"
    )
    parser.add_argument("--json", action="store_true", help="print the page's path and what it misses as JSON")
    parser.add_argument(
        "--prometheus", metavar="FILE.prom", help="also write the answer of a study for Prometheus (docs/report.md)"
    )
    parser.add_argument("-o", "--output", metavar="HTML", help="the page (default: report.html next to what it shows)")
    parser.add_argument(
        "--without", default="", metavar="NAMES", help="tables and figures that the study leaves out: do not miss them"
    )


def run(options: Namespace) -> None:
    """Write the page of a study, or of all studies."""
    from kernel_dvfs.files import write_text

    folder = Path(options.folder)
    if folder.suffix == ".parquet" or options.schedule:
        _schedule(options)
        return
    from kernel_dvfs.report.page import comparison_page, study_page

    left_out = tuple(filter(None, options.without.split(",")))
    is_comparison = (folder / comparison_page.TABLE).is_file()
    if options.prometheus is not None:
        _check_metrics(folder, options.prometheus, is_comparison)
    if is_comparison:
        html, missing = comparison_page.make(folder, left_out)
    else:
        html, missing = study_page.make(folder, left_out, options.usd_per_kwh, options.co2_g_per_kwh)
    page = Path(options.output or folder / "report.html")
    write_text(page, html)
    if options.prometheus is not None:
        try:
            _prometheus(folder, options.prometheus)
        except InputError as error:
            raise InputError(f"{page} is written, {options.prometheus} is not: {error}") from None
    if options.json:
        print(_as_json(page, missing, options.prometheus))
    elif missing:
        print(f"note: {folder}: the page says what is missing: {'; '.join(missing)}", file=sys.stderr)


def _check_metrics(folder: Path, path: str, is_comparison: bool) -> None:
    """Raise InputError where no metrics can be asked for, before anything is written."""
    if is_comparison:
        raise InputError(f"report {folder}: --prometheus is of one study: results/<gpu>/<workload>, not a comparison")
    if Path(path).suffix != ".prom":
        raise InputError(f"report: --prometheus {path!r}: expected FILE.prom: node_exporter reads no other files")


def _as_json(page: Path, missing: list[str], metrics: str | None = None) -> str:
    """What was written, for other programs."""
    return json.dumps({"schema": PAGE, "page": str(page), "missing": missing, "prometheus": metrics})


def _prometheus(folder: Path, path: str) -> None:
    """Write the metrics of a study, whole or not at all, as a collector that may read at any time needs it."""
    from kernel_dvfs.files import write_text
    from kernel_dvfs.report import prometheus
    from kernel_dvfs.report.page.answer import answer
    from kernel_dvfs.report.page.tables import read_rows
    from kernel_dvfs.report.results import Results

    results = Results(folder)
    validation = folder / "tables" / "validation.csv"
    found = answer(results, read_rows(validation) if validation.is_file() else None)
    if found is None:
        raise InputError(f"{folder}: no strict schedule is feasible, so there is nothing to tell Prometheus")
    write_text(path, prometheus.text(results, found))


def _schedule(options: Namespace) -> None:
    """Write the page of a profile and a schedule."""
    from kernel_dvfs.choice.schedule_file import read_schedule
    from kernel_dvfs.files import write_text
    from kernel_dvfs.report.page import schedule_page

    profile = Path(options.folder)
    of_folder = (options.without or None, options.usd_per_kwh, options.co2_g_per_kwh, options.prometheus)
    if any(each is not None for each in of_folder):
        raise InputError(
            f"report {profile}: --without, --usd-per-kwh, --co2-g-per-kwh and --prometheus are of a results folder"
        )
    if not options.schedule:
        raise InputError(
            f"report {profile}: a schedule is missing; make one: kernel-dvfs choose {profile} ... -o s.json"
        )
    if profile.suffix != ".parquet":
        raise InputError(f"report {profile}: with a schedule, give the profile that it was chosen from (.parquet)")
    schedule = read_schedule(options.schedule)
    page = Path(options.output or profile.with_name("report.html"))
    write_text(page, schedule_page.make(profile, schedule, called=options.schedule))
    print(_as_json(page, []) if options.json else f"written: {page}")
