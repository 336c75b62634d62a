"""`kernel-dvfs import`: a table of measurements from anywhere, into a profile."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kernel_dvfs.profile.table import import_to_profile

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs import measurements.csv -o profile.parquet"
    parser.add_argument("table", help="CSV, Parquet or Kernel Tuner cache")
    parser.add_argument("--name", help="name of the GPU's results (default: the file's stem)")
    parser.add_argument("--settings", nargs="*", default=(), metavar="COLUMN", help="further setting columns")
    parser.add_argument("--reference", help="the baseline where no row is marked: CORE,MEM or highest")
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options: Namespace) -> None:
    imported = import_to_profile(options.table, options.output, options.name, options.settings, options.reference)
    for notice in imported.notices:
        print(f"note: {notice}", file=sys.stderr)
