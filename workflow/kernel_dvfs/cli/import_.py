"""`kernel-dvfs import`: a table of measurements from anywhere, or a contributed archive, into a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_dvfs.cli import tell
from kernel_dvfs.errors import InputError
from kernel_dvfs.profile.contribution import import_contribution, is_contribution
from kernel_dvfs.profile.table import import_to_profile

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs import measurements.csv -o profile.parquet"
    parser.add_argument("table", help="CSV, Parquet, Kernel Tuner cache, or a contribution (docs/contribute.md)")
    parser.add_argument("--name", help="name of the GPU's results (default: the file's stem)")
    parser.add_argument("--settings", nargs="*", default=(), metavar="COLUMN", help="further setting columns")
    parser.add_argument("--reference", help="the baseline if no row is marked: CORE,MEM or highest")
    parser.add_argument(
        "--units",
        nargs="*",
        default=(),
        metavar="COLUMN=UNIT",
        help="units of columns whose names say another, such as core_mhz=khz or time_s=ms",
    )
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def run(options: Namespace) -> None:
    if is_contribution(options.table):
        if options.settings or options.reference or options.units:
            raise InputError(f"{options.table}: a contribution says its settings, baseline and units itself")
        _, lines = import_contribution(options.table, options.output, options.name)
        tell(*lines)
        return
    columns_in = {}
    for word in options.units:
        column, found, unit = word.partition("=")
        if not found or not column or not unit:
            raise InputError(f"--units {word}: expected COLUMN=UNIT, such as core_mhz=khz")
        columns_in[column] = unit
    imported = import_to_profile(
        options.table, options.output, options.name, options.settings, options.reference, columns_in
    )
    tell(*imported.read, *(f"note: {notice}" for notice in imported.notices))
