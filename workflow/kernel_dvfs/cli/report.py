"""`kernel-dvfs report`: a results folder as one page that can be mailed."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs report results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("folder", metavar="FOLDER", help="results/<gpu>/<workload>, or results/comparison")
    parser.add_argument("-o", "--output", metavar="HTML", help="the page; default: report.html in the folder")
    parser.add_argument(
        "--without", default="", metavar="NAMES", help="tables and figures that the study leaves out: do not miss them"
    )


def run(options: Namespace) -> None:
    """Write the page of a study, or of all studies."""
    from kernel_dvfs.files import write_text
    from kernel_dvfs.report.page import comparison_page, study_page

    folder = Path(options.folder)
    page = comparison_page if (folder / comparison_page.TABLE).is_file() else study_page
    html, missing = page.make(folder, tuple(filter(None, options.without.split(","))))
    write_text(options.output or folder / "report.html", html)
    if missing:
        print(f"note: {folder}: the page says what is missing: {'; '.join(missing)}", file=sys.stderr)
