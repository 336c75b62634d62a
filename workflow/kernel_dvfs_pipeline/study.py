"""One pipeline study on disk: what is asked (study.json), its stages (stages.csv), and what was solved, as records.

steps.py writes the records, `mb<M>/<name>.csv` for M microbatches, in full precision and under seal; tables and figures
read them here and solve nothing. Importing this module costs nothing heavy, since planning a workflow does it, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

from kernel_dvfs.change import change_percent
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import change_of, sealed_csv, unsealed, write_text
from kernel_dvfs_clocks.shape import FILLED, AtLeastOne, Count, Is, NotNegative, Positive, Text, fault, read
from kernel_dvfs_clocks.shape import fields as fields_of

if TYPE_CHECKING:
    from os import PathLike

    from _typeshed import DataclassInstance

    from kernel_dvfs_pipeline.stage_profile import StageProfile

SCHEMA = "kernel-dvfs/pipeline-study/1"
PLAN_SCHEMA = "kernel-dvfs/pipeline-plan/1"


class PipelineOptions(TypedDict):
    """What a study is told besides its name."""

    stages: AtLeastOne
    schedule: Text  # of schedules.NAMES, or the path of a graph, .json
    chunks: AtLeastOne
    early_recompute: bool
    transfer_s: NotNegative
    transfer_w: NotNegative  # what a transfer draws on top, for each GPU of a stage
    constant: list[Text]  # instructions that every stage runs besides
    microbatches: Annotated[list[AtLeastOne], FILLED]
    total_microbatches: AtLeastOne
    tensor_parallel: AtLeastOne
    blocking_w: NotNegative
    straggler: Annotated[list[Annotated[float, Is("a number >= 1", lambda value: value >= 1)]], FILLED]
    unit_time_s: Positive
    kernels: AtLeastOne
    switch_latency_s: Annotated[list[NotNegative], FILLED]


class NamedPipelineOptions(PipelineOptions):
    """What a study is told."""

    name: Text


class _PipelineStudyFile(NamedPipelineOptions):
    schema: str
    subject: str
    source: str


KEYS = tuple(fields_of(PipelineOptions))


class PlannedPart(TypedDict):
    """Clocks of an operation or of a share of its kernels: a pair (null: auto), or the name of a setting."""

    share_of_kernels: NotNegative
    kernel_setting: NotRequired[str]
    core_mhz: NotRequired[NotNegative | None]
    mem_mhz: NotRequired[NotNegative | None]


class PlannedInstruction(TypedDict):
    """An operation of a stage."""

    instruction: str
    virtual_stage: int
    microbatch: int
    begin_s: NotNegative
    end_s: NotNegative
    clocks: list[PlannedPart]


class PlannedStage(TypedDict):
    """What a stage runs, in order."""

    stage: Count
    instructions: list[PlannedInstruction]


class PlanDocument(TypedDict):
    """What is relied on of a plan's file; planner.Plan writes more."""

    schema: str
    time_s: NotNegative
    ranks: list[PlannedStage]


def check_options(where: str, options: Any) -> None:
    """Raise InputError, naming `where` they come from, for options of a study that are missing or impossible."""
    if wrong := fault(options, NamedPipelineOptions):
        raise InputError(f"{where}: {wrong}; give what study.json says")


# methods of a study, as its records name them
ALL_MAX, UNIFORM, PER_STAGE = "all-max", "uniform clock", "per-stage clock"
PUBLISHED, REALISED = "published, as promised", "published, as run"
# the same algorithm at its best: with the artifact's filter or Zeus's later one, on effective energy, the plan of least
# energy until T' of all that are in time as run
BEST_PUBLISHED = "published, best in time"
ONE_CLOCK, SPLIT, BOUND = "one clock", "split", "bound"
# levels of choice that tables and figures ask for by name
ONE_CLOCK_EACH, KERNELS_IN_PIPELINE = "operations, one clock", "kernels in the pipeline"
_SLOW_LEVEL = f"{KERNELS_IN_PIPELINE}, changes take "


def slow_level(latency_s: float) -> str:
    """Return the name of the level at which each change of clocks within an operation takes so long."""
    return f"{_SLOW_LEVEL}{1e3 * latency_s:g} ms"


def latency_of_level(level: str) -> float:
    """Return the milliseconds that a change takes at a level of kernels in the pipeline; nan for a bound."""
    if level == KERNELS_IN_PIPELINE:
        return 0.0
    return float(level.removeprefix(_SLOW_LEVEL).removesuffix(" ms")) if level.startswith(_SLOW_LEVEL) else math.nan


KINDS = (ONE_CLOCK, SPLIT)  # of plans that are rounded from the frontier
# T'/T of the cluster whose bloat is broken down (Figure 7)
BLOAT_RATIO = 1.2
# plans are marked on the frontier up to this time, relative to all-max
MARKED_RATIO = 1.35


@dataclass(frozen=True, slots=True)
class Method:
    """What one method makes of an iteration that lasts T' (methods.csv)."""

    straggler_ratio: float  # T' over the time of all-max
    method: str
    time_s: float  # until its work is done, at measured durations
    effective_energy_j: float
    energy_j: float  # until T', waiting included
    base_time_s: float  # of all-max; for "as promised" by floored durations, as the artifact counts
    base_energy_j: float  # of all-max until T'

    @property
    def energy_change_percent(self) -> float:
        """Against all-max in the same time."""
        return change_percent(self.energy_j, self.base_energy_j)

    @property
    def time_change_percent(self) -> float:
        """Against all-max."""
        return change_percent(self.time_s, self.base_time_s)


@dataclass(frozen=True, slots=True)
class RunnablePlan:
    """A plan that can be run: a point of the plane of time and energy (runs.csv)."""

    method: str
    time_s: float
    energy_j: float  # as long as the plan takes


@dataclass(frozen=True, slots=True)
class SlowChange:
    """The best plan for the time of all-max where each change of clocks takes time (switching.csv)."""

    asked: str  # kind of plan
    latency_s: float  # of a change
    best_plan: str  # kind that was found cheapest
    energy_j: float  # until the time of all-max
    base_energy_j: float  # of all-max
    switches: int  # changes in one iteration
    late_s: float  # beyond the time of all-max; 0: kept

    @property
    def energy_change_percent(self) -> float:
        """Against all-max."""
        return change_percent(self.energy_j, self.base_energy_j)


@dataclass(frozen=True, slots=True)
class Check:
    """What holds of the frontier and the plans (certificate.csv)."""

    operations: int
    records: int  # corners of the frontier
    points: int  # times that were checked
    lp_difference: float  # largest relative difference of effective energy from HiGHS
    latest_s: float  # largest realised minus promised time of all plans; <= 0: kept
    ordered: bool  # bound <= split <= one clock, everywhere
    gap_one_clock_percent: float  # largest distance from the bound, percent of energy
    gap_split_percent: float
    published_latest_percent: float | None  # the published plans as run, percent of the promise; None: no plans


@dataclass(frozen=True, slots=True)
class LevelEnergy:
    """What a level of choice takes in an iteration that lasts T' (levels.csv)."""

    straggler_ratio: float  # T' over the time of all-max
    level: str
    energy_j: float  # until T'
    base_energy_j: float  # of all-max until T'

    @property
    def energy_change_percent(self) -> float:
        """Against all-max in the same time."""
        return change_percent(self.energy_j, self.base_energy_j)


@dataclass(frozen=True, slots=True)
class Corner:
    """A corner of the exact frontier, slowest first; between two it is straight (frontier.csv)."""

    time_s: float
    energy_j: float
    effective_energy_j: float
    price_w: float  # effective energy that a second less costs, between this corner and the one before; 0 in the first


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """A point of the published algorithm's frontier, as promised (published.csv)."""

    filter_on: str  # raw or effective: what options are filtered by
    time_s: float
    energy_j: float


Record = TypeVar("Record", bound="DataclassInstance")
# the file of each kind of record
FILES: dict[type, str] = {
    Method: "methods.csv",
    RunnablePlan: "runs.csv",
    SlowChange: "switching.csv",
    Check: "certificate.csv",
    LevelEnergy: "levels.csv",
    Corner: "frontier.csv",
    PublishedPoint: "published.csv",
}
_READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: text == "True",
    "float | None": lambda text: float(text) if text else None,
}


def write_records(
    path: Path | str, kind: type[Record], records: Iterable[Record], made_of: Mapping[str, str | PathLike[str]]
) -> None:
    """Write a CSV with a column a field, under seal (files.sealed_csv), whole or not at all; floats in full
    precision. made_of: files that the records follow from."""
    columns = [field.name for field in fields(kind)]
    rows = [[_cell(getattr(record, column)) for column in columns] for record in records]
    write_text(path, sealed_csv([columns, *rows], made_of))


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else repr(value)


def read_records(
    path: Path | str,
    kind: type[Record],
    inputs: Mapping[str, str | PathLike[str]],
    command: str = "pipeline solve",
) -> list[Record]:
    """Return the records of a CSV that write_records wrote, by `command`, of these inputs. Raises InputError naming the
    file, also where it is not as it was written, or was made of others."""
    try:
        columns, *cells = unsealed(Path(path).read_bytes().decode(), inputs)
        rows = [dict(zip(columns, values, strict=True)) for values in cells]
        return [kind(**{field.name: _READ[str(field.type)](row[field.name]) for field in fields(kind)}) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: {_reason(error)}; write it with kernel-dvfs {command}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"no column {error}" if isinstance(error, KeyError) else str(error)


def read_plan(path: Path | str, inputs: Mapping[str, str | PathLike[str]] | None = None) -> PlanDocument:
    """Return the document of a plan. inputs: files that it must have been made of, by name. Raises InputError."""
    remedy = "write it again with kernel-dvfs pipeline plan"
    document = read(path, PlanDocument, PLAN_SCHEMA, remedy, "plan", is_sealed=True, inputs=inputs)
    for place, rank in enumerate(document["ranks"]):
        if rank["stage"] >= len(document["ranks"]):
            raise InputError(f"plan {path}: ranks[{place}].stage is {rank['stage']}, which is no stage of it; {remedy}")
        for part in (part for instruction in rank["instructions"] for part in instruction["clocks"]):
            if "kernel_setting" not in part and not part.keys() >= {"core_mhz", "mem_mhz"}:
                raise InputError(f"plan {path}: ranks[{place}] has clocks without a pair or a setting; {remedy}")
    return document


class PipelineStudy:
    """A study's folder. Raises InputError naming the file that is missing or bad."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / "study.json"
        remedy = "make it with kernel-dvfs pipeline profile"
        inputs = {"stages": self.folder / "stages.csv"}
        self.options: Mapping[str, Any] = read(path, _PipelineStudyFile, SCHEMA, remedy, is_sealed=True, inputs=inputs)
        # what all that is solved is made of
        self.made_of = inputs | {"study": path}

    def __getitem__(self, key: str) -> Any:
        return self.options[key]

    def check_source(self) -> None:
        """Raise InputError where the stages were made of another file than stands in its place now."""
        if what := change_of(self.options, {"source": self["source"]}):
            remedy = "make the study again with kernel-dvfs pipeline profile"
            raise InputError(f"{self.folder / 'study.json'}: {what}; {remedy}")

    @property
    def subject(self) -> str:
        """Return whose numbers these are: "simulated A100 SXM", or the table's name; always an emulated pipeline."""
        return f"{self['subject']}, emulated pipeline"

    @property
    def stage_blocking_w(self) -> float:
        """Return what a stage with all its ranks draws while it waits, W."""
        return self["blocking_w"] * self["tensor_parallel"]

    @property
    def blocking_w(self) -> float:
        """Return what the whole pipeline draws while every stage waits, W."""
        return self["stages"] * self.stage_blocking_w

    def pipelines(self, microbatches: int) -> int:
        """Return the number of data-parallel pipelines that share a global batch of `total_microbatches`."""
        return max(1, self["total_microbatches"] // microbatches)

    def gpus(self, microbatches: int) -> int:
        """Return the number of GPUs of all those pipelines."""
        return self.pipelines(microbatches) * self["stages"] * self["tensor_parallel"]

    @cached_property
    def profile(self) -> StageProfile:
        """The stages, one pair of clocks per operation."""
        from kernel_dvfs_pipeline.stage_profile import read_stage_profile

        return read_stage_profile(self.folder / "stages.csv", name=self["name"])

    def solved(self, microbatches: int) -> Path:
        """Return the folder of what was solved for a number of microbatches."""
        return self.folder / f"mb{microbatches}"

    def read(self, microbatches: int, kind: type[Record]) -> list[Record]:
        """Return the records of a kind. Raises InputError where they are not solved yet."""
        return read_records(self.solved(microbatches) / FILES[kind], kind, self.made_of)

    def methods(self, microbatches: int, ratio: float = 1.0) -> dict[str, Method]:
        """Return {method: what it makes of an iteration that lasts `ratio` x the time of all-max}."""
        methods = {
            method.method: method for method in self.read(microbatches, Method) if method.straggler_ratio == ratio
        }
        if not methods:
            path = self.solved(microbatches) / FILES[Method]
            raise InputError(f"{path}: no rows at T'/T = {ratio:g}; write it again with kernel-dvfs pipeline solve")
        return methods

    def plan(self, microbatches: int, name: str) -> PlanDocument:
        """Return the document of one of the study's plans, such as "one-clock"."""
        return read_plan(self.solved(microbatches) / "plans" / f"{name}.json", self.made_of)

    def write(self, microbatches: int, kind: type[Record], records: Iterable[Record]) -> None:
        """Write the file of a kind of records."""
        write_records(self.solved(microbatches) / FILES[kind], kind, records, self.made_of)
