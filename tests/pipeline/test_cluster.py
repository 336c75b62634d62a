"""A cluster with a straggler: what waits, what is saved, and the figures of the published emulation."""

import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.report.savings import bloat
from kernel_dvfs_pipeline.stage_profile import read_stage_profile
from kernel_dvfs_pipeline.study import ALL_MAX, Method


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
    assert found.intrinsic_change_percent + found.extrinsic_change_percent == pytest.approx(
        found.pipeline_change_percent
    )
    until_s = 1.2 * base.time_s
    energy_j = waiting + base.blocking_w * until_s
    assert found.pipeline_change_percent == pytest.approx(100 * (energy_j / base.energy_j(until_s) - 1))


def test_a_cluster_of_one_pipeline_saves_what_its_straggler_saves(planner):
    base = all_max(planner)
    cost = planner.plan_ticks(base.time_ticks).cost_j
    alone, many = (emulate(base, cost, cost - 100, 1.2, pipelines) for pipelines in (1, 10**6))
    own_j = cost + base.blocking_w * base.time_s
    assert alone.cluster_change_percent == pytest.approx(100 * (own_j / base.energy_j() - 1))
    assert many.cluster_change_percent == pytest.approx(many.pipeline_change_percent, abs=1e-3)


@pytest.mark.parametrize(("ratio", "pipelines"), [(0.9, 4), (1.2, 0), (float("nan"), 4)])
def test_an_impossible_cluster_is_refused(planner, ratio, pipelines):
    with pytest.raises(InputError, match="expected at least 1"):
        emulate(all_max(planner), 1.0, 1.0, ratio, pipelines)


def test_transfers_count_in_every_pipeline_of_a_cluster(planner):
    graph = pipeline_graph("1f1b", 4, 8, transfer_s=0.002)
    drawing = Planner(planner.profile, graph, BLOCKING_W, transfer_w=900.0)
    base = all_max(drawing)
    at_base, waiting = (drawing.plan_ticks(int(ratio * base.time_ticks)) for ratio in (1, 1.2))
    found = emulate(base, at_base.cost_j, waiting.cost_j, 1.2, 7)
    until_s = 1.2 * base.time_s
    plan_j, base_j = (own.energy_j(until_s) for own in (waiting, base))
    assert found.pipeline_change_percent == pytest.approx(100 * (plan_j / base_j - 1))
    own_j, own_base_j = (1.2 * own.energy_j(base.time_s) for own in (at_base, base))
    assert found.cluster_change_percent == pytest.approx(100 * ((own_j + 6 * plan_j) / (own_base_j + 6 * base_j) - 1))


# bound by an independent prototype: percent of the cluster and of a waiting pipeline, T'/T = 1.2, 16 x 96 microbatches
@pytest.mark.parametrize(
    ("model", "cluster", "pipeline"),
    [("gpt3-175b", 28.54, 29.67), pytest.param("bloom", 30.44, 32.34, marks=pytest.mark.nightly)],
)
def test_the_bound_at_1024_gpus_is_the_known_one(shared, model, cluster, pipeline):
    path = shared(f"perseus/stage_profile/{model}+a100_sxm_bf16.csv")
    planner = Planner(read_stage_profile(path, 10, 80), pipeline_graph("1f1b", 8, 96), 8 * 83.64)
    base = all_max(planner)
    at_base, waiting = (float(planner.frontier.cost_at(int(ratio * base.time_ticks))) for ratio in (1, 1.2))
    found = emulate(base, at_base, waiting, 1.2, 16)
    assert found.cluster_change_percent == pytest.approx(-cluster, abs=0.01)
    assert found.pipeline_change_percent == pytest.approx(-pipeline, abs=0.01)
