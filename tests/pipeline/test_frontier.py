"""The parametric flow's frontier is the linear programme's, at every time; on small cases nothing lies below it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import BLOCKING_W, curved, profile, random_case
from made_up import settings as settings_of

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.curve import TICKS_PER_S
from kernel_dvfs_pipeline.frontier import parametric_frontier
from kernel_dvfs_pipeline.graph import Graph, Operation, pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.solver import least_cost_j
from kernel_dvfs_pipeline.stage_profile import StageProfile, read_stage_profile

GRAPHS = {
    "1f1b": pipeline_graph("1f1b", 4, 6, transfer_s=0.002),
    "gpipe": pipeline_graph("gpipe", 4, 6),
    "interleaved": pipeline_graph("interleaved", 2, 4, 2),
}


def check_against_programme(planner, times):
    frontier, curves = planner.frontier, [planner.curves[key] for key in planner.keys]
    for time_s in times:
        truth = least_cost_j(planner.graph, curves, time_s)
        assert float(frontier.cost_at(time_s * TICKS_PER_S)) == pytest.approx(truth, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_flow_equals_the_linear_programme(name):
    planner = Planner(profile(4), GRAPHS[name], BLOCKING_W)
    fastest, slowest = planner.frontier.time_s[-1], planner.frontier.time_s[0]
    check_against_programme(planner, np.linspace(fastest * (1 + 1e-9), slowest, 9))


@pytest.mark.parametrize("model", ["gpt3-175b", pytest.param("bloom", marks=pytest.mark.nightly)])
def test_the_flow_equals_the_linear_programme_on_measured_stages(shared, model):
    path = shared(f"perseus/stage_profile/{model}+a100_sxm_bf16.csv")
    planner = Planner(read_stage_profile(path, 10, 80), pipeline_graph("1f1b", 8, 12), 8 * 83.64)
    fastest, slowest = planner.frontier.time_s[-1], planner.frontier.time_s[0]
    check_against_programme(planner, np.linspace(fastest * (1 + 1e-9), slowest, 9))


@pytest.mark.parametrize("name", GRAPHS)
def test_energy_is_convex_in_time_and_every_record_is_its_plan(name):
    planner = Planner(profile(4), GRAPHS[name], BLOCKING_W)
    frontier = planner.frontier
    records = frontier.records
    assert (np.diff(records.ticks) < 0).all() and (np.diff(records.price_uw) > 0).all()
    for number, row in zip(records.kept.tolist(), records.potential):
        begin, end = np.split(row, 2)
        cost = 0.0
        for key, duration in zip(planner.keys, (end - begin).tolist()):
            curve = planner.curves[key]
            cost += float(np.interp(duration, curve.ticks, curve.cost_j))
        assert cost == pytest.approx(frontier.cost_j[number], rel=1e-8)
        assert end.max() == records.ticks[number]
        assert (begin[planner.graph.head] - end[planner.graph.tail] >= planner.graph.lag_ticks).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), operations=st.integers(1, 8))
@pytest.mark.slow
def test_on_random_graphs_no_combination_lies_below_and_no_plan_below_the_best(seed, operations):
    rng = np.random.default_rng(seed)
    graph, stages = random_case(rng, operations, clocks=3)
    planner = Planner(stages, graph, BLOCKING_W)
    frontier = planner.frontier
    ticks = [planner.options[key].ticks.tolist() for key in planner.keys]
    costs = [planner.options[key].cost_j.tolist() for key in planner.keys]
    combinations = []
    for choice in itertools.product(*(range(len(own)) for own in ticks)):
        finish = graph.finish_ticks([own[at] for own, at in zip(ticks, choice)])
        combinations.append((max(finish), sum(own[at] for own, at in zip(costs, choice))))
    times, energies = np.array(combinations).T
    assert frontier.fastest_ticks == times.min()
    assert frontier.slowest_ticks == pytest.approx(times[energies == energies.min()].min(), rel=1e-12)
    slowest_s = times.max() / TICKS_PER_S
    tolerance = 1e-6 * operations * slowest_s + 1e-9  # prices are whole microwatts
    assert (frontier.cost_at(times) <= energies + tolerance).all()
    for limit in rng.choice(times, 5):
        best = energies[times <= limit].min()
        plan, split = (planner.plan_ticks(int(limit), kind) for kind in ("one clock", "split"))
        assert max(plan.time_ticks, split.time_ticks) <= limit
        assert plan.bound_j <= best + tolerance and best <= plan.cost_j + tolerance
        assert plan.bound_j <= split.cost_j + tolerance and split.cost_j <= plan.cost_j + tolerance


def test_with_one_microbatch_or_one_operation_there_is_still_a_frontier():
    for stages, microbatches in ((1, 1), (3, 1), (1, 4)):
        planner = Planner(profile(stages), pipeline_graph("1f1b", stages, microbatches), BLOCKING_W)
        fastest, slowest = planner.frontier.time_s[-1], planner.frontier.time_s[0]
        check_against_programme(planner, np.linspace(fastest * (1 + 1e-9), slowest, 5))


def test_with_little_memory_fewer_plans_are_kept_and_the_frontier_stays_exact():
    planner = Planner(profile(4), GRAPHS["1f1b"], BLOCKING_W)
    curves = [planner.curves[key] for key in planner.keys]
    full, thin = planner.frontier.records, parametric_frontier(planner.graph, curves, memory_byte=20 * 16 * 48)
    assert len(full.kept) == len(full.ticks) and len(thin.kept) <= 21
    assert thin.ticks.tolist() == full.ticks.tolist() and thin.price_uw.tolist() == full.price_uw.tolist()
    planner.frontier = type(planner.frontier)(thin, planner.frontier.cost_j, planner.frontier.blocking_w)
    for ticks in np.linspace(full.ticks[-1], full.ticks[0], 9).astype(int).tolist():
        plan = planner.plan_ticks(ticks)
        assert plan.time_ticks <= ticks and plan.cost_j >= plan.bound_j * (1 - 1e-9)


@pytest.mark.parametrize(("watt", "blocking_w"), [(1e10, BLOCKING_W), (1e10, 3e9)])
def test_prices_that_the_search_cannot_count_are_refused_and_it_always_ends(watt, blocking_w):
    stages = StageProfile(
        {(0, name): curved(0.05, watt, range(700, 1401, 100), 1) for name in ("forward", "backward")}, "dear"
    )
    planner = Planner(stages, pipeline_graph("1f1b", 1, 4), blocking_w)
    try:
        frontier = planner.frontier
    except InputError as error:
        assert "a second less costs" in str(error) and "check the profile" in str(error)
    else:
        assert (np.diff(frontier.records.ticks) < 0).all()


def test_many_prices_below_the_limit_that_together_reach_it_are_refused():
    # a dozen operations side by side: each segment is countable, the sum of their flows is not
    graph = Graph([Operation(0, number, "forward", 0) for number in range(12)], [], stages=1)
    own = settings_of([2, 1], [1.0, 2.0], [4e8, 0.0])
    stages = StageProfile({(number, "forward"): own for number in range(12)}, "dear")
    with pytest.raises(InputError, match="a second less costs"):
        Planner(stages, graph, BLOCKING_W).frontier  # noqa: B018
