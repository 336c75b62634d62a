"""Clocks between those of a grid: halfway to a choice's neighbours, and where auto ran. Answers worked out by hand."""

import numpy as np
import pytest

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.search.between import at_auto, halfway

AUTO = (None, None)
KEYS = [AUTO, (1900.0, 9251.0), (1500.0, 9251.0), (1500.0, 5001.0), (1100.0, 9251.0), (1700.0, 5001.0), (None, 5001.0)]
TIME_S = [
    [1.03, 0.99, 1.01, 1.04, 1.20, 1.02, 1.10],
    [0.51, 0.495, 0.505, 0.52, 0.60, 0.51, 0.57],
    [3.07, 2.97, 3.30, 3.60, 4.20, 3.40, 3.31],
    [0.23, 0.20, 0.24, 0.22, 0.33, 0.21, 0.29],
]
ENERGY_J = [[9.0 + row - 0.3 * place for place in range(len(KEYS))] for row in range(4)]
SUPPORTED = {9251.0: [1100, 1215, 1290, 1395, 1500, 1590, 1710, 1815, 1900], 5001.0: [1500, 1590, 1605, 1700, 1790]}


@pytest.fixture
def problem() -> Problem:
    return Problem.of(TIME_S, ENERGY_J, [0] * 4, keys=[KEYS] * 4)


def chosen(problem, *keys) -> np.ndarray:
    """The options of a choice."""
    place = {key: number for number, key in enumerate(problem.keys)}
    target = [problem.target == number for number in range(len(keys))]
    return np.array([np.flatnonzero(own & (problem.key == place[key]))[0] for own, key in zip(target, keys)])


def supported(mem):
    return SUPPORTED.get(mem, [])


def test_the_middle_clocks_on_both_sides_of_a_choice_are_proposed_most_time_first(problem):
    """1.03 s at 1500/9251 looks both ways, to 1290 of (1215, 1290, 1395) and 1710 of (1590, 1710, 1815)."""
    option = chosen(problem, (1500.0, 9251.0), AUTO, (1700.0, 5001.0), (1100.0, 9251.0))
    # 3.07 s at 1700/5001: of (1590, 1605) the upper; 0.23 s at 1100/9251: 1290 again
    assert halfway(problem, option, supported, 9) == [(1605, 5001.0), (1290, 9251.0), (1710, 9251.0)]
    assert halfway(problem, option, supported, 2) == [(1605, 5001.0), (1290, 9251.0)]
    assert halfway(problem, option, supported, 0) == []


def test_times_of_targets_with_the_same_neighbour_add_up(problem):
    """1710 beside 1900 has 0.51 s; 1290 has 1.03 s of the first and 0.23 s of the last: more than 1605 with none."""
    option = chosen(problem, (1100.0, 9251.0), (1900.0, 9251.0), AUTO, (1100.0, 9251.0))
    assert halfway(problem, option, supported, 9) == [(1290, 9251.0), (1710, 9251.0)]
    heavier = chosen(problem, (1900.0, 9251.0), (1900.0, 9251.0), AUTO, (1100.0, 9251.0))
    assert halfway(problem, heavier, supported, 9) == [(1710, 9251.0), (1290, 9251.0)]


def test_nothing_lies_between_where_the_board_has_no_clock_or_auto_is_chosen(problem):
    option = chosen(problem, (1500.0, 9251.0), (1500.0, 5001.0), (1700.0, 5001.0), (1900.0, 9251.0))
    assert halfway(problem, option, lambda mem: [], 9) == []
    assert halfway(problem, option, lambda mem: [1100, 1500, 1700, 1900], 9) == [(1700, 9251.0)]
    assert halfway(problem, problem.baseline, supported, 9) == []
    left_to_the_governor = chosen(problem, *[(None, 5001.0)] * 4)
    assert halfway(problem, left_to_the_governor, supported, 9) == []


def test_the_clock_that_auto_ran_at_for_half_of_the_time_is_proposed_beside_each_chosen_memory_clock(problem):
    """Of 4.84 s 1.03 ran at 1650 MHz, 0.51 at 1683, 0.23 at 1711 and 3.07 at 1777, which is the median."""
    reached_mhz = np.array([1650.0, 1683.0, 1777.0, 1711.0])
    option = chosen(problem, (1500.0, 9251.0), AUTO, (1700.0, 5001.0), (1100.0, 9251.0))
    assert at_auto(problem, option, supported, reached_mhz) == [(1710.0, 9251.0)], "1700 at 5001 is there already"
    only = chosen(problem, AUTO, AUTO, (1700.0, 5001.0), AUTO)
    fine = {5001.0: [1500, 1777, 1778]}
    assert at_auto(problem, only, fine.get, reached_mhz) == [(1777.0, 5001.0)]
    assert at_auto(problem, only, {5001.0: [1778, 1790]}.get, reached_mhz) == [], "none that auto reaches"
    assert at_auto(problem, problem.baseline, supported, reached_mhz) == [], "the core alone was never asked for"


def test_a_clock_that_auto_reaches_but_for_half_a_megahertz_counts_and_one_above_does_not(problem):
    option = chosen(problem, *[(1500.0, 9251.0)] * 4)
    for reached, found in ((1814.5, 1815.0), (1814.4, 1710.0)):
        assert at_auto(problem, option, supported, np.full(4, reached)) == [(found, 9251.0)]
    # half of the time is reached where the first two make it up exactly
    weighed = Problem.of([[2.0, 1.9], [3.0, 2.9], [5.0, 4.9]], [[1.0, 0.9]] * 3, [0] * 3, keys=[KEYS[:2]] * 3)
    both = np.array([1, 3, 5])
    assert at_auto(weighed, both, supported, np.array([1216.0, 1400.0, 1816.0])) == [(1395.0, 9251.0)]
