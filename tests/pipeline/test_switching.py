"""Changes of clocks that take time: the promise holds all the same, and slower changes leave less."""

import numpy as np
import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs.pipeline.baselines import all_max
from kernel_dvfs.pipeline.curve import split_options
from kernel_dvfs.pipeline.graph import pipeline_graph
from kernel_dvfs.pipeline.planner import KINDS, Planner
from kernel_dvfs.pipeline.slow_changes import with_switches

LATENCIES_S = (0.0, 1e-4, 1e-3, 1e-2, 1.0)


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)


def replayed_s(planner, plan, latency_s):
    """Seconds of an iteration in which every change of clocks on a stage stops it for latency_s."""
    now = {}
    for number, operation in enumerate(planner.graph.operations):
        now[operation.stage] = plan.parts[number][-1].core_mhz
    finish, last, switches = [], {}, 0
    durations = (plan.end_ticks - plan.begin_ticks) / 1e12
    for number, operation in enumerate(planner.graph.operations):
        clocks = [part.core_mhz for part in plan.parts[number]]
        if len(clocks) == 2 and clocks[1] == now[operation.stage]:
            clocks.reverse()
        entry, now[operation.stage] = int(clocks[0] != now[operation.stage]), clocks[-1]
        ready = last.get(operation.stage, 0.0) + entry * latency_s
        begin = max([ready, *(finish[other] + lag / 1e12 for other, lag in planner.graph.before[number])])
        finish.append(begin + durations[number] + (len(clocks) - 1) * latency_s)
        last[operation.stage] = finish[-1]
        switches += entry + len(clocks) - 1
    return max(finish), switches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ratio", [1.0, 1.05, 1.3])
def test_the_promise_holds_with_every_change_counted(planner, kind, ratio):
    limit = int(ratio * all_max(planner).time_ticks)
    costs = []
    for latency_s in LATENCIES_S:
        found = with_switches(planner, limit, latency_s, kind)
        time_s, switches = replayed_s(planner, found.plan, latency_s)
        assert found.time_ticks <= limit and time_s <= limit / 1e12 * (1 + 1e-12)
        assert time_s == pytest.approx(found.time_ticks / 1e12) and switches == found.switches
        costs.append(found.plan.cost_j)
    assert costs[0] == pytest.approx(planner.plan_ticks(limit, kind).cost_j)
    assert costs[-1] <= all_max(planner).cost_j and costs[0] < costs[-1]


def test_a_split_lies_between_its_neighbours_and_none_is_dominated():
    planner = Planner(profile(2), pipeline_graph("1f1b", 2, 2), BLOCKING_W)
    key = planner.keys[0]
    own, curve = planner.options[key], planner.curves[key]
    made = split_options(own, curve, 10)
    assert (np.diff(made.ticks) > 0).all() and (np.diff(made.cost_j) < 0).all()
    split = made.share > 0
    assert split.sum() == 9 * (len(curve.ticks) - 1)
    hull_j = np.interp(made.ticks, curve.ticks, curve.cost_j)
    assert (made.cost_j[split] == pytest.approx(hull_j[split], rel=1e-9)) and (made.cost_j >= hull_j - 1e-9).all()
    assert split_options(own, curve, 1) is own
