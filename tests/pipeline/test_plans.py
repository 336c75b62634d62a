"""Plans: never later than promised, never below the bound, and as good as they should be on measured stages."""

from itertools import pairwise

import numpy as np
import pytest
from made_up import BLOCKING_W, few_clocks, profile, settings

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max, per_stage, uniform
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner, write_plan
from kernel_dvfs_pipeline.stage_profile import StageProfile, read_stage_profile
from kernel_dvfs_pipeline.study import KINDS, ONE_CLOCK, SPLIT, read_plan


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(4), pipeline_graph("1f1b", 4, 8), BLOCKING_W)


def measured_planner(shared, model, microbatches):
    path = shared(f"perseus/stage_profile/{model}+a100_sxm_bf16.csv")
    return Planner(read_stage_profile(path, 10, 80), pipeline_graph("1f1b", 8, microbatches), 8 * 83.64)


def replayed(planner, plan):
    """(seconds, effective J) of a plan, from the profile's own rows and the clocks in the plan."""
    durations, cost = [], 0.0
    for key, parts in zip(planner.keys, plan.parts):
        own, time_s = planner.profile.of(*key), 0.0
        for part in parts:
            row = int(np.flatnonzero(own.core_mhz == part.core_mhz)[0])
            time_s += part.share * own.time_s[row]
            cost += part.share * (own.energy_j[row] - planner.stage_blocking_w * own.time_s[row])
        durations.append(time_s)
    return max(planner.graph.finish_ticks(durations)), cost


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_never_later_than_promised_and_its_figures_follow_from_the_profile(planner, kind):
    for time_s in np.linspace(planner.frontier.time_s[-1], planner.frontier.time_s[0], 20):
        plan = planner.plan(float(time_s), kind)
        seconds, cost = replayed(planner, plan)
        assert plan.time_s <= time_s and seconds <= time_s * (1 + 1e-12)
        assert seconds == pytest.approx(plan.time_s, rel=1e-9) and cost == pytest.approx(plan.cost_j, rel=1e-9)
        assert plan.bound_j <= plan.cost_j * (1 + 1e-9)


def test_splitting_never_costs_more_than_one_clock(planner):
    for time_s in np.linspace(planner.frontier.time_s[-1], planner.frontier.time_s[0], 8):
        one, split = (planner.plan(float(time_s), kind) for kind in KINDS)
        assert split.cost_j <= one.cost_j


def test_a_time_above_the_slowest_is_answered_with_that_and_a_note(planner):
    fastest, slowest = planner.frontier.time_s[-1], planner.frontier.time_s[0]
    late = planner.plan(slowest * 2)
    assert late.time_s <= slowest and "this is the slowest" in late.note
    assert planner.plan((fastest + slowest) / 2).note == ""


@pytest.mark.parametrize("time_s", [0, -1, float("nan"), float("inf")])
def test_an_impossible_time_is_refused(planner, time_s):
    with pytest.raises(InputError, match="expected a number > 0"):
        planner.plan(time_s)
    with pytest.raises(InputError, match="straggler's time"):
        planner.plan_for_straggler(time_s)


@pytest.mark.parametrize("asked", ["plan", "plan_for_straggler"])
def test_a_time_below_the_fastest_is_refused_with_the_fastest_that_can_be_asked_for(planner, asked):
    ask, fastest = getattr(planner, asked), float(planner.frontier.time_s[-1])
    for time_s in (fastest / 2, fastest * (1 - 1e-9)):
        with pytest.raises(InputError, match="no iteration is as fast") as refused:
            ask(time_s)
        shown_s = float(str(refused.value).partition("the fastest takes ")[2].split()[0])
        assert fastest <= shown_s <= fastest + 1e-6 and ask(shown_s).time_s <= shown_s
    assert ask(fastest).time_s <= fastest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (few_clocks, ONE_CLOCK),
        (profile, SPLIT),
        pytest.param(few_clocks, SPLIT, marks=pytest.mark.nightly),
        pytest.param(profile, ONE_CLOCK, marks=pytest.mark.nightly),
    ],
)
def test_a_plan_for_an_energy_budget_never_exceeds_it(make, kind):
    planner = Planner(make(4), pipeline_graph("1f1b", 4, 6), BLOCKING_W)
    frontier = planner.frontier
    least, most = frontier.energy_j.min(), frontier.energy_j[-1]
    answered = 0
    for budget in np.linspace(least, 1.02 * most, 7).tolist():
        try:
            plan = planner.plan_for_energy(budget, kind)
        except InputError as refused:
            # only where rounding leaves nothing: close to the least
            assert budget < least + 0.1 * (most - least) and "raise the budget" in str(refused)
            continue
        answered += 1
        seconds, cost = replayed(planner, plan)
        assert plan.energy_j() <= budget and cost + planner.blocking_w * seconds <= budget * (1 + 1e-12)
        # the time that rounding costs is small
        assert plan.time_ticks <= 1.03 * frontier.ticks_at_energy(budget)
    assert answered >= 5


def test_stages_that_the_schedule_leaves_out_are_refused():
    with pytest.raises(InputError, match="5 stages, the schedule uses 4"):
        Planner(profile(5), pipeline_graph("1f1b", 4, 4), BLOCKING_W)


def test_a_straggler_lets_the_others_use_the_time_up_to_the_slowest_iteration(planner):
    fastest, slowest = planner.frontier.time_s[-1], planner.frontier.time_s[0]
    waits = np.linspace(fastest, 1.2 * slowest, 12)
    plans = [planner.plan_for_straggler(float(until)) for until in waits]
    assert all(plan.time_s <= until for plan, until in zip(plans, waits))
    # until the same T', using more of it never costs more
    last = waits[-1]
    energies = [plan.energy_j(last) for plan in plans]
    assert all(later <= earlier * (1 + 1e-4) for earlier, later in pairwise(energies))
    assert plans[-1].time_s == pytest.approx(slowest, rel=1e-12) and plans[-1].note == ""


def test_an_energy_budget_and_a_price_are_answered_from_the_records(planner):
    frontier = planner.frontier
    least = frontier.energy_j.min()
    for budget in np.linspace(least * 1.001, frontier.energy_j[-1] * 1.01, 7):
        ticks = frontier.ticks_at_energy(float(budget))
        assert frontier.energy_at(ticks) <= budget * (1 + 1e-12)
        if ticks > frontier.fastest_ticks:
            assert frontier.energy_at(ticks * (1 - 1e-6)) > budget
    with pytest.raises(InputError, match="raise the budget"):
        planner.plan_for_energy(least * 0.99)
    assert frontier.energy_at(frontier.ticks_at_price(frontier.blocking_w)) == pytest.approx(least)
    middle = len(frontier.cost_j) // 2
    price_w = float(frontier.records.price_uw[middle]) / 1e6
    assert frontier.ticks_at_price(price_w) == frontier.records.ticks[middle - 1]
    assert planner.plan_for_price(0.0).promised_ticks == frontier.slowest_ticks
    assert planner.plan_for_price(1e9).promised_ticks == frontier.fastest_ticks


def test_a_plan_is_written_as_json_per_rank_in_order_of_execution(planner, tmp_path):
    plan = planner.plan(1.02 * planner.frontier.time_s[-1], "split")
    write_plan(tmp_path / "plan.json", plan, {"profile": "made up"})
    document = read_plan(tmp_path / "plan.json")
    assert document["profile"] == "made up" and document["time_s"] <= document["promised_time_s"]
    assert [rank["stage"] for rank in document["ranks"]] == [0, 1, 2, 3]
    for rank in document["ranks"]:
        own = rank["instructions"]
        assert len(own) == 16
        assert all(a["end_s"] <= b["begin_s"] + 1e-12 for a, b in pairwise(own))
        assert all(sum(part["share_of_kernels"] for part in each["clocks"]) == pytest.approx(1) for each in own)
    (tmp_path / "other.json").write_text("{}")
    for bad in ("other.json", "nowhere.json"):
        with pytest.raises(InputError, match=bad):
            read_plan(tmp_path / bad)


# percent saved at the time of all-max: the bound and, at least, one clock rounded (figures of an independent prototype)
SAVED = {
    ("gpt3-175b", 12): (16.059, 15.938),
    ("gpt3-175b", 24): (14.858, 14.720),
    ("bloom", 12): (12.466, 12.314),
    ("bloom", 24): (8.881, 8.765),
}


@pytest.mark.parametrize(
    ("model", "microbatches"),
    [each if each[1] == 12 else pytest.param(*each, marks=pytest.mark.nightly) for each in SAVED],
)
def test_the_savings_on_measured_stages_reach_what_is_known_to_be_possible(shared, model, microbatches):
    planner = measured_planner(shared, model, microbatches)
    base = all_max(planner)
    bound, one = SAVED[model, microbatches]

    def saved(energy_j):
        return 100 * (1 - energy_j / base.energy_j())

    assert saved(planner.frontier.energy_at(base.time_ticks)) == pytest.approx(bound, abs=1e-3)
    plan, split = (planner.plan_ticks(base.time_ticks, kind) for kind in KINDS)
    # what the repair without the core loses
    assert saved(plan.energy_j()) >= one - (5e-3 if plan.search == "Python" else 5e-4)
    assert saved(split.energy_j()) >= bound - 0.01
    for each in (plan, split):
        assert replayed(planner, each)[0] <= base.time_s


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
