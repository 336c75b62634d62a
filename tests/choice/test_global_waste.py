"""The global choice is exact on large, tight and nearly tied problems, and says what proves it."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from brute import best
from instances import collinear, nearly_tied, roofline, uniform

from kernel_dvfs.choice import certificate, global_waste, programme
from kernel_dvfs.choice.dominance import undominated
from kernel_dvfs.choice.frontier import largest_time_saving_percent
from kernel_dvfs.choice.global_waste import compute_waste, least_energy
from kernel_dvfs.choice.integer_grid import highest_total, integer_grid_of
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.relaxation import lower_bound, relax
from kernel_dvfs.choice.scopes import OBJECTIVES, SCOPES, solve
from kernel_dvfs.choice.undecided import undecided_of
from kernel_dvfs_clocks.errors import InputError

SHAPES = [roofline, uniform, nearly_tied]


def test_a_budget_met_exactly_by_the_baseline_is_kept():
    # any other combination is slower, and 0.1 + 0.2 is not 0.3
    problem = Problem.of([[0.1, 0.2], [0.2, 0.3], [0.3, 0.4]], [[3, 1], [3, 1], [3, 1]], [0, 0, 0])
    answer = solve(problem, "global", "waste", 0.0)
    assert answer.status == "optimal"
    assert list(answer.option) == list(problem.baseline)


def test_exactly_the_largest_saving_is_feasible_and_more_is_not():
    problem = roofline(np.random.default_rng(1), 12, 40)
    saving = largest_time_saving_percent(problem) / 100
    assert solve(problem, "global", "waste", -saving).status == "optimal"
    beyond = solve(problem, "global", "waste", -saving - 1e-6)
    assert (beyond.status, beyond.option, beyond.energy) == ("infeasible", None, None)


def test_one_target_with_one_option():
    answer = solve(Problem.of([[2.0]], [[5.0]], [0]), "global", "waste", 0.0)
    assert (answer.time, answer.energy, answer.lower_bound_energy) == (2.0, 5.0, 5.0)


def test_equal_energy_goes_to_less_time_and_then_to_the_baseline():
    problem = Problem.of([[2.0, 1.0, 1.0], [1.0, 1.0, 1.0]], [[4.0, 4.0, 5.0], [4.0, 4.0, 4.0]], [0, 1])
    for scope in ("local", "global"):
        assert list(solve(problem, scope, "waste", 0.5).option) == [1, 4]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slack", [-0.01, 0.0, 0.05])
def test_scarce_effort_changes_the_way_but_not_the_optimum(shape, slack, monkeypatch):
    rng = np.random.default_rng(5)
    for _ in range(4):
        problem = shape(rng, 5, 10)
        monkeypatch.setattr(global_waste, "TURNS", ((4, 4, 100), (16, 8, 200)))
        monkeypatch.setattr(global_waste, "LEAST_BEAM", 1)
        monkeypatch.setattr(programme, "WIDE", 4)
        truth = best(problem, "global", "waste", slack)
        answer = solve(problem, "global", "waste", slack)
        assert (answer.energy if truth else None) == (pytest.approx(truth[0], rel=1e-9) if truth else None)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bound_lies_below_and_the_witness_agrees(shape):
    problem = shape(np.random.default_rng(2), 20, 30)
    limit = 1.01 * problem.baseline_time
    found = least_energy(problem, limit, effort=1.0)
    energy = problem.energy[found.option].sum()
    assert found.bound <= energy
    assert problem.time[found.option].sum() <= limit * (1 + 1e-9)
    assert found.by == "bound" or (found.confirmed and "INFEASIBLE" in found.proof)
    # what the proof tells is of the options that fit, in the problem's units
    told, percent = map(
        float, re.match(r"LP bound (\S+) over the options that fit, (\S+) % below", found.proof).groups()
    )
    assert found.bound * (1 - 1e-8) <= told <= energy * (1 + 1e-8) and told > 0.99 * energy
    assert percent == pytest.approx(100 * (1 - told / energy), abs=1e-6, rel=0.01)


def test_the_witness_objects_as_soon_as_one_unit_less_is_possible():
    problem = nearly_tied(np.random.default_rng(3), 8, 10)
    integer_grid = integer_grid_of(problem, problem.baseline_time)
    least = least_energy(problem, problem.baseline_time, effort=0).option
    least = float(integer_grid.e[np.searchsorted(integer_grid.option, least)].sum())
    undecided = undecided_of(integer_grid, relax(integer_grid), least + 1)
    assert certificate.no_better(undecided, least, effort=1.0)
    with pytest.raises(RuntimeError, match="better choice"):
        certificate.no_better(undecided, least + 1, effort=1.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_in_other_units_the_choice_is_the_same_to_the_last_digit(shape):
    """Times in units 4096 times smaller and energies in ones 2^23 times larger: each float keeps its digits."""
    time, energy = 2.0**12, 2.0**-23
    problem = shape(np.random.default_rng(12), 9, 15)
    other = replace(problem, time=time * problem.time, energy=energy * problem.energy)
    for slack in (0.0, 0.03):
        limit = (1 + slack) * problem.baseline_time
        one, two = least_energy(problem, limit, effort=0), least_energy(other, time * limit, effort=0)
        assert one.option.tolist() == two.option.tolist() and two.bound == energy * one.bound
        assert (one.by, one.states, one.gap, one.undecided_options) == (
            two.by,
            two.states,
            two.gap,
            two.undecided_options,
        )
        assert lower_bound(other, time * limit) == energy * lower_bound(problem, limit)
        for scope, objective in product(SCOPES, OBJECTIVES):
            first, second = (solve(each, scope, objective, slack, effort=0) for each in (problem, other))
            assert (first.option is None) == (second.option is None)
            if first.option is not None:
                assert first.option.tolist() == second.option.tolist()
                assert second.lower_bound_energy == energy * first.lower_bound_energy


def test_dominated_options_change_nothing():
    problem = roofline(np.random.default_rng(4), 20, 50)
    fine = undominated(problem)
    assert len(fine.time) < len(problem.time)
    for objective in ("waste", "edp", "energy"):
        one, two = solve(problem, "global", objective, 0.02), solve(fine, "global", objective, 0.02)
        assert (one.time, one.energy) == pytest.approx((two.time, two.energy))


def test_hundreds_of_identical_targets_are_no_harder_than_one():
    single = roofline(np.random.default_rng(6), 1, 40)
    count = 300
    problem = Problem.of([single.time] * count, [single.energy] * count, [single.baseline[0]] * count)
    answer = solve(problem, "global", "waste", 0.03)
    assert answer.time <= 1.03 * problem.baseline_time * (1 + 1e-9)
    assert answer.energy <= count * solve(single, "global", "waste", 0.03).energy * (1 + 1e-9)


def test_waste_is_what_the_same_time_could_have_cost_less():
    problem = roofline(np.random.default_rng(7), 15, 40)
    strict = solve(problem, "global", "waste", 0.0)
    base = compute_waste(problem, problem.baseline_time, problem.baseline_energy)
    assert base == pytest.approx(problem.baseline_energy - strict.energy)
    assert base > 0
    assert compute_waste(problem, strict.time, strict.energy) == 0
    local = solve(problem, "local", "waste", 0.0)
    assert 0 <= compute_waste(problem, local.time, local.energy) < base


@pytest.mark.parametrize("shape", SHAPES)
def test_a_choice_as_large_as_the_workload_is_proven_by_few_states(shape):
    """What it takes in seconds is in experiments/benchmarks/global_choice.py."""
    problem = shape(np.random.default_rng(8), 46, 60)
    found = least_energy(problem, problem.baseline_time)
    assert found.by in ("bound", "search") and found.states < 200_000
    assert found.bound <= problem.energy[found.option].sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "slack"),
    [(None, 0.0), (100, 1e-7), pytest.param(1000, 0.0501234567, marks=pytest.mark.nightly)],
)
def test_options_on_one_line_end_within_a_gap_that_is_reported(counts, slack):
    problem = collinear(np.random.default_rng(0), 24, 20, counts)
    limit = (1 + slack) * problem.baseline_time
    found = least_energy(problem, limit)
    energy = problem.energy[found.option].sum()
    assert found.by == "gap" and found.states < 20_000_000
    assert found.gap <= global_waste.GAP and f"none is better by more than {found.gap:.1e} (relative)" in found.proof
    assert energy * (1 - found.gap) <= found.bound * (1 + 1e-9) and found.bound <= energy
    assert problem.time[found.option].sum() <= limit * (1 + 1e-9)


def test_a_search_that_gives_up_says_how_far_it_may_be_from_the_optimum(monkeypatch):
    problem = nearly_tied(np.random.default_rng(5), 20, 30)
    exact = least_energy(problem, problem.baseline_time)
    assert exact.by == "search" and exact.gap == 0
    monkeypatch.setattr(global_waste, "TURNS", ((4, 4, 100),))
    monkeypatch.setattr(global_waste, "LAST", 10)
    found = least_energy(problem, problem.baseline_time)
    least, energy = (problem.energy[each.option].sum() for each in (exact, found))
    assert found.by == "gap" and found.gap > global_waste.GAP
    assert energy * (1 - found.gap) <= least <= energy


@pytest.mark.parametrize("shape", SHAPES)
def test_times_are_rounded_up_the_limit_down_and_energies_to_the_nearest_unit(shape):
    """By exact fractions; both units are at most a billionth part of the totals."""
    problem = shape(np.random.default_rng(21), 11, 15)
    limit = 1.0123 * problem.baseline_time
    grid = integer_grid_of(problem, limit, only_fitting=False)
    time_unit, energy_unit = Fraction(grid.time_unit), Fraction(grid.energy_unit)
    assert math.floor(Fraction(limit * (1 + 1e-9)) / time_unit) == grid.budget
    for t, time, e, energy in zip(grid.t, problem.time, grid.e, problem.energy):
        assert math.ceil(Fraction(time) / time_unit) == t and round(Fraction(energy) / energy_unit) == e
    least = np.minimum.reduceat(problem.energy, problem.first).sum()
    assert 2**-41 < 11 * grid.time_unit / limit <= 2**-35 and 2**-41 < 11 * grid.energy_unit / least <= 2**-35


@pytest.mark.parametrize("quantum", [1.0, 0.01, 3e-4])
def test_times_that_are_multiples_of_a_quantum_have_totals_that_are(quantum):
    rng = np.random.default_rng(9)
    for _ in range(20):
        problem = Problem.of(list(rng.integers(50, 90, (4, 5)) * quantum), list(rng.uniform(1, 2, (4, 5))), [0] * 4)
        limit = rng.uniform(230, 300) * quantum
        totals = np.add.outer(
            np.add.outer(problem.time[:5], problem.time[5:10]), np.add.outer(problem.time[10:15], problem.time[15:])
        )
        # not every multiple need be reached, but none in between is
        highest = highest_total(problem, limit)
        assert totals[totals <= limit].max(initial=0) <= highest * (1 + 1e-12) <= limit * (1 + 1e-9)
        assert highest / quantum == pytest.approx(np.floor(limit / quantum * (1 + 1e-9)), abs=1e-6)


@pytest.mark.parametrize(
    ("limit", "quanta"),
    [(2.5, 0), (3.4999, 0), (3.5, 1), (4.4999, 1), (4.5, 2), (4.50003, 2), (5.5, 2), (5.50003, 3), (7.0, 4)],
)
def test_a_highest_total_counts_in_how_far_times_are_from_whole_quanta(limit, quanta):
    """Steps of 1, 2.00003 and 1 are 1, 2 and 1 quanta of 1.00001 by least squares, each off by at most 0.00001."""
    problem = Problem.of([[1.0, 2.0, 3.00003], [1.5, 2.5]], [[3.0, 2.0, 1.0], [2.0, 1.0]], [0, 0])
    found, totals = highest_total(problem, limit), np.add.outer(problem.time[:3], problem.time[3:])
    assert found == pytest.approx(2.5 + quanta * 1.00001 + 2 * 0.00001, abs=1e-10)
    assert found >= totals[totals <= limit].max()


@pytest.mark.parametrize("shape", SHAPES)
def test_times_without_a_quantum_tell_nothing_of_totals(shape):
    problem = shape(np.random.default_rng(10), 10, 20)
    assert highest_total(problem, problem.baseline_time) == np.inf
    # nor where nothing can be chosen
    assert highest_total(Problem.of([[1.0], [2.0]], [[1.0], [1.0]], [0, 0]), 4.0) == np.inf


@pytest.mark.parametrize(
    "arguments",
    [
        ([[1.0]], [[1.0, 2.0]], [0]),
        ([[1.0]], [[1.0]], [1]),
        ([[]], [[]], [0]),
        ([[1.0, float("nan")]], [[1.0, 1.0]], [0]),
        ([[1.0, 0.0]], [[1.0, 1.0]], [0]),
        ([[1.0, 2.0]], [[1.0, 1.0]], [0], [["a", "a"]]),
        ([], [], []),
    ],
    ids=["lengths", "baseline", "empty", "nan", "zero", "same key twice", "no targets"],
)
def test_a_malformed_problem_is_refused_in_one_line(arguments):
    with pytest.raises(InputError) as caught:
        Problem.of(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("scope", "objective", "slack"),
    [("all", "waste", 0), ("local", "time", 0)]
    + [("global", "waste", slack) for slack in (-1.0, float("nan"), float("inf"))],
)
def test_an_unknown_question_is_refused(scope, objective, slack):
    with pytest.raises(InputError):
        solve(Problem.of([[1.0]], [[1.0]], [0]), scope, objective, slack)
