"""`kernel-dvfs import`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kernel_dvfs.cli import tell
from kernel_dvfs.cli.arguments import columns_of, named_words, units_of


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "example: kernel-dvfs import measurements.csv -o profile.parquet"
    parser.add_argument("table", help="CSV, Parquet or a Kernel Tuner cache (docs/tables.md)")
    add_reading(parser)
    parser.add_argument("-o", "--output", required=True, metavar="P.parquet")


def add_reading(parser: ArgumentParser) -> None:
    """Describe how a table is read to an argparse parser."""
    parser.add_argument("--name", help="name of the GPU's results (default: the file's stem)")
    parser.add_argument("--settings", nargs="*", default=(), metavar="COLUMN", help="further setting columns")
    parser.add_argument("--reference", help="the baseline if no row is marked: CORE,MEM or highest")
    parser.add_argument(
        "--columns",
        nargs="*",
        default=(),
        metavar="COLUMN=HEADING",
        help="what no heading says: kernel=appName",
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=(),
        metavar="COLUMN=CELL",
        help="one of several workloads",
    )
    parser.add_argument(
        "--units",
        nargs="*",
        default=(),
        metavar="COLUMN=UNIT",
        help="of a column whose name says another: core_mhz=khz",
    )


def run(options: Namespace) -> None:
    read_table(options.table, options, options.output)


def read_table(table: str, options: Namespace, output: str = "") -> None:
    """Read a table as `add_reading` was told, and tell what it was taken for. output: where its profile goes; "":
    nowhere. Raises InputError."""
    from kernel_dvfs.profile.table import import_table, import_to_profile  # study asks for the packages first

    given = (
        options.name,
        options.settings,
        options.reference,
        units_of(options.units),
        columns_of(options.columns),
        named_words("--only", options.only, "COLUMN=CELL, such as batch=8"),
    )
    imported = import_to_profile(table, output, *given) if output else import_table(table, *given)
    tell(*imported.read, *(f"note: {notice}" for notice in imported.notices))
