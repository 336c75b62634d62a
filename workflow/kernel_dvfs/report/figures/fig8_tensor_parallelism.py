"""Figure 8: one rank of tensor parallelism (with sequence parallelism, no communication), clocks of one degree."""

from kernel_dvfs.report.figures import carried

CAPTION = (
    "Tensor parallelism, one rank, communication left out: change of time and energy against auto at other degrees, "
    "with the clocks chosen at one degree and with clocks chosen anew; 95 % intervals over fresh repeats"
)


def draw(results):
    """See carried.draw."""
    title = f"Tensor parallelism: clocks of degree {results.workload['tensor_parallel']} at others"
    axis = "tensor-parallel degree (one rank, no communication)"
    return carried.draw(results, "tensor_parallelism", "tensor_parallel", axis, title)
