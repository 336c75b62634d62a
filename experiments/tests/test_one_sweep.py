"""The paper's way on arrays: what one sweep shows to be best, what is true of it, and what measuring it again shows."""

import numpy as np
import pytest

from experiments.searches import one_sweep
from experiments.searches.one_sweep import Ground, measured_again, measuring, of_table
from experiments.searches.sampling import Campaign, Noise, Truth
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

PAIRS = [BASELINE, Pair(1890, 9251), Pair(1470, 5001)]
LAUNCHES = np.array([3.0, 7.0])
TIME_S = np.array([[0.5, 0.46, 0.58], [0.11, 0.125, 0.12]])
ENERGY_J = np.array([[130.0, 119.0, 101.0], [19.0, 18.5, 15.0]])


@pytest.fixture
def ground():
    """Two kernels that nothing scatters. At auto the iteration takes 1.5 + 0.77 s and 390 + 133 J."""
    nothing = np.zeros(TIME_S.shape)
    known = Truth(["a", "b"], LAUNCHES, [None, None], PAIRS, TIME_S, ENERGY_J, np.full(TIME_S.shape, np.nan))
    return Ground(known, Noise(nothing, nothing, nothing, 0.0, 0.0, 1))


def test_the_best_is_the_least_energy_of_all_choices_that_are_no_slower(ground):
    # a at 1890 gives 0.12 s back, which b spends: 0.07 at 1470; a cannot go there without 0.24 s more
    assert ground.choose(TIME_S, ENERGY_J, 0.0).tolist() == [1, 2]
    time, energy = ground.best(0.0)
    assert time == pytest.approx(100 * (3 * 0.46 + 7 * 0.12) / 2.27 - 100)
    assert energy == pytest.approx(100 * (3 * 119 + 7 * 15) / 523 - 100)
    assert ground.choose(TIME_S, ENERGY_J, 0.15).tolist() == [2, 2], "2.58 s are within 2.61 s"


def test_a_sweep_that_nothing_scatters_claims_what_is_true(ground):
    choice, claimed = one_sweep.one_sweep(ground, measuring(ground, np.random.default_rng(0)), 0.0)
    assert choice.tolist() == [1, 2] and claimed == pytest.approx(ground.best(0.0))


def test_a_sweep_claims_by_its_own_numbers_and_the_truth_is_another(ground):
    def measured(cell, n):
        lucky = np.where(cell == 2, 0.8, 1.0)  # a at 1470 seems to take 0.464 s
        time_s, energy_j = TIME_S.ravel()[cell] * lucky, ENERGY_J.ravel()[cell]
        return Campaign(cell, np.full(len(cell), float(n)), time_s, energy_j, 0 * time_s, 0 * time_s)

    choice, (time, energy) = one_sweep.one_sweep(ground, measured, 0.0)
    assert choice.tolist() == [2, 2]
    assert time == pytest.approx(100 * (3 * 0.464 + 7 * 0.12) / 2.27 - 100) and time < 0
    assert ground.change(choice)[0] == pytest.approx(100 * (3 * 0.58 + 7 * 0.12) / 2.27 - 100)
    assert energy == pytest.approx(ground.change(choice)[1])


def test_measuring_again_compares_with_auto_of_the_same_session_what_was_moved(ground):
    sessions = []

    def measured(cell, n):
        slow = 1 + 0.01 * len(sessions)  # a session's own pace, shared by auto and chosen
        sessions.append((cell.tolist(), n))
        time_s, energy_j = slow * TIME_S.ravel()[cell], slow * ENERGY_J.ravel()[cell]
        return Campaign(cell, np.full(len(cell), float(n)), time_s, energy_j, 0 * time_s, 0 * time_s)

    time, energy = measured_again(ground, np.array([0, 2]), measured)
    assert sessions == [([3, 5], 2)] * one_sweep.REPEATS, "a stays at auto and is not measured"
    paces = 1 + 0.01 * np.arange(one_sweep.REPEATS)
    assert time == pytest.approx(np.mean(100 * paces * 7 * (0.12 - 0.11) / 2.27))
    assert energy == pytest.approx(np.mean(100 * paces * 7 * (15.0 - 19.0) / 523))
    assert measured_again(ground, np.array([0, 0]), measured).tolist() == [0, 0]


def test_a_measured_table_is_chosen_from_among_its_rows_alone(tmp_path):
    rows = "X,a,,,500,130000,1\nX,a,1890,9251,460,119000,0\nX,b,,,110,19000,1\nX,b,1470,5001,120,15000,0\n"
    path = tmp_path / "t.csv"
    path.write_text("gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto\n" + rows)
    table = of_table(path, "raw")
    places = {pair: place for place, pair in enumerate(table.pairs)}
    assert table.targets == ("a", "b") and table.offered.sum() == 4 and table.weight.tolist() == [1, 1]
    both = np.arange(2)
    choice = table.choose(table.time_s, table.energy_j, both, 0.0)
    assert choice.tolist() == [places[1890.0, 9251.0], places[1470.0, 5001.0]]
    assert table.change(table.energy_j, both, choice) == pytest.approx(100 * (119 + 15) / 149 - 100)
    assert of_table(path, "equal-time").weight == pytest.approx([1 / 0.5, 1 / 0.11])
    with pytest.raises(InputError, match="no choice keeps the limit of -50 % slowdown"):
        table.choose(table.time_s, table.energy_j, np.array([1]), -0.5)


def test_a_table_is_taken_as_the_truth_with_its_baseline_first(tmp_path):
    rows = "X,a,1890,9251,460,119000,0\nX,a,,,500,130000,1\nX,b,1890,9251,120,15000,0\nX,b,,,110,19000,1\n"
    path = tmp_path / "t.csv"
    path.write_text("gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto\n" + rows)
    known = one_sweep.table_truth(path)
    assert known.pairs == [BASELINE, Pair(1890, 9251)] and known.launches == pytest.approx([1 / 0.5, 1 / 0.11])
    assert known.time_s == pytest.approx(np.array([[0.5, 0.46], [0.11, 0.12]]))
    with pytest.raises(InputError, match=r"skipped: measured data not found at .*missing\.csv"):
        one_sweep.table_truth(tmp_path / "missing.csv")
