"""Data parallelism: smaller batches with the clocks of the batch that was swept."""

from kernel_dvfs.report.tables import carry_over

CAPTION = "Data parallelism: the schedule carried to other batches, and chosen anew there"


def make(results, values, repeats, reoptimised, setups):
    """See carry_over.make."""
    return carry_over.make(results, "batch", values, results.workload["batch"], repeats, reoptimised, setups)
