"""Which kernels stand for all of a workload."""

import pytest

from kernel_dvfs.measurement.target import representatives


def kernel(flop, byte, step_time_s=None):
    """A kernel as a setup has it: family, tensor FLOP, FP32 FLOP, special functions, bytes."""
    return {"work": ["gemm" if flop else "other", flop, 0, 0, byte]} | (
        {"step_time_s": step_time_s} if step_time_s else {}
    )


GEMMS = {"small": kernel(2e9, 9e9), "large": kernel(5e12, 3e6), "as large": kernel(5e12, 8e6)}
REST = {"few bytes": kernel(0, 1e5), "some": kernel(0, 4e6), "more": kernel(0, 5e6), "most": kernel(0, 7e8)}


@pytest.mark.parametrize(
    ("kernels", "stand"),
    [
        # of equal FLOP that of more bytes; beside it the most bytes of the others and the middle of them
        (GEMMS | REST, ["as large", "most", "more"]),
        (GEMMS, ["as large"]),
        (REST, ["most", "more"]),
        ({"one": kernel(0, 1)}, ["one"]),
        # of bytes that nobody counted, by the time in the step
        ({"brief": kernel(0, 0, 1e-6), "long": kernel(0, 0, 3e-3), "mid": kernel(0, 0, 2e-5)}, ["long", "mid"]),
    ],
)
def test_the_heaviest_product_stands_for_all_and_the_most_and_the_middle_of_the_rest_beside_it(kernels, stand):
    assert representatives(kernels) == stand
