"""The frontier between two bounds: the exact one lies between them everywhere, and every schedule keeps its time."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from made_up import BLOCKING_W, few_clocks, profile, random_case, settings

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline import planner as planner_module
from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.bracket import Bounds, Bracket, Programme
from kernel_dvfs_pipeline.curve import TICKS_PER_S, TradeOffCurve
from kernel_dvfs_pipeline.graph import Graph, Operation, pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.stage_profile import StageProfile, read_stage_profile

INSTRUCTIONS = ("forward", "backward", "backward_input", "backward_weight")
SHAPES = [("1f1b", 4, 8, 1), ("gpipe", 3, 5, 1), ("interleaved", 2, 4, 2), ("zb-h1", 3, 6, 1), ("dualpipe", 2, 6, 1)]
# the exact frontier's prices are whole microwatts
ROUNDING = 1e-6


@pytest.fixture(scope="module")
def module(pipeline_core):
    return rounding.core(pipeline_core)


@pytest.fixture
def built(module, monkeypatch):
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)


def planners():
    for schedule, stages, microbatches, chunks in SHAPES:
        graph = pipeline_graph(schedule, stages, microbatches, chunks, transfer_s=0.003)
        yield Planner(profile(stages * chunks, instructions=INSTRUCTIONS), graph, BLOCKING_W)
    yield Planner(few_clocks(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)
    for seed in range(12):  # several begins and ends, operations of one clock, any number that wait for one
        graph, own = random_case(np.random.default_rng(seed), 1 + 3 * seed, clocks=1 + seed % 4)
        yield Planner(own, graph, BLOCKING_W)


def programme_of(planner, module):
    curves = [planner.curves[key] for key in planner.keys]
    return Programme(rounding.interior(module, planner.graph, curves), curves, planner.blocking_w)


def cost_on_hulls(planner, durations):
    curves = [planner.curves[key] for key in planner.keys]
    return sum(float(np.interp(own, curve.ticks, curve.cost_j)) for own, curve in zip(durations, curves))


def test_single_times_are_bounded_from_both_sides_by_a_schedule_that_keeps_them_and_a_flow(module):
    for planner in planners():
        programme, exact, graph = programme_of(planner, module), planner.frontier, planner.graph
        assert (programme.fastest_ticks, programme.slowest_ticks) == planner.ends_ticks
        every = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 40).astype(np.int64)
        for ticks in every[::13].tolist():
            found = programme.point(ticks, error=1e-3)
            assert found.begin.min() >= 0 and found.end.max() <= ticks
            assert (found.begin[graph.head] - found.end[graph.tail] >= graph.lag_ticks).all()
            durations = found.end - found.begin
            assert all(own >= planner.curves[key].ticks[0] for own, key in zip(durations, planner.keys))
            assert found.cost_j == pytest.approx(cost_on_hulls(planner, durations), rel=1e-12)
            least, energy = exact.cost_at(ticks), exact.energy_at(ticks)
            assert least - ROUNDING <= found.cost_j <= least + 1e-3 * energy
            # the tangent holds at every other time, too
            below = found.intercept_j - found.price_w * every / TICKS_PER_S
            assert (below <= exact.cost_at(every) + ROUNDING).all()
            assert Bounds.of(ticks, found).least_j == pytest.approx(float(least), abs=1e-3 * float(energy))


def test_a_solve_that_ends_early_is_on_the_right_side_too(module):
    for planner in planners():
        programme, exact, graph = programme_of(planner, module), planner.frontier, planner.graph
        every = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 40).astype(np.int64)
        for error in (100.0, 1.0, 0.1):  # the first ends before the flow is conserved by itself
            for ticks in every[::9].tolist():
                found = programme.point(ticks, error)
                assert found.end.max() <= ticks
                assert (found.begin[graph.head] - found.end[graph.tail] >= graph.lag_ticks).all()
                assert exact.cost_at(ticks) <= found.cost_j + ROUNDING
                below = found.intercept_j - found.price_w * every / TICKS_PER_S
                assert (below <= exact.cost_at(every) + ROUNDING).all()


def test_a_solve_that_starts_between_two_others_is_on_the_right_side_in_fewer_iterations(module):
    planner = Planner(profile(8), pipeline_graph("1f1b", 8, 24), BLOCKING_W)
    programme, exact, graph = programme_of(planner, module), planner.frontier, planner.graph
    every = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 40).astype(np.int64)
    alone = warm = 0
    for faster, ticks, slower in zip(every[1::6].tolist(), every[2::6].tolist(), every[3::6].tolist()):
        starts = [programme.point(end).start for end in (slower, faster)]
        found = programme.point(ticks, 1e-3, *starts)
        assert found.end.max() <= ticks
        assert (found.begin[graph.head] - found.end[graph.tail] >= graph.lag_ticks).all()
        assert exact.cost_at(ticks) <= found.cost_j + ROUNDING
        below = found.intercept_j - found.price_w * every / TICKS_PER_S
        assert (below <= exact.cost_at(every) + ROUNDING).all()
        assert found.cost_j - Bounds.of(ticks, found).least_j <= 2.5e-4 * float(exact.energy_at(ticks))
        alone, warm = alone + programme.point(ticks).iterations, warm + found.iterations
    assert 0 < warm < 0.8 * alone


def test_no_operation_holds_up_the_others(module):
    planner = Planner(profile(8), pipeline_graph("1f1b", 8, 24), BLOCKING_W)
    programme = programme_of(planner, module)
    asked = [int(programme.fastest_ticks * ratio) for ratio in (1, 1.001, 1.01, 1.05, 1.2)]
    assert sum(programme.point(ticks).iterations for ticks in asked) < 105


def test_where_single_precision_breaks_down_a_solve_goes_on_in_double(module):
    planner = Planner(few_clocks(25), pipeline_graph("1f1b", 25, 128), BLOCKING_W)
    programme = programme_of(planner, module)
    for ticks in (programme.fastest_ticks, programme.fastest_ticks + 1):
        found = programme.bounds(ticks)
        assert found.cost_j - found.least_j <= 2.5e-4 * (found.least_j + planner.blocking_w * ticks / TICKS_PER_S)


def test_a_solve_starts_between_the_slowest_iteration_and_another_too(module):
    planner = Planner(profile(8), pipeline_graph("1f1b", 8, 24), BLOCKING_W)
    programme, exact = programme_of(planner, module), planner.frontier
    slowest, faster = (programme.point(int(programme.slowest_ticks * share)).start for share in (1, 0.7))
    ticks = int(programme.slowest_ticks * 0.85)
    alone, found = programme.point(ticks), programme.point(ticks, 1e-3, slowest, faster)
    assert found.iterations < alone.iterations
    assert Bounds.of(ticks, found).least_j - ROUNDING <= exact.cost_at(ticks) <= found.cost_j + ROUNDING


def test_a_start_that_leads_nowhere_is_given_up():
    class Interior:
        fastest_ticks, slowest_ticks = TICKS_PER_S, 2 * TICKS_PER_S

        def solve(self, ticks, tolerance_j, *starts):
            return SimpleNamespace(cost_j=8.0 if starts else 7.0, intercept_j=7.0, price_w=0.0)

    curve = TradeOffCurve(np.array([1, 2]), np.array([1]), np.array([9.0, 5.0]), np.array([0, 1]))
    assert Programme(Interior(), [curve], 1.0).point(TICKS_PER_S, 1e-3, "one", "other").cost_j == 7.0


def test_a_tight_tolerance_is_reached_inside_the_frontier(module):
    planner = Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)
    exact, programme = planner.frontier, programme_of(planner, module)
    for share in (0.07, 0.41, 0.86):
        ticks = int(exact.fastest_ticks + share * (exact.slowest_ticks - exact.fastest_ticks))
        found = programme.bounds(ticks, error=4e-7)
        assert found.cost_j - found.least_j <= 1e-7 * float(exact.energy_at(ticks))
        assert found.cost_j == pytest.approx(float(exact.cost_at(ticks)), abs=2e-7 * float(exact.energy_at(ticks)))


def test_the_exact_frontier_lies_between_both_bounds_and_these_within_the_error(module):
    for planner in planners():
        exact = planner.frontier
        found = programme_of(planner, module).frontier(error=5e-4)
        ticks = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 300).astype(np.int64)
        least, energy = exact.cost_at(ticks), exact.energy_at(ticks)
        assert (found.cost_at(ticks) <= least + ROUNDING).all()
        assert (found.upper_cost_at(ticks) >= least - ROUNDING).all()
        assert found.error <= 5e-4
        assert ((found.upper_cost_at(ticks) - found.cost_at(ticks)) / energy <= found.error + 1e-9).all()
        assert (found.fastest_ticks, found.slowest_ticks) == (exact.fastest_ticks, exact.slowest_ticks)


@pytest.mark.parametrize("parts", [2, 5])
def test_parts_solved_apart_make_a_frontier_within_the_same_error_and_no_less_than_all(module, parts):
    for planner in planners():
        exact, programme = planner.frontier, programme_of(planner, module)
        own = [programme.solved(1e-3, part, parts) for part in range(1, parts + 1)]
        ends = [(min(each.ticks for each in part), max(each.ticks for each in part)) for part in own]
        assert ends[0][0] == exact.fastest_ticks and ends[-1][1] == exact.slowest_ticks
        assert all(slower == faster for (_, slower), (faster, _) in pairwise(ends))
        found = programme.joined(own[::-1])
        assert found.error <= 1e-3
        ticks = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 300).astype(np.int64)
        least = exact.cost_at(ticks)
        assert (found.cost_at(ticks) <= least + ROUNDING).all()
        assert (found.upper_cost_at(ticks) >= least - ROUNDING).all()
        if exact.fastest_ticks < exact.slowest_ticks:
            assert programme.joined(own[1:]) is None and programme.joined(own[:-1]) is None
            assert programme.joined([*own[:-1], []]) is None


def test_parts_are_cut_where_slowing_all_alike_has_saved_an_equal_share():
    # two operations of 9, 3, 1 J at 1, 2, 3 s: of 16 J they have saved 4, 8 and 12 J at 4/3, 5/3 and 2 s
    second = TICKS_PER_S
    curve = TradeOffCurve(
        np.array([1, 2, 3]) * second, np.array([6, 2]) * 10**6, np.array([9.0, 3.0, 1.0]), np.array([0, 1, 2])
    )
    interior = SimpleNamespace(fastest_ticks=4 * second, slowest_ticks=10 * second)
    programme = Programme(interior, [curve, curve], 1.0)
    # as far from the fastest iteration to the slowest as these from 1 to 3 s
    ends = [4, 5, 6, 7, 10]
    for part in (1, 2, 3, 4):
        assert programme.part_ticks(part, 4) == pytest.approx([own * second for own in ends[part - 1 : part + 1]])
    assert programme.part_ticks(1, 1) == (4 * second, 10 * second)


def test_what_contradicts_itself_is_no_frontier(module):
    programme = programme_of(Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W), module)
    own = sorted(programme.solved(), key=lambda each: each.ticks)
    assert programme.joined([own]) is not None
    middle = len(own) // 2
    for changed in (
        replace(own[middle], cost_j=own[middle].least_j * 0.99),
        replace(own[middle], cost_j=float("nan")),
        replace(own[middle], intercept_j=float("inf")),
        replace(own[middle], cost_j=float("inf")),
    ):
        assert programme.joined([[*own[:middle], changed, *own[middle + 1 :]]]) is None


def test_on_measured_stages_the_exact_frontier_is_never_on_the_wrong_side_at_3000_times(shared, module):
    stages = read_stage_profile(shared("perseus/stage_profile/gpt3-175b+a100_sxm_bf16.csv"), 10, 80)
    planner = Planner(stages, pipeline_graph("1f1b", 8, 48), 8 * 83.64)
    exact, found = planner.frontier, programme_of(planner, module).frontier()
    ticks = np.linspace(exact.fastest_ticks, exact.slowest_ticks, 3000).astype(np.int64)
    least = exact.cost_at(ticks)
    assert (found.cost_at(ticks) <= least * (1 + 1e-9)).all() and (
        found.upper_cost_at(ticks) >= least * (1 - 1e-9)
    ).all()
    assert found.error <= 1e-3


def test_chords_tangents_and_error_are_those_worked_out_by_hand():
    # tangents 61 - 7 T and 37 - 3 T meet at 6 s, at 19 J; the chord from (4 s, 35 J) to (9 s, 11 J) is at 25.4 J there
    second = TICKS_PER_S
    found = Bracket.around(
        [Bounds(9 * second, 11.0, 37.0, 3.0), Bounds(4 * second, 35.0, 61.0, 7.0)], 9.5, blocking_w=2.5
    )
    assert found.records.ticks.tolist() == [9 * second, 6 * second, 4 * second]
    assert found.cost_j.tolist() == pytest.approx([10.0, 19.0, 33.0])
    assert found.records.price_uw.tolist() == [0, 3_000_000, 7_000_000]
    assert float(found.upper_cost_at(6 * second)) == pytest.approx(25.4)
    assert found.error == pytest.approx((25.4 - 19) / (19 + 2.5 * 6))
    assert found.far_apart(0.18) == [(9 * second, 6 * second, 4 * second)] and found.far_apart(0.19) == []
    # what nothing undercuts bends the bound where a tangent falls below it: 37 - 3 T = 13 at 8 s
    flat = Bracket.around(
        [Bounds(9 * second, 14.0, 37.0, 3.0), Bounds(4 * second, 35.0, 61.0, 7.0)], 13.0, blocking_w=2.5
    )
    assert flat.records.ticks.tolist() == [9 * second, 8 * second, 6 * second, 4 * second]
    assert flat.cost_j.tolist() == pytest.approx([13.0, 13.0, 19.0, 33.0])


def test_many_operations_are_planned_from_the_interior_point_in_time_and_not_below_the_bound(built, monkeypatch):
    graph, stages = pipeline_graph("1f1b", 4, 8), few_clocks(4)
    few = Planner(stages, graph, BLOCKING_W)
    exact = few.frontier
    monkeypatch.setattr(planner_module, "_FEW", 10)
    monkeypatch.setattr(rounding, "_MANY", 10)
    many, again = (Planner(stages, graph, BLOCKING_W) for _ in range(2))
    assert isinstance(many.frontier, Bracket) and many.frontier.error <= 1e-3
    for ticks in np.linspace(exact.fastest_ticks, exact.slowest_ticks, 9).astype(np.int64).tolist():
        for thorough in (False, True):
            plan = many.plan_ticks(ticks, thorough=thorough)
            assert plan.time_ticks <= ticks
            # proven against the lower bound, so never less than what it is against the exact one
            assert plan.bound_j <= float(exact.cost_at(ticks)) + ROUNDING <= plan.cost_j + 2 * ROUNDING
            assert plan.parts == again.plan_ticks(ticks, thorough=thorough).parts
    budget_j = 1.01 * float(exact.energy_j.min())
    assert many.plan_for_energy(budget_j).energy_j() <= budget_j


def test_a_price_that_no_search_can_count_is_refused(module):
    graph = Graph([Operation(0, 0, "forward", 0)], [], stages=1)
    stages = StageProfile({(0, "forward"): settings([2, 1], [1.0, 2.0], [2e9, 0.0])}, "dear")
    with pytest.raises(InputError, match="a second less costs"):
        programme_of(Planner(stages, graph, BLOCKING_W), module)


@pytest.mark.parametrize("stages", [1, 2, 3, 8, 17, 20, 25, 50, 63])
def test_every_stage_chooses_anew_with_its_neighbours(stages):
    groups = [set(each) for each in rounding._neighbours(stages)]
    assert set().union(*groups) == set(range(stages))
    for one in range(stages - 1):
        assert any({one, one + 1} <= group for group in groups)
