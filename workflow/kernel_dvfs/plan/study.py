"""From a checked configuration to what is to be made: which GPU, which workload, which points, which schedules.

The planner above the road: the one place that turns options into names of folders and targets. Knows no Snakemake
and no file formats but the setup's.
"""

import hashlib
import json
import shlex
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import yaml

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.clocks import BASELINE, label, sweep_pairs
from kernel_dvfs.gpu.simulated import MODEL
from kernel_dvfs.measurement import campaign, setup
from kernel_dvfs.workload.models import model, tensor_parallel_degrees
from kernel_dvfs.workload.passes import passes
from kernel_dvfs.workload.rows import kernel_rows

Study = namedtuple(
    "Study",
    "kind gpu workload folder table setup kernels passes pairs omitted points schedules variants batches degrees "
    "tensor_energy_pj tensor_energies_pj",
)
Study.__doc__ = """kind: simulated, nvml or table. gpu, workload: names of the results folders; folder: both joined.
table: path of a measured table or None. setup: path of the setup file, None for a table. kernels, passes: names of
the targets. pairs: Pair list of the sweep, baseline first; omitted: [(Pair, reason)]. points:
[(Pair, repeat)] of a target in the order that a real GPU measures them. schedules: names of those that
Table 2 compares. variants: {name: Variant}. batches, degrees: where the schedule is carried to. tensor_energy_pj: the
spec's own energy of a tensor-core FLOP, None for a table; tensor_energies_pj: those the headline is repeated for."""

Variant = namedtuple("Variant", "setup study value kernels")
Variant.__doc__ = """The same workload at another batch, degree or tensor-core energy. setup: path of its setup file;
study: `batch`, `tp` or `tensor-energy`; value: the batch, the degree, or pJ per FLOP; kernels: ids of its rows."""

# options that change the work and so stand in the workload's name when they differ from these
_DEFAULT_WORK = {
    "bias_split": "table1",
    "row_parallel_bias": "sequence",
    "pass_boundary": "llmc",
    "token_ids_zipf": None,
}
_PROTOCOL = ("window_s", "windows", "seed")
# beside it on a real GPU
_REAL_PROTOCOL = (
    *("clocks", "lock", "after", "share", "temperature", "band_c", "max_windows", "energy_ci_percent"),
    *("gemm_algorithm", "skip_capped"),
)
_WARMUP_S = {"simulated": 25, "nvml": 2}
# the degrees of the paper's study, where the model allows them
_DEGREES = (1, 2, 4, 8, 16)
_DEFAULT_WEIGHTS = {"simulated": "counts", "nvml": "counts", "table": "raw"}


def load(path: str) -> dict:
    """The configuration in a YAML file, unchecked. Raises InputError."""
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise InputError(f"configuration {path}: {error}; name one with --config") from None
    if not isinstance(content, dict):
        raise InputError(f"configuration {path}: not a mapping of keys")
    return content


def plan(config: dict, results: str = "results") -> Study:
    """The study that `config` (checked by config.check) describes; writes its setup files into `results`.

    Raises InputError for what only the GPU or the model can refuse: an unknown GPU or model, a clock that the GPU
    lacks, a degree that does not divide the heads.
    """
    gpu = config["gpu"]
    if isinstance(gpu, dict):
        return _table(config, results)
    try:
        if gpu.partition(":")[0] == "nvml":
            return _real(config, results)
        return _simulated(config, results)
    except InputError as error:
        raise InputError(f"config: {error}") from None


def workload_name(options: dict) -> str:
    """`<model>-b<batch>-tp<degree>`, and every other option that changes the work where it is not the default."""
    name = f"{options['model']}-b{options['batch']}-tp{options['tensor_parallel']}"
    extra = [f"-{key.replace('_', '-')}-{options[key]}" for key in _DEFAULT_WORK if options[key] != _DEFAULT_WORK[key]]
    return name + "".join(extra)


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


def clocks_argument(pairs: list) -> str:
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
    return shlex.join(words)


def notices(study: Study, clocks: str, refined: bool = False) -> list:
    """What the user should know of a study before it starts.

    clocks: who sets those of a real GPU. refined: whether `refine` is on.
    """
    if study.kind == "table" and refined:
        return ["refine: a table cannot be measured again, so clocks are chosen from its rows as they stand"]
    if study.kind != "nvml" or clocks == "lock":
        return []
    if clocks == "auto-only":
        return [
            f"clocks: auto-only: {study.gpu} is measured at auto: Figure 5, tables/baseline and tables/passes. "
            "Schedules, Tables 1 and 2 and the other figures need the right to lock clocks (docs/real-gpus.md)"
        ]
    return [
        f"clocks: external: each job on {study.gpu} trusts the batch system to have set its clocks, verifies and "
        "records them. Fresh validation and carrying over switch clocks within a job, so they are left out"
    ]


def _weights(config: dict, kind: str) -> str:
    weights = config["weights"]
    return "" if weights in (None, _DEFAULT_WEIGHTS[kind]) else f"-{weights}"


def _table(config: dict, results: str) -> Study:
    from kernel_dvfs.profile.table import gpu_slug

    gpu = config["gpu"]
    if not Path(gpu["path"]).is_file():
        raise InputError(f"config: gpu.path = '{gpu['path']}': no such file; allowed: a CSV or Parquet table")
    slug, workload = gpu_slug(gpu["path"], gpu.get("name")), "as-measured"
    return Study(
        kind="table",
        gpu=slug,
        workload=workload,
        folder=f"{results}/{slug}/{workload}",
        table=gpu["path"],
        setup=None,
        kernels=[],
        passes=[],
        pairs=[],
        omitted=[],
        points=[],
        schedules=schedule_names(["kernel"], config["slack_percent"], _weights(config, "table")),
        variants={},
        batches=[],
        degrees=[],
        tensor_energy_pj=None,
        tensor_energies_pj=[],
    )


def _simulated(config: dict, results: str) -> Study:
    overrides = config["gpu_overrides"]
    spec = gpu_spec.resolve(config["gpu"], overrides)
    slug = f"sim-{spec['id']}"
    if overrides:
        slug += "-" + hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]
    pairs, omitted = sweep_pairs(spec["clocks"], config["grid"])
    folder = f"{results}/{slug}/{workload_name(config)}"
    rows = _rows(config, spec)
    degrees = _degrees(config)
    own_pj = spec["energy_pj"]["tensor_bf16_flop"]
    energies_pj = config["tensor_energy_pj"]
    if energies_pj is None:
        energies_pj = gpu_spec.tensor_energy_range_pj(config["gpu"])

    # all is worked out before anything is written: a refused configuration leaves no trace
    others = {name: (study, value, spec, changed) for name, study, value, changed in _other_sizes(config, degrees)}
    for value in energies_pj:
        if value != own_pj:
            energy = overrides.get("energy_pj", {}) | {"tensor_bf16_flop": value}
            other = gpu_spec.resolve(config["gpu"], overrides | {"energy_pj": energy})
            others[f"tensor-energy-{value:g}"] = ("tensor-energy", value, other, {})
    worked_out = {
        name: (study, value, other, config | changed, _rows(config | changed, other))
        for name, (study, value, other, changed) in others.items()
    }

    def stored(spec: dict, options: dict, rows: list) -> str:
        gpu = {"kind": "simulated", "slug": slug, "name": spec["name"], "model": MODEL, "spec": spec}
        return setup.store(
            f"{folder}/setup", gpu, _workload(options), _targets(rows, options), _protocol(config, "simulated")
        )

    names = list(passes(rows, config["pass_boundary"]))
    return Study(
        kind="simulated",
        gpu=slug,
        workload=workload_name(config),
        folder=folder,
        table=None,
        setup=stored(spec, config, rows),
        kernels=[row.id for row in rows],
        passes=names,
        pairs=pairs,
        omitted=omitted,
        points=campaign.ordered_points(pairs, config["auto_repeats"], config["seed"]),
        schedules=schedule_names(["pass", "kernel"], config["slack_percent"], _weights(config, "simulated")),
        variants={
            name: Variant(stored(other, options, rows), study, value, [row.id for row in rows])
            for name, (study, value, other, options, rows) in worked_out.items()
        },
        batches=config["data_parallel_batches"],
        degrees=degrees,
        tensor_energy_pj=own_pj,
        tensor_energies_pj=energies_pj,
    )


def _real(config: dict, results: str) -> Study:
    """A study of a real GPU. What needs clocks to be set is left out where they are not ours to set."""
    from kernel_dvfs.gpu.nvml.known import keep, known_facts

    known = facts = known_facts(config["gpu"].partition(":")[2], results)
    slug, mode = facts["slug"], config["clocks"]
    if config["grid"]["mem_mhz"] == []:
        # what the study does not lock need not be lockable
        facts = facts | {"clocks": facts["clocks"] | {"mem_mhz": []}}
    if mode == "auto-only":
        pairs, omitted = [BASELINE], []
    elif not facts["clocks"]["core_mhz"]["listed"]:
        raise InputError("the driver lists no clocks for this GPU; measure it with clocks: auto-only")
    else:
        pairs, omitted = sweep_pairs(facts["clocks"], config["grid"])
        if not facts["clocks"]["mem_mhz"]:
            omitted.append((("auto", "all"), "memory clocks are not locked: only the core clock is swept"))
    folder = f"{results}/{slug}/{workload_name(config)}"
    rows = _rows(config, facts)
    # comparisons switch clocks within a job: nobody but us can
    degrees = _degrees(config) if mode == "lock" else []
    batches = config["data_parallel_batches"] if mode == "lock" else []
    others = list(_other_sizes(config | {"data_parallel_batches": batches}, degrees))
    worked_out = {
        name: (study, value, config | changed, _rows(config | changed, facts)) for name, study, value, changed in others
    }

    def stored(options: dict, rows: list) -> str:
        gpu = {"kind": "nvml"} | facts
        return setup.store(
            f"{folder}/setup", gpu, _workload(options), _targets(rows, options), _protocol(config, "nvml")
        )

    granularities = [] if mode == "auto-only" else ["pass", "kernel"]
    schedules = schedule_names(granularities, config["slack_percent"], _weights(config, "nvml"))
    keep(known, results)
    return Study(
        kind="nvml",
        gpu=slug,
        workload=workload_name(config),
        folder=folder,
        table=None,
        setup=stored(config, rows),
        kernels=[row.id for row in rows],
        passes=list(passes(rows, config["pass_boundary"])),
        pairs=pairs,
        omitted=omitted,
        points=campaign.ordered_points(pairs, config["auto_repeats"], config["seed"]),
        schedules=schedules,
        variants={
            name: Variant(stored(options, rows), study, value, [row.id for row in rows])
            for name, (study, value, options, rows) in worked_out.items()
        },
        batches=batches,
        degrees=degrees,
        tensor_energy_pj=None,
        tensor_energies_pj=[],
    )


def _other_sizes(config: dict, degrees: list) -> Iterator:
    """The same workload at other batches and degrees: (name, study, value, changed options)."""
    for study, key, values in (
        ("batch", "batch", config["data_parallel_batches"]),
        ("tp", "tensor_parallel", degrees),
    ):
        for value in values:
            if value != config[key]:
                yield f"{study}-{value}", study, value, {key: value}


def _protocol(config: dict, kind: str) -> dict:
    """How a setup measures."""
    keys = (*_PROTOCOL, *_REAL_PROTOCOL) if kind == "nvml" else _PROTOCOL
    return {"warmup_s": warmup_s(config, kind)} | {key: config[key] for key in keys}


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


def _rows(options: dict, spec: dict) -> list:
    return kernel_rows(
        model=options["model"],
        batch=options["batch"],
        tensor_parallel=options["tensor_parallel"],
        bias_split=options["bias_split"],
        row_parallel_bias=options["row_parallel_bias"],
        sm_count=spec["sm_count"],
        threads_per_sm=spec["threads_per_sm"],
        zipf_exponent=options["token_ids_zipf"],
    )


def _workload(options: dict) -> dict:
    keys = ("model", "batch", "tensor_parallel", *_DEFAULT_WORK)
    return {"name": workload_name(options)} | {key: options[key] for key in keys}


def _targets(rows: list, options: dict) -> dict:
    kernels = {
        row.id: {
            "work": [row.family, row.tensor_flop, row.fp32_flop, row.sfu_op, row.read_byte + row.write_byte],
            "row": row.number,
            "section": row.section,
            "name": row.name,
            "kind": row.kind,
            "launches_per_iteration": row.multiplicity,
            "replicate_group": row.replicate_group,
        }
        for row in rows
    }
    return {"kernel": kernels, "pass": passes(rows, options["pass_boundary"])}
