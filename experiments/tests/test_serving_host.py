"""The host's time of a serving engine: a fit finds what made its rows, and the kept output is of today's constants."""

import pytest

from kernel_dvfs_serving.anchors import GPU, ML_ENERGY_ROWS, ML_ENERGY_USED, closed_loop
from kernel_dvfs_serving.steps import SEQUENCE_S, StepModel
from kernel_dvfs_serving.system import HOST_S


@pytest.fixture(scope="module")
def host(script):
    return script("experiments/calibration/serving_host.py")


@pytest.mark.slow
def test_a_fit_finds_the_times_that_made_its_rows(host):
    (served,) = (each for each in ML_ENERGY_ROWS if each.name in ML_ENERGY_USED)
    made = StepModel(GPU, served.shapes, served.tp, host_s=1.3e-3, sequence_s=30e-6)
    chosen = [load for load in ML_ENERGY_ROWS[served] if load.sequences in (8, 64)]
    loads = [load._replace(requests=3 * load.sequences) for load in chosen]
    rows = {served: {load: closed_loop(made, load) for load in loads}}
    host_ms, sequence_us, left = host.fit(rows)
    assert (host_ms, sequence_us) == (pytest.approx(1.3, abs=0.05), pytest.approx(30, abs=2)) and left < 1e-4


@pytest.mark.slow
def test_the_kept_output_is_of_the_shipped_constants(host, root):
    lines = (root / "experiments/results/serving_host.txt").read_text("utf-8").splitlines()
    rounded, shipped = (
        next(line for line in lines if line.startswith("Rounded: ")).removeprefix("Rounded: ").split("; ")
    )
    assert rounded == shipped.removeprefix("shipped: ") == f"{1e3 * HOST_S:g} ms, {1e6 * SEQUENCE_S:g} us"
    used = host.of_sequences(ML_ENERGY_USED)
    for line in host.table(used, host.errors(used)):
        assert line in lines
