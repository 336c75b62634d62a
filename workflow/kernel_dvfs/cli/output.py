"""Commands that write what is read: tables, figures, pages."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_dvfs.cli import json_object, tell
from kernel_dvfs.cli.arguments import number
from kernel_dvfs.errors import InputError, meant
from kernel_dvfs.layout import PAGE

if TYPE_CHECKING:
    from inspect import Parameter
    from pathlib import Path

    from kernel_dvfs.outputs import Output, Outputs


# --- output ---------------------------------------------------------------------------------------------------------


def add_output(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs output results/sim-rtx-3080-ti/gpt3-xl-b40-tp1 relaxed fig6_relaxed_waste"
    parser.add_argument("folder", metavar="FOLDER", help="of a study")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="tables and figures: levels, or figures/levels for one kind (default: all that need no options)",
    )
    parser.add_argument("--options", default="{}", metavar="JSON", help='of the one table named, e.g. {"repeats": 10}')
    parser.add_argument("--inputs", type=_paths, metavar="JSON", help="the only files to read (default: any)")


def run_output(options: Namespace) -> None:
    """Make them and write their files."""
    from kernel_dvfs import registry
    from kernel_dvfs.report.results import Results
    from kernel_dvfs.report.write import write

    kind = registry.kind_of(options.folder)
    known = registry.outputs(kind)
    given = json_object("--options", options.options, 'such as {"repeats": 10}')
    named = [each for name in options.names for each in _named(name, list(known.values()), options.folder)]
    study = registry.reader(options.folder)
    for output in named or _of_such(study, kind, known):
        try:
            arguments = checked(output, given)
            read = Results(options.folder, output.procedure, options.inputs) if kind == "gpu" else study
            write(output.make(read, **arguments), output, options.folder, (output.subject or _subject)(read))
        except InputError as error:
            if named:
                raise
            tell(f"note: left out: {error}")


def _of_such(study: Any, kind: str, known: Outputs) -> list[Output]:
    """All that a study can have, and that needs no options."""
    fitting = (study.gpu["kind"], "step" in study.workload) if kind == "gpu" else ("",)
    return [each for each in known.values() if each.fits(*fitting) and not _lacking(each, {})]


def _paths(text: str) -> list[str]:
    """A list of paths as JSON. Raises ArgumentTypeError."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not _is_texts(found):
        raise ArgumentTypeError(f"{text[:40]!r}: expected a list of paths as JSON")
    paths: list[str] = found
    return paths


def _subject(study: Any) -> str:
    """Whose numbers those of a study are."""
    found: str = study.subject
    return found


def _named(name: str, known: list[Output], folder: str) -> list[Output]:
    """The table, the figure, or both of a name. Raises InputError."""
    found = [each for each in known if name in (each.name, f"{each.kind}s/{each.name}")]
    if not found:
        names = sorted({each.name for each in known})
        raise InputError(f"{folder}: no table or figure '{name}'{meant(name, names)}; it has {', '.join(names)}")
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")


def _is_texts(values: Any) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def _is_omitted(value: Any) -> bool:
    return type(value) is list and all(type(each) is list and len(each) == 3 for each in value)


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
    """{name: option} of an output's function: all that it takes after the study."""
    from inspect import signature

    return dict(list(signature(output.make).parameters.items())[1:])


def annotation_of(option: Parameter) -> str:
    """The annotation of an option, as OPTIONS names it. None stands for an option that is not given."""
    from inspect import formatannotation

    annotation = option.annotation
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    return text.removesuffix(" | None")


def _lacking(output: Output, given: dict) -> list[str]:
    from inspect import Parameter

    return [key for key, about in options_of(output).items() if about.default is Parameter.empty and key not in given]


def checked(output: Output, given: dict) -> dict:
    """The options, checked against the function's signature. Raises InputError for one unknown, missing or bad."""
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


# --- report ---------------------------------------------------------------------------------------------------------


def add_report(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs report results/sim-rtx-3080-ti/gpt3-xl-b40-tp1"
    parser.add_argument("folder", metavar="FOLDER|P.parquet", help="a study, results/comparison, or a profile")
    parser.add_argument("schedule", nargs="?", metavar="S.json", help="chosen from the profile")
    parser.add_argument("--usd-per-kwh", type=number(0, 1000, "USD"), metavar="USD", help="price, for a fleet's day")
    parser.add_argument(
        "--co2-g-per-kwh", type=number(0, 1e5, "g"), metavar="G", help="CO2 of the grid, g per kWh, likewise"
    )
    parser.add_argument("--json", action="store_true", help="print the page's path and what it misses")
    parser.add_argument(
        "--prometheus", metavar="FILE.prom", help="also write the answer for a dashboard (docs/report.md)"
    )
    parser.add_argument("-o", "--output", metavar="HTML", help="default: report.html beside what it shows")
    parser.add_argument("--without", default="", metavar="NAMES", help="what the study leaves out: do not miss it")


def run_report(options: Namespace) -> None:
    """Write the page of a study, or of all studies."""
    from pathlib import Path

    from kernel_dvfs.files import write_text

    folder = Path(options.folder)
    if folder.suffix == ".parquet" or options.schedule:
        _schedule(options)
        return
    from kernel_dvfs import registry
    from kernel_dvfs.report.page import comparison_page, study_page

    left_out = tuple(filter(None, options.without.split(",")))
    is_comparison = (folder / comparison_page.TABLE).is_file()
    if options.prometheus is not None:
        _check_metrics(folder, options.prometheus, is_comparison)
    if is_comparison:
        html, missing = comparison_page.make(folder)
    elif (own := registry.page_of(folder)) is not None:
        html, missing = own(folder)
    else:
        html, missing = study_page.make(folder, left_out, options.usd_per_kwh, options.co2_g_per_kwh)
    page = Path(options.output or folder / "report.html")
    write_text(page, html)
    if options.prometheus is not None:
        try:
            _prometheus(folder, options.prometheus)
        except InputError as error:
            raise InputError(f"{page} is written, {options.prometheus} is not: {error}") from None
    if options.json:
        print(_as_json(page, missing, options.prometheus))
    elif missing:
        tell(f"note: {folder}: the page says what is missing: {'; '.join(missing)}")


def _check_metrics(folder: Path, path: str, is_comparison: bool) -> None:
    """Raise InputError where no metrics can be asked for, before anything is written."""
    from pathlib import Path

    if is_comparison:
        raise InputError(f"report {folder}: --prometheus is of one study: results/<gpu>/<workload>, not a comparison")
    if Path(path).suffix != ".prom":
        raise InputError(f"report: --prometheus {path!r}: expected FILE.prom: node_exporter reads no other files")


def _as_json(page: Path, missing: list[str], metrics: str | None = None) -> str:
    """What was written, for other programs."""
    return json.dumps({"schema": PAGE, "page": str(page), "missing": missing, "prometheus": metrics})


def _prometheus(folder: Path, path: str) -> None:
    """Write the metrics of a study, whole or not at all, as a collector that may read at any time needs it."""
    from kernel_dvfs.files import write_text
    from kernel_dvfs.report import prometheus
    from kernel_dvfs.report.page.answer import answer, strict_again
    from kernel_dvfs.report.page.tables import read_rows
    from kernel_dvfs.report.results import Results

    results = Results(folder)
    headline = folder / "tables" / "headline.csv"
    found = answer(results, strict_again(read_rows(headline)) if headline.is_file() else None)
    if found is None:
        raise InputError(f"{folder}: no strict schedule is feasible, so there is nothing to tell Prometheus")
    write_text(path, prometheus.text(results, found))


def _schedule(options: Namespace) -> None:
    """Write the page of a profile and a schedule."""
    from pathlib import Path

    from kernel_dvfs.choice.schedule_file import read_schedule
    from kernel_dvfs.files import write_text
    from kernel_dvfs.report.page import schedule_page

    profile = Path(options.folder)
    of_folder = (options.without or None, options.usd_per_kwh, options.co2_g_per_kwh, options.prometheus)
    if any(each is not None for each in of_folder):
        raise InputError(
            f"report {profile}: --without, --usd-per-kwh, --co2-g-per-kwh and --prometheus are of a results folder"
        )
    if not options.schedule:
        raise InputError(
            f"report {profile}: a schedule is missing; make one: kernel-dvfs choose {profile} ... -o s.json"
        )
    if profile.suffix != ".parquet":
        raise InputError(f"report {profile}: with a schedule, give the profile that it was chosen from (.parquet)")
    schedule = read_schedule(options.schedule)
    page = Path(options.output or profile.with_name("report.html"))
    write_text(page, schedule_page.make(profile, schedule, called=options.schedule))
    print(_as_json(page, []) if options.json else f"written: {page}")


# --- compare gpus ---------------------------------------------------------------------------------------------------


def add_compare_gpus(parser: ArgumentParser) -> None:
    """The arguments of the command."""
    parser.epilog = "example: kernel-dvfs study compare-gpus results"
    parser.add_argument("results", help="the results folder; the tables go to its comparison/")


def run_compare_gpus(options: Namespace) -> None:
    """Write the tables of `results/comparison`."""
    from kernel_dvfs.report import comparison

    comparison.write(options.results)
