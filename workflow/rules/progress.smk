# One line for the person who waits, instead of four for each job; no jobs. Called by start() and finish() in common.smk.
from kernel_dvfs.measurement.real import estimate
from kernel_dvfs.progress import Progress, Reporter, Task

# what a job costs beside Snakemake's own part, s; measurements of a real GPU are reckoned from its windows
MOVED_S, STAGE_S = 0.01, 3
WAITING = []


def watch():
    """Tell how far this run is, as long as it runs; nothing where Snakemake is told to be quiet about that."""
    if {"ALL", "PROGRESS"} & {each.name for each in workflow.output_settings.quiet or ()}:
        return
    settings = config | {"warmup_s": studies.warmup_s(config, STUDY.kind)}
    scheduler = workflow.scheduler

    def tasks():
        return [
            Task(
                weight_s=expected_s(job, settings),
                what=in_words(job),
                record=str(job.output[0]) if REAL and job.rule.name.startswith("measure") else "",
                is_done=lambda job=job: workflow.dag.finished(job),
                is_running=lambda job=job: job in scheduler.running,
            )
            for job in (*workflow.dag.finished_jobs, *workflow.dag.needrun_jobs())
            if not job.is_norun
        ]

    reporter = Reporter(Progress(tasks), sys.stderr)
    for handler in workflow.logger_manager.logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.addFilter(reporter.filter)
    reporter.start()
    WAITING.append(reporter)


def unwatch():
    """Say nothing more."""
    while WAITING:
        WAITING.pop().stop()


def expected_s(job, settings):
    """What a job is expected to take, s."""
    name = job.rule.name
    if name.startswith("measure"):
        return estimate.point_s(settings) if REAL else MOVED_S
    if name == "validate" and REAL:
        return len(STUDY.kernels) * estimate.comparison_s(settings)
    if name == "carry_over" and REAL:
        return REPEATS * estimate.comparison_s(settings)
    return STAGE_S


def in_words(job):
    """`kernel/forward_gelu at 1470-5001`, or the rule and what it makes."""
    if not job.rule.name.startswith("measure"):
        return " ".join([job.rule.name, *map(str, job.wildcards)])
    parts = Path(str(job.output[0])).parts
    return f"{parts[-4]}/{parts[-3]} at {parts[-2]}"
