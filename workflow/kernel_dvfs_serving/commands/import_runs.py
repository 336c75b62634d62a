"""`kernel-dvfs serving import`."""

from __future__ import annotations

import argparse

from kernel_dvfs.cli import tell
from kernel_dvfs_serving.benchmarks import import_runs
from kernel_dvfs_serving.profile import write_profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs serving import runs.yaml -o profile.csv"
    parser.add_argument("runs", metavar="RUNS.yaml", help="which benchmark ran at which degree and clock")
    parser.add_argument("-o", "--output", required=True, metavar="PROFILE.csv")


def run(options: argparse.Namespace) -> None:
    rows, notes = import_runs(options.runs)
    write_profile(options.output, rows, made_of={"runs": options.runs})
    tell(*(f"note: {note}" for note in notes))
