"""Each part of the exact solver against a slower one that shares no code with it: linear programming, all pairs, all
combinations."""

from itertools import pairwise

import numpy as np
import pytest
from brute import combinations
from instances import nearly_tied, roofline, uniform
from scipy.optimize import linprog

from kernel_dvfs.choice import meet_in_the_middle, programme
from kernel_dvfs.choice.dominance import Edges, lower_hull, pareto
from kernel_dvfs.choice.integer_grid import IntegerGrid, integer_grid_of
from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.choice.relaxation import Relaxation, lower_bound, price_of_time, relax
from kernel_dvfs.choice.undecided import undecided_of

SHAPES = [roofline, uniform, nearly_tied]
SLACKS = [-0.02, 0.0, 0.013, 0.4]


def relaxed_optimum(problem: Problem, limit: float):
    """(least energy, price of time) of the linear relaxation, by HiGHS within its 1e-7; None where nothing fits."""
    one_each = (problem.target == np.arange(len(problem.first))[:, None]).astype(float)
    found = linprog(problem.energy, [problem.time], [limit], one_each, np.ones(len(one_each)), method="highs")
    return (found.fun, -found.ineqlin.marginals[0]) if found.status == 0 else None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slack", SLACKS)
def test_bound_and_price_are_those_of_the_linear_programme(shape, slack):
    rng = np.random.default_rng(17)
    for _ in range(2):
        problem = shape(rng, 7, 15)
        limit = (1 + slack) * problem.baseline_time
        grid, truth = integer_grid_of(problem, limit, only_fitting=False), relaxed_optimum(problem, limit)
        if truth is None:
            assert grid is None and lower_bound(problem, limit) is None
            continue
        found, (least, price) = relax(grid), truth
        assert found.bound * grid.energy_unit == pytest.approx(least, rel=3e-7)
        assert lower_bound(problem, limit) == pytest.approx(least, rel=3e-7)
        assert found.price * grid.energy_unit / grid.time_unit == pytest.approx(price, rel=1e-6, abs=1e-9)
        # a price that is told spares the search for it, and one that is wrong is not believed blindly
        assert lower_bound(problem, limit, price) == pytest.approx(least, rel=3e-7)
        assert lower_bound(problem, limit, 7 * price + 1) <= least * (1 + 3e-7)
        score = problem.energy + price * problem.time
        reduced = score - np.minimum.reduceat(score, problem.first)[problem.target]
        assert found.reduced * grid.energy_unit == pytest.approx(reduced, rel=1e-5, abs=1e-6 * score.max())
        # the best within the limit of the choices that minimise energy + price x time at some price
        assert grid.t[found.choice].sum() <= grid.budget
        steps = np.linspace(0, 50 * (price + 1), 4000)
        vertices = [best_at(problem, step) for step in (*steps, *(price * (1 + 1e-6), price * (1 - 1e-6)))]
        fits = [energy for time, energy in vertices if time <= limit * (1 + 1e-9)]
        assert problem.energy[found.choice].sum() <= min(fits) * (1 + 1e-9)


def test_a_choice_that_takes_the_whole_limit_is_not_below_its_bound():
    """A hair of the limit is worth a lot here: 100 J in a millisecond."""
    problem = Problem.of([[1.0, 0.999]], [[1.0, 101.0]], [0])
    assert 1 - 2e-4 < lower_bound(problem, 1.0) <= 1.0
    # no choice takes anything between
    assert lower_bound(problem, 0.9995) == pytest.approx(101)


def best_at(problem, price):
    score = problem.energy + price * problem.time
    bounds = [*problem.first, len(score)]
    option = [low + int(score[low:high].argmin()) for low, high in pairwise(bounds)]
    return problem.time[option].sum(), problem.energy[option].sum()


def test_a_pair_matches_where_no_other_within_the_room_has_less_energy_then_less_time():
    rng = np.random.default_rng(3)
    for _ in range(200):
        sizes = rng.integers(1, 7, 2)
        (t_a, t_b), (e_a, e_b) = ([rng.integers(-3, 4, size).astype(float) for size in sizes] for _ in range(2))
        room = float(rng.integers(-4, 5))
        pairs = [
            (e_a[i] + e_b[j], t_a[i] + t_b[j])
            for i in range(sizes[0])
            for j in range(sizes[1])
            if t_a[i] + t_b[j] <= room
        ]
        found = meet_in_the_middle.match(t_a, e_a, t_b, e_b, room)
        if not pairs:
            assert found is None
            continue
        energy, time, i, j = found
        assert (energy, time) == min(pairs) == (e_a[i] + e_b[j], t_a[i] + t_b[j])


def test_swaps_make_a_choice_better_and_never_break_its_limit():
    rng, helped = np.random.default_rng(4), 0
    for _ in range(30):
        problem = nearly_tied(rng, 8, 12)
        grid = integer_grid_of(problem, 1.01 * problem.baseline_time)
        relaxation = relax(grid)
        found = meet_in_the_middle.swap(grid, relaxation, relaxation.choice)
        assert grid.target[found].tolist() == list(range(8)) and grid.t[found].sum() <= grid.budget
        assert grid.e[found].sum() <= grid.e[relaxation.choice].sum()
        helped += grid.e[found].sum() < grid.e[relaxation.choice].sum()
    assert helped > 20


@pytest.mark.parametrize(
    ("helps", "turns"), [("--", 2), ("+-", 2), ("-+-+", 4), ("-+--", 4), ("++-+", 4), ("++--", 4), ("+++++", 4)]
)
def test_swaps_go_on_while_one_of_both_ways_to_halve_the_targets_helps_four_turns_at_most(monkeypatch, helps, turns):
    """The way changes from turn to turn; after the second of both has not helped, none will."""
    problem = nearly_tied(np.random.default_rng(4), 8, 12)
    grid = integer_grid_of(problem, 1.01 * problem.baseline_time)
    relaxation, asked = relax(grid), []

    def match(*_):
        asked.append(helps[len(asked)])
        # the last of either list stands for no change
        return (-1.0, 0.0, -1, -1) if asked[-1] == "+" else None

    monkeypatch.setattr(meet_in_the_middle, "match", match)
    assert meet_in_the_middle.swap(grid, relaxation, relaxation.choice).tolist() == relaxation.choice.tolist()
    assert len(asked) == turns


SEARCHES = {
    "programme": lambda undecided, known, bound, margin: programme.run(undecided, *known, bound, margin, 1e9),
    "meet": lambda undecided, known, bound, margin: meet_in_the_middle.meet(undecided, *known, bound, margin, 10**6),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("shape", SHAPES)
def test_either_search_alone_finds_the_optimum_and_knows_that_it_is_done(search, shape):
    rng = np.random.default_rng(8)
    for _ in range(6):
        problem = shape(rng, 5, 8)
        limit = rng.uniform(0.97, 1.1) * problem.baseline_time
        grid = integer_grid_of(problem, limit)
        if grid is None:
            continue
        relaxation = relax(grid)
        start = relaxation.choice
        known = float(grid.e[start].sum()), float(grid.t[start].sum())
        undecided = undecided_of(grid, relaxation, known[0])
        if not undecided.groups:
            continue
        found = SEARCHES[search](undecided, known, relaxation.bound, relaxation.margin)
        choice = start if found.picks is None else undecided.choice(found.picks, grid.target)
        assert found.complete
        assert (found.energy, found.time) == (grid.e[choice].sum(), grid.t[choice].sum())
        _, time, energy = combinations(problem)
        least = energy[time <= limit * (1 + 1e-9)].min()
        assert problem.energy[grid.option[choice]].sum() == pytest.approx(least, rel=1e-9)


def test_a_list_that_was_cut_short_is_no_proof():
    problem = nearly_tied(np.random.default_rng(6), 10, 12)
    grid = integer_grid_of(problem, problem.baseline_time)
    relaxation = relax(grid)
    known = float(grid.e[relaxation.choice].sum()), float(grid.t[relaxation.choice].sum())
    undecided = undecided_of(grid, relaxation, known[0])
    args = undecided, *known, relaxation.bound, relaxation.margin
    assert not meet_in_the_middle.meet(*args, 3).complete and not programme.run(*args, 10).complete
    assert programme.run(*args, 1e9).complete


def searched():
    """(undecided targets, energy and time of the choice known, bound, margin) of a problem with 1,273 states."""
    problem = nearly_tied(np.random.default_rng(6), 10, 12)
    grid = integer_grid_of(problem, problem.baseline_time)
    relaxation = relax(grid)
    known = float(grid.e[relaxation.choice].sum()), float(grid.t[relaxation.choice].sum())
    return undecided_of(grid, relaxation, known[0]), *known, relaxation.bound, relaxation.margin


def test_a_list_that_was_cut_above_what_is_left_of_the_gap_is_a_proof():
    """Both lists are cut at 300, above what a choice may cost that betters the one found on the way."""
    args = searched()
    found, exact = meet_in_the_middle.meet(*args, 300), programme.run(*args, 1e9)
    assert found.states == 600 < meet_in_the_middle.meet(*args, 10**6).states
    assert found.complete and (found.energy, found.time) == (exact.energy, exact.time) and exact.energy < args[1]
    assert not meet_in_the_middle.meet(*args, 100).complete, "though it has found the best one too"


@pytest.mark.parametrize("wide", [13, 20, 45])
def test_no_more_states_are_made_together_than_memory_has_room_for(wide, monkeypatch):
    """Of up to 62, 12 of which come from one state."""
    args, sizes, filtered = searched(), [], programme.pareto
    monkeypatch.setattr(programme, "pareto", lambda t, e, other: sizes.append(len(t)) or filtered(t, e, other))
    exact = programme.run(*args, 1e9)
    assert max(sizes) == 62
    sizes.clear()
    monkeypatch.setattr(programme, "WIDE", wide)
    found = programme.run(*args, 1e9)
    assert (found.energy, found.time, found.complete) == (exact.energy, exact.time, True)
    assert wide / 2 < max(sizes) <= wide


def test_states_take_turns_the_most_promising_last():
    bound = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    assert [part.tolist() for part in programme._turns(bound, 2)] == [[3], [0, 4], [1, 2]]
    assert [part.tolist() for part in programme._turns(bound, 5)] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("tolerance", [1e-4, 1e-3, 1e-2])
def test_what_is_better_by_less_than_a_tolerance_is_not_looked_for(tolerance):
    args = searched()
    exact, near = programme.run(*args, 1e9), programme.run(*args, 1e9, tolerance)
    assert near.complete and near.states < exact.states
    assert exact.energy <= near.energy <= exact.energy / (1 - tolerance)


def whole(times, energies, budget):
    """An integer grid by hand."""
    target = np.repeat(np.arange(len(times)), [len(own) for own in times])
    time, energy = (np.concatenate(values).astype(float) for values in (times, energies))
    first = np.searchsorted(target, np.arange(len(times)))
    other = ~np.isin(np.arange(len(time)), first)
    return IntegerGrid(np.arange(len(time)), time, energy, other, target, first, float(budget), 1.0, 1.0)


def test_a_swap_may_use_the_budget_up_to_its_last_unit():
    grid = whole([[5, 8], [4, 9]], [[50, 40], [10, 1]], 12)
    fastest = np.array([0, 2])
    assert meet_in_the_middle.swap(grid, relax(grid), fastest).tolist() == [1, 2], "10 saved in 3, with 3 to spare"
    tight = whole([[5, 8], [4, 9]], [[50, 40], [10, 1]], 11)
    assert meet_in_the_middle.swap(tight, relax(tight), fastest).tolist() == [0, 2]


@pytest.mark.parametrize(("budget", "price", "choice"), [(17, 0.0, [1, 3]), (16, 1.8, [1, 2]), (11, 10 / 3, [0, 2])])
def test_time_has_no_price_where_the_budget_leaves_room_for_what_uses_least(budget, price, choice):
    """8 and 9 units of time use 41 of energy. 10 saved in 3 units is 10 / 3 a unit, 9 in 5 is 1.8."""
    found, fast = price_of_time(whole([[5, 8], [4, 9]], [[50, 40], [10, 1]], budget))
    assert found == pytest.approx(price) and fast.tolist() == choice


def test_what_is_undecided_by_hand():
    """12 units of time, at 1.8 a unit: 50 + 9, 40 + 14.4 and 43 + 10.8; 10 + 7.2 and 1 + 16.2; 7 + 3.6; so that the
    least energy is 53.8 + 17.2 + 10.6 - 1.8 x 14 = 56.4 at best."""
    grid = whole([[5, 8, 6], [4, 9], [2, 3]], [[50, 40, 43], [10, 1], [7, 7]], 14)
    reduced = np.array([5.2, 0.6, 0.0, 0.0, 0.0, 0.0, 1.8])
    relaxation = Relaxation(1.8, 56.4, reduced, np.array([2, 2, 5]), 0.5)
    few = undecided_of(grid, relaxation, 57.0)
    (one, other) = few.groups
    assert (one.position.tolist(), one.dt.tolist(), one.de.tolist()) == ([3, 4], [0.0, 5.0], [0.0, -9.0])
    assert (other.position.tolist(), other.dt.tolist(), other.de.tolist()) == ([2, 1], [0.0, 2.0], [0.0, -3.0])
    assert one.reduced.tolist() == [0.0, 0.0] and other.reduced.tolist() == [0.0, 0.6]
    assert (few.fastest.tolist(), few.t, few.e, few.budget) == ([2, 3, 5], 12.0, 60.0, 14.0)
    assert few.gap == pytest.approx(0.6) and few.options == 4
    assert few.choice(np.array([1, 0]), grid.target).tolist() == [2, 4, 5]
    # the third target's slower option uses as much energy, so it is never left
    every = undecided_of(grid, relaxation, 62.0)
    assert [group.position.tolist() for group in every.groups] == [[3, 4], [0, 2, 1]]
    assert (every.fastest.tolist(), every.t, every.e) == ([0, 3, 5], 11.0, 67.0)
    none = undecided_of(grid, Relaxation(1.8, 56.4, np.where(reduced, reduced, [0, 0, 0, 0, 9, 0, 0]), None, 0.5), 56.3)
    assert none.groups == [] and (none.fastest.tolist(), none.t, none.e) == ([2, 3, 5], 12.0, 60.0)


@pytest.mark.parametrize("search", [*SEARCHES, "swap"])
def test_one_unit_of_energy_for_all_of_the_budget_is_worth_taking(search):
    """Options of 50, 49 and 40 units at 5, 7 and 10: the last does not fit in 7, and the second is above the line."""
    grid = whole([[5, 7, 10]], [[50, 49, 40]], 7)
    relaxation = relax(grid)
    assert relaxation.bound == 46 and relaxation.choice.tolist() == [0]
    if search == "swap":
        assert meet_in_the_middle.swap(grid, relaxation, relaxation.choice).tolist() == [1]
        return
    undecided = undecided_of(grid, relaxation, 50.0)
    found = SEARCHES[search](undecided, (50.0, 5.0), relaxation.bound, relaxation.margin)
    assert (found.energy, found.time, found.complete) == (49.0, 7.0, True)
    assert undecided.choice(found.picks, grid.target).tolist() == [1]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_uses_the_budget_up_to_its_last_unit_and_betters_only_what_is_worse(search):
    """10 saved in 3 units and 9 in 5: both do not fit in 7."""
    grid = whole([[5, 8], [4, 9]], [[50, 40], [10, 1]], 12)
    relaxation = relax(grid)
    undecided = undecided_of(grid, relaxation, 60.0)
    for known, better in (((60.0, 9.0), True), ((50.0, 13.0), True), ((50.0, 12.0), False), ((50.0, 11.0), False)):
        found = SEARCHES[search](undecided, known, relaxation.bound, relaxation.margin)
        assert found.complete and (found.energy, found.time) == ((50.0, 12.0) if better else known)
        assert (found.picks is not None) == better
        assert not better or undecided.choice(found.picks, grid.target).tolist() == [1, 2]


def test_an_effort_that_just_suffices_is_enough():
    problem = nearly_tied(np.random.default_rng(6), 10, 12)
    grid = integer_grid_of(problem, problem.baseline_time)
    relaxation = relax(grid)
    known = float(grid.e[relaxation.choice].sum()), float(grid.t[relaxation.choice].sum())
    args = undecided_of(grid, relaxation, known[0]), *known, relaxation.bound, relaxation.margin
    needed = programme.run(*args, 1e9).states
    assert programme.run(*args, needed).complete and not programme.run(*args, needed - 1).complete


def test_a_price_is_found_in_a_look_for_each_vertex_of_the_hull(monkeypatch):
    looks, best = [], IntegerGrid.best
    monkeypatch.setattr(IntegerGrid, "best", lambda grid, score: looks.append(1) or best(grid, score))
    rng = np.random.default_rng(12)
    for shape in SHAPES:
        problem = shape(rng, 9, 20)
        grid = integer_grid_of(problem, 1.02 * problem.baseline_time)
        looks.clear()
        relax(grid)
        assert 1 <= len(looks) < 20


def test_the_hull_and_its_edges_by_hand():
    """(1, 9), (2, 5), (4, 4), (5, 1): the third lies above the line from the second to the last."""
    time, energy = np.array([1.0, 2.0, 4.0, 5.0]), np.array([9.0, 5.0, 4.0, 1.0])
    assert lower_hull(time, energy) == [0, 1, 3]
    assert lower_hull(time, np.array([9.0, 5.0, 2.0, 1.0])) == [0, 1, 2, 3]
    other = np.array([3.0, 7.0]), np.array([8.0, 1.0])  # 7 / 4 a unit of time, between 4 and 4 / 3
    edges = Edges([(time, energy), other])
    assert [steps.tolist() for steps in edges.walk()] == [[0, 1, 5, 8], [0, -4, -11, -15]]
    assert [steps.tolist() for steps in edges.walk(after=0)] == [[0, 4], [0, -7]]
    assert [edges.options_after(steps, 2).tolist() for steps in range(4)] == [[0, 0], [1, 0], [1, 1], [3, 1]]
    assert edges.options_after(1, 2, after=0).tolist() == [0, 1]


def test_what_another_option_matches_in_both_is_dropped_and_of_equals_the_baseline_stays():
    time, energy = np.array([3.0, 1.0, 2.0, 2.0, 2.0, 4.0]), np.array([5.0, 8.0, 6.0, 6.0, 7.0, 5.0])
    assert pareto(time, energy, np.array([1, 1, 1, 0, 1, 1])).tolist() == [1, 3, 0]
    assert pareto(time, energy, np.array([1, 1, 0, 1, 1, 1])).tolist() == [1, 2, 0]
