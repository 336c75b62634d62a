"""Which of the ready jobs run next: those of the highest priority, as many as fit, in one pass over them. Of equal
priority those that take a core come first: what takes none may wait for its turn in a thread that they need.

A scheduler plugin of Snakemake, `scheduler: kernel-dvfs` in a profile. Snakemake's own two look at all ready jobs again
for each job that they select, or for each that ends: a sweep has thousands that are ready at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase

# Jobs of one selection, at most so many or such a share of those that are ready. Snakemake starts all of a selection
# before it takes note of any that ended: so long the counter stands still, and what ended is lost by a Ctrl-C
_AT_ONCE, _SHARE = 500, 1 / 8


class Scheduler(SchedulerBase):
    """Snakemake gives it the ready jobs and what is free of each resource."""

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any]:
        """The jobs to run now. A job that does not fit leaves its place to those after it."""
        most = max(_AT_ONCE, int(_SHARE * len(selectable_jobs)))
        free = {name: amount for name, amount in available_resources.items() if isinstance(amount, int)}
        selected: list[Any] = []
        for job in sorted(
            selectable_jobs, key=lambda job: (-job.priority, not job.scheduler_resources.get("_cores", 0))
        ):
            if len(selected) == most:
                break
            needed = {name: job.scheduler_resources.get(name, 0) for name in free}
            if all(needed[name] <= free[name] for name in free):
                selected.append(job)
                for name, amount in needed.items():
                    free[name] -= amount
        return selected
