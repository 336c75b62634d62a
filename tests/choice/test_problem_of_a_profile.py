"""Rows of a profile become options: weights, left-out verdicts, and replicates that share data and choice."""

import itertools
import math

import pytest

from kernel_dvfs.choice.from_profile import problem_of
from kernel_dvfs_clocks.errors import InputError
from profiles import profile

SETTINGS = ["core_mhz", "mem_mhz"]


def made(rows, weights="counts", ties="tied", **more):
    return problem_of(profile(rows, **more), more.get("settings", SETTINGS), "kernel", weights, ties)


ROWS = [
    ("a", 2, None, None, 1.0, 10.0),
    ("a", 2, 900.0, 5000.0, 2.0, 6.0),
    ("b", 3, None, None, 4.0, 20.0),
    ("b", 3, 900.0, 5000.0, 5.0, 12.0),
]


@pytest.mark.parametrize(
    ("weights", "time", "energy"),
    [("counts", [2, 12], [20, 60]), ("raw", [1, 4], [10, 20]), ("equal-time", [1, 1], [10, 5])],
)
def test_weights_scale_time_and_energy_of_a_launch(weights, time, energy):
    problem = made(ROWS, weights)
    assert problem.time[problem.baseline] == pytest.approx(time)
    assert problem.energy[problem.baseline] == pytest.approx(energy)


def test_a_null_clock_is_auto():
    problem = made(ROWS)
    assert {problem.keys[k] for k in problem.key[problem.baseline]} == {(None, None)}
    assert (900.0, 5000.0) in problem.keys
    # as is NaN; and 900 is 900.0
    mixed = [
        *ROWS[:2],
        ("b", 3, math.nan, None, 4.0, 20.0, {"is_baseline": True}),
        ("b", 3, 900, 5000, 5.0, 12.0),
    ]
    assert made(mixed).keys == made(ROWS).keys and made(mixed).key.tolist() == made(ROWS).key.tolist()


@pytest.mark.parametrize("verdict", ["disturbed", "counter", "unsupported"])
def test_rows_that_say_nothing_about_their_setting_are_left_out(verdict):
    rows = [
        *ROWS,
        ("a", 2, 600.0, 5000.0, 1.0, 0.1, {"verdict": verdict}),
        ("a", 2, 700.0, 5000.0, 1.0, 9.0, {"verdict": "capped"}),
    ]
    keys = {made(rows).keys[k] for k in made(rows).key}
    assert (600.0, 5000.0) not in keys
    assert (700.0, 5000.0) in keys


def test_the_other_study_is_not_mixed_in():
    rows = [*ROWS, ("forward", 1, None, None, 9.0, 9.0, {"study": "pass"})]
    assert made(rows).targets == ("a", "b")
    assert problem_of(profile(rows), SETTINGS, "pass").targets == ("forward",)


TWINS = [
    ("x", 24, None, None, 1.0, 10.0, {"replicate_group": "g", "n": 3}),
    ("x", 24, 900.0, None, 1.1, 6.0, {"replicate_group": "g"}),
    ("x", 24, 600.0, None, 1.3, 5.0, {"replicate_group": "g"}),
    ("y", 12, None, None, 2.0, 14.0, {"replicate_group": "g", "n": 1}),
    ("y", 12, 900.0, None, 1.3, 8.0, {"replicate_group": "g", "n": 3}),
    ("z", 1, None, None, 5.0, 50.0),
]


def test_tied_replicates_pool_their_data_by_number_of_records_and_add_their_weights():
    problem = made(TWINS)
    assert problem.members == (("x", "y"), ("z",))
    assert problem.time[problem.baseline[0]] == pytest.approx(36 * (3 * 1.0 + 1 * 2.0) / 4)
    assert problem.energy[problem.baseline[0]] == pytest.approx(36 * (3 * 10.0 + 1 * 14.0) / 4)
    own = [problem.keys[k] for k in problem.key[problem.target == 0]]
    assert sorted(own, key=str) == [(600.0, None), (900.0, None), (None, None)]
    time = dict(zip(own, problem.time[problem.target == 0]))
    assert time[900.0, None] == pytest.approx(36 * (1.1 + 3 * 1.3) / 4)
    assert time[600.0, None] == pytest.approx(36 * 1.3)  # measured at one member, holds for both


def test_errors_of_a_pooled_mean_add_as_independent_and_the_least_measured_member_counts():
    """Of n measurements each, the mean is sum n x / sum n, so its error is sqrt(sum (n se)^2) / sum n, times 36."""
    errors = [(0.3, 1.1, 3), (0.05, 0.7, 1), (None, 0.2, 1), (0.4, 1.3, 1), (0.07, 0.9, 3)]
    rows = [
        (*row[:6], {"replicate_group": "g", "time_se_s": time, "energy_se_j": energy, "n": n})
        for row, (time, energy, n) in zip(TWINS, errors)
    ]
    problem = made([*rows, TWINS[-1]])
    place = {problem.keys[key]: at for at, key in enumerate(problem.key) if problem.target[at] == 0}
    auto, fast, slow = place[None, None], place[900.0, None], place[600.0, None]
    assert problem.time_se[auto] == pytest.approx(36 * ((3 * 0.3) ** 2 + 0.4**2) ** 0.5 / 4)
    assert problem.energy_se[auto] == pytest.approx(36 * ((3 * 1.1) ** 2 + 1.3**2) ** 0.5 / 4)
    assert problem.time_se[fast] == pytest.approx(36 * (0.05**2 + (3 * 0.07) ** 2) ** 0.5 / 4)
    assert problem.energy_se[slow] == pytest.approx(36 * 0.2) and math.isnan(problem.time_se[slow])
    assert problem.n[[auto, fast, slow]].tolist() == [1, 1, 1] and problem.n[problem.baseline[1]] == 1


def test_tied_replicates_of_equal_time_count_as_one_unit_each():
    problem = made(TWINS, "equal-time")
    assert problem.time[problem.baseline] == pytest.approx([2, 1])
    assert problem.baseline_time == pytest.approx(3)


def test_untied_replicates_have_their_own_data():
    problem = made(TWINS, ties="untied")
    assert problem.members == (("x",), ("y",), ("z",))
    assert problem.time[problem.baseline] == pytest.approx([24, 24, 5])


def test_any_further_setting_is_part_of_the_key():
    rows = [
        ("a", 1, 1410.0, None, 1.0, 9.0, {"power_cap_w": 300.0, "mode": "x", "is_baseline": True}),
        ("a", 1, 1410.0, None, 1.1, 8.0, {"power_cap_w": 200.0, "mode": "x"}),
        ("a", 1, 1410.0, None, 1.2, 7.0, {"power_cap_w": 200.0, "mode": None}),
    ]
    problem = made(rows, settings=[*SETTINGS, "power_cap_w", "mode"])
    assert set(problem.keys) == {(1410.0, None, 300.0, "x"), (1410.0, None, 200.0, "x"), (1410.0, None, 200.0, None)}


def test_each_combination_of_settings_is_a_key_of_its_own():
    """Five cores, two memory clocks, three caps and two modes: every one with its own time."""
    values = itertools.product((600.0, 700.0, 800.0, 900.0, None), (5000.0, None), (200.0, 250.0, 300.0), ("x", None))
    keys = list(values)
    rows = [
        ("a", 1, *key[:2], 1.0 + place, 9.0, {"power_cap_w": key[2], "mode": key[3], "is_baseline": place == 37})
        for place, key in enumerate(keys)
    ]
    problem = made(rows, "raw", settings=[*SETTINGS, "power_cap_w", "mode"])
    assert {problem.keys[key]: time for key, time in zip(problem.key, problem.time)} == {
        key: 1.0 + place for place, key in enumerate(keys)
    }
    assert problem.baseline_time == 38


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS[1:], "baseline"),
        ([*ROWS, ROWS[1]], "900"),
        ([*ROWS[1:], (*ROWS[0], {"verdict": "disturbed"})], "baseline"),
        ([(*row, {"study": "pass"}) for row in ROWS], "kernel"),
        ([*ROWS[:-1], ("b", 3, 900.0, 5000.0, float("nan"), 1.0)], "b"),
    ],
    ids=["no baseline", "same key twice", "disturbed baseline", "no rows", "nan"],
)
def test_a_profile_that_cannot_be_chosen_on_is_refused(rows, words):
    with pytest.raises(InputError, match=words):
        made(rows)


def test_a_missing_column_is_named():
    columns = profile(ROWS)
    del columns["energy_j"]
    with pytest.raises(InputError, match="energy_j"):
        problem_of(columns, SETTINGS, "kernel")
