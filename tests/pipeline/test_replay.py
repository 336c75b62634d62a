"""Several and changing stragglers, against a simulation of its own; and what waiting and transfers draw."""

import csv
from itertools import pairwise

import numpy as np
import pytest
from made_up import BLOCKING_W, profile

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline.baselines import all_max
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.runtime import Runtime, read_slowdowns, replay, summary
from kernel_dvfs_pipeline.stage_profile import write_stage_profile

STAGES, MICROBATCHES = 4, 8


def planner(transfer_s=0.0, **powers):
    return Planner(
        profile(STAGES), pipeline_graph("1f1b", STAGES, MICROBATCHES, transfer_s=transfer_s), BLOCKING_W, **powers
    )


@pytest.fixture(scope="module")
def solved():
    return planner()


def runtime(solved, lasting=0):
    return Runtime(solved, all_max(solved).time_s, lasting=lasting)


def changing():
    """Five pipelines: one straggles, a slower one joins, the first recovers, all recover, one is slow for a moment."""
    made = np.ones((12, 5))
    made[1:6, 2] = 1.1
    made[4:8, 0] = 1.25
    made[10, 3] = 1.4
    return made


def by_seconds(plan, base, slowdowns, known, waiting_w):
    """One iteration, pipeline by pipeline, in watts and seconds: what each stage does and when it waits."""
    ends, joules = [], []
    for slow, seen in zip(slowdowns, known):
        own = base if seen > 1 else plan
        busy_s = (own.end_ticks - own.begin_ticks).sum() * 1e-12
        busy_j = own.cost_j + BLOCKING_W * busy_s  # effective energy is energy less waiting
        idle_s = STAGES * own.time_s - busy_s
        ends.append(own.time_s * slow)
        joules.append((busy_j + BLOCKING_W * idle_s) * slow)
    until_s = max(ends)
    return until_s, sum(joules) + sum(STAGES * waiting_w * (until_s - end_s) for end_s in ends)


@pytest.mark.parametrize("known_after", [0, 1, 3])
@pytest.mark.parametrize("synchronising_w", [None, 50.0, 200.0])
def test_a_replay_is_what_a_simulation_by_seconds_says(known_after, synchronising_w):
    solved = planner(synchronising_w=synchronising_w)
    running, slowdowns = runtime(solved), changing()
    base = running.plan
    found = replay(running, slowdowns, known_after)
    other, slow = runtime(solved), set()
    plans = [other.plan]
    waiting_w = BLOCKING_W if synchronising_w is None else synchronising_w
    for number, own in enumerate(found):
        seen = slowdowns[number - known_after] if number >= known_after else np.ones(5)
        for pipeline in np.argsort(-seen):
            if seen[pipeline] > 1:
                other.set_straggler(int(pipeline), float(seen[pipeline]) * other.base_s)
                slow.add(pipeline)
            elif pipeline in slow:
                other.clear(int(pipeline))
                slow.remove(pipeline)
        plans.append(other.plan)
        time_s, energy_j = by_seconds(other.plan, base, slowdowns[number], seen, waiting_w)
        assert own.time_s == pytest.approx(time_s) and own.energy_j == pytest.approx(energy_j)
        still_s, still_j = by_seconds(base, base, slowdowns[number], seen, waiting_w)
        assert own.still_time_s == pytest.approx(still_s) and own.still_energy_j == pytest.approx(still_j)
        assert own.stragglers == (slowdowns[number] > 1).sum()
    assert sum(own.changed for own in found) == sum(a is not b for a, b in pairwise(plans))


def test_what_is_known_at_once_saves_energy_and_loses_no_time(solved):
    found = replay(runtime(solved), changing(), known_after=0)
    for own in found:
        assert own.time_s <= own.still_time_s * (1 + 1e-9) and own.energy_j <= own.still_energy_j * (1 + 1e-9)
    assert sum(own.energy_j for own in found) < 0.99 * sum(own.still_energy_j for own in found)


def test_what_is_known_late_costs_time_when_a_straggler_has_recovered(solved):
    found = replay(runtime(solved), changing(), known_after=1)
    assert found[8].time_s > found[8].still_time_s and found[8].stragglers == 0
    assert "changes of plan" in summary(found)


def test_waiting_below_the_blocking_power_makes_less_of_the_time_worth_using():
    cheap, same, dear = (planner(synchronising_w=watts) for watts in (5.0, None, 300.0))
    until_s = 1.5 * all_max(same).time_s
    plans = [own.plan_for_straggler(until_s) for own in (cheap, same, dear)]
    assert plans[0].time_s < plans[1].time_s == pytest.approx(plans[2].time_s)
    # no plan of another time does better, and none is below the bound
    for own, plan in zip((cheap, same, dear), plans):
        assert plan.energy_j(until_s) >= own.bound_j(until_s) * (1 - 1e-12)
        for ratio in np.linspace(1, 1.5, 11):
            ticks = int(ratio * own.frontier.fastest_ticks)
            rest_j = own.bound_j(until_s)
            assert rest_j <= own.plan_ticks(ticks).energy_j(until_s) * (1 + 1e-12)


def test_transfers_add_their_energy_to_every_plan_and_change_none():
    plain, drawing = planner(transfer_s=0.01), planner(transfer_s=0.01, transfer_w=40.0)
    ticks = all_max(plain).time_ticks
    one, other = plain.plan_ticks(ticks), drawing.plan_ticks(ticks)
    transfers = 2 * (STAGES - 1) * MICROBATCHES
    assert other.energy_j() - one.energy_j() == pytest.approx(transfers * 0.01 * 40.0)
    assert other.cost_j == one.cost_j and (other.end_ticks == one.end_ticks).all()
    assert drawing.plan_for_energy(other.energy_j()).energy_j() <= other.energy_j()


def test_with_more_time_than_the_base_plan_takes_nobody_is_later_than_the_straggler(solved):
    base = all_max(solved)
    found = replay(Runtime(solved, 1.03 * base.time_s), changing(), known_after=0)
    assert all(own.time_s <= own.still_time_s * (1 + 1e-9) for own in found)


def test_a_refused_time_leaves_the_runtime_as_it_was(solved):
    running = runtime(solved)
    for impossible in (1e300, -1.0, float("nan")):
        with pytest.raises(InputError, match="iteration time"):
            running.set_straggler(1, impossible)
    assert running.iteration_s == running.base_s
    assert running.set_straggler(2, 1.2 * running.base_s) is not None


@pytest.mark.parametrize("powers", [{"synchronising_w": -1.0}, {"transfer_w": float("nan")}])
def test_impossible_powers_are_refused(powers):
    with pytest.raises(InputError, match=r"power .* expected a number >= 0"):
        planner(**powers)


def written(path, rows):
    path.write_text("iteration,pipeline,slowdown\n" + "\n".join(rows) + "\n")
    return path


def test_the_command_writes_a_row_an_iteration_and_says_what_was_saved(tmp_path, capsys):
    write_stage_profile(tmp_path / "stages.csv", profile(STAGES))
    slow = written(tmp_path / "slow.csv", ["1,0,1.2", "2,0,1.2", "3,0,1.2"])
    words = ["--microbatches", "8", "--blocking-w", "80", "--stragglers", str(slow), "--pipelines", "3"]
    out = tmp_path / "replay.csv"
    assert main(["pipeline", "replay", str(tmp_path / "stages.csv"), *words, "--iterations", "6", "-o", str(out)]) == 0
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["stragglers"] for row in rows] == ["0", "1", "1", "1", "0", "0"]
    assert [row["changed"] for row in rows] == ["False", "False", "True", "False", "False", "True"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"followed once it has lasted {own}" for own in (0, 1, 3, 10)]
    assert lines[0].startswith("followed once it has lasted 0: 6 iterations, emulated: energy -")
    assert "energy +0.00 %, time +0.00 %" in lines[-1]  # three iterations are too few


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (["0,0"], "line 2: 2 cells"),
        (["0,9,1.1"], "line 2, column pipeline: pipeline 9 of 3"),
        (["0,x,1.1"], "line 2, column pipeline: 'x'"),
        (["0,0,fast"], "line 2, column slowdown: 'fast'"),
        (["0,0,0.5"], "line 2, column slowdown: '0.5' is not a number from 1"),
        (["0,0,1.1", "0,0,1.2"], "line 3, column pipeline: pipeline 0 in iteration 0 occurs twice"),
        (["99999999,0,1.1"], "at most 10000000"),
        ([], "a header but no rows"),
    ],
)
def test_bad_slowdowns_are_one_line(tmp_path, rows, named):
    with pytest.raises(InputError) as refused:
        read_slowdowns(written(tmp_path / "slow.csv", rows), 3)
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_a_straggler_is_followed_only_when_it_has_lasted_and_a_short_one_costs_nothing(solved):
    slowdowns = np.ones((16, 3))
    slowdowns[2:4, 1] = 1.3  # two iterations
    slowdowns[6:13, 0] = 1.2  # seven
    for lasting, known_after in ((0, 0), (1, 1), (2, 1), (3, 0), (7, 0)):
        found = replay(runtime(solved, lasting), slowdowns, known_after)
        # known `known_after` later, and then for `lasting` iterations left as it is
        begins = [first + known_after + lasting for first, count in ((2, 2), (6, 7)) if lasting < count]
        changes = [own.iteration for own in found if own.changed]
        assert changes[::2] == begins
        assert all(
            own.energy_j == own.still_energy_j and own.time_s == own.still_time_s
            for own in found[: min(begins, default=16)]
        )
    # one iteration too late, a followed straggler that is over costs time; one that is left alone does not
    at_once, patient = (replay(runtime(solved, lasting), slowdowns[:6], 1) for lasting in (0, 2))
    assert sum(own.time_s for own in at_once) > sum(own.still_time_s for own in at_once)
    assert sum(own.time_s for own in patient) == sum(own.still_time_s for own in patient)
