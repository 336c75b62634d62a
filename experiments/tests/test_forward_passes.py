"""Forward passes that others measured: their work, what they say of a GPU's energies, and the simulated A100 PCIe."""

import statistics

import pytest

from experiments.calibration.forward_passes import (
    A10,
    A100,
    ARCHITECTURES,
    FACTS,
    START,
    Run,
    energies,
    fit,
    fit_times,
    load,
    read_runs,
    scores,
    simulate,
    tensor_fits,
    works,
)
from experiments.calibration.infer_board import FIGURES
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.workload.formulas import gemm
from kernel_dvfs_clocks.errors import InputError


def once(g):
    return gemm(g).read_byte + gemm(g).write_byte


@pytest.mark.parametrize(
    ("model", "parameters"), [("gpt2", 85.1e6), ("opt-1.3b", 1.209e9), ("bert-large", 302e6), ("qwen2-1.5b", 1.31e9)]
)
def test_products_of_a_pass_are_two_flop_a_parameter_and_token(model, parameters):
    """Parameters of the layers, without embeddings: published sizes of the models."""
    batch, sequence = 4, 128
    found = works(model, "bf16", batch, sequence, once)
    dense = sum(work.tensor_flop * count for work, count in found if work.family == "gemm")
    assert dense == pytest.approx(2 * parameters * batch * sequence, rel=0.02)


def test_attention_grows_with_the_square_of_the_sequence():
    def flop(sequence):
        found = works("opt-1.3b", "bf16", 1, sequence, once)
        return sum(work.tensor_flop * count for work, count in found if work.family == "attention_gemm")

    assert flop(256) == 4 * flop(128) == 4 * 24 * 2 * 2 * 128 * 128 * 2048


def test_fp32_products_run_on_fp32_lanes_and_move_twice_the_bytes():
    wide, narrow = (works("gpt2", precision, 2, 128, once) for precision in ("fp32", "bf16"))
    assert sum(work.tensor_flop for work, _ in wide) == 0
    byte = [sum(work.byte for work, _ in found if "gemm" in work.family) for found in (wide, narrow)]
    assert byte[0] == 2 * byte[1]


def made_up(standing_w, tensor_pj, byte_pj):
    runs = []
    for model in ARCHITECTURES:
        for batch, time_s in ((1, 0.01), (8, 0.05), (32, 0.3)):
            found = works(model, "bf16", batch, 256, once)
            flop, byte = (sum(getattr(work, name) * count for work, count in found) for name in ("tensor_flop", "byte"))
            energy_j = standing_w * time_s + 1e-12 * (tensor_pj * flop + byte_pj * byte)
            runs.append(Run("X", model, "bf16", batch, 256, 900, energy_j, time_s, 900))
    return runs


def test_energies_are_found_again():
    runs = made_up(55, 0.9, 150)
    found = energies(runs, once)
    assert (found.standing_w[0], found.tensor_pj[0], found.byte_pj[0]) == pytest.approx((55, 0.9, 150), rel=1e-6)
    assert energies(runs, once, 150).tensor_pj[0] == pytest.approx(0.9, rel=1e-6)
    assert energies(runs, once, 200).tensor_pj[0] < 0.9, "what a byte is said to take is not left for the FLOP"


def test_too_few_runs_and_an_unknown_gpu_are_refused():
    with pytest.raises(InputError, match="at least 4"):
        energies(made_up(1, 1, 1)[:3], once)
    with pytest.raises(InputError, match="no run of V100"):
        read_runs(FACTS, "V100")


def test_what_is_known_of_tensor_energy_is_what_passes_that_keep_the_same_chip_busy_say():
    values = [pj for words, pj in tensor_fits(read_runs(FACTS, A10)) if not words.startswith("57 runs")]
    assert len(values) == 6
    known, shipped = FIGURES["tensor_pj"], specs.resolve("rtx_3080_ti")["energy_pj"]["tensor_bf16_flop"]
    assert sum(values) / len(values) == pytest.approx(known.mean, abs=0.03)
    assert statistics.stdev(values) == pytest.approx(known.sd, abs=0.03)
    assert min(values) - 0.01 <= shipped <= max(values)


@pytest.fixture(scope="module")
def a100():
    return read_runs(FACTS, A100)


@pytest.fixture(scope="module")
def moved(a100):
    """The shipped A100 PCIe with the times of these runs."""
    return fit_times([run for run in a100 if not run.is_held], specs.resolve("a100_pcie"))


def test_the_shipped_a100_pcie_is_what_the_runs_give(a100):
    found, shipped = fit(a100, specs.resolve("a100_pcie", START)), specs.resolve("a100_pcie")
    for name in ("tensor_bf16_flop", "fp32_flop", "stream_byte", "sm_cycle", "dram_byte"):
        assert shipped["energy_pj"][name] == pytest.approx(found["energy_pj"][name], rel=0.02), name
    assert shipped["memory"]["static_w"]["1215"] == pytest.approx(found["memory"]["static_w"]["1215"], rel=0.01)
    assert shipped["core"]["clock_w_per_ghz"] == pytest.approx(found["core"]["clock_w_per_ghz"], rel=0.01)


def test_it_predicts_energy_over_clocks_and_the_clock_of_least_energy(a100, moved):
    found = scores(a100, moved)

    def mean(name):
        return sum(map(abs, found[name])) / len(found[name])

    assert mean("energy") < 6.5 and mean("curve") < 4.5 and mean("power") < 4.5
    assert set(found["least"]) == {0.0}, "960 MHz, in all 15 workloads"
    assert mean("clock") < 70


def test_opt_saves_a_sixth_between_1410_and_960_mhz(a100, moved):
    """Measured: 184.3 J against 221.1 J (-17 %) for 16 % more time."""
    runs = {run.core_mhz: run for run in a100 if run.workload == ("opt-1.3b", "bf16", 8, 2048)}
    low, high = (simulate(moved, runs[mhz]) for mhz in (960, 1410))
    assert low.time_s * low.power_w / (high.time_s * high.power_w) - 1 == pytest.approx(-0.17, abs=0.05)
    assert high.capped and not low.capped
    assert high.power_w == pytest.approx(runs[1410].power_w, rel=0.01)


def test_the_load_follows_the_gpus_cache(a100):
    run = a100[0]
    spec = specs.resolve("a100_pcie")
    small = spec | {"memory": spec["memory"] | {"l2_mb": 1}}
    large, less = (sum(work.byte * count for work, count in load(each, run)) for each in (spec, small))
    assert less > large
