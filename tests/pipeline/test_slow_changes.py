"""Changes of clocks that take time: the promise holds all the same, and slower changes leave less.

Within operations, clocks per kernel: dynamic programming against trying everything, and its limits.
"""

import itertools
import math

import numpy as np
import pytest
from made_up import BLOCKING_W, profile, settings

from kernel_dvfs.workload.passes import launch_order
from kernel_dvfs_pipeline.baselines import all_max, per_stage, uniform
from kernel_dvfs_pipeline.curve import curve_of, options_of, split_options
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import KINDS, Planner
from kernel_dvfs_pipeline.slow_changes import cheapest, switched_kernel_level, with_switches
from kernel_dvfs_pipeline.stage_profile import StageProfile
from kernel_dvfs_pipeline.stages_from_kernels import kernel_level, launches, pass_level, read_kernels

STAGES, WAITING_W = 4, 160.0
LATENCIES_S = (0.0, 1e-4, 1e-3, 1e-2, 1.0)


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)


def replayed_s(planner, plan, latency_s):
    """(seconds, changes) of the slowest of the iterations, once a first one is over, in which every change of clocks on
    a stage stops it for latency_s and every one begins with the clocks that the one before it ended with."""
    now = {operation.stage: None for operation in planner.graph.operations}
    iterations = [_iteration_s(planner, plan, latency_s, now) for _ in range(4)]
    return max(iterations[1:])


def _iteration_s(planner, plan, latency_s, now):
    finish, last, switches = [], {}, 0
    durations = (plan.end_ticks - plan.begin_ticks) / 1e12
    for number, operation in enumerate(planner.graph.operations):
        clocks = [part.core_mhz for part in plan.parts[number]]
        if clocks == [None]:
            clocks = [now[operation.stage]]
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


def with_constant_work(stages):
    """A profile in which every stage also loads data, at no clock in particular, and takes an optimiser's step."""
    made = dict(profile(stages).settings)
    for stage in range(stages):
        for name, time_s in (("load", 0.02), ("optimizer", 0.03)):
            made[stage, name] = settings([math.nan], [time_s], [100 * time_s])
    return StageProfile(made, "made-up profile with constant work")


@pytest.mark.parametrize("constant", [("load",), ("+optimizer",), ("load", "+optimizer")])
@pytest.mark.parametrize("kind", KINDS)
def test_constant_work_without_a_clock_changes_none_and_stops_no_baseline(constant, kind):
    graph = pipeline_graph("1f1b", 4, 6, constant=constant)
    own = Planner(with_constant_work(4), graph, BLOCKING_W)
    limit = int(1.1 * all_max(own).time_ticks)
    stages, one = per_stage(own, limit), uniform(own, limit)
    for plan in (stages, one):
        assert plan.time_ticks <= limit and plan.cost_j < all_max(own).cost_j
    assert replayed_s(own, stages, 0.001)[1] == replayed_s(own, one, 0.001)[1] == 0
    for latency_s in (0.001, 0.1):
        found = with_switches(own, limit, latency_s, kind)
        time_s, switches = replayed_s(own, found.plan, latency_s)
        assert time_s <= limit / 1e12 * (1 + 1e-12) and switches <= found.switches


def test_an_iteration_that_ends_in_a_reversed_split_begins_with_the_clocks_it_ended_with():
    # one stage, one microbatch: the backward pass is split and runs backwards after a forward pass at its slower clock
    own = Planner(profile(1, clocks=3), pipeline_graph("1f1b", 1, 1), BLOCKING_W)
    seen = 0
    for ticks in np.linspace(own.frontier.fastest_ticks, own.frontier.slowest_ticks, 60).astype(int).tolist():
        found = with_switches(own, ticks, 1e-9, "split")
        if found.plan.kind != "split":
            continue
        time_s, switches = replayed_s(own, found.plan, 1e-9)
        seen += sum(len(parts) == 2 for parts in found.plan.parts)
        assert time_s <= ticks / 1e12 * (1 + 1e-12) and switches <= found.switches
    assert seen


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


@pytest.fixture(scope="module")
def kernels(kernels_path):
    return read_kernels(kernels_path)


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_clocks_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    weight, change = rng.uniform(0, 1, (5, 3)), float(rng.choice([0.0, 0.1, 0.5, 5.0]))

    def price(choice):
        return weight[np.arange(5), list(choice)].sum() + change * np.count_nonzero(np.diff(choice))

    best = min(price(choice) for choice in itertools.product(range(3), repeat=5))
    assert price(cheapest(weight, change)) == pytest.approx(best)


def test_a_layer_is_launched_kernel_by_kernel_and_then_again():
    assert launch_order([("a", 1), ("b", 2), ("c", 2), ("d", 1)]) == ["a", "b", "c", "b", "c", "d"]


def test_slower_changes_leave_less_and_never_less_than_one_clock(kernels):
    profiles = [kernel_level(kernels, STAGES, WAITING_W)]
    profiles += [switched_kernel_level(kernels, STAGES, WAITING_W, latency_s) for latency_s in (0.0, 1e-5, 1e-3)]
    profiles.append(pass_level(kernels, STAGES))
    for key in launches(kernels, STAGES):
        curves = [curve_of(options_of(own.time_s, own.energy_j, WAITING_W)) for own in (p.of(*key) for p in profiles)]
        times = np.linspace(max(curve.ticks[0] for curve in curves), min(curve.ticks[-1] for curve in curves), 50)
        costs = [np.interp(times, curve.ticks, curve.cost_j) for curve in curves]
        tolerance = 3e-3 * abs(costs[-1]).max()
        for better, worse in itertools.pairwise(costs):
            assert (better <= worse + tolerance).all()
        # where nothing can change in time, one clock it is
        assert costs[-2] == pytest.approx(costs[-1], abs=tolerance)


def test_changes_that_take_no_time_leave_nearly_all_that_kernels_add(kernels):
    best, passes = kernel_level(kernels, STAGES, WAITING_W), pass_level(kernels, STAGES)
    free = switched_kernel_level(kernels, STAGES, WAITING_W, 1e-12)
    for key in launches(kernels, STAGES):
        settings = [each.of(*key) for each in (best, free, passes)]
        curves = [curve_of(options_of(own.time_s, own.energy_j, WAITING_W)) for own in settings]
        times = np.linspace(max(curve.ticks[0] for curve in curves), min(curve.ticks[-1] for curve in curves), 50)
        least, found, one = (np.interp(times, curve.ticks, curve.cost_j) for curve in curves)
        assert (found - least).max() <= 0.1 * (one - least).max(), key


def test_an_option_counts_its_changes(kernels):
    latency_s = 1e-5
    made = switched_kernel_level(kernels, STAGES, WAITING_W, latency_s)
    key = (1, "backward")
    own, names = made.of(*key), launch_order(launches(kernels, STAGES)[key])
    row_of = {str(tuple(None if mhz != mhz else mhz for mhz in pair)): at for at, pair in enumerate(kernels.pairs)}
    for option in range(len(own.time_s)):
        clocks = made.kernel_clocks[key].at(option)
        time_s, now = (len(clocks) - 1) * latency_s, None
        for place, name in enumerate(names):
            now = clocks.get(f"{place}:{name}", now)
            time_s += kernels.time_s[name][row_of[str(now)]]
        assert own.time_s[option] == pytest.approx(time_s)
