# The checked study, and the few names that all other files share; no jobs. What follows from the configuration is
# decided in kernel_dvfs/plan, which is pure: parsing writes no file and starts no process.
import gc
import json
import os
import re
import signal
import sys
import threading
from functools import cache, partial
from pathlib import Path

# beside this file in the project; not as installed, where Python finds the library by itself
LIBRARY = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(LIBRARY))

from kernel_dvfs import extensions, jobs, layout, lock, outputs, registry, shipped, slurm
from kernel_dvfs.cli.main import called
from kernel_dvfs.measurement import campaign
from kernel_dvfs.measurement.real import client, loads
from kernel_dvfs.native.build import lacks_cuda
from kernel_dvfs.plan import config as configuration
from kernel_dvfs.plan import study as planning
from kernel_dvfs.report import comparison, sealed
from kernel_dvfs.report.words import line_of_study
from kernel_dvfs_clocks import environment, files, package
from kernel_dvfs_clocks.clocks import clocks_argument, gpu_freq
from kernel_dvfs_clocks.clocks import parse as pair_of
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.setters import choice
from snakemake_logger_plugin_kernel_dvfs import at_end, expect, is_interrupted, weigh

try:
    configuration.check_files(workflow.configfiles)
    configuration.check(config, shipped.SCHEMA)
    environment.prepare(package.FOLDER, config["slurm_gpu"])
    STUDY = planning.plan(config)
    # {kind: what is planned of it}; the kinds of extensions beside the road's
    BESIDE = {name: extensions.at(kind.plan)(config) for name, kind in registry.kinds().items() if kind.plan}
    # Snakemake looks at dates: what was edited would pass for what was made, and older inputs for those it was made of
    sealed.check_inputs(STUDY.folder)
    # of the other studies, one that is asked for
    for name, plan in BESIDE.items():
        folders, inputs = plan.sealed()
        if any(word.startswith((name, folders[0])) for word in sys.argv[1:] if "=" not in word):
            for each in folders:
                sealed.check_inputs(each, inputs)
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
# The same of a job with `threads: 0`. Snakemake tells libraries of linear algebra how many threads a job has, and they
# take 0 for all cores: sums would end with other digits by the number of cores.
RUN_ALONE = f"OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 {RUN}"
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


def within(log, work, *arguments, **options):
    """Call a function, for a `run:` block: it takes less time than the start of another process, or than its imports.
    What it refuses is in its log, and told from there."""
    if called(str(log), work, *arguments, **options):
        raise RuntimeError(f"{work.__name__}: see {log}")


# What runs within this process takes no core (`threads: 0`), as all of it shares the interpreter's lock. Nor do the few
# processes that this machine runs beside it: while something waits for a core, Snakemake 9.27 looks at all that waits
# again each second for each job that has ended since. Sweeps, choices, tables, figures and pages take turns here, since
# warnings and drawing are a process's; measurements share nothing that changes.
TURN = threading.Lock()


def in_turn(log, work, *arguments, **options):
    """The same for what takes turns."""
    with TURN:
        if is_interrupted():  # Snakemake waits for all that it has begun, and what would end now counts for nothing
            raise RuntimeError("interrupted")
        within(log, work, *arguments, **options)


def start():
    """Hold the folder for this run, on a real GPU only that GPU's: several are measured side by side."""
    try:
        lock.hold(f".snakemake/kernel-dvfs{f'-{STUDY.gpu}' if STUDY.is_real else ''}.lock")
        files.usable_folder("results")
        if STUDY.is_real and config["slurm_gpu"]:
            slurm.check(config["slurm_gpu"], "slurm_gpu")
            client.begin(STUDY.uuid)
        # before anything is compiled; what stands for a GPU in tests runs no step
        if STUDY.is_captured_here and not Path(STUDY.step_record).is_file() and loads.HOOK not in os.environ:
            print(extensions.part("step python")(STUDY.step.called), file=sys.stderr, flush=True)
        kernels_run = loads.record(STUDY.is_step) if STUDY.is_real and not config["slurm_gpu"] else ""
        if kernels_run == loads.NATIVE and not Path(ended(kernels_run)).is_file() and (lacking := lacks_cuda()):
            raise InputError(f"a study of a real GPU runs the CUDA kernels, and {lacking}")
    except InputError as error:
        sys.exit(f"error: {error}")
    if STUDY.facts:
        STUDY.facts.write()
    if not workflow.use_threads:
        print(
            "note: --force-use-threads is missing, which profiles/default has: each choice, table, figure, page and "
            "simulated measurement starts a Snakemake of its own, which takes seconds",
            file=sys.stderr,
            flush=True,
        )
    may_not = STUDY.is_real and STUDY.clocks == "lock" and not config["slurm_gpu"]
    may_not = may_not and choice.lacking(config["through"], STUDY.uuid)
    for line in [*planning.notices(STUDY), *([f"note: {may_not}"] if may_not else [])]:
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


# Checkpoints are asked for in one order: kernels, capture, profile. Snakemake 9.27 looks again at what asks for one when
# that has ended, and goes on to the next only if it was not asked for before: else what turns out to have nothing to do
# would be waited for in vain, and a table run without its profile.


def kernels(wildcards):
    """What a measurement of a real GPU depends on beside its setup: which kernels run."""
    return checkpoints.kernels.get().output[0] if STUDY.is_real else []


def study(wildcards):
    """The study with its targets; what asks for it waits for the capture, where there is one."""
    if STUDY.is_captured_here:
        kernels(wildcards)
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


def profile(wildcards):
    """The profile. A checkpoint where it is measured here: measured again to the same bytes, it changes nothing."""
    kernels(wildcards)
    study(wildcards)
    if STUDY.is_by_clock:
        return checkpoints.pool_visits.get().output[0]
    return checkpoints.aggregate.get().output[1] if STUDY.is_measured else STUDY.profile


def published_profile(wildcards):
    """The profile that clocks are chosen from as published: one sweep, one measurement a point; likewise."""
    kernels(wildcards)
    study(wildcards)
    return checkpoints.aggregate.get().output[0] if STUDY.is_measured else STUDY.profile


def profiles(wildcards):
    """Both."""
    return [profile(wildcards), published_profile(wildcards)]


def after_profile(paths, rests_on=profile):
    """Inputs that rest on a profile, for rules that do not read it: they are looked at again when it is there, and are
    as they were where it has the same bytes."""

    def inputs(wildcards):
        rests_on(wildcards)
        return paths(wildcards) if callable(paths) else paths

    return inputs


# a run ends with one answer: of the study beside the road whose target it has, else of the study of a GPU
ANSWERS = [plan.answer_line for name, plan in BESIDE.items() if {*registry.kinds()[name].targets} & {*sys.argv}]
if "all" in sys.argv or not ANSWERS:
    ANSWERS.append(lambda: line_of_study(FOLDER, STUDY.title))


def answered(line):
    """A line of ANSWERS; where what it is taken from was changed since it was written, that."""
    try:
        return line()
    except InputError as error:
        return f"error: {error}"


def is_as_written():
    """Whether what the answers are taken from is as it was written; says which is not."""
    for line in ANSWERS:
        try:
            line()
        except InputError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return False
    return True


for each in ANSWERS:
    at_end(partial(answered, each))
