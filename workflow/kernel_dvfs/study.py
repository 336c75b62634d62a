"""From a checked configuration to what is to be made: which GPU, which workload, which points, which schedules.

The one place that turns options into names of folders and targets. Knows no Snakemake and no file formats but the
setup's.
"""

import hashlib
import json
import shlex
from collections import namedtuple
from pathlib import Path

import yaml

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.clocks import BASELINE, label, sweep_pairs
from kernel_dvfs.gpu.simulated import MODEL
from kernel_dvfs.measurement import setup
from kernel_dvfs.workload.passes import passes
from kernel_dvfs.workload.rows import kernel_rows

Study = namedtuple(
    "Study", "kind gpu workload folder table setup kernels passes pairs omitted variants tensor_energy_pj"
)
Study.__doc__ = """kind: simulated or table. gpu, workload: names of the results folders; folder: both joined.
table: path of a measured table or None. setup: path of the setup file, None for a table. kernels, passes: names of
the targets. pairs: Pair list of the sweep, baseline first; omitted: [(Pair, reason)]. variants: {name: Variant}.
tensor_energy_pj: the spec's own energy of a tensor-core FLOP, None for a table."""

Variant = namedtuple("Variant", "setup study value")
Variant.__doc__ = """The same workload at another batch, degree or tensor-core energy. setup: path of its setup file;
study: `batch`, `tp` or `tensor-energy`; value: the batch, the degree, or pJ per FLOP."""

# options that change the work and so stand in the workload's name when they differ from these
_DEFAULT_WORK = {
    "bias_split": "table1",
    "row_parallel_bias": "sequence",
    "pass_boundary": "llmc",
    "token_ids_zipf": None,
}
_PROTOCOL = ("warmup_s", "window_s", "windows", "seed")


def workload_name(options: dict) -> str:
    """`<model>-b<batch>-tp<degree>`, and every other option that changes the work where it is not the default."""
    name = f"{options['model']}-b{options['batch']}-tp{options['tensor_parallel']}"
    extra = [f"-{key.replace('_', '-')}-{options[key]}" for key in _DEFAULT_WORK if options[key] != _DEFAULT_WORK[key]]
    return name + "".join(extra)


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
        return _table(gpu, results)
    if gpu.partition(":")[0] == "nvml":
        raise InputError(
            "config: gpu = 'nvml': real GPUs are not part of this version yet; allowed: a simulated GPU "
            f"({', '.join(gpu_spec.names())}) or a table of measurements ({{kind: table, path: FILE}})"
        )
    try:
        return _simulated(config, results)
    except InputError as error:
        raise InputError(f"config: {error}") from None


def schedule_names(granularities: list, slack_percent: float) -> list:
    """The schedules of a study: granularity x scope x objective, strict waste always, relaxed where it is asked for."""
    slacks = [0] if slack_percent == 0 else [0, slack_percent]
    objectives = [f"waste-slack{slack:g}" for slack in slacks] + ["edp", "energy"]
    return [
        f"{granularity}-{scope}-{objective}"
        for granularity in granularities
        for scope in ("single", "local", "global")
        for objective in objectives
    ]


def _table(gpu: dict, results: str) -> Study:
    from kernel_dvfs.profile.table import gpu_slug

    if not Path(gpu["path"]).is_file():
        raise InputError(f"config: gpu.path = '{gpu['path']}': no such file; allowed: a CSV or Parquet table")
    slug = gpu_slug(gpu["path"], gpu.get("name"))
    workload = "as-measured"
    folder = f"{results}/{slug}/{workload}"
    return Study("table", slug, workload, folder, gpu["path"], None, [], [], [], [], {}, None)


def _simulated(config: dict, results: str) -> Study:
    overrides = config["gpu_overrides"]
    spec = gpu_spec.resolve(config["gpu"], overrides)
    slug = f"sim-{spec['id']}"
    if overrides:
        slug += "-" + hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:6]
    pairs, omitted = sweep_pairs(spec["clocks"], config["grid"])
    workload = workload_name(config)
    folder = f"{results}/{slug}/{workload}"

    def stored(spec, **changed):
        options = config | changed
        rows = _rows(options, spec)
        gpu = {"kind": "simulated", "slug": slug, "name": spec["name"], "model": MODEL, "spec": spec}
        protocol = {key: config[key] for key in _PROTOCOL}
        return rows, setup.store(f"{folder}/setup", gpu, _workload(options), _targets(rows, options), protocol)

    rows, path = stored(spec)
    variants = {}
    for study, key, values in (
        ("batch", "batch", config["data_parallel_batches"]),
        ("tp", "tensor_parallel", config["tensor_parallel_degrees"]),
    ):
        for value in values:
            if value != config[key]:
                variants[f"{study}-{value}"] = Variant(stored(spec, **{key: value})[1], study, value)
    own = spec["energy_pj"]["tensor_bf16_flop"]
    for value in set(config["tensor_energy_pj"]) - {own}:
        other = gpu_spec.resolve(
            config["gpu"], overrides | {"energy_pj": _energy(overrides) | {"tensor_bf16_flop": value}}
        )
        variants[f"tensor-energy-{value:g}"] = Variant(stored(other)[1], "tensor-energy", value)
    return Study(
        kind="simulated",
        gpu=slug,
        workload=workload,
        folder=folder,
        table=None,
        setup=path,
        kernels=[row.id for row in rows],
        passes=list(passes(rows, config["pass_boundary"])),
        pairs=pairs,
        omitted=omitted,
        variants=variants,
        tensor_energy_pj=spec["energy_pj"]["tensor_bf16_flop"],
    )


def _energy(overrides: dict) -> dict:
    return overrides.get("energy_pj", {})


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


def clocks_argument(pairs: list) -> str:
    """The pairs of a sweep as one short word for a command line: `auto-auto,210-405,...`."""
    return ",".join(label(pair) for pair in pairs)


def repeats(pair, auto_repeats: int) -> int:
    """How often a sweep measures a pair: the baseline often, everything else once."""
    return auto_repeats if pair == BASELINE else 1


def import_options(gpu: dict) -> str:
    """The options of a table GPU on the command line of `kernel-dvfs import`."""
    words = []
    if gpu.get("name"):
        words += ["--name", gpu["name"]]
    if gpu.get("reference") is not None:
        words += ["--reference", str(gpu["reference"])]
    if gpu.get("settings"):
        words += ["--settings", *gpu["settings"]]
    return shlex.join(words)
