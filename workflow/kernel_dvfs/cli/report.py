"""`kernel-dvfs report`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from kernel_dvfs import jobs
from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import number
from kernel_dvfs.layout import PAGE
from kernel_dvfs_clocks.errors import InputError, Missing


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs report results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("folder", metavar="FOLDER|P.parquet", help="a study, results/comparison, a profile")
    parser.add_argument("schedule", nargs="?", metavar="S.json", help="chosen from the profile")
    parser.add_argument("--usd-per-kwh", type=number(0, 1000, "USD"), metavar="USD", help="price, for a fleet's day")
    parser.add_argument("--co2-g-per-kwh", type=number(0, 1e5, "g"), metavar="G", help="CO2 of the grid, likewise")
    parser.add_argument("--json", action="store_true", help="print the page's path and what it misses")
    parser.add_argument("-o", "--output", metavar="HTML", help="default: report.html beside what it shows")
    parser.add_argument("--without", default="", metavar="NAMES", help="what the study leaves out")


def run(options: Namespace) -> None:
    """Write the page of a study, or of all studies."""
    folder = Path(options.folder)
    if folder.suffix == ".parquet" or options.schedule:
        _schedule(options)
        return
    left_out = tuple(filter(None, options.without.split(",")))
    page = Path(options.output or folder / "report.html")
    missing = jobs.write_page(str(folder), str(page), left_out, options.usd_per_kwh, options.co2_g_per_kwh)
    if options.json:
        print(_as_json(page, missing))
    elif not_made := [str(fault) for fault in missing if isinstance(fault, Missing)]:
        tell(f"note: {folder}: the page says what is missing: {'; '.join(not_made)}")
    jobs.refuse_damaged(str(page), missing)


def _as_json(page: Path, missing: list[InputError]) -> str:
    """Return what was written, for other programs."""
    return json.dumps({"schema": PAGE, "page": str(page), "missing": [str(fault) for fault in missing]})


def _schedule(options: Namespace) -> None:
    """Write the page of a profile and a schedule."""
    profile = Path(options.folder)
    of_folder = (options.without or None, options.usd_per_kwh, options.co2_g_per_kwh)
    if any(option is not None for option in of_folder):
        raise InputError(f"report {profile}: --without, --usd-per-kwh and --co2-g-per-kwh are of a results folder")
    if not options.schedule:
        raise InputError(
            f"report {profile}: a schedule is missing; make one: kernel-dvfs choose {profile} ... -o s.json"
        )
    if profile.suffix != ".parquet":
        raise InputError(f"report {profile}: with a schedule, give the profile that it was chosen from (.parquet)")
    page = Path(options.output or profile.with_name("report.html"))
    jobs.page_of_schedule(str(profile), options.schedule, str(page))
    print(_as_json(page, []) if options.json else f"written: {page}")
