"""What is special about the C layernorm: two passes, in the order of the index, and alike in both operations."""

import numpy as np
import pytest
from oracles import EPS, draw


def forward(cpu, inp, gamma, beta):
    settings = {"M": inp.shape[0], "C": inp.shape[1], "eps": EPS}
    return cpu.run("layernorm_forward", settings, {"inp": inp, "gamma": gamma, "beta": beta}, "float32")


def test_a_row_keeps_its_mean_and_variance_of_any_size(cpu):
    """Two passes: a mean of 4096 does not swallow a spread of 1, as E[x^2] - E[x]^2 in float32 would."""
    inp = np.tile(np.array([4095, 4097], np.float32), (1, 64))
    got = forward(cpu, inp, np.ones(128, np.float32), np.zeros(128, np.float32))
    assert got["mean"][0] == 4096
    assert got["rstd"][0] == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(got["out"], inp - 4096, rtol=1e-5)


def test_a_constant_row_gives_beta(cpu):
    beta = np.arange(5, dtype=np.float32)
    got = forward(cpu, np.full((2, 5), 7, np.float32), np.ones(5, np.float32), beta)
    np.testing.assert_array_equal(got["out"], [beta, beta])
    np.testing.assert_allclose(got["rstd"], 1 / np.sqrt(EPS), rtol=1e-6)


def test_float32_is_rounded_after_every_operation_in_index_order(cpu):
    """No fused multiply-add, no reordered sum: NumPy scalars in the same order give the same bits."""
    settings = {"M": 3, "C": 37, "eps": EPS}
    x = draw(cpu, "layernorm_forward", settings, "float32")
    got = cpu.run("layernorm_forward", settings, x, "float32")
    one, C = np.float32(1), np.float32(37)
    for m, row in enumerate(x["inp"]):
        mean = np.add.accumulate(row)[-1] / C
        squares = np.add.accumulate((row - mean) * (row - mean))[-1]
        rstd = one / np.sqrt(squares / C + np.float32(EPS))
        assert (got["mean"][m], got["rstd"][m]) == (mean, rstd)
        np.testing.assert_array_equal(got["out"][m], (row - mean) * rstd * x["gamma"] + x["beta"])


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_residual_layernorm_is_the_layernorm_of_its_stored_sum(cpu, dtype):
    settings = {"M": 5, "C": 33, "eps": EPS}
    x = draw(cpu, "residual_layernorm", settings, dtype)
    both = cpu.run("residual_layernorm", settings, x, dtype)
    alone = cpu.run("layernorm_forward", settings, {"inp": both["sum"], "gamma": x["gamma"], "beta": x["beta"]}, dtype)
    for name, array in alone.items():
        np.testing.assert_array_equal(both[name], array)
