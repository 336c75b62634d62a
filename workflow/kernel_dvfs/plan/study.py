"""From a checked configuration to what is to be made: which GPU, which workload, which points, which schedules.

The one place that turns options into names of folders, targets and files. Pure: it reads facts of GPUs and what other
studies have left in the results folder, and writes nothing. It knows neither Snakemake nor how anything is made.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from kernel_dvfs import layout, outputs
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.clocks import BASELINE, EXACT, Pair, check_after, label, sweep_pairs
from kernel_dvfs.gpu.simulated import MODEL
from kernel_dvfs.layout import subject
from kernel_dvfs.measurement import campaign, setup, target
from kernel_dvfs.plan.step import MODEL as MODEL_WORKLOAD
from kernel_dvfs.plan.step import StepSource, step_source
from kernel_dvfs.profile import records
from kernel_dvfs.report import figures as figure_modules
from kernel_dvfs.report import tables as table_modules
from kernel_dvfs.search import search_file
from kernel_dvfs.workload.models import is_model, model, tensor_parallel_degrees
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs.workload.step_workload import forecast_of_step, is_power_modelled, of_step
from kernel_dvfs.workload.traffic import dense_gemm_byte
from kernel_dvfs.workload.workload import Workload, name_of_model, of_model

if TYPE_CHECKING:
    from kernel_dvfs.measurement.latency_file import Latency

# so many kernels of a step, those that take longest, are measured within it as well, to check the sum of all
_WITHIN_STEP = 8


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
class Variant:
    """The same workload at another batch, degree or tensor-core energy."""

    setup: PlannedFile
    study: str  # batch, tp or tensor-energy
    value: float  # the batch, the degree, or pJ per FLOP
    kernels: list[str]  # their ids


@dataclass(frozen=True, slots=True)
class Study:
    """What a configuration asks for. Everything that rules, tables, figures and pages decide by is asked of it."""

    kind: str  # simulated, nvml or table
    gpu: str  # name of the GPU's results folder
    workload: str  # name of the workload's folder below it
    folder: str  # both joined
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
    omitted: tuple = ()  # (pair, reason)
    points: tuple = ()  # (pair, repeat) of a target, in the order that a real GPU measures them
    variants: dict[str, Variant] = field(default_factory=dict)
    batches: tuple[int, ...] = ()  # where the strict schedule is carried to
    degrees: tuple[int, ...] = ()
    tensor_energy_pj: float | None = None  # the spec's own energy of a tensor-core FLOP
    tensor_energies_pj: tuple[float, ...] = ()  # those that the headline is repeated for
    headline_axes: dict[str, list[float]] = field(default_factory=dict)  # of the headline's map; {}: there is none
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
    def is_refined(self) -> bool:
        """What might be chosen is measured again before it is chosen for good."""
        return self.is_measured and self.is_chosen and self.options["refine"]["rounds"] > 0

    @property
    def is_exhaustive(self) -> bool:
        """Every target is measured at every pair of the grid, whatever comes out."""
        return self.options["search"] == "exhaustive" or not self.is_chosen

    @property
    def is_deployable(self) -> bool:
        """Clocks are also chosen launch by launch, which takes every kernel at every pair and the order of launches."""
        return self.is_measured and self.is_chosen and self.is_exhaustive

    @property
    def is_searched(self) -> bool:
        """Something is asked for beyond the sweep, by a search or by refinement."""
        return self.is_refined or (self.is_measured and not self.is_exhaustive)

    @property
    def repeats(self) -> int:
        """Repeats of each validation."""
        return self.options["validation_repeats"]

    @property
    def reoptimised(self) -> bool:
        """The clocks are also chosen again at other batches and degrees: on simulated GPUs, each swept in one job."""
        return self.is_simulated and self.options["reoptimise"]

    @property
    def is_mapped(self) -> bool:
        """The headline has a map and a band over what nobody has measured."""
        return bool(self.headline_axes) and self.is_chosen

    @property
    def has_passes(self) -> bool:
        """Clocks can be chosen for its passes: not where a section of a captured step cannot be repeated."""
        if self.is_step:
            return self.chosen_passes or self.setup is None
        return bool(self.passes)

    def locking(self) -> list[str]:
        """The comparisons of auto with the highest clocks, locked in each way."""
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
        """The session of the rank-th of `points`, for `kernel-dvfs measure --session`; "" where there is only one."""
        return f"sweep-{rank * self.sessions // len(self.points)}" if self.sessions > 1 else ""

    @property
    def pass_schedules(self) -> list[str]:
        return [layout.PASS_STRICT] if self.is_chosen and self.has_passes else []

    @property
    def headline(self) -> list[str]:
        """The schedules of the headline, which are validated: strict per kernel and per pass, relaxed per kernel."""
        if not (self.is_compared and self.is_chosen):
            return []
        slack = self.options["slack_percent"]
        return [layout.STRICT, *self.pass_schedules] + ([relaxed(slack)] if slack else [])

    # --- paths -------------------------------------------------------------------------------------------------------

    @property
    def profile(self) -> str:
        return f"{self.folder}/profile.parquet"

    @property
    def measured_step(self) -> str:
        """The captured step's record with what its kernels took at auto."""
        return f"{self.folder}/step-measured.json"

    @property
    def headline_map(self) -> str:
        return f"{self.folder}/{layout.HEADLINE_MAP}"

    def schedule(self, name: str) -> str:
        return f"{self.folder}/schedules/{name}.json"

    @property
    def deployable_file(self) -> str:
        return self.schedule("deployable")

    def iteration_files(self) -> list[str]:
        """The iteration schedules, one for each known latency of a change."""
        names = map(layout.iteration_name, self.latencies_s())
        return [self.schedule(name) for name in names] if self.is_deployable else []

    def latency_files(self) -> list[str]:
        """The file of `kernel-dvfs latency` that says what a change costs, if one is named."""
        path = self.options["clock_changes"]["measured"]
        return [] if path is None else [path]

    def _latency(self) -> Latency | None:
        """What that file says. Raises InputError for one that is none."""
        for path in self.latency_files():
            from kernel_dvfs.measurement.latency_file import read

            return read(path)
        return None

    def latencies_s(self) -> list[float]:
        """What changes take for which clocks are chosen launch by launch. Raises InputError for a file that is none."""
        found = self._latency()
        return found.latencies_s if found else self.options["clock_changes"]["latency_s"]

    def deployable_options(self) -> list[str]:
        """The options of `kernel-dvfs study deployable` that say what changes take and cost."""
        latencies = [] if self.latency_files() else ["--latencies", *map(str, self.latencies_s())]
        return [*latencies, *self.cost_options()]

    def cost_options(self) -> list[str]:
        """Those of `study switching` too, whose latencies are its own. Stalls that the file does not tell (no change of
        the memory clock was measured) are the configured ones."""
        own, found = self.options["clock_changes"], self._latency()
        words = [f"--measured={path}" for path in self.latency_files()]
        for domain in ("core", "mem"):
            if found is None or found.stall_s(domain) is None:
                words.append(f"--{domain}-stall={own[f'{domain}_stall_s']}")
        return words if own["stall_w"] is None else [*words, f"--stall-w={own['stall_w']}"]

    def schedule_files(self) -> list[str]:
        """Every schedule that the study asks for."""
        if not self.is_chosen:
            return []
        # the strict ones are validated and repeated whatever the weights of those that Table 2 compares
        always = [layout.STRICT, *self.pass_schedules]
        return [self.schedule(name) for name in sorted({*always, *self.schedules})]

    def sweep(self) -> list[str]:
        """The records of the sweep: r0..r9 at the baseline, r0 at every other pair."""
        targets = [f"kernel/{name}" for name in self.kernels] + [f"pass/{name}" for name in self.passes]
        return [
            f"{self.folder}/measurements/{target}/{label(pair)}/r{repeat}.json"
            for target in targets
            for pair in (self.pairs if self.is_exhaustive else ())
            for repeat in range(campaign.repeats(pair, self.options["auto_repeats"]))
        ]

    def validation(self, names: Iterable[str]) -> list[str]:
        """The records of the repeats that validate schedules."""
        return [f"{self.folder}/{path}" for name in names for path in layout.fresh_repeats(name, self.repeats)]

    def variants_of(self, kind: str) -> list[str]:
        """Names of the variants of a kind: batch, tp or tensor-energy."""
        return [name for name, variant in self.variants.items() if variant.study == kind]

    def carried(self, kind: str) -> list[str]:
        """The comparisons of every kernel at every other batch or degree."""
        return [
            f"{self.folder}/{path}"
            for name in self.variants_of(kind)
            for kernel in self.variants[name].kernels
            for path in layout.carried(name, kernel, self.repeats, self.sessions)
        ]

    def chosen_again(self, kind: str) -> list[str]:
        """Profile, schedules and validation of the variants of a kind, where clocks are chosen there again."""
        if not self.is_simulated or (kind != "tensor-energy" and not self.reoptimised):
            return []
        files = ["profile.parquet", "schedule.json", "fresh.json"]
        files += ["schedule-pass.json"] if kind == "tensor-energy" and self.has_passes else []
        return [f"{self.folder}/variants/{name}/{file}" for name in self.variants_of(kind) for file in files]

    def setup_digests(self, kind: str) -> dict:
        """{value: digest of the setup} of the variants of a kind."""
        return {self.variants[name].value: self.variants[name].setup.digest for name in self.variants_of(kind)}

    def setups(self) -> list[PlannedFile]:
        """Every setup that jobs of this study read."""
        own = [self.setup] if self.setup else []
        return own + [variant.setup for variant in self.variants.values()]

    def elsewhere(self, workload: str) -> list[str]:
        """What other GPUs' folders hold of a workload (`*`: of any): the report shows them beside this study."""
        found = []
        for strict in sorted(Path(self.folder).parents[1].glob(f"*/{workload}/schedules/{layout.STRICT}.json")):
            folder = strict.parents[1]
            if folder != Path(self.folder):
                beside = (folder / "profile.parquet", strict, folder / "tables/validation.csv")
                found += [str(path) for path in beside if path.is_file()]
        return found

    def tables(self) -> list[str]:
        """Names of the tables that this study makes."""
        return [name for name, each in outputs.outputs(table_modules).items() if each.made_by(self)]

    def figures(self) -> list[str]:
        """Names of the figures that this study draws."""
        return [name for name, each in outputs.outputs(figure_modules).items() if each.made_by(self)]

    def table_files(self, name: str) -> list[str]:
        formats = outputs.outputs(table_modules)[name].formats
        return [f"{self.folder}/tables/{name}.{form}" for form in formats]

    def figure_files(self, name: str) -> list[str]:
        formats = outputs.outputs(figure_modules)[name].formats
        return [f"{self.folder}/figures/{name}.{form}" for form in formats]

    @property
    def search_file(self) -> str:
        return f"{self.folder}/search.json"

    def search_token(self) -> str:
        """What the search is asked with: another token where a record that it measured is gone or has changed since.

        Such records are no inputs of a rule, since nobody knows them before the search. A parameter of its rule is
        another one, so Snakemake runs it again; and the file keeps the token, so that it is asked for with the same one
        from then on.
        """
        try:
            found = search_file.read(self.search_file)
        except InputError:
            return ""
        swept = len(f"{self.folder}/measurements/")
        own = {path[swept:] for path in self.sweep()}
        beyond = {path: checksum for path, checksum in found.records.items() if path not in own}
        gone = records.changed(f"{self.folder}/measurements", beyond)
        return _again(found, gone) if gone else found.token

    def choice_options(self, scope: str, objective: str, weights: str) -> str:
        """The options of `kernel-dvfs choose` behind a schedule's name: of its objective, slack and weights."""
        name, _, slack = objective.partition("-slack")
        words = [f"--objective {name}"]
        words += [f"--slack {slack}"] if slack else []
        words += [f"--weights {weights.removeprefix('-')}"] if weights else []
        if self.is_refined and scope == "global" and name == "waste":
            words += [f"--margin-z {self.options['refine']['margin_z']}"]
        return " ".join(words)

    def search_options(self) -> dict:
        """What the search for what is measured next is told, beside the setup and the records."""
        options = self.options
        keys = ["search", "auto_repeats", "ties", "refine"] + [options["search"]] * (options["search"] in options)
        slacks = sorted({0, options["slack_percent"]})
        return {key: options[key] for key in keys} | {"slacks_percent": slacks, "pairs": clocks_argument(self.pairs)}


def _again(found: search_file.Search, gone: list[str]) -> str:
    return hashlib.sha256(f"{found.token} {sorted(found.records.items())} {gone}".encode()).hexdigest()[:12]


def stamp(path: str) -> tuple[int, int] | None:
    """What tells one version of a file from another without reading it; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def seen(*folders: str) -> list[str]:
    """Tables and figures that lie in folders, with their times: what a page shows of other studies."""
    found = [path for folder in folders for form in ("csv", "png") for path in Path(folder).rglob(f"*.{form}")]
    return sorted(f"{path} {path.stat().st_mtime_ns}" for path in found)


_PROTOCOL = ("window_s", "windows", "seed")
# beside it on a real GPU
_REAL_PROTOCOL = (
    *("clocks", "lock", "after", "share", "temperature", "band_c", "max_windows", "energy_ci_percent"),
    *("gemm_algorithm", "skip_capped"),
)
# what null stands for; at auto alone nothing is compared with the baseline, and a first look takes minutes
_USUALLY = {"auto_repeats": 10, "windows": 3}
_AT_AUTO_ALONE = {"auto_repeats": 1, "windows": 2}
_WARMUP_S = {"simulated": 25, "nvml": 2}
# the degrees of the paper's study, where the model allows them
_DEGREES = (1, 2, 4, 8, 16)
_DEFAULT_WEIGHTS = {"simulated": "counts", "nvml": "counts", "table": "raw"}


# of a configuration: kernels swept alone, at no other batch, degree or tensor-core energy
ALONE: dict[str, list | None] = {
    "data_parallel_batches": [],
    "tensor_parallel_degrees": [],
    "tensor_energy_pj": [],
    "headline_map": None,
}


def load(path: str) -> dict:
    """The configuration in a YAML file, unchecked. Raises InputError."""
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except RecursionError:
        raise InputError(f"configuration {path}: nested too deeply") from None
    except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: no UTF-8, or a date that does not exist
        raise InputError(f"configuration {path}: {error}; name one with --config") from None
    if not isinstance(content, dict):
        raise InputError(f"configuration {path}: not a mapping of keys")
    return content


def resolved(config: dict) -> dict:
    """The configuration with what null stands for in `auto_repeats` and `windows`."""
    is_real = isinstance(config["gpu"], str) and config["gpu"].partition(":")[0] == "nvml"
    meant = _AT_AUTO_ALONE if is_real and config["clocks"] == "auto-only" else _USUALLY
    return config | {key: value for key, value in meant.items() if config[key] is None}


def plan(config: dict, results: str = "results") -> Study:
    """The study that `config` (checked by config.check) describes, with folders below `results`.

    Raises InputError for what only the GPU or the model can refuse: an unknown GPU or model, a clock that the GPU
    lacks, a degree that does not divide the heads.
    """
    gpu, config = config["gpu"], resolved(config)
    latencies_s = config["clock_changes"]["latency_s"]
    if len(set(map(layout.iteration_name, latencies_s))) < len(latencies_s):
        raise InputError(
            f"config: clock_changes.latency_s = {latencies_s}: two of them differ only after the twelfth digit, which "
            "a file's name does not show; allowed: values that differ in the first twelve digits"
        )
    if isinstance(gpu, dict):
        return _table(config, results)
    if is_model(config["workload"]):  # short for these two keys
        config = config | {"workload": MODEL_WORKLOAD, "model": config["workload"]}
    try:
        if gpu.partition(":")[0] == "nvml":
            return _real(config, results)
        return _simulated(config, results)
    except InputError as error:
        raise InputError(f"config: {error}") from None


def schedule_names(granularities: list, slack_percent: float, weights: str = "") -> list:
    """The schedules that Table 2 compares: granularity x scope x objective; strict waste always, relaxed if asked for.

    weights: the end of each name, `-equal-time`, or nothing for the default. Raises InputError for a slack that a
    file's name cannot say.
    """
    slack = _decimals(slack_percent)
    if float(slack) != slack_percent:
        raise InputError(f"config: slack_percent = {slack_percent!r} is not possible; allowed: at most six decimals")
    slacks = ["0"] if slack == "0" else ["0", slack]
    objectives = [f"waste-slack{slack}" for slack in slacks] + ["edp", "energy"]
    return [
        f"{granularity}-{scope}-{objective}{weights}"
        for granularity in granularities
        for scope in ("single", "local", "global")
        for objective in objectives
    ]


def relaxed(slack_percent: float) -> str:
    """The name of the relaxed global schedule, counterpart of layout.STRICT."""
    return f"kernel-global-waste-slack{_decimals(slack_percent)}"


def _decimals(percent: float) -> str:
    return f"{percent:.6f}".rstrip("0").rstrip(".")


def clocks_argument(pairs: Iterable[Pair]) -> str:
    """The pairs of a sweep as one word for a command line: `auto-auto,210-405,...`."""
    return ",".join(label(pair) for pair in pairs)


def import_options(gpu: dict) -> str:
    """The options of a table GPU on the command line of `kernel-dvfs import`."""
    words = []
    if gpu.get("name"):
        words += ["--name", gpu["name"]]
    if gpu.get("reference") is not None:
        reference = gpu["reference"]
        words += ["--reference", ",".join(map(str, reference)) if isinstance(reference, list) else str(reference)]
    if gpu.get("settings"):
        words += ["--settings", *gpu["settings"]]
    if gpu.get("units"):
        words += ["--units", *(f"{column}={unit}" for column, unit in gpu["units"].items())]
    return shlex.join(words)


def notices(study: Study) -> list[str]:
    """What the user should know of a study before it starts."""
    if study.kind == "table" and study.options["refine"]["rounds"] > 0:
        return ["refine: a table cannot be measured again, so clocks are chosen from its rows as they are"]
    if study.clocks == "auto-only":
        return [
            f"clocks: auto-only: {study.gpu} is measured at auto: Figure 5, tables/baseline and tables/passes. "
            "Schedules, Tables 1 and 2 and the other figures need the right to lock clocks (docs/real-gpus.md)"
        ]
    if study.clocks == "external":
        return [
            f"clocks: external: each job on {study.gpu} trusts the batch system to have set its clocks, verifies and "
            "records them. Validation and carrying over switch clocks within a job, so they are left out"
        ]
    return []


def _weights(config: dict, kind: str) -> str:
    weights = config["weights"]
    return "" if weights in (None, _DEFAULT_WEIGHTS[kind]) else f"-{weights}"


def _table(config: dict, results: str) -> Study:
    from kernel_dvfs.profile.table import gpu_slug

    gpu = config["gpu"]
    if config["workload"] != MODEL_WORKLOAD:
        raise InputError("config: workload: a table of measurements already says what ran; leave workload out")
    if not Path(gpu["path"]).is_file():
        raise InputError(f"config: gpu.path = '{gpu['path']}': no such file; allowed: a CSV or Parquet table")
    slug, workload = gpu_slug(gpu["path"], gpu.get("name")), "as-measured"
    return Study(
        kind="table",
        gpu=slug,
        workload=workload,
        folder=f"{results}/{slug}/{workload}",
        options=config,
        schedules=schedule_names(["kernel"], config["slack_percent"], _weights(config, "table")),
        title=f"table {gpu.get('name') or Path(gpu['path']).stem}",
        table=gpu["path"],
    )


def _simulated(config: dict, results: str) -> Study:
    overrides = config["gpu_overrides"]
    spec = gpu_spec.resolve(config["gpu"], overrides)
    slug = f"sim-{spec['id']}"
    if overrides:
        slug += "-" + hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]
    pairs, omitted = sweep_pairs(spec["clocks"], config["grid"])
    step = step_source(config["workload"])
    if step and not step.is_recorded:
        raise InputError(
            f"workload = 'step:{step.called}': a simulated GPU runs no step; capture it where there is a GPU "
            f"(kernel-dvfs capture {step.called} -o step.json), then workload=step:step.json gives a forecast"
        )
    own_pj = spec["energy_pj"]["tensor_bf16_flop"]
    energies_pj, degrees, batches = config["tensor_energy_pj"], [], []
    if step:
        # a forecast is held to what was measured of this step; other sizes of it are other steps
        energies_pj = []
    else:
        degrees, batches = _degrees(config), config["data_parallel_batches"]
        if energies_pj is None:
            energies_pj = gpu_spec.tensor_energy_range_pj(config["gpu"])
    gpu = {"kind": "simulated", "slug": slug, "name": spec["name"], "model": MODEL}
    if step:
        gpu |= {"forecast": True}
        gpu |= {"power_modelled": True} if is_power_modelled(read_step(step.file)) else {}

    def planned(spec: dict, options: dict) -> tuple[PlannedFile, Workload]:
        if step:
            workload = forecast_of_step(read_step(step.file), step.name, spec)
        else:
            workload = of_model(
                options, spec["sm_count"], spec["threads_per_sm"], lambda rows: dense_gemm_byte(rows, spec)
            )
        folder = f"{results}/{slug}/{_workload_folder(step, config)}"
        return _setup(folder, gpu | {"spec": spec}, workload, _protocol(config, "simulated")), workload

    variants = {}
    for name, study, value, changed in _other_sizes(config, batches, degrees):
        file, workload = planned(spec, config | changed)
        variants[name] = Variant(file, study, value, list(workload.kernels))
    for value in energies_pj:
        if value != own_pj:
            energy = overrides.get("energy_pj", {}) | {"tensor_bf16_flop": value}
            file, workload = planned(gpu_spec.resolve(config["gpu"], overrides | {"energy_pj": energy}), config)
            name = f"tensor-energy-{layout.shortest(value)}"
            variants[name] = Variant(file, "tensor-energy", value, list(workload.kernels))
    file, workload = planned(spec, config)
    return Study(
        kind="simulated",
        gpu=slug,
        workload=workload.name,
        folder=f"{results}/{slug}/{workload.name}",
        options=config,
        schedules=schedule_names(_granularities(workload), config["slack_percent"], _weights(config, "simulated")),
        title=subject(gpu),
        setup=file,
        kernels=tuple(workload.kernels),
        passes=tuple(workload.passes),
        chosen_passes=workload.has_passes,
        pairs=tuple(pairs),
        omitted=tuple(omitted),
        points=tuple(campaign.ordered_points(pairs, config["auto_repeats"], config["seed"])),
        variants=variants,
        batches=tuple(batches),
        degrees=tuple(degrees),
        tensor_energy_pj=own_pj,
        tensor_energies_pj=tuple(energies_pj),
        step=step,
        step_record=step.file if step else "",
        headline_axes={} if step else _headline_axes(config, spec),
    )


def _headline_axes(config: dict, spec: dict) -> dict[str, list[float]]:
    """The values on each axis of the headline's map (layout.HEADLINE_AXES); {} where none is asked for."""
    asked = config["headline_map"]
    if asked is None:
        return {}
    name, own_mhz = config["gpu"], spec["clocks"]["auto_core_mhz"]
    between = gpu_spec.auto_core_range_mhz(name)
    known_mhz = [own_mhz] if between is None else sorted({*between, own_mhz})
    energies_pj = asked["tensor_energy_pj"] or gpu_spec.tensor_energy_range_pj(name)
    return {
        "tensor_energy_pj": _spread(energies_pj, asked["points"][0]),
        "gemm_traffic": _spread(asked["gemm_traffic"], asked["points"][1]),
        "auto_core_mhz": asked["auto_core_mhz"] or known_mhz,
    }


def _spread(ends: list[float], points: int) -> list[float]:
    """`points` evenly spaced values from one end to the other."""
    least, most = ends
    return [round(least + (most - least) * number / (points - 1), 4) for number in range(points)]


def _real(config: dict, results: str) -> Study:
    """A study of a real GPU. What needs clocks to be set is left out where they are not ours to set."""
    from kernel_dvfs.gpu.nvml.known import kept_as, known_facts
    from kernel_dvfs.gpu.setters import choice

    known = facts = known_facts(config["gpu"].partition(":")[2], results)
    slug, mode = facts["slug"], config["clocks"]
    if mode != "external":
        check_after(facts["clocks"], config["after"], "config: after")
    if config["grid"]["mem_mhz"] == []:
        # what the study does not lock need not be lockable
        facts = facts | {"clocks": facts["clocks"] | {"mem_mhz": []}}
    omitted: list[tuple[Pair, str]] = []
    both_or_none = mode == "lock" and not choice.can(config["through"]).alone
    if mode != "external":
        choice.check(config["through"], config["after"], ranges=mode == "lock" and config["lock"] != EXACT)
    if both_or_none and not facts["clocks"]["mem_mhz"]:
        raise InputError(
            f"config: through: {config['through']} locks both clocks or none, so grid.mem_mhz must not be empty"
        )
    if mode == "auto-only":
        pairs = [BASELINE]
    elif not facts["clocks"]["core_mhz"]["listed"]:
        raise InputError("the driver lists no clocks for this GPU; measure it with clocks: auto-only")
    else:
        pairs, omitted = sweep_pairs(facts["clocks"], config["grid"])
        if not facts["clocks"]["mem_mhz"]:
            omitted.append((Pair("auto", "all"), "memory clocks are not locked: only the core clock is swept"))
    if both_or_none:
        halves = [pair for pair in pairs if pair != BASELINE and "auto" in pair]
        omitted += [(pair, f"{config['through']} locks both clocks or none") for pair in halves]
        pairs = [pair for pair in pairs if pair not in halves]
    step = step_source(config["workload"])
    if step and config["slurm_gpu"]:
        raise InputError(
            "workload: a captured step is measured on the machine that Snakemake runs on; start it in a job of its "
            "own, without slurm_gpu"
        )
    name = _workload_folder(step, config)
    folder = f"{results}/{slug}/{name}"
    # comparisons switch clocks within a job: nobody but us can; other sizes of a captured step are other steps
    is_carried = mode == "lock" and not step
    degrees = _degrees(config) if is_carried else []
    batches = config["data_parallel_batches"] if is_carried else []
    record = "" if step is None else step.file if step.is_recorded else f"{folder}/step.json"

    def planned(options: dict) -> tuple[PlannedFile, Workload]:
        if step:
            # at auto only: at other clocks a step is no longer the one that it is checked against
            within = _WITHIN_STEP if mode == "auto-only" else 0
            workload = of_step(read_step(record), step.name, record, within)
        else:
            workload = of_model(options, facts["sm_count"], facts["threads_per_sm"])
        return _setup(folder, {"kind": "nvml"} | facts, workload, _protocol(config, "nvml")), workload

    variants = {}
    for variant, kind, value, changed in _other_sizes(config, batches, degrees):
        file, workload = planned(config | changed)
        variants[variant] = Variant(file, kind, value, list(workload.kernels))
    study = Study(
        kind="nvml",
        gpu=slug,
        workload=name,
        folder=folder,
        options=config,
        schedules=[],
        title=facts["name"],
        uuid=facts["uuid"],
        facts=PlannedFile(*kept_as(known, results)),
        pairs=tuple(pairs),
        omitted=tuple(omitted),
        points=tuple(campaign.ordered_points(pairs, config["auto_repeats"], config["seed"])),
        variants=variants,
        batches=tuple(batches),
        degrees=tuple(degrees),
        contracts=campaign.lock_contracts(facts["clocks"]) if mode == "lock" else {},
        step=step,
        step_record=record,
    )
    if record and not Path(record).is_file():
        return study  # not captured yet: which targets there are is not known
    file, workload = planned(config)
    granularities = [] if mode == "auto-only" else _granularities(workload)
    return replace(
        study,
        schedules=schedule_names(granularities, config["slack_percent"], _weights(config, "nvml")),
        setup=file,
        kernels=tuple(workload.kernels),
        passes=tuple(workload.passes),
        chosen_passes=workload.has_passes,
        locked=tuple(target.representatives(workload.kernels)) if mode == "lock" else (),
    )


def _granularities(workload: Workload) -> list[str]:
    """What clocks are chosen for."""
    return ["pass", "kernel"] if workload.has_passes else ["kernel"]


def _workload_folder(step: StepSource | None, config: dict) -> str:
    return step.name if step else name_of_model(config)


def _setup(folder: str, gpu: dict, workload: Workload, protocol: dict) -> PlannedFile:
    digest, text = setup.content(gpu, workload.about, workload.targets, protocol)
    return PlannedFile(f"{folder}/setup/{digest}.json", text)


def _other_sizes(config: dict, batches: list, degrees: list) -> Iterator:
    """The same workload at other batches and degrees: (name, study, value, changed options)."""
    for study, key, values in (
        ("batch", "batch", batches),
        ("tp", "tensor_parallel", degrees),
    ):
        for value in values:
            if value != config[key]:
                yield f"{study}-{value}", study, value, {key: value}


def _protocol(config: dict, kind: str) -> dict:
    """How a setup measures."""
    keys = (*_PROTOCOL, *_REAL_PROTOCOL) if kind == "nvml" else _PROTOCOL
    # the way that clocks are set is named only where it is configured: it may differ from machine to machine, and what
    # was measured stays what it is
    named = {"through": config["through"]} if kind == "nvml" and config["through"] != "auto" else {}
    return {"warmup_s": warmup_s(config, kind)} | {key: config[key] for key in keys} | named


def warmup_s(config: dict, kind: str) -> float:
    """Warm-up of a kernel at its clocks, s, on a kind of GPU."""
    return config["warmup_s"] if config["warmup_s"] is not None else _WARMUP_S.get(kind, 0)


def _degrees(config: dict) -> list:
    """The tensor-parallel degrees of the study; null in the configuration: the paper's, where the model allows them."""
    possible = tensor_parallel_degrees(model(config["model"]))
    degrees = config["tensor_parallel_degrees"]
    if degrees is None:
        return [degree for degree in _DEGREES if degree in possible]
    for degree in degrees:
        if degree not in possible:
            raise InputError(
                f"tensor_parallel_degrees = {degree} is not possible for {config['model']}; "
                f"allowed: {', '.join(map(str, possible))}"
            )
    return degrees
