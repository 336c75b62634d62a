"""Tensor parallelism (with sequence parallelism, communication left out): one rank with the clocks of one degree."""

from kernel_dvfs.report.tables import carry_over

CAPTION = "Tensor parallelism, one rank, no communication: the schedule carried to other degrees, and chosen anew there"


def make(results, values, repeats, reoptimised, setups):
    """See carry_over.make."""
    return carry_over.make(results, "tp", values, results.workload["tensor_parallel"], repeats, reoptimised, setups)
