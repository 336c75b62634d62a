"""`kernel-dvfs output`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from inspect import Parameter, formatannotation, signature
from typing import TYPE_CHECKING, Any

from kernel_dvfs import jobs, registry
from kernel_dvfs.cli import json_object, tell
from kernel_dvfs_clocks.errors import InputError, meant

if TYPE_CHECKING:
    from kernel_dvfs.outputs import Output, Outputs


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs output results/sim-rtx-3080-ti/gpt3-xl-b40-tp1 relaxed fig6_relaxed_waste"
    parser.add_argument("folder", metavar="FOLDER", help="of a study")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="tables and figures, as levels or figures/levels (default: all that need no options)",
    )
    parser.add_argument("--options", default="{}", metavar="JSON", help='of the one table named, e.g. {"repeats": 10}')
    parser.add_argument("--inputs", type=_paths, metavar="JSON", help="the only files to read (default: any)")


def run(options: Namespace) -> None:
    """Make them and write their files."""
    kind = registry.kind_of(options.folder)
    known = registry.outputs(kind)
    given = json_object("--options", options.options, 'such as {"repeats": 10}')
    named = [output for name in options.names for output in _named(name, list(known.values()), options.folder)]
    study = registry.reader(options.folder)
    for output in named or _of_such(study, kind, known):
        try:
            jobs.output(output, options.folder, checked(output, given), options.inputs)
        except InputError as error:
            if named:
                raise
            tell(f"note: left out: {error}")


def _of_such(study: Any, kind: str, known: Outputs) -> list[Output]:
    """Return all that a study can have, and that needs no options."""
    fitting = (study.gpu["kind"], "step" in study.workload) if kind == "gpu" else ("",)
    return [output for output in known.values() if output.fits(*fitting) and not _lacking(output, {})]


def _paths(text: str) -> list[str]:
    """Return a list of paths as JSON. Raises ArgumentTypeError."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not _is_texts(parsed):
        raise ArgumentTypeError(f"{text[:40]!r}: expected a list of paths as JSON")
    paths: list[str] = parsed
    return paths


def _named(name: str, known: list[Output], folder: str) -> list[Output]:
    """Return the table, the figure, or both of a name. Raises InputError."""
    matching = [output for output in known if name in (output.name, f"{output.kind}s/{output.name}")]
    if not matching:
        names = sorted({output.name for output in known})
        raise InputError(f"{folder}: no table or figure '{name}'{meant(name, names)}; it has {', '.join(names)}")
    return matching


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


def _is_texts(values: Any) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def _is_omitted(value: Any) -> bool:
    return type(value) is list and all(type(field) is list and len(field) == 3 for field in value)


# annotation of an option of `make` -> (what it must be, in words; the test)
OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number >= 1", lambda value: type(value) is int and value >= 1),
    "float": ("a positive number", _is_number),
    "bool": ("true or false", lambda value: type(value) is bool),
    "str": ("a text", lambda value: type(value) is str),
    "list[float]": ("a list of positive numbers", lambda value: type(value) is list and all(map(_is_number, value))),
    "list[str]": ("a list of names", _is_texts),
    "dict[str, str]": ("an object of name: text", lambda value: type(value) is dict and _is_texts([*value.values()])),
    "list[tuple[str, str, str]]": ("a list of [core, memory, reason]", _is_omitted),
}


def options_of(output: Output) -> dict[str, Parameter]:
    """Return {name: option} of an output's function: all that it takes after the study."""
    return dict(list(signature(output.make).parameters.items())[1:])


def annotation_of(option: Parameter) -> str:
    """Return the annotation of an option, as OPTIONS names it. None stands for an option that is not given."""
    annotation = option.annotation
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    return text.removesuffix(" | None")


def _lacking(output: Output, given: dict) -> list[str]:
    return [key for key, about in options_of(output).items() if about.default is Parameter.empty and key not in given]


def checked(output: Output, given: dict) -> dict:
    """Return the options, checked against the function's signature. Raises InputError for one unknown, missing or
    bad."""
    where = f"{output.kind} {output.name}: --options {json.dumps(given)}"
    known = options_of(output)
    takes = ", ".join(known) or "none"
    surplus = [key for key in given if key not in known]
    if surplus:
        raise InputError(f"{where}: unknown {', '.join(surplus)}; it takes {takes}")
    if missing := _lacking(output, given):
        raise InputError(f"{where}: lacks {', '.join(missing)}; it takes {takes}")
    for key, value in given.items():
        words, holds = OPTIONS[annotation_of(known[key])]
        if not holds(value):
            raise InputError(f"{where}: {key} is {json.dumps(value)}, expected {words}")
    return given
