"""`kernel-dvfs table`: one table of the report, from a results folder into its `tables/`."""

import json
from importlib import import_module
from inspect import Parameter, signature

from kernel_dvfs.errors import InputError
from kernel_dvfs.layout import TABLE_FORMATS


def _is_number(value) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


def _is_texts(values) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def _is_omitted(value) -> bool:
    return type(value) is list and all(type(each) is list and len(each) == 3 for each in value)


# option -> (what it must be, in words; the test)
KINDS = {
    "repeats": ("a whole number >= 1", lambda value: type(value) is int and value >= 1),
    "values": ("a list of positive numbers", lambda value: type(value) is list and all(map(_is_number, value))),
    "default": ("a positive number", _is_number),
    "reoptimised": ("true or false", lambda value: type(value) is bool),
    "skipped": ("true or false", lambda value: type(value) is bool),
    "ties": ("tied or untied", lambda value: value in ("tied", "untied")),
    "weights": ("null, counts, raw or equal-time", lambda value: value in (None, "counts", "raw", "equal-time")),
    "schedules": ("a list of names", _is_texts),
    "targets": ("a list of names", _is_texts),
    "validated": ("a list of names", _is_texts),
    "setups": ("an object of name: text", lambda value: type(value) is dict and _is_texts(list(value.values()))),
    "omitted": ("a list of [core, memory, reason]", _is_omitted),
}


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs table strategies results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("name", choices=TABLE_FORMATS)
    parser.add_argument("folder", help="results/<gpu>/<workload>")
    parser.add_argument(
        "--options", default="{}", metavar="JSON", help='what a table needs beside, e.g. {"repeats": 10}'
    )


def run(options) -> None:
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write_table

    table = import_module(
        "kernel_dvfs.report." + ("claims.table" if options.name == "claims" else f"tables.{options.name}")
    )
    given = _read(options.name, options.options, table.make)
    results = Results(options.folder)
    frame = table.make(results, **given)
    write_table(frame, options.folder, options.name, table.CAPTION, results.subject, TABLE_FORMATS[options.name])


def _read(name: str, text: str, make) -> dict:
    """The options that `make` takes beside the results. Raises InputError for what it does not take, lacks or bears."""
    where = f"table {name}: --options {text}"
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({error})") from None
    if not isinstance(given, dict):
        raise InputError(f'{where}: expected a JSON object such as {{"repeats": 10}}')
    known = dict(list(signature(make).parameters.items())[1:])
    surplus = [key for key in given if key not in known]
    if surplus:
        raise InputError(f"{where}: unknown {', '.join(surplus)}; it takes {', '.join(known) or 'none'}")
    missing = [key for key, about in known.items() if about.default is Parameter.empty and key not in given]
    if missing:
        raise InputError(f"{where}: lacks {', '.join(missing)}; it takes {', '.join(known)}")
    for key, value in given.items():
        words, holds = KINDS[key]
        if not holds(value):
            raise InputError(f"{where}: {key} is {json.dumps(value)}, expected {words}")
    return given
