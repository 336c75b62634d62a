# Shared by all other files here. The checked study, and the names of files that follow from it; no jobs.
import json
import os
import sys
from functools import partial
from pathlib import Path

LIBRARY = Path(workflow.basedir) / "workflow"
sys.path.insert(0, str(LIBRARY))

from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan import cluster
from kernel_dvfs import environment, layout, lock, slurm
from kernel_dvfs.plan import study as studies
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.measurement import campaign, probes, request, round_file as rounds
from kernel_dvfs.measurement import setup as setup_files
from kernel_dvfs.measurement.ahead import Ahead
from kernel_dvfs.measurement.real import client, loads

environment.prepare(str(LIBRARY))

# sbatch's options for CPU and GPU nodes, where the profile names them (profiles/slurm)
SLURM = cluster.options(workflow.resource_settings.default_resources)

try:
    configuration.check(config, LIBRARY / "schemas" / "config.schema.yaml")
    cluster.find_gpu(SLURM, config["gpu"])
    STUDY = studies.plan(config)
except InputError as error:
    sys.exit(f"error: {error}")

FOLDER = STUDY.folder
MEASURED_HERE = STUDY.table is None
REAL = STUDY.kind == "nvml"
# who sets the clocks of a real GPU; comparisons, which switch them within a job, are ours only to make
CLOCKS = config["clocks"] if REAL else "lock"
COMPARED_HERE = MEASURED_HERE and CLOCKS == "lock"
CHOSEN_HERE = CLOCKS != "auto-only"
PAIRS = studies.clocks_argument(STUDY.pairs)
AUTO_REPEATS = config["auto_repeats"]
# a simulated GPU has no need to be measured by one job at a time
GPUS = int(STUDY.kind != "simulated")
REPEATS = config["validation_repeats"]
# measured again before it is chosen for good
REFINED = MEASURED_HERE and CHOSEN_HERE and config["refine"]["rounds"] > 0
# pairs that every target is measured at whatever comes out; a search asks for its own in rounds
GRID = PAIRS if config["search"] == "exhaustive" or not CHOSEN_HERE else ""
IN_ROUNDS = REFINED or (MEASURED_HERE and not GRID)
STRICT = f"{FOLDER}/schedules/{layout.STRICT}.json"
# three kernels that are measured at auto and locked at the highest clocks, where that can be done
LOCKED = probes.three(setup_files.read(STUDY.setup)) if REAL and COMPARED_HERE else []
PASS_SCHEDULES = [layout.PASS_STRICT] if CHOSEN_HERE and STUDY.passes else []
if REAL and loads.record() == loads.NATIVE:
    config["native"]["cuda"] = "on"


AHEAD = Ahead()


def start():
    """Hold the folder for this run, on a real GPU only that GPU's: several are measured side by side."""
    try:
        lock.hold(f".snakemake/kernel-dvfs{f'-{STUDY.gpu}' if REAL else ''}.lock")
        cluster.check(SLURM, REAL)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # nothing has been started, so no handler of Snakemake's has anything to tidy up
    for line in studies.notices(STUDY, CLOCKS, config["refine"]["rounds"] > 0):
        print(line, file=sys.stderr, flush=True)
    if STUDY.kind == "simulated" and workflow.local_exec:
        hurry()
        AHEAD.start(STUDY.setup, points_to_measure())
    if REAL:
        # a GPU that is not fit, or not ours to set, fails the next two thousand jobs as it failed the first
        workflow.scheduler.keepgoing = False


def finish():
    """Nothing is left to measure: the GPU's process may go, its clocks restored."""
    AHEAD.stop()
    if REAL:
        client.stop(STUDY.setup)


def kernels(wildcards):
    """What a measurement of a real GPU depends on beside its setup: which kernels run."""
    return checkpoints.kernels.get().output[0] if REAL else []


def points_to_measure():
    """[(target, label of the pair, campaign, repeat, record)] of what this run will measure on a simulated GPU."""
    made = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "measure"]
    return [
        (
            f"{job.wildcards.study}/{job.wildcards.target}",
            f"{job.wildcards.core}-{job.wildcards.mem}",
            campaign_of(job.wildcards),
            int(job.wildcards.repeat),
            str(job.output[0]),
        )
        for job in made
    ]


def from_outside(pair):
    """How a batch system is asked to set a pair, where it is the one who does."""
    return slurm.gpu_freq(pair) if CLOCKS == "external" else ""


def campaign_of(wildcards, pair=None):
    """The campaign that a record belongs to, by its clocks and number."""
    pair = pair or (wildcards.core, wildcards.mem)
    return campaign.of_repeat(tuple(pair), int(wildcards.repeat), AUTO_REPEATS)


def again(pair):
    """A pattern for the numbers of repeats beyond the sweep's."""
    swept = "|".join(str(repeat) for repeat in range(campaign.repeats(pair, AUTO_REPEATS)))
    return rf"(?!(?:{swept})\.)\d+"


def records():
    """The records of the sweep, r0..r9 for auto-auto and r0 for every other pair."""
    targets = [f"kernel/{name}" for name in STUDY.kernels] + [f"pass/{name}" for name in STUDY.passes]
    return [
        f"{FOLDER}/measurements/{target}/{studies.label(pair)}/r{repeat}.json"
        for target in targets
        for pair in STUDY.pairs
        for repeat in range(campaign.repeats(pair, AUTO_REPEATS))
    ]


def round_file(number):
    """The plan of a round."""
    return f"{FOLDER}/rounds/{number}.json"


def round_options():
    """What the plan of a round depends on beside records."""
    slacks = sorted({0, config["slack_percent"]})
    keys = ["search", "auto_repeats", "ties", "refine"] + [config["search"]] * (config["search"] in config)
    return {key: config[key] for key in keys} | {"slacks_percent": slacks, "pairs": PAIRS}


def planned(number):
    """The requests of a round; waits for its plan."""
    if FINISHED:
        return FINISHED[number - 1]["requests"]
    return rounds.read(checkpoints.plan_round.get(round=number).output[0])["requests"]


def before(wildcards):
    """The rounds before one."""
    return range(1, int(wildcards.round))


def all_rounds():
    """Every round, the last and empty one included; waits for their plans."""
    number = 1
    while IN_ROUNDS:
        yield number
        if not planned(number):
            return
        number += 1


def planned_records(numbers):
    """The records that rounds ask for."""
    return [
        f"{FOLDER}/measurements/{request.path(each, repeat)}"
        for number in numbers
        for each in planned(number)
        for repeat in each.repeats
    ]


def schedules():
    """The schedules that the study asks for."""
    if not CHOSEN_HERE:
        return []
    # the strict ones are validated and repeated whatever the weights of those that Table 2 compares
    always = [layout.STRICT] + ([layout.PASS_STRICT] if STUDY.passes else [])
    return [f"{FOLDER}/schedules/{name}.json" for name in sorted({*always, *STUDY.schedules})]


def choice_options(wildcards):
    """The parts of a schedule's name that are options on the command line."""
    name, _, slack = wildcards.objective.partition("-slack")
    words = [f"--objective {name}"]
    words += [f"--slack {slack}"] if slack else []
    words += [f"--weights {wildcards.weights.removeprefix('-')}"] if wildcards.weights else []
    if REFINED and wildcards.scope == "global" and name == "waste":
        words += [f"--margin-z {config['refine']['margin_z']}"]
    return " ".join(words)


def variants(*kinds):
    """Names of the variants of a kind: batch, tp, tensor-energy."""
    return [name for name, variant in STUDY.variants.items() if variant.study in kinds]


def headline():
    """The schedules that are named in the headline, measured afresh: strict per kernel and per pass, relaxed."""
    if not (COMPARED_HERE and CHOSEN_HERE):
        return []
    relaxed = [studies.relaxed(config["slack_percent"])] if config["slack_percent"] else []
    return [layout.STRICT] + ([layout.PASS_STRICT] if STUDY.passes else []) + relaxed


def fresh(names):
    """The fresh repeats of schedules."""
    return [f"{FOLDER}/{path}" for name in names for path in layout.fresh_repeats(name, REPEATS)]


def validation():
    """The fresh repeats of the strict schedule."""
    return fresh(headline()[:1])


def carried(kind):
    """The comparisons of every kernel at every other batch or degree."""
    return [
        f"{FOLDER}/measurements/{name}/{kernel}.json"
        for name in variants(kind)
        for kernel in STUDY.variants[name].kernels
    ]


def setups(kind):
    """{value: setup digest} of the variants of a kind."""
    return {STUDY.variants[name].value: Path(STUDY.variants[name].setup).stem for name in variants(kind)}


def chosen_anew(kind):
    """Profile, schedule and fresh repeats of the variants of a kind, where variants are chosen anew."""
    # sweeping anew in one process is for simulated GPUs
    if STUDY.kind != "simulated" or (kind != "tensor-energy" and not config["reoptimise"]):
        return []
    files = ("profile.parquet", "schedule.json", "fresh.json")
    return [f"{FOLDER}/variants/{name}/{file}" for name in variants(kind) for file in files]


def others(workload):
    """What other GPUs' folders hold of a workload (`*`: of any): the report puts them beside this study."""
    found = []
    for strict in sorted(Path("results").glob(f"*/{workload}/schedules/{layout.STRICT}.json")):
        folder = strict.parents[1]
        if folder != Path(FOLDER):
            beside = (
                folder / "profile.parquet",
                strict,
                folder / "tables/validation.csv",
            )
            found += [str(path) for path in beside if path.is_file()]
    return found


def tables():
    """The tables that this study can fill."""
    names = ["baseline", "passes"] if REAL else []
    names += ["locking"] if LOCKED else []
    if CHOSEN_HERE:
        names += ["kernel_clocks", "strategies", "relaxed", "claims"]
        names += ["omitted_pairs"] if MEASURED_HERE else []
        names += ["tensor_energy"] if STUDY.kind == "simulated" else []
    if COMPARED_HERE:
        names += ["validation", "headline"] if CHOSEN_HERE else []
        names += ["data_parallelism"] if STUDY.batches else []
        names += ["tensor_parallelism"] if STUDY.degrees else []
    return names


def table_inputs(name):
    """What a table is made from, beside the profile."""
    return {
        "kernel_clocks": [STRICT, *validation()],
        "strategies": [*schedules(), *fresh(headline())],
        "headline": [
            *(f"{FOLDER}/schedules/{each}.json" for each in headline()),
            *fresh(headline()),
        ],
        "passes": [f"{FOLDER}/schedules/{name}.json" for name in PASS_SCHEDULES],
        "locking": [f"{FOLDER}/measurements/locked/{name}.json" for name in LOCKED],
        "validation": [STRICT, *validation()],
        "data_parallelism": [
            STRICT,
            *validation(),
            *carried("batch"),
            *chosen_anew("batch"),
        ],
        "tensor_parallelism": [
            STRICT,
            *validation(),
            *carried("tp"),
            *chosen_anew("tp"),
        ],
        "tensor_energy": [*schedules(), *validation(), *chosen_anew("tensor-energy")],
        "claims": [
            *schedules(),
            *(f"{FOLDER}/tables/{other}.csv" for other in tables() if other != "claims"),
            *others(STUDY.workload),
        ],
    }.get(name, [])


def table_options(name):
    """What a table needs to be told, as JSON."""
    parallelism = {"repeats": REPEATS, "reoptimised": bool(chosen_anew("batch") + chosen_anew("tp"))}
    return json.dumps(
        {
            "relaxed": {"ties": config["ties"], "weights": config["weights"]},
            "passes": {"schedules": PASS_SCHEDULES},
            "locking": {"targets": LOCKED},
            "validation": {"repeats": REPEATS},
            "kernel_clocks": {"repeats": REPEATS} if headline() else {},
            "strategies": {"schedules": STUDY.schedules}
            | (
                {"validated": [each for each in headline() if each in STUDY.schedules], "repeats": REPEATS}
                if headline()
                else {}
            ),
            "headline": {"schedules": headline(), "repeats": REPEATS},
            "data_parallelism": parallelism | {"values": STUDY.batches, "setups": setups("batch")},
            "tensor_parallelism": parallelism | {"values": STUDY.degrees, "setups": setups("tp")},
            "tensor_energy": {
                "repeats": REPEATS,
                "values": STUDY.tensor_energies_pj,
                "default": STUDY.tensor_energy_pj,
            },
            "omitted_pairs": {
                "omitted": [[*pair, reason] for pair, reason in STUDY.omitted],
                "skipped": REAL and config["skip_capped"],
            },
        }.get(name, {})
    )


def table_files(name):
    """The files of a table."""
    return [f"{FOLDER}/tables/{name}.{form}" for form in layout.TABLE_FORMATS[name]]


FIGURE_TABLES = {
    "fig6_relaxed_waste": "relaxed",
    "fig7_data_parallelism": "data_parallelism",
    "fig8_tensor_parallelism": "tensor_parallelism",
}


def figures():
    """The figures that this study can draw."""
    names = ["fig5_kernels"]
    if CHOSEN_HERE:
        names += ["fig2_desirability"]
        names += ["fig3_forward_pass", "fig4_backward_pass"] if STUDY.passes else []
    return names + [figure for figure, table in FIGURE_TABLES.items() if table in tables()]


def figure_inputs(name):
    """The table that a figure draws, beside the profile."""
    return [f"{FOLDER}/tables/{FIGURE_TABLES[name]}.csv"] if name in FIGURE_TABLES else []


def figure_files(name):
    """The files of a figure."""
    return [f"{FOLDER}/figures/{name}.{form}" for form in layout.FIGURE_FORMATS]


SWEPT = records() if GRID else []
# Rounds that ended before are taken as they lie there. Planned again, eleven checkpoints in a row would take Snakemake
# 20 s to find out that nothing is to be done.
FINISHED = None
if IN_ROUNDS:
    FINISHED = rounds.finished(f"{FOLDER}/rounds", Path(STUDY.setup).stem, round_options())
