"""Packages beside the road: what each adds to it.

A package `kernel_dvfs_NAME` beside this one that has a module `extension` is one, found by its name, as Snakemake finds
its plugins. That module holds an EXTENSION, which says where things are, so that nothing else of it is imported before
it is asked for. The road names none: where a package is not there, its commands, studies, tables, parts of a page and
rules (workflow/rules/NAME.smk) are not there either, and all else is as before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs_clocks import package

if TYPE_CHECKING:
    from kernel_dvfs.command import Command

_PREFIX = "kernel_dvfs_"
# what the road asks for by what it does -> what it takes and returns
PARTS = {
    "step answer": "({table: rows}) -> what a run at auto alone found of a captured step, in a sentence, or None",
    "step loads": "(uuid, step) -> measurement.real.loads.Loads of a captured step",
    "step python": "(FILE.py:FUNCTION) -> a line on the Python that runs a step; raises InputError for what it lacks",
    "step view": "(workload, {table: rows}, is_forecast) -> what the page says of a captured step, or None",
    "deployable": "(rows of the table `deployable`, gpu) -> report.page.parts.Deployable, or None",
    "deployment": "(results, workload) -> report.page.parts.Deployment: how clocks are put to work",
}


class Kind(NamedTuple):
    """A kind of study."""

    report: str  # package whose modules `tables` and `figures` declare what is made
    reader: tuple[str, str]  # (module, class) of what reads a folder; the class takes the folder
    title: str  # of several of them
    schema: str  # how the `schema` of its study.json begins; "": it has none
    page: str = ""  # module whose `make` takes a folder and makes its page; "": that of a GPU's study
    sign: str = ""  # a folder in the study's own by which one without study.json is known; "": none
    plan: str = ""  # place of (config) -> its plan, with `folder`, `setups`, `sealed`, `answer_line`; "": the road's
    targets: Sequence[str] = ()  # of the workflow: a run of one ends with this study's answer


class Extension(NamedTuple):
    """What a package adds. Each place is "module:name"."""

    commands: Mapping[str, Command] = {}
    groups: Mapping[str, tuple[str, str]] = {}  # group -> (what it is about, place of its {command: Command})
    kinds: Mapping[str, Kind] = {}  # of study
    outputs: Mapping[str, Sequence[str]] = {}  # kind of study -> modules whose OUTPUTS it makes besides its own
    sections: Mapping[str, tuple[int, str]] = {}  # of a study's page: id -> (place among the others, title)
    parts: Mapping[str, str] = {}  # of PARTS -> place
    api: Mapping[str, str] = {}  # name that `import kernel_dvfs` offers -> place
    needs: Sequence[str] = ()  # names of packages that it uses: without one, it is not here either


@cache
def extensions() -> dict[str, Extension]:
    """Return {NAME: its EXTENSION} of the packages that are here, in the order of their names."""
    present = {}
    for name in sorted(os.listdir(package.FOLDER)):
        if name.startswith(_PREFIX) and os.path.isfile(os.path.join(package.FOLDER, name, "extension.py")):
            extension: Extension = import_module(f"{name}.extension").EXTENSION
            present[name.removeprefix(_PREFIX)] = extension
    return {name: extension for name, extension in present.items() if {*extension.needs} <= {*present}}


def packages() -> Iterator[str]:
    """Yield the names of these packages, as they are imported."""
    return (f"{_PREFIX}{name}" for name in extensions())


def merged(field: str) -> dict[str, Any]:
    """Return what all of them have in a field that is a mapping; the first one that has a name keeps it."""
    together: dict[str, Any] = {}
    for extension in extensions().values():
        together = {**getattr(extension, field), **together}
    return together


def at(place: str) -> Any:
    """Return what stands at a place, "module:name", which is imported now."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def part(name: str) -> Callable[..., Any] | None:
    """Return what does what PARTS says; None where no package here does."""
    assert name in PARTS
    place = merged("parts").get(name)
    function: Callable[..., Any] | None = at(place) if place else None
    return function
