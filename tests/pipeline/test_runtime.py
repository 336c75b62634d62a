"""A straggler comes and goes while training runs; the answer is a plan, or nothing where nothing has to change."""

import pytest
from made_up import BLOCKING_W, few_clocks, profile

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline import rounding
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.runtime import Runtime


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)


@pytest.fixture
def runtime(planner):
    return Runtime(planner)


def test_a_straggler_slows_the_others_down_and_its_end_brings_the_first_plan_back(runtime):
    first = runtime.plan
    slow = runtime.set_straggler(3, 1.2 * runtime.base_s)
    assert first.time_s < slow.time_s <= 1.2 * runtime.base_s and slow.cost_j < first.cost_j
    back = runtime.clear(3)
    assert back.time_ticks == first.time_ticks and back.cost_j == first.cost_j


def test_the_slowest_of_several_stragglers_counts(runtime):
    runtime.set_straggler(1, 1.3 * runtime.base_s)
    assert runtime.set_straggler(2, 1.1 * runtime.base_s) is None
    assert runtime.iteration_s == 1.3 * runtime.base_s
    assert runtime.clear(1).time_s <= 1.1 * runtime.base_s


def test_noise_within_the_hysteresis_changes_nothing_but_a_broken_promise_does(runtime):
    asked_s = 1.2 * runtime.base_s
    plan = runtime.set_straggler(3, asked_s)
    assert runtime.set_straggler(3, 1.005 * asked_s) is None
    assert runtime.set_straggler(3, asked_s) is None
    # near, but shorter than the plan in force: waiting for it would delay everyone
    quicker = runtime.set_straggler(3, 0.99 * plan.time_s)
    assert quicker is not None and quicker.time_s <= 0.99 * plan.time_s
    assert runtime.set_straggler(3, 1.1 * asked_s) is not None


@pytest.mark.parametrize("hysteresis", [0.0, 0.01, 0.03])
def test_what_the_hysteresis_forgoes_is_never_more_than_its_share_of_the_energy(planner, hysteresis):
    runtime = Runtime(planner, hysteresis=hysteresis)
    kept = 0
    for ratio in (1.002, 1.01, 1.02, 1.03, 1.021, 1.1, 1.11, 1.3, 1.05, 1.04, 1.2):
        until_s = ratio * runtime.base_s
        kept += runtime.set_straggler(3, until_s) is None
        best = planner.plan_for_straggler(until_s)
        assert runtime.plan.time_s <= until_s
        assert best.energy_j(until_s) >= (1 - hysteresis) * runtime.plan.energy_j(until_s) * (1 - 1e-12)
    assert bool(kept) == bool(hysteresis)


def test_drift_in_small_steps_is_followed_in_the_end(runtime):
    asked = [1.2 * runtime.base_s * 1.01**step for step in range(5)]
    answers = [runtime.set_straggler(0, time_s) for time_s in asked]
    assert answers[0] is not None and any(answer is not None for answer in answers[1:])


def test_clearing_a_slight_straggler_brings_the_first_plan_back_too(runtime):
    first = runtime.plan
    runtime.set_straggler(3, 1.03 * runtime.base_s)
    assert runtime.clear(3).time_ticks == first.time_ticks


@pytest.mark.parametrize("time_s", [0, -1, float("nan"), float("inf"), "soon", None])
def test_an_impossible_time_is_refused_and_the_plan_stays(runtime, time_s):
    plan = runtime.plan
    with pytest.raises(InputError, match="pipeline 5: iteration time"):
        runtime.set_straggler(5, time_s)
    assert runtime.plan is plan and runtime.iteration_s == runtime.base_s


def test_clearing_a_pipeline_that_keeps_up_is_refused(runtime):
    runtime.set_straggler(2, 2.0 * runtime.base_s)
    with pytest.raises(InputError, match="pipeline 5 is no straggler; stragglers now: 2"):
        runtime.clear(5)


def test_an_impossible_hysteresis_is_refused(planner):
    with pytest.raises(InputError, match="hysteresis"):
        Runtime(planner, hysteresis=1.5)


def test_a_straggler_is_followed_once_it_has_lasted_and_others_are_not_forgotten_meanwhile(planner):
    runtime = Runtime(planner, lasting=2)
    first = runtime.plan
    assert runtime.set_straggler(3, 1.2 * runtime.base_s) is None
    assert runtime.next_iteration() is None  # the first iteration with it
    assert runtime.set_straggler(3, 1.25 * runtime.base_s) is None  # slower still: its count goes on
    assert runtime.next_iteration() is None and runtime.followed == {}
    slow = runtime.next_iteration()
    assert slow is runtime.plan and 1.2 * runtime.base_s < slow.time_s <= 1.25 * runtime.base_s
    # a slower one that is gone again before it has lasted
    assert runtime.set_straggler(5, 1.5 * runtime.base_s) is None and runtime.next_iteration() is None
    assert runtime.iteration_s == 1.25 * runtime.base_s and runtime.clear(5) is None
    assert runtime.clear(3) is first


@pytest.mark.parametrize("lasting", [-1, 1.5, True])
def test_an_impossible_number_of_iterations_is_refused(planner, lasting):
    with pytest.raises(InputError, match="expected a whole number >= 0"):
        Runtime(planner, lasting=lasting)


def test_a_quick_answer_is_improved_where_there_is_time_and_never_made_worse_or_late(pipeline_core, monkeypatch):
    module = rounding.core(pipeline_core)
    monkeypatch.setattr(rounding, "core", lambda results_dir="results": module)
    runtime = Runtime(Planner(few_clocks(4), pipeline_graph("1f1b", 4, 12), BLOCKING_W), hysteresis=0)
    assert runtime.improve() is None  # the first plan is of a thorough search
    better = 0
    for ratio in (1.011, 1.019, 1.047, 1.13):
        until_s = ratio * runtime.base_s
        quick = runtime.set_straggler(1, until_s)
        found = runtime.improve()
        if found is not None:
            better += 1
            assert found is runtime.plan and found.time_s <= until_s
            assert found.energy_j(until_s) < quick.energy_j(until_s)
        else:
            assert runtime.plan is quick
        assert runtime.improve() is None
        runtime.clear(1)
    assert better
