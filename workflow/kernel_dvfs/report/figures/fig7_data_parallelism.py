"""Figure 7: smaller batches, as in data parallelism, with the clocks of the batch that was swept."""

from kernel_dvfs.report.figures import carried

CAPTION = (
    "Data parallelism: change of time and energy against auto at other batches, with the clocks chosen at one batch "
    "and with clocks chosen anew; 95 % intervals over fresh repeats"
)


def draw(results):
    """See carried.draw."""
    title = f"Data parallelism: clocks of batch {results.workload['batch']} at others"
    return carried.draw(results, "data_parallelism", "batch", "batch, sequences per GPU", title)
