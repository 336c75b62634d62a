"""From a checked configuration to what is to be made: which GPU, which workload, which points, which schedules.

The one place that turns options into a study, whose names of folders, targets and files all else uses. Pure: it reads
facts of GPUs and what other studies have left in the results folder, and writes nothing. It knows neither Snakemake nor
how anything is made.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from kernel_dvfs import layout
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import forecast_of_step, is_power_modelled
from kernel_dvfs.measurement import campaign, setup, target
from kernel_dvfs.measurement.counter import READING_LAG_S
from kernel_dvfs.measurement.point import least_s
from kernel_dvfs.measurement.simulated import MODEL as SIMULATION
from kernel_dvfs.plan.asked import PlannedFile, Study, WorkloadVariant, decimals
from kernel_dvfs.plan.config import default_weights, resolved, warmup_s
from kernel_dvfs.plan.step import MODEL as MODEL_WORKLOAD
from kernel_dvfs.plan.step import StepSource, step_source
from kernel_dvfs.search.board_pairs import pairs_of
from kernel_dvfs.workload.models import is_model, model, tensor_parallel_degrees
from kernel_dvfs.workload.step import Step, paced_kernel
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs.workload.step_workload import of_step
from kernel_dvfs.workload.traffic import dense_products
from kernel_dvfs.workload.workload import Workload, name_of_model, of_model
from kernel_dvfs_clocks.clocks import BASELINE, EXACT, Pair, check_after, sweep_pairs
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import inside

# of a configuration: kernels swept alone, at no other batch, degree or tensor-core energy
ALONE: dict[str, list | None] = {
    "data_parallel_batches": [],
    "tensor_parallel_degrees": [],
    "tensor_energy_pj": [],
    "minutes": None,
}
# of a captured step, beside the windows: starting the job, preparing the kernel, and clocks that settle later than at
# the earliest (an H200 took 1.0 s over that where 0.6 were the least); opening the step to measure it; its capture
RECORD_S, OPENING_S, CAPTURE_S = 0.7, 40.0, 75.0
# reading the clocks within the step, once, and finding the rest that gives a kernel its own there
CLOCKS_S, PACED_S = 10.0, 2.5
# in so many minutes windows are the longest of these that leave time for kernels of this share of the step's time; of a
# counter that moves every 100 ms the shortest holds five periods, and may hold four where it is slower
MINUTES_WINDOWS_S, MINUTES_PERIODS, MINUTES_SHARE = (2.0, 1.4, 1.0, 0.7, 0.5), 4, 0.96
# ... and of what is left beside the sections, at most so much goes to kernels at their clock of the step, until the hot
# ones that are measured alone only take less than so much of its time
MINUTES_PACED, MINUTES_HOT = 1 / 5, 0.05
# the degrees of the paper's study, where the model allows them
_DEGREES = (1, 2, 4, 8, 16)
_PROTOCOL = ("window_s", "windows", "seed")
# beside it on a real GPU
_REAL_PROTOCOL = (*("clocks", "lock", "after", "share", "max_windows", "energy_ci_percent", "gemm_algorithm"),)


def plan(config: dict, results: str = "results", runs: bool = True) -> Study:
    """Return the study that `config` (checked by config.check) describes, with folders below `results`. runs: it is to
    run, so the code of a recorded step has to be named; an estimate needs its record only.

    Raises InputError for what only the GPU or the model can refuse: an unknown GPU or model, a clock that the GPU
    lacks, a degree that does not divide the heads.
    """
    gpu, config = config["gpu"], resolved(config)
    latencies_s = config["clock_changes"]["latency_s"] or []
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
        return _measured(config, results, runs)
    except InputError as error:
        raise InputError(f"config: {error}") from None


@dataclass(frozen=True, slots=True)
class _Board:
    """What a study must know of a GPU that it measures."""

    slug: str
    title: str
    about: dict[str, Any]  # what its setups say of it, a simulated one's spec aside
    cores: tuple[int, int]  # its SMs, and threads of one: what workloads depend on
    clocks: dict[str, Any]  # that it has
    pairs: list[Pair]
    omitted: list[tuple[Pair, str]]
    spec: dict[str, Any] = field(default_factory=dict)  # of a simulated one
    more: dict[str, Any] = field(default_factory=dict)  # fields of Study that only its kind has


def _measured(config: dict, results: str, runs: bool) -> Study:
    is_real = config["gpu"].partition(":")[0] == "nvml"
    # what the GPU refuses is said before what the workload refuses
    board = _real(config, results) if is_real else _simulated(config)
    kind, step = ("nvml" if is_real else "simulated"), step_source(config["workload"])
    _check_step(step, config, kind, runs)
    name = step.name if step else name_of_model(config)
    folder = f"{results}/{inside(f'{board.slug}/{name}')}"
    record = "" if step is None else step.file if step.is_recorded else f"{folder}/step.json"
    about = dict(board.about)
    if step and not is_real:
        about |= {"forecast": True}
        about |= {"power_modelled": True} if is_power_modelled(read_step(step.file)) else {}

    protocol = _protocol(config, kind)

    def planned(options: dict, spec: dict) -> tuple[PlannedFile, Workload]:
        """Return the setup of this workload, or of it changed, and the workload."""
        settings = protocol
        if step and is_real:
            # where clocks are set, kernels and step have the same one, as far as the power cap lets them
            captured, alone = read_step(record), config["clocks"] == "auto-only"
            most, paced = None, None if alone else 0
            if config["minutes"] is not None:
                most, paced, window_s = in_minutes(captured, config["minutes"], protocol)
                settings = protocol | {"window_s": window_s, "least_periods": MINUTES_PERIODS}
            workload = of_step(captured, step.name, record, step.code, paced=paced, most=most)
        elif step:
            workload = forecast_of_step(read_step(step.file), step.name, spec)
        else:
            workload = of_model(options, *board.cores, None if is_real else lambda rows: dense_products(rows, spec))
        gpu = about if is_real else about | {"spec": spec}
        digest, text = setup.content(gpu, workload.about, workload.targets, settings)
        return PlannedFile(f"{folder}/setup/{digest}.json", text), workload

    # comparisons switch clocks within a job: nobody but us can; other sizes of a captured step are other steps
    is_carried = not step and (not is_real or config["clocks"] == "lock")
    batches = config["data_parallel_batches"] if is_carried else []
    degrees = _degrees(config) if is_carried else []
    variants = {}
    for kind_of, key, values in (("batch", "batch", batches), ("tp", "tensor_parallel", degrees)):
        for value in values:
            if value != config[key]:
                file, workload = planned(config | {key: value}, board.spec)
                variants[f"{kind_of}-{value}"] = WorkloadVariant(file, kind_of, value, list(workload.kernels))
    energies_pj = [] if is_real or step else _energies_pj(config)
    for value in energies_pj:
        if value != board.more["tensor_energy_pj"]:
            energy = config["gpu_overrides"].get("energy_pj", {}) | {"tensor_bf16_flop": value}
            other = gpu_spec.resolve(config["gpu"], config["gpu_overrides"] | {"energy_pj": energy})
            file, workload = planned(config, other)
            variants[f"tensor-energy-{layout.shortest(value)}"] = WorkloadVariant(
                file, "tensor-energy", value, list(workload.kernels)
            )
    study = Study(
        kind=kind,
        gpu=board.slug,
        workload=name,
        folder=folder,
        options=config,
        schedules=[],
        title=board.title if is_real else layout.subject(about),
        pairs=tuple(board.pairs),
        visitable=tuple(pairs_of(board.clocks, board.pairs)) if len(board.pairs) > 1 else (),
        omitted=tuple(board.omitted),
        points=tuple(campaign.ordered_points(board.pairs, config["auto_repeats"], config["seed"])),
        variants=variants,
        batches=tuple(batches),
        degrees=tuple(degrees),
        tensor_energies_pj=tuple(energies_pj),
        step=step,
        step_record=record,
        **board.more,
    )
    if record and not Path(record).is_file():
        return study  # not captured yet: which targets there are is not known
    file, workload = planned(config, board.spec)
    levels = ["pass", "kernel"] if workload.has_passes else ["kernel"]
    return replace(
        study,
        schedules=_schedules(levels if study.is_chosen else [], config, kind),
        setup=file,
        kernels=tuple(workload.kernels),
        passes=tuple(workload.passes),
        chosen_passes=workload.has_passes,
        locked=tuple(target.representatives(workload.kernels)) if study.contracts else (),
    )


def _simulated(config: dict) -> _Board:
    overrides = config["gpu_overrides"]
    spec = gpu_spec.resolve(config["gpu"], overrides)
    slug = f"sim-{spec['id']}"
    if overrides:
        slug += "-" + hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]
    pairs, omitted = sweep_pairs(spec["clocks"], config["grid"])
    return _Board(
        slug=slug,
        title="",
        about={"kind": "simulated", "slug": slug, "name": spec["name"], "model": SIMULATION},
        cores=(spec["sm_count"], spec["threads_per_sm"]),
        clocks=spec["clocks"],
        pairs=pairs,
        omitted=omitted,
        spec=spec,
        more={"tensor_energy_pj": spec["energy_pj"]["tensor_bf16_flop"], "switching": spec["switching"]},
    )


def _real(config: dict, results: str) -> _Board:
    """What needs clocks to be set is left out where they are not ours to set."""
    # NVML, which no other plan needs
    from kernel_dvfs_clocks.nvml.facts import kept_as, known_facts
    from kernel_dvfs_clocks.setters import choice

    known = facts = known_facts(config["gpu"].partition(":")[2], results)
    mode = config["clocks"]
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
    return _Board(
        slug=facts["slug"],
        title=facts["name"],
        about={"kind": "nvml"} | facts,
        cores=(facts["sm_count"], facts["threads_per_sm"]),
        clocks=facts["clocks"],
        pairs=pairs,
        omitted=omitted,
        more={
            "uuid": facts["uuid"],
            "facts": PlannedFile(*kept_as(known, results)),
            "contracts": campaign.lock_contracts(facts["clocks"]) if mode == "lock" else {},
        },
    )


def _table(config: dict, results: str) -> Study:
    from kernel_dvfs.profile.table import gpu_slug  # the readers of tables, which no other plan needs

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
        folder=f"{results}/{inside(f'{slug}/{workload}')}",
        options=config,
        schedules=_schedules(["kernel"], config, "table"),
        title=f"table {gpu.get('name') or Path(gpu['path']).stem}",
        table=gpu["path"],
    )


def _check_step(step: StepSource | None, config: dict, kind: str, runs: bool) -> None:
    if step and kind == "simulated" and not step.is_recorded:
        raise InputError(
            f"workload = 'step:{step.called}': a simulated GPU runs no step; capture it where there is a GPU "
            f"(kernel-dvfs capture {step.called} -o step.json), then workload=step:step.json gives a forecast"
        )
    if step and kind == "nvml" and not step.code and runs:
        raise InputError(
            f"workload = 'step:{step.called}': a record does not say which code a GPU runs; name what it was captured "
            f"from, workload: {{step: {step.called}, code: FILE.py:FUNCTION}}"
        )
    if step and kind == "nvml" and config["slurm_gpu"]:
        raise InputError(
            "workload: a captured step is measured on the machine that Snakemake runs on; start it in a job of its "
            "own, without slurm_gpu"
        )
    if config["minutes"] is not None and not (step and kind == "nvml" and config["clocks"] == "auto-only"):
        raise InputError(
            f"minutes = {config['minutes']:g}: is for a captured step on a real GPU with clocks: auto-only, where the "
            "costliest kernels are measured; leave minutes at null"
        )


class MeasuringBudget(NamedTuple):
    """What so many minutes are enough for, beside the sections of a step."""

    kernels: int  # so many, the costliest first, 1 at least
    paced: int  # so many of Step.paced also at their clock of the step
    window_s: float  # in windows of so many seconds


def in_minutes(step: Step, minutes: float, protocol: dict) -> MeasuringBudget:
    """Return what is measured of a step in so many minutes.

    What is left out is told by its time in the step, so measuring more kernels is worth more than longer windows, until
    what is measured is nearly all of the step. But kernels that the power cap holds lower alone come first, up to a
    share of the minutes: alone, they are most of what a sum is wrong by.
    """
    costs_us = [target.launches * (target.time_us or target.alone_us or 0.0) for target in step.measured]
    ordered = sorted(costs_us, reverse=True)
    so_far_us = [math.fsum(ordered[: count + 1]) for count in range(len(ordered))]
    needed = 1 + sum(cost_us < MINUTES_SHARE * so_far_us[-1] for cost_us in so_far_us)
    hot_us = [target.launches * (target.time_us or 0.0) for target in step.paced]
    hot = sum(math.fsum(hot_us[place:]) > MINUTES_HOT * (step.time_us or 0.0) for place in range(len(hot_us)))
    look = MeasuringBudget(1, 0, MINUTES_WINDOWS_S[-1])
    for window_s in MINUTES_WINDOWS_S:
        record_s = least_s(protocol | {"window_s": window_s}) + RECORD_S
        # a difference is measured in two windows
        second_s = record_s + READING_LAG_S
        left_s = 60 * minutes - OPENING_S - record_s * len(step.passes) - second_s * len(step.by_difference)
        paced_s = record_s + second_s + PACED_S
        paced = max(0, min(hot, int((MINUTES_PACED * left_s - CLOCKS_S) / paced_s)))
        left_s -= bool(paced) * CLOCKS_S + paced * paced_s
        look = MeasuringBudget(max(1, int(left_s / record_s)), paced, window_s)
        if look.kernels >= needed:
            break
    return look


def planned_s(study: Study, records: int = 0) -> float | None:
    """Return what is planned for so many records of a captured step in its minutes, s, or for all of it where it has
    yet to be captured; None where no minutes were asked for."""
    minutes = study.options["minutes"]
    if minutes is None:
        return None
    if study.setup is None:
        return CAPTURE_S + 60.0 * minutes
    content = json.loads(study.setup.text)
    record_s = least_s(content["measurement"]) + RECORD_S
    paced = sum(bool(paced_kernel(name)) for name in content["targets"]["pass"])
    # a difference is two windows in one record
    twice = paced + len(content["workload"].get("by_difference", {}))
    more_s = twice * (record_s + READING_LAG_S) + bool(paced) * CLOCKS_S + paced * PACED_S
    return OPENING_S + records * (record_s + more_s / sum(map(len, content["targets"].values())))


def _schedules(levels: list[str], config: dict, kind: str) -> list[str]:
    """Return the schedules that Table 2 compares: level x scope x objective; strict waste always, relaxed where asked
    for.

    Each name ends in the weights, `-equal-time`, or in nothing for the default. Raises InputError for a limit that a
    file's name cannot say.
    """
    limits_percent, weights = sorted({0, *config["limits_percent"]}), config["weights"]
    slacks = [decimals(limit) for limit in limits_percent]
    for slack, limit in zip(slacks, limits_percent):
        if float(slack) != limit:
            raise InputError(f"config: limits_percent = {limit!r} is not possible; allowed: at most six decimals")
    objectives = [f"waste-slack{slack}" for slack in slacks] + ["edp", "energy"]
    end = "" if weights in (None, default_weights(kind)) else f"-{weights}"
    return [
        f"{level}-{scope}-{objective}{end}"
        for level in levels
        for scope in ("single", "local", "global")
        for objective in objectives
    ]


def _protocol(config: dict, kind: str) -> dict:
    """Return how a setup measures."""
    keys = (*_PROTOCOL, *_REAL_PROTOCOL) if kind == "nvml" else _PROTOCOL
    # the way that clocks are set is named only where it is configured: it may differ from machine to machine, and what
    # was measured stays what it is
    through = {"through": config["through"]} if kind == "nvml" and config["through"] != "auto" else {}
    return {"warmup_s": warmup_s(config, kind)} | {key: config[key] for key in keys} | through


def _degrees(config: dict) -> list:
    """Return the tensor-parallel degrees of the study; null in the configuration: the paper's, where the model allows
    them."""
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


def _energies_pj(config: dict) -> list[float]:
    """Return energies of a tensor-core FLOP that the headline is repeated for; null in the configuration: the spec's
    range."""
    asked: list[float] | None = config["tensor_energy_pj"]
    return gpu_spec.tensor_energy_range_pj(config["gpu"]) if asked is None else asked


# --- what the workflow asks beside the study --------------------------------------------------------------------------


def import_options(gpu: dict) -> str:
    """Return the options of a table GPU on the command line of `kernel-dvfs import`."""
    words = []
    if gpu.get("name"):
        words += ["--name", gpu["name"]]
    if gpu.get("reference") is not None:
        reference = gpu["reference"]
        words += ["--reference", ",".join(map(str, reference)) if isinstance(reference, list) else str(reference)]
    if gpu.get("settings"):
        words += ["--settings", *gpu["settings"]]
    for key in ("units", "columns", "only"):
        if gpu.get(key):
            words += [f"--{key}", *(f"{column}={word}" for column, word in gpu[key].items())]
    return shlex.join(words)


def text_of(path: str, files: Iterable[PlannedFile]) -> str:
    """Return what a setup's file must hold. Raises ValueError for a setup that no configuration here plans."""
    for file in files:
        if file.path == path:
            return file.text
    raise ValueError(f"{path} is the setup of another configuration, or of none; give that one with --config")


def notices(study: Study) -> list[str]:
    """Return what the user should know of a study before it starts."""
    if study.kind == "table" and study.options["by_clock"]["minutes"]:
        return ["by_clock: a table cannot be measured again, so clocks are chosen from its rows as they are"]
    if study.clocks == "auto-only":
        measured = (
            "where time and energy of the step go" if study.is_step else "Figure 5, tables/baseline and tables/passes"
        )
        others = "Clocks for its kernels" if study.is_step else "Schedules, Tables 1 and 2 and the other figures"
        return [
            f"clocks: auto-only: {study.gpu} is measured at auto: {measured}. {others} need the right to lock clocks "
            "(docs/real-gpus.md)"
        ]
    if study.clocks == "external":
        return [
            f"clocks: external: each job on {study.gpu} trusts the batch system to have set its clocks, verifies and "
            "records them. The study by clock, measuring again and carrying over switch clocks within a job, so they "
            "are left out"
        ]
    return []


def stamp(path: str) -> tuple[int, int] | None:
    """Return what tells one version of a file from another without reading it; None where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def seen(*folders: str) -> list[str]:
    """Return tables and figures that lie in folders, with their times: what a page shows of other studies."""
    paths = [path for folder in folders for form in ("tables/*.json", "*.png") for path in Path(folder).rglob(form)]
    return sorted(f"{path} {path.stat().st_mtime_ns}" for path in paths)
