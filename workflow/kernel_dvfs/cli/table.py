"""`kernel-dvfs table`: one table of the report, from a results folder into its `tables/`."""

import json
from importlib import import_module
from inspect import signature

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import TABLE_FORMATS


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs table strategies results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("name", choices=TABLE_FORMATS)
    parser.add_argument("folder", help="results/<gpu>/<workload>")
    parser.add_argument(
        "--options", type=json.loads, default={}, metavar="JSON", help='what a table needs beside, e.g. {"repeats": 10}'
    )


def run(options) -> None:
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write_table

    table = import_module(
        "kernel_dvfs.report." + ("claims.table" if options.name == "claims" else f"tables.{options.name}")
    )
    results = Results(options.folder)
    known = list(signature(table.make).parameters)[1:]
    if set(options.options) - set(known):
        raise InputError(
            f"table {options.name}: options {', '.join(options.options)}; it takes {', '.join(known) or 'none'}"
        )
    frame = table.make(results, **options.options)
    write_table(frame, options.folder, options.name, table.CAPTION, results.subject, TABLE_FORMATS[options.name])
