"""The published algorithm as we rewrote it gives its authors' frontiers, point for point."""

import csv

import numpy as np
import pytest
from made_up import BLOCKING_W, profile, settings

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.published import published_frontier, published_length, unit_curve
from kernel_dvfs_pipeline.stage_profile import read_stage_profile

P_BLOCKING_W = 83.64


def solve(stages, microbatches, profile, blocking_w, transfer_s=0.0, **options):
    graph = pipeline_graph("1f1b", stages, microbatches, transfer_s=transfer_s)
    curves = {key: unit_curve(own.time_s, own.energy_j, blocking_w, **options) for key, own in profile.settings.items()}
    own = [curves[operation.virtual_stage, operation.instruction] for operation in graph.operations]
    return graph, own, published_frontier(graph, own, blocking_w, options.get("unit_s", 0.001))


@pytest.mark.slow
@pytest.mark.parametrize("microbatches", [12, 24])
@pytest.mark.parametrize("model", ["gpt3-175b", "bloom"])
def test_the_frontier_equals_the_reference_point_for_point(shared, model, microbatches):
    stages = read_stage_profile(shared(f"perseus/stage_profile/{model}+a100_sxm_bf16.csv"))
    with open(shared(f"perseus/frontier/a100_sxm/{model}_bf16_mb{microbatches}.csv"), newline="") as file:
        reference = np.array([[float(row["time"]), float(row["energy"])] for row in csv.DictReader(file)])
    _, _, found = solve(8, microbatches, stages, P_BLOCKING_W)
    assert len(found.time_s) == len(reference)
    assert found.time_s == pytest.approx(reference[:, 0], rel=1e-6)
    assert found.energy_j == pytest.approx(reference[:, 1], rel=1e-6)


@pytest.mark.slow
def test_filtering_on_effective_energy_keeps_the_slow_clocks(shared):
    stages = read_stage_profile(shared("perseus/stage_profile/gpt3-175b+a100_sxm_bf16.csv"))
    _, _, found = solve(8, 12, stages, P_BLOCKING_W, filter_on="effective")
    assert len(found.time_s) == 1409 and found.time_s[0] == pytest.approx(4.226)


@pytest.mark.parametrize("filter_on", ["raw", "effective"])
def test_each_point_is_one_unit_faster_and_its_plan_takes_as_long_by_its_own_floored_times(filter_on):
    graph, curves, found = solve(3, 3, profile(3), BLOCKING_W, filter_on=filter_on)
    assert len(found.time_s) > 20
    assert np.diff(found.time_s) == pytest.approx(-0.001)
    for time_s, units in zip(found.time_s, map(found.units_at, range(len(found.time_s)))):
        assert max(graph.finish_ticks(units.tolist())) * 0.001 == pytest.approx(time_s)
        assert all(curve.fastest <= own <= curve.slowest for curve, own in zip(curves, units.tolist()))


def test_a_transfer_takes_whole_units_and_realised_plans_take_it_too():
    stages = profile(3)
    (_, _, near), (graph, _, far) = (
        solve(3, 3, stages, BLOCKING_W, transfer_s=transfer_s) for transfer_s in (0.0, 0.0105)
    )
    # the critical path crosses between stages at least twice forward and twice back
    assert far.time_s[-1] >= near.time_s[-1] + 0.040 - 1e-9 and len(far.time_s) > 20
    for time_s, units in zip(far.time_s, map(far.units_at, range(len(far.time_s)))):
        assert published_length(graph, units.tolist(), 0.001) * 0.001 == pytest.approx(time_s)


def test_the_exact_frontier_lies_at_or_below_the_published_plans_at_measured_figures():
    stages = profile(3)
    graph, curves, found = solve(3, 3, stages, BLOCKING_W, filter_on="effective")
    planner = Planner(stages, graph, BLOCKING_W)
    for units in map(found.units_at, range(0, len(found.time_s), 7)):
        time_s, cost = [], 0.0
        for key, curve, own in zip(planner.keys, curves, units.tolist()):
            row = curve.setting_at(own)
            measured = stages.of(*key)
            time_s.append(float(measured.time_s[row]))
            cost += float(measured.energy_j[row] - BLOCKING_W * measured.time_s[row])
        assert planner.frontier.cost_at(1e12 * max(graph.finish_ticks(time_s))) <= cost * (1 + 1e-9)


def test_an_option_shorter_than_the_unit_time_is_refused():
    with pytest.raises(InputError, match="lower unit_time_s"):
        own = settings([1, 2], [0.0005, 0.002], [1.0, 0.5])
        unit_curve(own.time_s, own.energy_j, 10.0)


def test_the_dearest_option_of_a_unit_stays_and_dominated_ones_go():
    time_s = [0.0101, 0.0105, 0.0202, 0.0303, 0.0404, 0.0350]
    energy_j = [10.0, 9.0, 7.0, 6.0, 5.5, 8.0]
    curve = unit_curve(np.array(time_s), np.array(energy_j), 1.0)
    assert curve.units.tolist() == [40, 30, 20, 10]
    assert curve.setting.tolist() == [4, 3, 2, 0]
    assert curve.setting_at(25) == 2 and curve.setting_at(5) == 0
