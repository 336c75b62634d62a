"""Tables and figures of every study. One is a function with its declaration above it; a study's modules collect them.

    OUTPUTS = Outputs()

    @OUTPUTS.table("Promises kept by class", reads=["systems"])
    def classes(study):
        ...  # a data frame

A table gives a pandas.DataFrame, a figure a plotnine.ggplot. Rules, the command `output`, pages and the reference read
the declaration. Heavy libraries are imported inside those functions, since the workflow reads all declarations.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernel_dvfs.layout import PUBLISHED, RELIED_ON

FORMATS = {"table": ("json", "csv", "md", "tex"), "figure": ("pdf", "png")}
# {what clocks were chosen by: what a caption says of it}; "": no choice is shown
PROCEDURES = {PUBLISHED: "; as published: one sweep, no margin", RELIED_ON: "; relied on", "": ""}
# kinds of GPU that this program measures itself; the third kind, "table", comes measured
MEASURED = ("simulated", "nvml")

Make = TypeVar("Make", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Output:
    """A table or a figure of a study. plan: what the configuration asks for (plan.study.Study, or another study's)."""

    kind: str  # table or figure
    name: str
    make: Callable[..., Any]  # (study, **options) -> what is written; study: what reads the folder
    caption: str  # one line, in the file itself
    title: str = ""  # heading on the page; "": the name in words
    text: str = ""  # below the heading, for a reader who has not read the paper
    section: str = ""  # id of the page's section; "": not on the page by itself
    place: int = 0  # order within the section
    kinds: tuple[str, ...] = ()  # kinds of GPU that can have it; (): all
    workload: str = ""  # step: only of a captured step, model: only of anything else; "": of both
    procedure: str = ""  # that what it shows was chosen by: of PROCEDURES
    of_choice: bool = False  # only where there are clocks to choose: not where auto alone was measured
    when: Callable[[Any], bool] | None = None  # plan -> whether a study on such a GPU makes it
    reads: Sequence[str] = ()  # names that the plan's `path` knows
    inputs: Callable[[Any], list[str]] | None = None  # plan -> further paths that it is made from
    options: Callable[[Any], dict] | None = None  # plan -> arguments of `make`, as they go through JSON
    subject: Callable[[Any], str] | None = None  # study -> whose numbers, where they are not the study's own

    @property
    def captioned(self) -> str:
        """The caption, with the procedure that a reader could take for the other one."""
        return self.caption + PROCEDURES[self.procedure]

    @property
    def in_words(self) -> str:
        """Title and text in one, for Snakemake's own report; the caption where there is neither."""
        return f"{self.title}. {self.text}" if self.title and self.text else self.text or self.captioned

    @property
    def digest(self) -> str:
        """Of the function and its declaration, not of what it calls: with it, one that is edited is made again. The
        caption counts by its words, since a constant of the module may stand in it."""
        return hashlib.sha256(f"{inspect.getsource(self.make)}{self.captioned}".encode()).hexdigest()[:12]

    @property
    def files(self) -> list[str]:
        """Paths in the study's folder, one a format."""
        return [f"{self.kind}s/{self.name}.{form}" for form in FORMATS[self.kind]]

    def fits(self, kind: str, is_step: bool = False, is_chosen: bool = True) -> bool:
        """Return whether a study on a kind of GPU, of a captured step or not, with clocks to choose or at auto alone,
        can have it: what a folder tells without its configuration."""
        is_of_workload = self.workload in ("", "step" if is_step else "model")
        return (not self.kinds or kind in self.kinds) and is_of_workload and (is_chosen or not self.of_choice)

    def made_by(self, plan: Any) -> bool:
        """Return whether a study makes it."""
        study = (getattr(plan, "kind", ""), getattr(plan, "is_step", False), getattr(plan, "is_chosen", True))
        return self.fits(*study) and (self.when is None or self.when(plan))

    def made_from(self, plan: Any) -> list[str]:
        """Return paths that it is made from, besides the study's main file."""
        return [plan.path(name) for name in self.reads] + (self.inputs(plan) if self.inputs else [])


class Outputs(dict[tuple[str, str], Output]):
    """{(kind, name): Output} of a study; a table and a figure may share a name."""

    def table(self, caption: str, **about: Any) -> Callable[[Make], Make]:
        """Collects the function below as a table. about: fields of Output."""
        return self._collector("table", caption, about)

    def figure(self, caption: str, **about: Any) -> Callable[[Make], Make]:
        """Likewise, as a figure."""
        return self._collector("figure", caption, about)

    def _collector(self, kind: str, caption: str, about: dict[str, Any]) -> Callable[[Make], Make]:
        def collect(make: Make) -> Make:
            self[kind, make.__name__] = Output(kind, make.__name__, make, caption, **about)
            return make

        return collect

    def left_out_by(self, plan: Any) -> list[Output]:
        """Return those that a study does not make."""
        return [self[key] for key in sorted(self) if not self[key].made_by(plan)]

    def of(self, kind: str, plan: Any = None) -> dict[str, Output]:
        """Return {name: Output} of a kind, in the order of their names; with a plan, only those that it makes."""
        named = {name: self[output_kind, name] for output_kind, name in sorted(self) if output_kind == kind}
        return {name: output for name, output in named.items() if plan is None or output.made_by(plan)}

    def made_by(self, plan: Any) -> list[Output]:
        """Return those that a study makes."""
        return [self[key] for key in sorted(self) if self[key].made_by(plan)]


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """A table or figure that a study asks for: what a rule is told."""

    output: Output
    plan: Any

    @property
    def folder(self) -> str:
        """Of the study that it belongs to."""
        folder: str = self.plan.folder_of(self.output)
        return folder

    @property
    def files(self) -> list[str]:
        """Paths, one a format."""
        return [f"{self.folder}/{file}" for file in self.output.files]

    @property
    def inputs(self) -> list[str]:
        """Paths that it is made from, besides the study's main file."""
        inputs: list[str] = self.plan.inputs_of(self.output)
        return inputs

    @property
    def options(self) -> str:
        """Arguments of its function, as JSON."""
        return json.dumps(self.output.options(self.plan) if self.output.options else {})


def asked_by(outputs: Outputs, plan: Any) -> dict[str, PlannedOutput]:
    """Return {path without its ending: what is asked for} of all that a plan makes."""
    planned = [PlannedOutput(output, plan) for output in outputs.made_by(plan)]
    return {f"{wanted.folder}/{wanted.output.kind}s/{wanted.output.name}": wanted for wanted in planned}
