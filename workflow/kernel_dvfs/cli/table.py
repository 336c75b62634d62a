"""`kernel-dvfs study table`: one table of the report, from a results folder into its `tables/`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from inspect import Parameter, formatannotation, signature
from typing import Any

from kernel_dvfs.cli import json_object
from kernel_dvfs.cli.arguments import one_of
from kernel_dvfs.errors import InputError
from kernel_dvfs.outputs import modules
from kernel_dvfs.report import tables


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


def _is_texts(values: Any) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def _is_omitted(value: Any) -> bool:
    return type(value) is list and all(type(each) is list and len(each) == 3 for each in value)


# annotation of an option of `make` -> (what it must be, in words; the test)
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number >= 1", lambda value: type(value) is int and value >= 1),
    "float": ("a positive number", _is_number),
    "bool": ("true or false", lambda value: type(value) is bool),
    "str": ("a text", lambda value: type(value) is str),
    "list[float]": ("a list of positive numbers", lambda value: type(value) is list and all(map(_is_number, value))),
    "list[str]": ("a list of names", _is_texts),
    "dict[str, str]": ("an object of name: text", lambda value: type(value) is dict and _is_texts([*value.values()])),
    "list[tuple[str, str, str]]": ("a list of [core, memory, reason]", _is_omitted),
}


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs study table strategies results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("name", **one_of(modules(tables), "NAME"))
    parser.add_argument("folder", help="results/<gpu>/<workload>")
    parser.add_argument("--options", default="{}", metavar="JSON", help='options of the table, e.g. {"repeats": 10}')


def run(options: Namespace) -> None:
    """Make the table and write its files."""
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write_table

    table = modules(tables)[options.name]
    given = _read(options.name, options.options, table.make)
    results = Results(options.folder)
    frame = table.make(results, **given)
    output = table.OUTPUT
    write_table(frame, options.folder, options.name, output.caption, results.subject, output.formats)


def kind_of(option: Parameter) -> str:
    """The annotation of an option, as KINDS names it. None stands for an option that is not given."""
    annotation = option.annotation
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    return text.removesuffix(" | None")


def _read(name: str, text: str, make: Callable) -> dict:
    """The options for `make`, checked against its signature. Raises InputError for one unknown, missing or bad."""
    where = f"table {name}: --options {text}"
    given = json_object(f"table {name}: --options", text, 'such as {"repeats": 10}')
    known = dict(list(signature(make).parameters.items())[1:])
    surplus = [key for key in given if key not in known]
    if surplus:
        raise InputError(f"{where}: unknown {', '.join(surplus)}; it takes {', '.join(known) or 'none'}")
    missing = [key for key, about in known.items() if about.default is Parameter.empty and key not in given]
    if missing:
        raise InputError(f"{where}: lacks {', '.join(missing)}; it takes {', '.join(known)}")
    for key, value in given.items():
        words, holds = KINDS[kind_of(known[key])]
        if not holds(value):
            raise InputError(f"{where}: {key} is {json.dumps(value)}, expected {words}")
    return given
