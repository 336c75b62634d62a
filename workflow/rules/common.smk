# The checked study, and the few names that all other files share; no jobs. What follows from the configuration is
# decided in kernel_dvfs/plan, which is pure: parsing writes no file and starts no process.
import gc
import json
import re
import signal
import sys
import threading
from functools import cache
from pathlib import Path

LIBRARY = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(LIBRARY))

from kernel_dvfs import environment, files, layout, lock, outputs, registry, slurm
from kernel_dvfs.cli.main import main as command
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import clocks_argument, gpu_freq
from kernel_dvfs.measurement import campaign
from kernel_dvfs.measurement.real import client, loads
from kernel_dvfs_pipeline.study_plan import line_of_pipeline, plan_pipeline
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan import study as planning
from kernel_dvfs.report.words import line_of_study
from kernel_dvfs_serving.study_plan import REPLAYED, line_of_serving, plan_serving
from snakemake_logger_plugin_kernel_dvfs import at_end, expect, is_interrupted

try:
    configuration.check_files(workflow.configfiles)
    configuration.check(config, LIBRARY / "schemas" / "config.schema.yaml")
    environment.prepare(str(LIBRARY), config["slurm_gpu"])
    STUDY, PIPELINE, SERVING = planning.plan(config), plan_pipeline(config), plan_serving(config)
except InputError as error:
    sys.exit(f"error: {error}")

# a plan makes millions of objects, hardly any of them garbage: a tenth of its time was to look for it
gc.freeze()
gc.set_threshold(100_000, 50, 100)

FOLDER = STUDY.folder
# a simulated GPU has no need to be measured by one job at a time
GPUS = int(STUDY.is_real)
# what a job runs; `python -S` starts without site-packages, which a measurement has no use for
RUN = "python -m kernel_dvfs"
RUN_LIGHT = "exec python -S -m kernel_dvfs"
# the checksum of the kernels that a real GPU runs
KERNELS = f"results/native/{'step-' if STUDY.is_step else ''}kernels.sha256"


wildcard_constraints:
    kind="kernel|pass",
    level="kernel|pass",
    scope="single|local|global",
    target=r"\w+",
    core=r"auto|\d+",
    mem=r"auto|\d+",
    repeat=r"\d+",
    microbatches=r"\d+",


def within(log, *words):
    """Run a command in this process, for a `run:` block: it takes less time than the start of another process, or than
    its imports. What it refuses is in its log, and told from there."""
    if command([*words, "--log", str(log)], alone=False):
        raise RuntimeError(f"kernel-dvfs {' '.join(words)}: see {log}")


# What runs within this process takes no core (`threads: 0`), as all of it shares the interpreter's lock, and keeps none
# from a process: while something waits for one, Snakemake 9.27 looks at all that waits again each second for each job
# that has ended since. Sweeps, choices, tables, figures and pages take turns here, since warnings and drawing are a
# process's; measurements and the map share nothing that changes.
TURN = threading.Lock()


def in_turn(log, *words):
    """The same for what takes turns."""
    with TURN:
        if is_interrupted():  # Snakemake waits for all that it has begun, and what would end now counts for nothing
            raise RuntimeError("interrupted")
        within(log, *words)


def choose_within(profile, output, log, ties, *options):
    """Choose clocks within this process: that takes milliseconds, the imports of another one a second."""
    in_turn(log, "choose", str(profile), *options, f"--ties={ties}", f"--output={output}")


def measure_sweep(input, output, log, params):
    """Measure all targets of params.studies at params.pairs on a simulated GPU, within this process: a profile."""
    in_turn(
        log,
        *("measure", "sweep", f"--gpu={input.gpu}", f"--pairs={params.pairs}"),
        *("--studies", *params.studies.split(), f"--auto-repeats={params.auto_repeats}", f"--output={output}"),
    )


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
    if not workflow.use_threads:
        print(
            "note: --force-use-threads is missing, which profiles/default has: each choice, table, figure, page, "
            "simulated measurement and the map of the headline starts a Snakemake of its own, which takes seconds",
            file=sys.stderr,
            flush=True,
        )
    for line in planning.notices(STUDY):
        print(line, file=sys.stderr, flush=True)
    # Snakemake 9.27 answers SIGTERM by taking a lock, which the very thread that is interrupted may hold: it would hang
    answer = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *signalled: threading.Thread(target=answer, args=signalled).start())


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


def ended(path):
    """A file beside one that a job updates, which is there only where that job ended well. After an error Snakemake puts
    back what was there, with today's date, and forgets what it was made from: it would pass for new."""
    return f"{path}.ended"


@cache
def planned(step_record):
    """The study, planned anew for each version of its captured step's record."""
    return planning.plan(config)


def as_known():
    """The study by what is known now: of a step that a job captures, which targets there are is known after that."""
    return planned(planning.stamp(STUDY.step_record)) if STUDY.is_captured_here else STUDY


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
    own = study(wildcards).setup
    return own.path if own else []


# Known at once, but where a job captures the step: for each of thousands of jobs a function is a tenth of its planning
SETUP = setup if STUDY.is_captured_here else setup(None)


def setup_of(wildcards):
    """The setup of a variant: the same workload at another batch, degree or tensor-core energy."""
    return STUDY.variants[wildcards.variant].setup.path


def kernels(wildcards):
    """What a measurement of a real GPU depends on beside its setup: which kernels run."""
    return checkpoints.kernels.get().output[0] if STUDY.is_real else []


def profile(wildcards):
    """The profile. A checkpoint where it is measured here: measured again to the same bytes, it changes nothing."""
    if STUDY.is_by_clock:
        return checkpoints.pool_visits.get().output[0]
    return checkpoints.aggregate.get().output[1] if STUDY.is_measured else STUDY.profile


def published_profile(wildcards):
    """The profile that clocks are chosen from as published: one sweep, one measurement a point; likewise."""
    return checkpoints.aggregate.get().output[0] if STUDY.is_measured else STUDY.profile


def after_profile(paths):
    """Inputs that rest on the profile, for rules that do not read it: they are looked at again when it is there."""

    def inputs(wildcards):
        profile(wildcards)
        return paths(wildcards) if callable(paths) else paths

    return inputs


# a run ends with one answer: of the pipeline or the serving study where that is its target, else of the study of a GPU
if beside := {"pipeline", "serving", "serving_paper"}.intersection(sys.argv):
    if "pipeline" in beside:
        at_end(lambda: line_of_pipeline(PIPELINE.folder))
    if beside & {"serving", "serving_paper"}:
        at_end(lambda: line_of_serving(SERVING.replay))
if "all" in sys.argv or not beside:
    at_end(lambda: line_of_study(FOLDER, STUDY.title))
