"""`kernel-dvfs study compare-gpus`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.report import comparison


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs study compare-gpus results"
    parser.add_argument("results", help="the results folder; the tables go to its comparison/")


def run(options: Namespace) -> None:
    """Write the tables of `results/comparison`."""
    comparison.write(options.results)
