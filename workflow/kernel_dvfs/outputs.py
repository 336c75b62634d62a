"""What a table or a figure says of itself. Rules, commands, pages and docs read it: adding one is one module.

A module of a tables or figures package declares `OUTPUT` and the function that makes it: `make(results, **options)` of
a table gives a data frame, `draw(results, **options)` of a figure a plot. Heavy libraries are imported inside those
functions, since the declarations are read whenever the workflow is parsed.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

TABLE_FORMATS = ("csv", "md")
FIGURE_FORMATS = ("pdf", "png")
# kinds of GPU that this program measures itself; the third kind, "table", comes measured
MEASURED = ("simulated", "nvml")


def always(plan: Any) -> bool:
    """The output is there in every study."""
    return True


def _no_inputs(plan: Any) -> list[str]:
    return []


def _no_options(plan: Any) -> dict:
    return {}


@dataclass(frozen=True, slots=True)
class Output:
    """A table or a figure of a study. plan: what the configuration asks for (plan.asked.Study, or another study's)."""

    caption: str  # one line, in the file itself
    title: str = ""  # heading on the page; "": the name in words
    text: str = ""  # below the heading, for a reader who has not read the paper
    section: str = ""  # id of the page's section; "": not on the page by itself
    place: int = 0  # order within the section
    formats: tuple[str, ...] = TABLE_FORMATS  # endings of its files
    kinds: tuple[str, ...] = ()  # kinds of GPU that can have it; (): all
    workload: str = ""  # step: only of a captured step, model: only of anything else; "": of both
    of_choice: bool = False  # only where there are clocks to choose: not where auto alone was measured
    when: Callable[[Any], bool] = always  # plan -> whether a study on such a GPU makes it
    inputs: Callable[[Any], list[str]] = _no_inputs  # plan -> paths that it is made from, besides the study's main file
    options: Callable[[Any], dict] = _no_options  # plan -> arguments of make or draw, as they go through JSON

    @property
    def in_words(self) -> str:
        """Title and text in one, for Snakemake's own report; the caption where there is neither."""
        return f"{self.title}. {self.text}" if self.title and self.text else self.text or self.caption

    def fits(self, kind: str, is_step: bool = False, is_chosen: bool = True) -> bool:
        """Whether a study on a kind of GPU, of a captured step or not, with clocks to choose or at auto alone, can have
        it: what a folder tells without its configuration."""
        is_of_workload = self.workload in ("", "step" if is_step else "model")
        return (not self.kinds or kind in self.kinds) and is_of_workload and (is_chosen or not self.of_choice)

    def made_by(self, plan: Any) -> bool:
        """Whether a study makes it."""
        told = (getattr(plan, "kind", ""), getattr(plan, "is_step", False), getattr(plan, "is_chosen", True))
        return self.fits(*told) and self.when(plan)


def modules(package: ModuleType) -> dict[str, ModuleType]:
    """{name: module} of all in a package that declare an OUTPUT, by name."""
    names = sorted(each.name for each in pkgutil.iter_modules(package.__path__))
    found = {name: import_module(f"{package.__name__}.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "OUTPUT")}


def outputs(package: ModuleType) -> dict[str, Output]:
    """{name: Output} of all in a package, by name."""
    return {name: module.OUTPUT for name, module in modules(package).items()}
