"""What a configuration asks for: a study, with every name of a folder, target or file that follows from it.

Pure: it reads what other studies have left in the results folder, and writes nothing. study.py makes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_dvfs import layout
from kernel_dvfs.measurement import campaign, latency_file, setup
from kernel_dvfs.plan.step import StepSource
from kernel_dvfs.profile import records
from kernel_dvfs.search import study_file
from kernel_dvfs_clocks.clocks import Clock, Pair, clocks_argument
from kernel_dvfs_clocks.errors import InputError

if TYPE_CHECKING:
    from kernel_dvfs.outputs import Output


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a run writes from what the planner knows: a setup, or the facts of a real GPU."""

    path: str
    text: str

    @property
    def digest(self) -> str:
        """The name of a setup's file without its ending."""
        return Path(self.path).stem

    def write(self) -> str:
        """Write it, whole or not at all, unless an identical file is there; returns the path."""
        return setup.write(self.path, self.text)


@dataclass(frozen=True, slots=True)
class WorkloadVariant:
    """The same workload at another batch, degree or tensor-core energy."""

    setup: PlannedFile
    study: str  # batch, tp or tensor-energy
    value: float  # the batch, the degree, or pJ per FLOP
    kernels: list[str]  # their ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(layout.Folder):
    """What a configuration asks for. Everything that rules, tables, figures and pages decide by is asked of it."""

    kind: str  # simulated, nvml or table
    gpu: str  # name of the GPU's results folder
    workload: str  # name of the workload's folder below it; `folder` is both joined
    options: dict  # the checked configuration
    schedules: list[str]  # names of those that Table 2 compares
    title: str  # of the GPU, for people: `simulated RTX 3080 Ti`
    uuid: str = ""  # of a real GPU
    table: str | None = None  # path of a measured table
    setup: PlannedFile | None = None  # None for a table
    facts: PlannedFile | None = None  # what a study must know of a real GPU where there is no driver
    kernels: tuple[str, ...] = ()  # ids
    passes: tuple[str, ...] = ()  # names
    chosen_passes: bool = False  # of a captured step: its sections together are the step
    pairs: tuple[Pair, ...] = ()  # of the grid, the baseline first
    visitable: tuple[Pair, ...] = ()  # that a study by clock may ask for, the baseline first
    omitted: tuple = ()  # (pair, reason)
    points: tuple = ()  # (pair, repeat) of a target, in the order that a real GPU measures them
    variants: dict[str, WorkloadVariant] = field(default_factory=dict)
    batches: tuple[int, ...] = ()  # where the strict schedule, as published, is carried to
    degrees: tuple[int, ...] = ()
    tensor_energy_pj: float | None = None  # the spec's own energy of a tensor-core FLOP
    switching: dict | None = None  # what a change of clocks takes, by the spec of a simulated GPU
    tensor_energies_pj: tuple[float, ...] = ()  # those that the headline is repeated for
    locked: tuple[str, ...] = ()  # kernels compared at auto and locked at the highest clocks, on a real GPU
    contracts: dict[str, str] = field(default_factory=dict)  # {what is locked: the highest clocks, CORE,MEM}
    step: StepSource | None = None  # the captured step that is studied; None: a model, or a table
    step_record: str = ""  # path of its record

    @property
    def is_simulated(self) -> bool:
        return self.kind == "simulated"

    @property
    def is_real(self) -> bool:
        return self.kind == "nvml"

    @property
    def is_measured(self) -> bool:
        """It is measured here, not read from a table."""
        return self.kind != "table"

    @property
    def is_step(self) -> bool:
        """The workload is a captured step, not a model."""
        return self.step is not None

    @property
    def is_captured_here(self) -> bool:
        """A job of this study captures the step, so its targets are known only once that has run."""
        return self.step is not None and not self.step.is_recorded

    @property
    def is_forecast(self) -> bool:
        """A simulated GPU stands for one on which the step was captured: no number is a measurement."""
        return self.is_step and self.is_simulated

    @property
    def clocks(self) -> str:
        """Who sets the clocks: lock (we do), external or auto-only."""
        return self.options["clocks"] if self.is_real else "lock"

    @property
    def is_compared(self) -> bool:
        """Comparisons, which switch clocks within a job, are ours to make."""
        return self.is_measured and self.clocks == "lock"

    @property
    def is_chosen(self) -> bool:
        """There are clocks to choose."""
        return self.clocks != "auto-only"

    @property
    def is_by_clock(self) -> bool:
        """Clocks that are relied on are chosen by clock: by one job, which sets many clocks."""
        return self.is_compared and self.is_chosen and self.options["by_clock"]["minutes"] > 0

    def repeats_at(self, core: Clock, mem: Clock) -> int:
        """Return how often the sweep measures a target at a clock pair."""
        return campaign.repeats(Pair(core, mem), self.options["auto_repeats"])

    @property
    def is_deployable(self) -> bool:
        """Clocks are also chosen launch by launch, which takes every kernel at every pair and the order of launches."""
        return self.is_measured and self.is_chosen

    @property
    def is_played(self) -> bool:
        """What can be deployed is walked and measured again, on a GPU that plays iterations: a simulated one, whose
        clocks were chosen by clock."""
        return self.is_simulated and self.is_by_clock

    @property
    def repeats(self) -> int:
        """Repeats of each validation."""
        return self.options["validation_repeats"]

    @property
    def reoptimised(self) -> bool:
        """The clocks are also chosen again at other batches and degrees: on simulated GPUs, each swept in one job."""
        return self.is_simulated and self.options["reoptimise"]

    @property
    def is_of_rows(self) -> bool:
        """Its kernels are rows of a model, which the native layer has."""
        return self.is_measured and not self.is_step

    @property
    def has_passes(self) -> bool:
        """Clocks can be chosen for its passes: not where a section of a captured step cannot be repeated."""
        if self.is_step:
            return self.chosen_passes or self.setup is None
        return bool(self.passes)

    def locking(self) -> list[str]:
        """Return the comparisons of auto with the highest clocks, locked in each way."""
        return [
            f"{self.folder}/{path}"
            for way in self.contracts
            for name in self.locked
            for path in layout.locking(way, name, self.sessions)
        ]

    @property
    def sessions(self) -> int:
        """Measuring processes that repeats are spread over. Where Slurm sets the clocks, each pair's job has its own
        anyway."""
        by_pair = self.clocks == "external" and self.options["slurm_gpu"] is not None
        return self.options["sessions"] if self.is_real and not by_pair else 1

    def session_of(self, rank: int) -> str:
        """Return the session of the rank-th of `points`, for `kernel-dvfs measure --session`; "" where there is only
        one."""
        return f"sweep-{rank * self.sessions // len(self.points)}" if self.sessions > 1 else ""

    @property
    def pass_schedules(self) -> list[str]:
        return [layout.PASS_STRICT] if self.is_chosen and self.has_passes else []

    @property
    def limits_percent(self) -> list[float]:
        """The tolerated slowdowns that clocks are chosen for, ascending; the strict one is always the first."""
        return sorted({0, *self.options["limits_percent"]})

    @property
    def headline(self) -> list[str]:
        """The schedules of the headline, which are validated: strict per kernel and per pass, relaxed per kernel."""
        if not (self.is_compared and self.is_chosen):
            return []
        return [layout.STRICT, *self.pass_schedules, *map(relaxed, self.limits_percent[1:])]

    # --- paths -------------------------------------------------------------------------------------------------------

    def iteration_files(self) -> list[str]:
        """Return the iteration schedules, one for each median of what a change of the core clock takes."""
        names = map(layout.iteration_name, self.medians_s())
        return [self.schedule(name) for name in names] if self.is_deployable else []

    def latency_files(self) -> list[str]:
        """Return the file of `kernel-dvfs latency` that says what a change costs, if one is named."""
        path = self.options["clock_changes"]["measured"]
        return [] if path is None else [path]

    def _latency(self) -> latency_file.Latency | None:
        """Return what that file says. Raises InputError for one that is none."""
        for path in self.latency_files():
            return latency_file.read(path)
        return None

    def medians_s(self) -> list[float]:
        """Return what a change of the core clock takes, medians: those asked for, or the board's own. Raises InputError
        for a file that is none."""
        latency = self._latency()
        asked: list[float] | None = None if latency else self.options["clock_changes"]["latency_s"]
        return asked or [latency_file.latencies(latency, self.switching)[0][0].median_s]

    def deployable_options(self) -> list[str]:
        """Return the options of `kernel-dvfs study deployable` that say what changes take and cost.

        Stalls that the file does not tell (no change of the memory clock was measured) are the configured ones.
        """
        configured, latency = self.options["clock_changes"], self._latency()
        words = (
            ["--latencies", *map(str, configured["latency_s"])] if configured["latency_s"] and latency is None else []
        )
        words += [f"--measured={path}" for path in self.latency_files()]
        if self.is_played:
            words += [f"--over={self.options['by_clock']['over_percent']}", f"--repeats={self.repeats}"]
        for domain in ("core", "mem"):
            if latency is None or latency.stall_s(domain) is None:
                words.append(f"--{domain}-stall={configured[f'{domain}_stall_s']}")
        return words if configured["stall_w"] is None else [*words, f"--stall-w={configured['stall_w']}"]

    def schedule_files(self) -> list[str]:
        """Return every schedule that is relied on: global for each limit, one pair for all, and what EDP would take."""
        if not self.is_chosen:
            return []
        levels = ["kernel", "pass"] if self.has_passes else ["kernel"]
        limits = [relaxed(limit, level) for level in levels for limit in self.limits_percent]
        return [self.schedule(name) for name in sorted([*limits, layout.SINGLE, layout.EDP])]

    def published_files(self) -> list[str]:
        """Return every schedule that is chosen as published: those that Table 2 compares."""
        if not self.is_chosen:
            return []
        # the strict ones are validated and repeated whatever the weights of those that Table 2 compares
        always = [layout.STRICT, *self.pass_schedules, *([layout.PASS_LOCAL] if self.pass_schedules else [])]
        return [self.schedule(layout.published(name)) for name in sorted({*always, *self.schedules})]

    def ties(self, procedure: str = "") -> str:
        """Return whether copies of a launch share data and clocks, as `choose` takes it. procedure: not "", as
        published.

        As configured, but as published not: of the eight groups of copies in the paper's Table 1 three have different
        marks (rows 10 and 14, 21 and 30, 44 and its two), so each launch chose by itself.
        """
        return "untied" if procedure else self.options["ties"]

    def validation(self, names: Iterable[str]) -> list[str]:
        """Return the records of the repeats that validate schedules."""
        return [f"{self.folder}/{path}" for name in names for path in layout.fresh_repeats(name, self.repeats)]

    def variants_of(self, kind: str) -> list[str]:
        """Return names of the variants of a kind: batch, tp or tensor-energy."""
        return [name for name, variant in self.variants.items() if variant.study == kind]

    def carried(self, kind: str) -> list[str]:
        """Return the comparisons of every kernel at every other batch or degree."""
        return [
            f"{self.folder}/{path}"
            for name in self.variants_of(kind)
            for kernel in self.variants[name].kernels
            for path in layout.carried(name, kernel, self.repeats, self.sessions)
        ]

    def chosen_again(self, kind: str) -> list[str]:
        """Return profile, schedules and validation of the variants of a kind, where clocks are chosen there again."""
        if not self.is_simulated or (kind != "tensor-energy" and not self.reoptimised):
            return []
        files = ["profile.parquet", "schedule.json", "fresh.json"]
        files += ["schedule-pass.json"] if kind == "tensor-energy" and self.has_passes else []
        return [f"{self.folder}/variants/{name}/{file}" for name in self.variants_of(kind) for file in files]

    def setup_digests(self, kind: str) -> dict:
        """Return {value: digest of the setup} of the variants of a kind."""
        return {self.variants[name].value: self.variants[name].setup.digest for name in self.variants_of(kind)}

    def setups(self) -> list[PlannedFile]:
        """Return every setup that jobs of this study read."""
        as_configured = [self.setup] if self.setup else []
        return as_configured + [variant.setup for variant in self.variants.values()]

    def elsewhere(self, workload: str, schedule: str, again: str) -> list[str]:
        """Return what other GPUs' folders hold of a workload (`*`: of any) and a schedule: the report shows them beside
        this study. again: the table that says what measuring it again gave."""
        paths = []
        for folder in sorted(Path(self.folder).parents[1].glob(f"*/{workload}")):
            other = layout.Folder(str(folder))
            beside = (other.profile, other.published_profile, other.schedule(schedule), f"{folder}/tables/{again}.json")
            if folder != Path(self.folder) and Path(other.schedule(schedule)).is_file():
                paths += [path for path in beside if Path(path).is_file()]
        return paths

    def inputs_of(self, output: Output) -> list[str]:
        """Return what a table or figure is made from, besides the profile."""
        return output.made_from(self)

    def folder_of(self, output: Output) -> str:
        """Return where it belongs."""
        return self.folder

    def by_clock_token(self) -> str:
        """Return what the study by clock is asked with: another token where a visit is gone or has changed since, or
        its own file has.

        Visits are no inputs of a rule, since nobody knows them before the study. A parameter of its rule is another
        one, so Snakemake runs it again; and the file keeps the token, so that it is asked for with the same one from
        then on.
        """
        try:
            study = self._by_clock()
        except (OSError, InputError):
            damaged = Path(self.by_clock_file)
            return hashlib.sha256(damaged.read_bytes()).hexdigest()[:12] if damaged.is_file() else ""
        gone = records.changed(f"{self.folder}/measurements", study.records)
        return _again(study, gone) if gone else study.token

    def walk_file(self, procedure: str, scope: str, objective: str, weights: str) -> list[str]:
        """Return what a schedule is chosen from besides the profile: the global ones that are relied on have walked."""
        is_walked = self.is_by_clock and (procedure, scope, objective, weights) == ("", "global", "waste", "")
        return [self.by_clock_file] if is_walked else []

    def walked(self, procedure: str, level: str, scope: str, objective: str, slack: str, weights: str) -> str:
        """Return a digest of what a walk has shown for a schedule, named by these parts of its path; "" where none has.

        It follows from that alone; the walk's file also tells what was measured, so each study writes another one.
        """
        if not self.walk_file(procedure, scope, objective, weights):
            return ""
        try:
            walks = self._by_clock().walks
        except (OSError, InputError):
            return ""
        walk = walks.get(study_file.name_of(level, float(slack.removeprefix("-slack"))))
        return hashlib.sha256(json.dumps(walk).encode()).hexdigest()[:12]

    def _by_clock(self) -> study_file.ByClock:
        """Return the last study by clock. Raises OSError or InputError where none can be read."""
        return _read_by_clock(self.by_clock_file, Path(self.by_clock_file).stat().st_mtime_ns)

    def by_clock_options(self) -> dict:
        """Return what the study by clock is told, beside the setup and the records."""
        options = self.options
        return options["by_clock"] | {
            "pairs": clocks_argument(self.visitable),
            "limits_percent": self.limits_percent,
            "ties": options["ties"],
            "seed": options["seed"],
        }


@lru_cache(maxsize=1)
def _read_by_clock(path: str, version: int) -> study_file.ByClock:
    """Return a study by clock, read once: Snakemake asks for it and for each schedule, several times a plan."""
    return study_file.read(path)


def _again(study: study_file.ByClock, gone: list[str]) -> str:
    return hashlib.sha256(f"{study.token} {sorted(study.records.items())} {gone}".encode()).hexdigest()[:12]


def relaxed(slack_percent: float, level: str = "kernel") -> str:
    """Return the name of the relaxed global schedule, counterpart of layout.STRICT; level: kernel or pass."""
    return f"{level}-global-waste-slack{decimals(slack_percent)}"


def decimals(percent: float) -> str:
    """Return a percentage as names have it: at most six decimals, none that says nothing."""
    return f"{percent:.6f}".rstrip("0").rstrip(".")
