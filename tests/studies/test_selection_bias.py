"""On a simulated GPU the best of one sweep flatters, fresh repeats do not, and rounds with a margin keep the limit."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, Pair
from kernel_dvfs.measurement import setup as setups
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import Target
from kernel_dvfs.plan.study import plan
from kernel_dvfs.studies import sampling
from kernel_dvfs.studies.sampling import truth
from kernel_dvfs.studies.selection_bias import Procedure, arena, oracle, study

ONE_SWEEP = Procedure("one sweep", False, 0, 0, 0)
ROUNDS = Procedure("rounds and margin", True, 10, 1, 2.6)
PAIRS = [BASELINE, *(Pair(core, mem) for core in (1050, 1470, 1890, 2100) for mem in (5001, 9251, AUTO))]
SEEDS = 60
GRID = "auto-auto,1470-5001,1470-9251,1890-9251,1050-9251"  # of the command


@pytest.fixture(scope="module")
def setup(setup_of):
    return setup_of()


@pytest.fixture(scope="module")
def known(setup):
    return truth(setup, PAIRS)


@pytest.fixture(scope="module")
def outcomes(setup, known):
    noise = sampling.noise_of(setup, known)
    return {
        how.name: [study(arena(known, how.tied), noise, how, 0.0, 10, 10, seed) for seed in range(SEEDS)]
        for how in (ONE_SWEEP, ROUNDS)
    }


def column(outcomes, name, field):
    return np.array([getattr(each, field) for each in outcomes[name]])


def test_the_best_of_one_sweep_claims_more_than_is_true(outcomes):
    optimism = column(outcomes, "one sweep", "true") - column(outcomes, "one sweep", "claimed")
    assert (optimism.mean(axis=0) > [0.1, 0.2]).all()
    assert (column(outcomes, "one sweep", "true")[:, 0] > 0).mean() > 0.9, "and breaks its limit"


def test_rounds_and_margin_claim_what_is_true_and_keep_the_limit(outcomes):
    optimism = column(outcomes, "rounds and margin", "true") - column(outcomes, "rounds and margin", "claimed")
    assert (optimism.mean(axis=0) < 0.15).all()
    # one study in five at the default GPU, whose products lie at the edge of the cap; the aim is one in ten
    assert (column(outcomes, "rounds and margin", "true")[:, 0] > 0).mean() <= 0.25


@pytest.mark.parametrize("name", ["one sweep", "rounds and margin"])
def test_the_interval_of_fresh_repeats_holds_the_truth(outcomes, name):
    fresh, half, true = (column(outcomes, name, field) for field in ("fresh", "half", "true"))
    assert ((np.abs(fresh - true) <= half).mean(axis=0) >= 0.85).all()
    assert np.abs((fresh - true).mean(axis=0)).max() < 0.05, "fresh repeats are unbiased"


def test_no_choice_saves_more_than_the_oracle_within_the_limit(outcomes, known):
    best = oracle(arena(known, True), 0.0)
    within = [each.true for each in outcomes["rounds and margin"] if each.true[0] <= 0]
    assert within and min(energy for _, energy in within) >= best[1] - 1e-6


def test_another_order_of_kernels_gives_the_same_choice(setup, known):
    order = np.random.default_rng(1).permutation(len(known.names))
    mixed = replace(
        known,
        names=[known.names[i] for i in order],
        groups=[known.groups[i] for i in order],
        **{
            name: getattr(known, name)[order]
            for name in ("launches", "time_s", "energy_j", "top_time_s", "top_energy_j")
        },
    )
    assert oracle(arena(mixed, True), 0.0) == pytest.approx(oracle(arena(known, True), 0.0))


@pytest.mark.parametrize("name", ["forward_gelu", "forward_fc_gemm", "embedding_layernorm"])
def test_noise_drawn_in_bulk_is_that_of_measurements(setup, known, name):
    """Mean and scatter over campaigns, of a job's own measurements and of those drawn at once."""
    pair, count = Pair(1470, 5001), 300
    place = known.names.index(name)
    bench = Bench(setup, Target("kernel", name))
    one = np.array(
        [
            [each["time_us"] * 1e-6, each["energy_mj"] * 1e-3]
            for each in (bench.point(pair, f"c-{k}")["summary"] for k in range(count))
        ]
    )
    noise, draw = sampling.noise_of(setup, known), np.random.default_rng(1)
    cell = np.array([place * len(PAIRS) + PAIRS.index(pair)])
    drawn = [sampling.measure(known, noise, draw, cell, 1) for _ in range(3000)]
    bulk = np.array([[each.time_s[0], each.energy_j[0]] for each in drawn])
    exact = known.time_s[place, PAIRS.index(pair)], known.energy_j[place, PAIRS.index(pair)]
    for column_number in (0, 1):
        relative, other = one[:, column_number] / exact[column_number], bulk[:, column_number] / exact[column_number]
        assert relative.mean() == pytest.approx(other.mean(), abs=4 * relative.std() / np.sqrt(count))
        assert relative.std() == pytest.approx(other.std(), rel=0.15)


@pytest.fixture(scope="module")
def path(config, tmp_path_factory):
    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    return plan(config(**quick), str(tmp_path_factory.mktemp("setup"))).setup.write()


def test_every_study_is_kept_with_its_seed_and_summed_up_by_procedure(path, tmp_path):
    assert main(["study", "selection-bias", "--gpu", path, "--pairs", GRID, "--seeds", "3", "-o", str(tmp_path)]) == 0
    studies = pd.read_csv(tmp_path / "selection_bias_studies.csv")
    assert len(studies) == 2 * 4 * 3 and set(studies.seed) == {0, 1, 2}
    table = pd.read_csv(tmp_path / "tables/selection_bias.csv")
    assert len(table) == 8 and set(table.studies) == {3}
    row = table[(table.procedure == "one sweep") & (table.noise == "as the GPU's spec")].iloc[0]
    own = studies[(studies.procedure == "one sweep") & (studies.noise == "as the GPU's spec")]
    optimism_pp = (own.energy_true_percent - own.energy_claimed_percent).mean()
    assert row.energy_optimism_pp == pytest.approx(optimism_pp, abs=1e-3)
    assert "simulated" in (tmp_path / "tables/selection_bias.md").read_text()


def test_a_real_gpu_has_no_known_truth(path, tmp_path, capsys):
    known = setups.read(path)
    gpu = json.loads(json.dumps(known.gpu)) | {"kind": "nvml"}
    real = setups.store(str(tmp_path), gpu, known.workload, known.targets, known.measurement)
    assert main(["study", "selection-bias", "--gpu", real, "--pairs", GRID, "-o", str(tmp_path / "out")]) == 2
    assert "has no known truth" in capsys.readouterr().err and not (tmp_path / "out").exists()
