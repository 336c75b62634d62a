# Thousands of short jobs without cost that grows with their square; no jobs. Called by start() in common.smk.
from itertools import islice


def hurry():
    """Let Snakemake's local scheduler look at a few ready jobs at a time.

    Each finished job makes it look at everything that is ready, and a timer of its rate limit makes it look again: at
    25,000 jobs that is most of the time (benchmarks/scale.py). For jobs without an order and without resources to wait
    for, which those of a simulated GPU are.
    """
    few = 8 * (workflow.resource_settings.cores or 1)

    class FewAtATime(type(workflow.scheduler)):
        @property
        def open_jobs(self):
            return list(islice(self.workflow.dag.ready_jobs, few))

        @property
        def remaining_jobs(self):
            # the greedy scheduler chooses without them; asked for once more at the end, when nothing runs
            return [] if self.running else super().remaining_jobs

    workflow.scheduler.job_rate_limiter = None
    workflow.scheduler.__class__ = FewAtATime
