"""`kernel-dvfs study figure`: one figure of a results folder, as PDF and PNG."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs.outputs import modules
from kernel_dvfs.report import figures


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    names = modules(figures)
    parser.epilog = "example: kernel-dvfs study figure fig3_forward_pass results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("name", **one_of(names, "NAME"), help=", ".join(names))
    parser.add_argument("folder", metavar="FOLDER", help="results/<gpu>/<workload>; written to its figures/")


def run(options: Namespace) -> None:
    """Draw the figure and write its files."""
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write_figure

    figure = modules(figures)[options.name]
    results = Results(options.folder)
    write_figure(figure.draw(results), options.folder, options.name, figure.OUTPUT.caption, results.subject)
