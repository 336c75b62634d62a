"""Inferring a board: the quick truth is the package's, the facts are those of a small study by hand, the sampler finds
what is known."""

import math

import numpy as np
import pytest

from experiments.calibration import infer_board
from experiments.calibration.joint import paper
from experiments.calibration.joint import sample as sampling
from experiments.calibration.joint import truth as quick
from experiments.searches.one_sweep import setup_of
from experiments.searches.sampling import per_launch
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import solve
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.kernel import LaunchWork
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import AUTO, Pair

ODD = {
    "energy_pj": {"tensor_bf16_flop": 1.03},
    "memory": {"gemm_traffic": 2.7},
    "governor": {"cap_w": 347, "hunting_mhz": 33, "auto_extra_power": 0.011},
    "clocks": {"auto_core_mhz": 1947, "top": {"mhz_per_w": 0.21}},
    "families": {"default": {"overlap": 4.1}},
}


def test_the_quick_truth_is_the_simulated_gpus():
    study = quick.default_study()
    board = quick.truth(study, quick.spec_of(ODD))
    setup, pairs = setup_of(ODD)
    assert tuple(pairs) == study.pairs
    for place, target in (
        (4, MeasurementTarget("kernel", study.names[4])),
        (21, MeasurementTarget("kernel", study.names[21])),
        (study.kernels, MeasurementTarget("pass", "forward")),
    ):
        bench = Bench(setup, target, exact=True)
        known = np.array([per_launch(bench.point(pair)) for pair in pairs])
        np.testing.assert_allclose(board.time_s[place], known[:, 0], rtol=1e-12)
        np.testing.assert_allclose(board.energy_j[place], known[:, 1], rtol=1e-12)


def test_a_backward_factor_is_the_energy_of_backward_tensor_operations_alone():
    study = quick.default_study()
    one, other = (quick.truth(study, quick.spec_of({}), factor) for factor in (1.0, 0.7))
    lock = study.pairs.index(Pair(1050, 5001))
    changed = ~np.isclose(one.energy_j[:46, lock], other.energy_j[:46, lock], rtol=1e-12)
    wanted = [name.startswith("backward") and work.tensor_flop > 0 for name, work in zip(study.names, study.works)]
    assert list(changed) == wanted


def test_a_quick_choice_keeps_the_limit_and_is_nearly_the_exact_one():
    draw, gaps = np.random.default_rng(5), []
    for _ in range(12):
        kernels, pairs = 9, 14
        time = draw.uniform(0.7, 1.9, (kernels, pairs)) * draw.uniform(1, 30, (kernels, 1))
        energy = draw.uniform(0.5, 1.4, (kernels, pairs)) * draw.uniform(1, 40, (kernels, 1))
        chosen, every = quick.strict(time[None], energy[None])[0], np.arange(kernels)
        problem = Problem.of(list(time), list(energy), [0] * kernels, [list(range(pairs))] * kernels)
        exact = solve(problem, "global", "waste", 0.0, effort=0).energy
        assert time[every, chosen].sum() <= time[:, 0].sum() * (1 + 1e-11)
        gaps.append(100 * (energy[every, chosen].sum() - exact) / energy[:, 0].sum())
    assert min(gaps) >= -1e-9
    assert np.mean(gaps) < 1.0


def test_the_least_change_by_prices_is_that_of_a_problem_by_hand():
    time, energy = np.array([[5.0, 6.0, 4.0], [3.0, 2.0, 3.5]]), np.array([[10.0, 7.0, 11.0], [8.0, 9.0, 5.0]])
    # 6 + 2 = 8 takes 16; 5 + 3.5 = 8.5 takes 15; 6 + 3.5 = 9.5 takes 12
    assert quick.least_change(time, energy, (8.0, 18.0), 0.0) == pytest.approx(100 * (16 / 18 - 1))
    assert quick.least_change(time, energy, (8.0, 18.0), 0.2) == pytest.approx(100 * (12 / 18 - 1))
    assert quick.least_change(time, energy, (5.0, 18.0), 0.0) == 0.0


PAIRS = (Pair(AUTO, AUTO), Pair(1890, AUTO), Pair(2100, 9251), Pair(1680, 5001))


def small_study(**changed):
    """Two kernels, launched 3 and 2 times, the first one forward, at auto and three pairs."""
    work = LaunchWork("gemm", 1e12, 0, 0, 1e9)
    loads = (((0, 1.0),), ((1, 1.0),), ((0, 3.0),), ((1, 2.0),), ((2, 1.0),))
    rows = np.array([22, 4])  # Table 1 leaves both clocks of the first at auto, none of the second
    parts = {"names": ("forward_a", "backward_b"), "rows": rows, "launches": np.array([3.0, 2.0])}
    rest = {"works": (work,) * 3, "gemms": {}, "all_rows": (), "loads": loads, "pairs": PAIRS, "warm_s": 25}
    return quick.Study(**parts | rest | changed)


def small_truth():
    time = np.array([[2.0, 1.98, 2.0, 2.6], [5.0, 5.1, 5.0, 5.2]])
    power = np.array([[100.0, 90.0, 99.0, 70.0], [200.0, 180.0, 200.0, 150.0]])
    time = np.vstack([time, 3 * time[0], 2 * time[1], np.ones(4)])
    power = np.vstack([power, power, np.ones(4)])
    return quick.Truth(time, power, np.full(time.shape, 1900.0), np.zeros(time.shape, dtype=bool))


SILENT = paper.Scatter(np.zeros(0), np.zeros(1), np.zeros(1), 0.0, 0.0)


def test_facts_without_scatter_are_those_of_the_truth():
    facts = paper.facts_of(small_study(), small_truth(), SILENT, cool_mhz=1930, draws=3)
    # forward may take 1890 MHz and so 0.06 s less; backward's 1890 MHz would take 0.2 s more
    auto_j, saved_j = 3 * 200 + 2 * 1000, 3 * (200 - 1.98 * 90)
    assert facts["again_energy"] == pytest.approx([-100 * saved_j / auto_j] * 3)
    assert facts["again_time"] == pytest.approx([-100 * 0.06 / 16] * 3)
    assert facts["pass_energy"] == pytest.approx(facts["claimed_energy"])
    assert list(facts["square"]) == [2, 2, 2]  # 1890, and 2100 at 99 W
    assert list(facts["square_lowering"]) == [1, 1, 1]
    assert facts["square_largest"] == pytest.approx([100 * (1.98 * 90 / 200 - 1)] * 3)
    assert facts["square_range"] == pytest.approx([9.9] * 3)  # 10.9 less 1 %
    assert facts["forward_share"] == pytest.approx([600 / 2600] * 3)
    assert facts["backward_fastest"] == pytest.approx([2.0] * 3)  # 5.1 for 5.0
    assert facts["backward_kept"].all()
    assert list(facts["backward_small"]) == [2, 2, 2]  # 1890 at +2 %, 1680 at +4 %
    assert facts["one_share"] == pytest.approx([1.0] * 3)
    assert facts["free"].tolist() == [[1, 2]] * 3
    assert facts["fastest_time"] == pytest.approx([-100 * 0.06 / 16] * 3)


def test_a_lock_counts_as_lower_by_autos_cool_clock():
    facts = paper.facts_of(small_study(), small_truth(), SILENT, cool_mhz=1880, draws=1)
    assert facts["square_lowering"] == [0]  # 1890 MHz is no lower than a board that never runs above 1880
    assert facts["backward_fastest"] == pytest.approx([4.0])  # 1680 MHz


def test_a_change_scatters_by_the_offsets_of_auto_and_of_a_lock_and_by_two_windows():
    # of the backward pass, 10 s a run: no scatter of a window's time beyond 3 s but what the second row says
    scatter = paper.Scatter(np.array([3.0]), np.array([0.5, 0.0025]), np.array([0.5, 0.03]), 0.004, 0.0012)
    facts = paper.facts_of(small_study(), small_truth(), scatter, cool_mhz=1800, draws=6000)
    wanted = 100 * 1.04 * math.sqrt(0.004**2 + 0.0012**2 + 2 * 0.0025**2)  # 1680 MHz takes 4 % more
    assert np.std(facts["backward_fastest"]) == pytest.approx(wanted, rel=0.04)
    assert np.mean(facts["backward_fastest"]) == pytest.approx(4.0, abs=0.03)


def test_clues_are_near_their_numbers_and_joined_over_draws():
    facts = paper.facts_of(small_study(), small_truth(), SILENT, cool_mhz=1930, draws=2)
    values = paper.clue_values(facts)
    again = facts["again_energy"][0]
    assert values["8, energy"][0] == pytest.approx(-0.5 * ((again + 14.6) / 0.7) ** 2)
    assert values["3"][0] == pytest.approx(2 * math.log(0.95))
    # Table 1 leaves both clocks of the first row at auto, where ours lowers one; of the second none
    assert values["30"][0] == pytest.approx((math.log(0.5 / 3) + math.log(2.5 / 3)) / 3)
    made = {"1": np.array([-1.0, -3.0]), "9": np.array([-0.5, -0.1]), "30": np.array([-2.0])}
    both = math.log((math.exp(-1.5) + math.exp(-3.1)) / 2)
    assert paper.log_likelihood(made) == pytest.approx(both - 2.0)
    alone = math.log((math.exp(-1) + math.exp(-3)) / 2)
    assert paper.log_likelihood(made, frozenset(("9", "30"))) == pytest.approx(alone)


def test_figures_make_a_spec_that_the_package_takes():
    figures = infer_board.shipped_figures() | {
        "auto_mhz": 1947,
        "tensor_pj": 0.63,
        "static": 1.03,
        "overlap": 3.7,
        "v_1890": 1.55,
    }
    over = infer_board.overrides(figures)
    checked = specs.resolve(quick.GPU, over)
    quickly = quick.spec_of(over)
    for group in ("energy_pj", "clocks", "governor", "memory", "core", "families", "noise"):
        assert quickly[group] == checked[group], group
    same = quick.truth(quick.default_study(), quick.spec_of(infer_board.overrides(infer_board.shipped_figures())))
    known = quick.truth(quick.default_study(), quick.spec_of({}))
    np.testing.assert_allclose(same.energy_j, known.energy_j, rtol=2e-3)  # rounded


def test_the_sampler_finds_two_hills_with_their_weights_and_the_evidence():
    # prior: uniform on [-10, 10]^2; likelihood: hills of weights 0.3 and 0.7, sds of 0.5 and 1.3
    hills = ((0.3, np.array([-4.0, 3.0]), 0.5), (0.7, np.array([5.0, -2.0]), 1.3))

    def log_likelihood(at):
        parts = [
            math.log(weight / (2 * math.pi * sd**2)) - 0.5 * ((at - mean) ** 2).sum(1) / sd**2
            for weight, mean, sd in hills
        ]
        return [(float(np.logaddexp(*own)), None) for own in zip(*parts)]

    def log_prior(at):
        return np.where((np.abs(at) <= 10).all(1), 0.0, -np.inf)

    start = np.random.default_rng(8).uniform(-10, 10, (1500, 2))
    found = sampling.sample(start, log_prior, log_likelihood, 9, lambda _: None)
    left = found.at[:, 0] < 0
    assert left.mean() == pytest.approx(0.3, abs=0.06)
    assert found.at[~left].mean(0) == pytest.approx([5.0, -2.0], abs=0.2)
    assert found.at[~left].std(0) == pytest.approx([1.3, 1.3], abs=0.15)
    assert found.log_evidence == pytest.approx(math.log(1 / 400), abs=0.2)
    assert found.powers[-1] == 1.0
    assert found.distinct > 1400


def test_weights_are_taken_as_often_as_they_ask():
    weight = np.array([0.5, 3.0, 0.0, 1.5])
    assert np.bincount(sampling.systematic(weight, np.random.default_rng(1)), minlength=4).tolist() in (
        [0, 3, 0, 1],
        [1, 2, 0, 1],
        [0, 2, 0, 2],
        [1, 3, 0, 0],
    )
    assert sampling.next_step(np.array([-3.0, -3.0]), 0.4) == 0.4
    step = sampling.next_step(np.array([0.0, -10.0, -20.0]), 1.0)
    own = np.exp(step * np.array([0.0, -10.0, -20.0]))
    assert own.sum() ** 2 / (own**2).sum() == pytest.approx(sampling.EVEN * 3, rel=1e-3)
    assert infer_board.effective(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
