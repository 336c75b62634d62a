"""Plans whose clocks can be reached: what is kept is the best that can be, nothing is slower, and time is kept."""

import itertools
import json
import math

import numpy as np
import pytest
from made_up import BLOCKING_W, profile, settings

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement.latency_file import Spread, content
from kernel_dvfs_pipeline.curve import TICKS_PER_S
from kernel_dvfs_pipeline.following import following, read_played
from kernel_dvfs_pipeline.graph import pipeline_graph
from kernel_dvfs_pipeline.planner import Planner
from kernel_dvfs_pipeline.reach import reachable
from kernel_dvfs_pipeline.spreads import EARLY, LATE, Spreads
from kernel_dvfs_pipeline.stage_profile import StageProfile, write_stage_profile


def known(median_s, p99_s=None):
    own = Spread(median_s, p99_s or 1.7 * median_s)
    return Spreads(own, own, "made up")


@pytest.fixture(scope="module")
def planner():
    return Planner(profile(3, clocks=7), pipeline_graph("1f1b", 3, 5), BLOCKING_W)


def pairs_of(plan):
    return {stage: [plan.parts[number][0][:2] for number in numbers] for stage, numbers in plan.by_stage().items()}


@pytest.mark.parametrize("median_s", [1e-6, 0.004, 0.031, 0.11, 0.9])
def test_no_operation_is_slower_and_the_time_is_kept(planner, median_s):
    plan = planner.plan(1.05 * planner.frontier.time_s[-1])
    made = reachable(planner, plan, known(median_s))
    assert made.time_ticks <= plan.time_ticks and made.promised_ticks == plan.promised_ticks
    if made.kind == plan.kind:
        assert ((made.end_ticks - made.begin_ticks) <= (plan.end_ticks - plan.begin_ticks)).all()
    # sum c from the parts themselves
    cost_j = 0.0
    for key, parts in zip(planner.keys, made.parts):
        own = planner.profile.of(*key)
        row = own.core_mhz.tolist().index(parts[0].core_mhz)
        cost_j += own.energy_j[row] - BLOCKING_W * own.time_s[row]
    assert made.cost_j == pytest.approx(cost_j)
    assert made.cost_j >= plan.cost_j - 1e-9


def test_changes_at_once_keep_the_plan_and_slow_ones_all_but_end_it(planner):
    plan = planner.plan(1.05 * planner.frontier.time_s[-1])
    assert pairs_of(reachable(planner, plan, known(1e-9))) == pairs_of(plan)
    costs = [reachable(planner, plan, known(each)).cost_j for each in (1e-6, 0.02, 0.06, 0.2, 2.0)]
    assert costs == sorted(costs) and costs[0] < costs[-1]


def test_what_is_kept_is_the_best_of_all_that_can_be():
    """One stage of seven operations: every way to give each a pair, held to the rule by itself."""
    mhz = (1500, 1200, 900)
    work = {
        "forward": settings(mhz, [0.051, 0.057, 0.071], [19.1, 15.3, 14.2]),
        "backward": settings(mhz, [0.093, 0.108, 0.131], [37.7, 30.1, 26.9]),
    }
    made = StageProfile({(stage, name): own for stage in (0, 1) for name, own in work.items()}, "two stages")
    planner = Planner(made, pipeline_graph("1f1b", 2, 3), BLOCKING_W)
    plan = planner.plan(1.03 * planner.frontier.time_s[-1])
    for median_s in (0.011, 0.033, 0.052):
        spread = known(median_s, 1.31 * median_s)
        found = reachable(planner, plan, spread)
        least = sum(best_of(planner, plan, numbers, spread) for numbers in plan.by_stage().values())
        if found.kind == plan.kind:
            assert found.cost_j == pytest.approx(least)
        else:  # one pair a stage is cheaper than the best that the plan leaves
            assert found.cost_j <= least


def best_of(planner, plan, numbers, spread):
    """Least cost of a stage by trying everything."""
    begin_s = plan.begin_ticks[numbers] / TICKS_PER_S
    most = (plan.end_ticks - plan.begin_ticks)[numbers] / TICKS_PER_S
    rest_s = begin_s[0] + (plan.time_ticks - plan.end_ticks[numbers[-1]]) / TICKS_PER_S
    own = [planner.profile.of(*planner.keys[number]) for number in numbers]
    keeps_s = 2 * spread.core.at(LATE) - spread.core.at(EARLY)
    least = math.inf
    for rows in itertools.product(range(3), repeat=len(numbers)):
        if any(each.time_s[row] > limit for each, row, limit in zip(own, rows, most)):
            continue
        changes = [0] + [at for at in range(1, len(rows)) if rows[at] != rows[at - 1]]
        if any(begin_s[after] - begin_s[before] < keeps_s for before, after in itertools.pairwise(changes)):
            continue
        rises = own[0].core_mhz[rows[0]] > own[0].core_mhz[rows[-1]]
        if rows[0] != rows[-1] and rest_s < spread.core.at(LATE if rises else EARLY):
            continue
        least = min(least, sum(each.energy_j[row] - BLOCKING_W * each.time_s[row] for each, row in zip(own, rows)))
    return least


def latency_file(path, times_s):
    trials = [
        {
            "domain": "core",
            "from_mhz": 1400,
            "to_mhz": 700,
            "verdict": "ok",
            "call_s": 0.001,
            "first_effect_s": None,
            "settled_s": each,
            "nvml_s": each,
            "stall_s": 0.0,
        }
        for each in times_s
    ]
    gpu = {"name": "made up", "uuid": "GPU-0", "driver": "0"}
    path.write_text(json.dumps(content({"gpu": gpu, "started_utc": "2026-11-29T00:00:00Z"}, trials)))


def test_requests_come_before_their_operations_by_what_a_change_takes(tmp_path, capsys):
    write_stage_profile(tmp_path / "stages.csv", profile(3, clocks=7))
    latency_file(tmp_path / "latency.json", [0.003, 0.0035, 0.004, 0.0045, 0.006])
    words = ["--microbatches", "5", "--blocking-w", "80", "--no-slowdown", "--latency", tmp_path / "latency.json"]
    made = tmp_path / "plan.json"
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "stages.csv", *words, "-o", made)]) == 0
    assert "can be reached in time" in capsys.readouterr().err
    plan = read_played(str(made))
    median_s = plan["latency"]["core"]["median_s"]
    assert median_s == 0.004
    spread = Spread(**plan["latency"]["core"])
    asked = 0
    for rank in plan["ranks"]:
        found, own = following(plan, rank["stage"]), rank["instructions"]
        moments = [moment for each in own for moment in (each["begin_s"], each["end_s"])]
        assert [work.microbatch for work in found.works] == [each["microbatch"] for each in own]
        for request in found.requests:
            if request.place == 0:  # of the next iteration: as soon as this one is done
                assert request.mark == len(moments) - 1 and request.delay_s == 0
                continue
            before, after = (own[at]["clocks"][0]["core_mhz"] for at in (request.place - 1, request.place))
            lead_s = spread.at(LATE if after > before else EARLY)
            begin_s = own[request.place]["begin_s"]
            assert moments[request.mark] + request.delay_s == pytest.approx(max(moments[0], begin_s - lead_s))
            assert request.pair == (after, "auto") and request.mark < 2 * request.place + 1
            asked += 1
    assert asked > 3


def test_a_plan_without_latencies_cannot_be_played(tmp_path, capsys):
    write_stage_profile(tmp_path / "stages.csv", profile(2))
    words = ["--microbatches", "3", "--blocking-w", "80", "--no-slowdown", "-o", tmp_path / "plan.json"]
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "stages.csv", *words)]) == 0
    with pytest.raises(Exception, match=r"latency is missing.*--latency writes one"):
        read_played(str(tmp_path / "plan.json"))
    words = [*words[:5], "--switch-latency", "0.01", "--latency", "x.json", *words[5:]]
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "stages.csv", *words)]) == 2
    assert "leave the others out" in capsys.readouterr().err


def test_the_power_of_waiting_is_read_or_asked_for(tmp_path, capsys):
    write_stage_profile(tmp_path / "stages.csv", profile(2))
    words = ["--microbatches", "3", "--no-slowdown", "-o", tmp_path / "plan.json"]
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "stages.csv", *words)]) == 2
    assert "--blocking-w is missing" in capsys.readouterr().err
    with open(tmp_path / "stages.csv", "a") as file:
        file.write("0,waiting,,,2.5,201.5,measured\n")
    assert main([str(word) for word in ("pipeline", "plan", tmp_path / "stages.csv", *words)]) == 0
    assert json.loads((tmp_path / "plan.json").read_text())["blocking_w"] == pytest.approx(2 * 201.5 / 2.5)


def test_a_spread_of_nothing_but_its_median_leads_by_it():
    spread = Spread(0.013, 0.013)
    assert np.allclose([spread.at(EARLY), spread.at(LATE)], 0.013)
