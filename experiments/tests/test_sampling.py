"""What is drawn in bulk scatters as a job's own measurements do, about the same truth."""

import numpy as np
import pytest

from experiments.searches import sampling
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair

PAIRS = [BASELINE, *(Pair(core, mem) for core in (1050, 1470, 1890, 2100) for mem in (5001, 9251, AUTO))]
# as the spec has it, and at 1 pJ a FLOP, where more of the clocks are reached
ENERGIES = {"spec": {}, "1 pJ": {"gpu_overrides": {"energy_pj": {"tensor_bf16_flop": 1.0}}}}
# the spots: at auto, at locks, at the highest requests, held down by the cap
SPOTS = [
    ("forward_gelu", Pair(1470, 5001)),
    ("forward_fc_gemm", BASELINE),
    ("forward_fc_gemm", Pair(2100, AUTO)),
    ("forward_fc_gemm", Pair(2100, 5001)),
    ("forward_fc_gemm", Pair(1470, 9251)),
    ("embedding_layernorm", Pair(2100, 9251)),
]


@pytest.fixture(scope="module")
def of_energy(setup_of):
    """{energy: (setup, its truth)}"""
    setups = {name: setup_of(**changed) for name, changed in ENERGIES.items()}
    return {name: (setup, sampling.truth(setup, PAIRS)) for name, setup in setups.items()}


@pytest.mark.parametrize(("name", "pair"), SPOTS)
@pytest.mark.parametrize("energy", ENERGIES)
def test_measurements_scatter_about_the_truth_as_those_drawn_in_bulk_do(of_energy, energy, name, pair):
    """Mean and scatter over campaigns, of a job's own measurements and of those drawn at once."""
    (setup, known), count = of_energy[energy], 300
    place = known.names.index(name), PAIRS.index(pair)
    bench = Bench(setup, MeasurementTarget("kernel", name))
    points = [bench.point(pair, f"c-{k}") for k in range(count)]
    one = np.array([[each["summary"]["time_us"] * 1e-6, each["summary"]["energy_mj"] * 1e-3] for each in points])
    noise = sampling.noise_of(setup.gpu["spec"], setup.measurement, known)
    draw = np.random.default_rng(1)
    cell = np.array([place[0] * len(PAIRS) + place[1]])
    drawn = [sampling.measure(known, noise, draw, cell) for _ in range(3000)]
    bulk = np.array([[each.time_s[0], each.energy_j[0]] for each in drawn])
    exact = np.array([known.time_s[place], known.energy_j[place]])
    for measured in (one, bulk):
        error = measured.std(axis=0) / np.sqrt(len(measured))
        assert (np.abs(measured.mean(axis=0) - exact) < 4 * error).all(), "the mean is the truth"
    assert one.std(axis=0) == pytest.approx(bulk.std(axis=0), rel=0.2)


def test_some_of_these_spots_are_held_down_by_the_cap_and_some_are_not(of_energy):
    capped = {
        "power cap" in " ".join(Bench(setup, MeasurementTarget("kernel", name)).point(pair)["reasons"])
        for setup, _ in of_energy.values()
        for name, pair in SPOTS
    }
    assert capped == {True, False}
