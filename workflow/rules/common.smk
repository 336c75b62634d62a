# The checked study, and the few names that all other files share; no jobs. What follows from the configuration is
# decided in kernel_dvfs/plan, which is pure: parsing writes no file and starts no process.
import json
import sys
from pathlib import Path

LIBRARY = Path(workflow.basedir) / "workflow"
sys.path.insert(0, str(LIBRARY))

from kernel_dvfs import environment, files, layout, lock, outputs, slurm
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import clocks_argument, label
from kernel_dvfs.measurement import campaign
from kernel_dvfs.measurement.real import client, loads
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan import study as planning
from kernel_dvfs.report.words import line_of_study
from snakemake_logger_plugin_kernel_dvfs import at_end

try:
    configuration.check(config, LIBRARY / "schemas" / "config.schema.yaml")
    environment.prepare(str(LIBRARY), config["slurm_gpu"])
    STUDY = planning.plan(config)
except InputError as error:
    sys.exit(f"error: {error}")

FOLDER = STUDY.folder
# of a step that a job captures: which version of its record STUDY was planned by
KNOWN_BY = planning.stamp(STUDY.step_record)
# {path: text} of setups that other studies here add
PLANNED = {}
# a simulated GPU has no need to be measured by one job at a time
GPUS = int(STUDY.is_real)
# what a job runs: `python -S` starts without site-packages, which a measurement has no use for
RUN = "python -m kernel_dvfs"
RUN_LIGHT = "exec python -S -m kernel_dvfs"
# an error is one line in the log, from where it is told on the terminal, once
LOGGED = "2> {log:q}"
# notices belong in front of the user as well
LOGGED_AND_TOLD = "> {log:q} 2>&1 && cat {log:q} >&2"
# the checksum of the kernels that a real GPU runs
KERNELS = f"results/native/{'step-' if STUDY.is_step else ''}kernels.sha256"


def start():
    """Hold the folder for this run, on a real GPU only that GPU's: several are measured side by side."""
    try:
        lock.hold(f".snakemake/kernel-dvfs{f'-{STUDY.gpu}' if STUDY.is_real else ''}.lock")
        files.usable_folder("results")
        if STUDY.is_real and config["slurm_gpu"]:
            slurm.check(config["slurm_gpu"], "slurm_gpu")
            client.begin(STUDY.uuid)
    except InputError as error:
        sys.exit(f"error: {error}")
    if STUDY.facts:
        STUDY.facts.write()
    for line in planning.notices(STUDY):
        print(line, file=sys.stderr, flush=True)


def finish():
    """Nothing is left to measure: the process that measures a real GPU may go, its clocks restored. Whether they are."""
    setup_file = as_known().setup
    if STUDY.is_real and setup_file and Path(setup_file.path).is_file():
        try:
            client.stop(setup_file.path)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return False
    return True


def as_known():
    """The study by what is known now: of a step that a job captures, which targets there are is known after that."""
    global STUDY, KNOWN_BY
    if STUDY.is_captured_here and KNOWN_BY != (record := planning.stamp(STUDY.step_record)):
        STUDY, KNOWN_BY = planning.plan(config), record
    return STUDY


def study(wildcards):
    """The study with its targets; what asks for it waits for the capture, where there is one."""
    if STUDY.is_captured_here:
        checkpoints.capture.get()
    return as_known()


def asked(of_study):
    """An input that follows from the study: of_study(study) as an input function."""
    return lambda wildcards: of_study(study(wildcards))


def setup(wildcards):
    """The file of the study's own setup; none of a table."""
    planned = study(wildcards).setup
    return planned.path if planned else []


def kernels(wildcards):
    """What a measurement of a real GPU depends on beside its setup: which kernels run."""
    return checkpoints.kernels.get().output[0] if STUDY.is_real else []


def profile(wildcards):
    """The profile. A checkpoint where it is measured here: measured again to the same bytes, it changes nothing."""
    return checkpoints.pool_records.get().output[0] if STUDY.is_measured else STUDY.profile


def after_profile(paths):
    """Inputs that rest on the profile, for rules that do not read it: they are looked at again when it is there."""

    def inputs(wildcards):
        profile(wildcards)
        return paths(wildcards) if callable(paths) else paths

    return inputs


def campaign_of(wildcards):
    """The campaign that a record belongs to, by its clocks and number."""
    return campaign.of_repeat((wildcards.core, wildcards.mem), int(wildcards.repeat), STUDY.options["auto_repeats"])


def planned_text(wildcards):
    """What a setup's file must hold."""
    path = f"{wildcards.folder}/setup/{wildcards.digest}.json"
    texts = PLANNED | {file.path: file.text for file in as_known().setups()}
    if path not in texts:
        raise ValueError(f"{path} is the setup of another configuration, or of none; give that one with --config")
    return texts[path]


def setup_of(wildcards):
    """The setup of a variant: the same workload at another batch, degree or tensor-core energy."""
    return STUDY.variants[wildcards.variant].setup.path


def native_mode(wildcards):
    """auto, on or off. A real GPU runs the CUDA kernels, or those of a captured step: what runs them is not optional."""
    needed = STUDY.is_real and loads.record(STUDY.is_step) == f"results/native/{wildcards.backend}/build.json"
    # what reads graphs is of use beside a GPU only, so it goes with the CUDA kernels
    backend = "cuda" if wildcards.backend == "graph" else wildcards.backend
    return "on" if needed else config["native"].get(backend, "auto")


# a run ends with the answer of what was asked for: pipeline and serving, which have targets of their own, have their own
if "all" in sys.argv or not {"pipeline", "serving"}.intersection(sys.argv):
    at_end(lambda: line_of_study(FOLDER, STUDY.title))
