"""A cluster with a straggler: what waits, what is saved, and the figures of the published emulation."""

import pytest
from made_up import BLOCKING_W, profile, settings

from kernel_dvfs.errors import InputError
from kernel_dvfs.pipeline.baselines import all_max, per_stage, uniform
from kernel_dvfs.pipeline.graph import pipeline_graph
from kernel_dvfs.pipeline.planner import Planner
from kernel_dvfs.pipeline.report.savings import bloat
from kernel_dvfs.pipeline.stage_profile import StageProfile, read_stage_profile
from kernel_dvfs.pipeline.study import ALL_MAX, Method


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)


def emulate(base, at_base_j, waiting_j, ratio, pipelines):
    """The bloat of pipelines whose all-max plan is `base`."""
    energy_j = base.energy_j()
    method = Method(1.0, ALL_MAX, base.time_s, base.cost_j, energy_j, base.time_s, energy_j)
    return bloat(method, at_base_j, waiting_j, base.blocking_w, ratio, pipelines)


def test_intrinsic_and_extrinsic_savings_add_up_to_the_pipelines(planner):
    base = all_max(planner)
    at_base, waiting = (planner.plan_ticks(int(ratio * base.time_ticks)).cost_j for ratio in (1, 1.2))
    found = emulate(base, at_base, waiting, 1.2, 16)
    assert found.intrinsic_percent + found.extrinsic_percent == pytest.approx(found.pipeline_percent)
    assert found.intrinsic_percent > 0 and found.extrinsic_percent > 0
    until_s = 1.2 * base.time_s
    energy_j = waiting + base.blocking_w * until_s
    assert found.pipeline_percent == pytest.approx(100 * (1 - energy_j / base.energy_j(until_s)))


def test_a_cluster_of_one_pipeline_saves_what_its_straggler_saves(planner):
    base = all_max(planner)
    cost = planner.plan_ticks(base.time_ticks).cost_j
    alone, many = (emulate(base, cost, cost - 100, 1.2, pipelines) for pipelines in (1, 10**6))
    own_j = cost + base.blocking_w * base.time_s
    assert alone.cluster_percent == pytest.approx(100 * (1 - own_j / base.energy_j()))
    assert many.cluster_percent == pytest.approx(many.pipeline_percent, abs=1e-3)


@pytest.mark.parametrize(("ratio", "pipelines"), [(0.9, 4), (1.2, 0), (float("nan"), 4)])
def test_an_impossible_cluster_is_refused(planner, ratio, pipelines):
    with pytest.raises(InputError, match="expected at least 1"):
        emulate(all_max(planner), 1.0, 1.0, ratio, pipelines)


# bound by an independent prototype: percent of the cluster and of a waiting pipeline, T'/T = 1.2, 16 x 96 microbatches
@pytest.mark.parametrize(("model", "cluster", "pipeline"), [("gpt3-175b", 28.54, 29.67), ("bloom", 30.44, 32.34)])
def test_the_bound_at_1024_gpus_is_the_known_one(shared, model, cluster, pipeline):
    path = shared(f"perseus/stage_profile/{model}+a100_sxm_bf16.csv")
    planner = Planner(read_stage_profile(path, 10, 80), pipeline_graph("1f1b", 8, 96), 8 * 83.64)
    base = all_max(planner)
    at_base, waiting = (float(planner.frontier.cost_at(int(ratio * base.time_ticks))) for ratio in (1, 1.2))
    found = emulate(base, at_base, waiting, 1.2, 16)
    assert found.cluster_percent == pytest.approx(cluster, abs=0.01)
    assert found.pipeline_percent == pytest.approx(pipeline, abs=0.01)


def test_one_clock_for_all_and_one_per_stage_keep_the_limit_and_lose_to_the_plan(planner):
    base = all_max(planner)
    assert {part.core_mhz for parts in base.parts for part in parts} == {1400.0}
    for limit in (base.time_ticks, int(1.1 * base.time_ticks)):
        one, stages = uniform(planner, limit), per_stage(planner, limit)
        assert max(one.time_ticks, stages.time_ticks) <= limit
        assert len({part.core_mhz for parts in one.parts for part in parts}) == 1
        for stage in range(4):
            own = [
                parts[0].core_mhz
                for parts, operation in zip(stages.parts, planner.graph.operations)
                if operation.stage == stage
            ]
            assert len(set(own)) == 1
        plan = planner.plan_ticks(limit)
        assert plan.cost_j <= stages.cost_j <= one.cost_j <= base.cost_j


def test_one_clock_per_stage_finds_slower_clocks_behind_a_dear_one():
    # 900 MHz costs more than 1000 MHz, 800 MHz much less; and iterations are long, so sums must not drown in them
    own = settings([1000, 900, 800], [100.0, 101.0, 102.0], [1e4, 1.2e4, 0.9e4])
    stages = StageProfile({(0, "forward"): own, (0, "backward"): own}, "dear")
    planner = Planner(stages, pipeline_graph("1f1b", 1, 4), BLOCKING_W)
    found = per_stage(planner, 2 * all_max(planner).time_ticks)
    assert {part.core_mhz for parts in found.parts for part in parts} == {800.0}
