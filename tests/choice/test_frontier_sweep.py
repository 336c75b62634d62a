"""The sweep of slacks runs from the largest saving of time to large slowdowns, monotone and quick."""

import time

import numpy as np
import pytest
from instances import roofline

from kernel_dvfs.choice.frontier import frontier, largest_time_saving_percent
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.scopes import SCOPES, solve


@pytest.fixture(scope="module")
def problem():
    return roofline(np.random.default_rng(11), 46, 55)


@pytest.mark.parametrize("scope", SCOPES)
def test_more_slack_never_costs_energy_and_is_kept(problem, scope):
    slacks = [-largest_time_saving_percent(problem, scope), 0, 1, 2, 5, 10, 30]
    points = frontier(problem, slacks, scope)
    assert [point.status for point in points] == ["optimal"] * len(slacks)
    assert all(point.time_change_percent <= slack + 1e-6 for point, slack in zip(points, slacks))
    energies = [point.energy for point in points]
    assert energies == sorted(energies, reverse=True)
    for slack, point in zip(slacks, points):
        answer = solve(problem, scope, "waste", slack / 100)
        assert (answer.time, answer.energy) == pytest.approx((point.time, point.energy))


def test_too_much_saving_is_infeasible_point_by_point(problem):
    points = frontier(problem, [-largest_time_saving_percent(problem) - 0.1, 0])
    assert [point.status for point in points] == ["infeasible", "optimal"]
    assert points[0].energy is None


def test_saving_of_time_by_hand():
    problem = Problem.of([[4.0, 2.0], [4.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]], [0, 0], [["a", "b"], ["a", "c"]])
    assert largest_time_saving_percent(problem, "global") == pytest.approx(37.5)
    assert largest_time_saving_percent(problem, "local") == pytest.approx(25)
    assert largest_time_saving_percent(problem, "single") == pytest.approx(0)


def test_a_sweep_of_forty_slacks_takes_seconds_at_most(problem):
    frontier(problem, [0])  # imports
    start = time.perf_counter()
    frontier(problem, np.linspace(-2, 30, 40))
    assert time.perf_counter() - start < 5
