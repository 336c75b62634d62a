"""The tuned static plan of a trace: its bounds, its search, its margins, its file and its replay; its routers."""

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from math import inf
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
import yaml
from synthetic_profile import LineEngine, LineMachine

from kernel_dvfs.cli.main import main
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_serving.cluster import Cluster, Hopeless
from kernel_dvfs_serving.deployment import Served, lines, read_static, recording_rules, started, vllm_line, written
from kernel_dvfs_serving.experiments import every_system
from kernel_dvfs_serving.machine import SimulatedMachine, SlowerMachine
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.static import Static
from kernel_dvfs_serving.system import CAPPED, EARLIEST, LEAST, SLOWER, TUNED, ClusterSettings
from kernel_dvfs_serving.trace import halves, hours, make_trace, model_len
from kernel_dvfs_serving.tuned import (
    FAMILIES,
    MARGINS,
    TRIALS,
    PlanTuner,
    Second,
    Trials,
    lone_ttft_s,
    planned,
    replayed,
)

OWN = ClusterSettings(servers=3)
ABOUT = {"cells": 3, "slo_scale": 0.9, "gaps": "p99"}
SERVED = {tp: Served("line", 1000 * tp, 5000) for tp in (2, 4, 8)}
PLAN = Static(2, 4, "1400", "800", 2048, EARLIEST, 150.0)


@pytest.fixture(scope="module")
def trace():
    """Three quarters of a minute of conversation, which no plan here takes as epochs."""
    return hours(4.0, seed=5, span_s=45)


@pytest.fixture(scope="module")
def trials(replayer, trace):
    return Trials(replayer, trace, OWN)


@pytest.fixture(scope="module")
def tried(trials):
    """`tried(plan, count)` is what PlanTuner.on tells of a plan on the first trials: each replayed once, in full."""

    @cache
    def run(plan, trial):
        own, load = trials.pairs[trial]
        return replayed(own, load, plan, OWN)

    def totals(plan, count=4):
        runs = [run(plan, trial) for trial in range(count)]
        kwh, tokens = (sum(each[name] for each in runs[:2]) for name in ("energy_kwh", "tokens_in_time"))
        kept_percent = min(each["kept_percent"] for each in runs)
        return {"kept_percent": kept_percent, "joules": 3.6e6 * kwh, "j_per_token": 3.6e6 * kwh / max(1, tokens)}

    return totals


@pytest.fixture(scope="module")
def plans(trials):
    """(the cheapest plans that keep 97 %, of how many replays). Not to be changed."""
    return planned(trials, (97.0,), None)


def some(tuner):
    """A tuner of every other plan: of each degree and clock, one step or two."""
    tuner.kinds = tuner.kinds[::2]
    return tuner


def test_a_lone_prompt_is_read_chunk_by_chunk():
    engine = LineEngine(4, "1980")
    # 512, 512 and 76 tokens: pairs 131328, 512 * 512 + 131328 and 76 * 1024 + 2926
    by_hand = 3 * 0.012 + 1100 * 1e-4 + 1e-10 * (131_328 + 393_472 + 80_750)
    assert lone_ttft_s(engine, 1100, 512) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_other_plan_within_the_servers_is_cheaper_with_its_margins(trials, tried, count):
    tuner = some(PlanTuner(trials, FAMILIES[0], count))
    found = tuner.frontier((97.0, 99.0))
    runs = [tried(tuner.plan(servers, *kind), count) for kind in tuner.kinds for servers in (1, 2, 3)]
    assert found
    for level, plan in found.items():
        keeping = [each["j_per_token"] for each in runs if each["kept_percent"] >= level]
        assert tried(plan, count)["kept_percent"] >= level and tried(plan, count)["j_per_token"] == min(keeping)
    # what is kept with more margins is kept with fewer
    verdict = trials.verdict(found[97.0])
    assert min(list(verdict["kept_percent"].values())[:count]) >= 97


@pytest.mark.slow
def test_margins_only_cost(plans):
    plans, replays = plans
    by = {(each["kept_on"], each["router"]): each for each in plans}
    whole = min(
        (each for each in plans if each["kept_on"] == list(MARGINS)[-1]), key=lambda each: each["j_per_token_in_time"]
    )
    both = by["both halves", whole["router"]]
    assert both["j_per_token_in_time"] <= whole["j_per_token_in_time"] * (1 + 1e-9) and replays > 10
    assert list(whole["kept_percent"]) == list(TRIALS) and min(whole["kept_percent"].values()) >= 97


def test_slower_steps_take_longer_at_the_same_energy(replayer):
    engine = replayer.machine.engine(4, "1400")
    slower = SlowerMachine(SimulatedMachine(), SLOWER).engine(4, "1600")
    plain = SimulatedMachine().engine(4, "1600")
    for asked in ((700, 1000.0, 5000, 9), (7, 0, 3001, 7)):
        (time_s, energy_j), (own_s, own_j) = slower.step(*asked), plain.step(*asked)
        assert time_s == pytest.approx(1.2 * own_s) and energy_j == own_j
    (time_s, energy_j), (own_s, own_j) = slower.run(7, 3001, 29), plain.run(7, 3001, 29)
    assert time_s == pytest.approx(1.2 * own_s) and energy_j == pytest.approx(own_j)
    assert slower.steps_within(7, 3001, own_s * 1.2) == 29 and engine.idle_w > 0


@pytest.mark.slow
def test_a_spare_is_a_server_without_which_the_promise_is_kept(replayer, trace):
    trials = Trials(replayer, trace, replace(OWN, servers=4, spare=1))
    plan = PlanTuner(trials, FAMILIES[0]).frontier((97.0,))[97.0]
    without = replace(plan, servers=plan.servers - 1)
    assert plan.servers > 1 and min(trials.verdict(without)["kept_percent"].values()) >= 97
    assert PlanTuner(Trials(replayer, trace, replace(OWN, servers=1, spare=1)), FAMILIES[0]).frontier() == {}


def test_the_bounds_leave_out_only_what_cannot_be_it(trials, tried):
    tuner = some(PlanTuner(trials, FAMILIES[0]))
    for kind in tuner.kinds:
        one, two, three = (tried(tuner.plan(servers, *kind)) for servers in (1, 2, 3))
        assert three["kept_percent"] <= tuner._lone_percent(*kind)
        assert tuner._affordable(kind, two["j_per_token"], 0, 0.0) >= 2
        # the second server takes what it draws resting, at least
        assert tuner._affordable(kind, two["j_per_token"], 1, one["joules"]) >= 2


def test_a_plan_runs_at_its_own_clock_degree_and_step(replayer, trace):
    slow, fast = (replayed(replayer, trace, replace(PLAN, clock=clock), OWN) for clock in ("800", "1980"))
    assert slow["tbt_p50_s"] > 1.5 * fast["tbt_p50_s"] and slow["servers"] == 2 and slow["replicas"] == 4
    lone = make_trace(np.arange(3) * 30.0, np.full(3, 3000), np.full(3, 3), "lone prompts")
    small, large = (replayed(replayer, lone, replace(PLAN, step_tokens=tokens), OWN) for tokens in (512, 8192))
    # six steps, or one: each has a fixed 12 ms at full speed
    assert small["ttft_p50_s"] - large["ttft_p50_s"] == pytest.approx(5 * 0.012 / 0.8, rel=1e-6)


@pytest.mark.slow
def test_a_plan_comes_back_from_its_file_to_the_last_digit(trials, plans, tmp_path):
    plans, _ = plans
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(written(plans, ABOUT, SERVED)))
    read = read_static(str(path))
    assert (read.cells, read.slo_scale, read.gaps) == (3, 0.9, "p99")
    best = next(each for each in plans if each["kept_on"] == list(MARGINS)[-1])
    again = trials.verdict(read.plan)
    assert again == {key: best[key] for key in again}
    assert read_static(str(path), router=LEAST).plan.router_name == LEAST
    with pytest.raises(InputError, match=r"no plan keeps 99\.9 %; it has 97"):
        read_static(str(path), 99.9)
    path.write_text(path.read_text().replace(f"tp: {best['tp']}", "tp: 3"))
    with pytest.raises(InputError, match="1, 2, 4 or 8"):
        read_static(str(path))


def test_a_plan_of_one_server_says_that_it_has_no_spare(trials):
    for count, said in ((1, True), (2, False)):
        found = [{"keep_percent": 97.0, "kept_on": list(MARGINS)[-1]} | trials.verdict(replace(PLAN, servers=count))]
        assert any(line.startswith("note: one server has no spare") for line in lines(found, (97.0,))) == said
        (plan,) = written(found, ABOUT, SERVED)["plans"]
        assert ("note" in plan) == said


@pytest.mark.slow
def test_a_replay_that_is_ended_could_not_have_won(trials):
    """What is said of an ended replay holds of the whole one; asked for less, it is replayed in full."""
    tuner, whole = PlanTuner(trials, FAMILIES[0], 2), PlanTuner(trials, FAMILIES[0], 2)
    good = whole.plan(2, 8, "1400", 2048)
    enough_j = whole.on(good)["j_per_token"] * 1.01
    ends = set()
    for plan, level, most_j in (
        (whole.plan(1, 2, "800", 2048), 99.0, inf),
        (good, 90.0, enough_j),
        (whole.plan(3, 8, "1980", 2048), 90.0, enough_j),
    ):
        full, found = whole.on(plan), tuner.on(plan, level, most_j)
        ends.add(found.get("ended"))
        if found.get("ended") == "late":
            assert full["kept_percent"] < level
        elif found.get("ended") == "dear":
            assert full["j_per_token"] > most_j
        assert tuner.on(plan) == full
    assert ends == {"late", "dear", None}


@pytest.fixture(scope="module")
def simulated(line):
    """A replayer on a simulated machine."""
    return Replayer(SimulatedMachine(), line)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [each if place != 1 else pytest.param(each, marks=pytest.mark.nightly) for place, each in enumerate(FAMILIES)],
    ids=lambda each: each.name,
)
def test_no_plan_takes_less_than_its_bound(simulated, family):
    """Also at the power cap; and a replay that the bound ends has not begun."""
    trials = Trials(simulated, hours(9.0, seed=2, span_s=60), OWN)
    tuner = PlanTuner(trials, family, 1)
    half = trials.pairs[0][1]
    for kind in tuner.kinds[::5]:
        plan = tuner.plan(1, *kind)
        spent_j = tuner.on(plan)["joules"]
        least_j = tuner._floor_w(plan) * half.span_s + tuner._rest_j(plan, 0)[0]
        assert 0.3 * spent_j < least_j < spent_j
        other = PlanTuner(trials, family, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cluster, "_arrive", lambda _: pytest.fail("a request has come"))
            assert other.on(plan, most_j=0.999 * least_j / tuner._tokens(0))["ended"] == "dear"


@pytest.mark.slow
def test_a_second_process_finds_what_one_finds_and_is_not_missed(replayer):
    trials = Trials(replayer, hours(4.0, seed=3, span_s=30), OWN)
    alone = {family: some(PlanTuner(trials, family)).frontier() for family in FAMILIES[:2]}
    with Second(trials) as second:
        for family, found in alone.items():
            assert some(PlanTuner(trials, family, second=second)).frontier() == found != {}
        (process,) = active_children()
        process.kill()
        process.join()
        assert some(PlanTuner(trials, FAMILIES[0], second=second)).frontier() == alone[FAMILIES[0]]


# -- routers -----------------------------------------------------------------------------------------------------------


def used(cluster):
    replicas = [each for server in cluster.fleet.servers for each in server.replicas]
    return [each.instance.processed(cluster.end_s) for each in replicas]


def test_the_fewest_requests_or_the_earliest_first_token_decide(replayer):
    """A prompt of 3,000 tokens holds its replica; the next two come while it is read, two short ones after those."""
    arrays = np.array([0.0, 0.01, 0.02, 0.03]), np.array([3000, 50, 50, 50]), np.array([400, 400, 400, 400])
    load = make_trace(*arrays, "four requests")
    least, earliest = (
        replayer.run_system(load, System("x"), OWN, replace(PLAN, servers=1, rest="1400", router_name=name))
        for name in (LEAST, EARLIEST)
    )
    # two replicas: two requests each, or the long prompt alone
    assert sorted(used(least)) == [2 * 450, 3400 + 450] and sorted(used(earliest)) == [3 * 450, 3400]


def System(name):
    """A system that turns no knob."""
    from kernel_dvfs_serving.system import System as Own

    return Own(name, False, False, False, False)


@pytest.mark.parametrize("router", [LEAST, EARLIEST])
@pytest.mark.parametrize("changed", [{}, {"route_s": 0.013}, {"fails_s": 97.0}, {"route_s": 0.013, "fails_s": 97.0}])
def test_every_request_ends_once_whatever_happens(replayer, router, changed):
    trace = hours(9.0, seed=5, span_s=400, swing=0.7)
    own = replace(OWN, start_s=60.0)
    plan = replace(PLAN, servers=3, router_name=router, **changed)
    cluster = replayer.run_system(trace, System("x"), own, plan)
    assert (cluster.finished ^ cluster.rejected).all() and not cluster.rejected.any()
    assert cluster.tokens_in == trace.input_tokens.sum() and cluster.tokens_out == trace.output_tokens.sum()
    assert cluster.events["servers failed"] == ("fails_s" in changed)
    replicas = [each for server in cluster.fleet.servers for each in server.replicas]
    assert all(each.outstanding == pytest.approx(0, abs=1e-6) and each.instance.unread == 0 for each in replicas)
    by_server = sum(sum(server.account.energy_j.values()) for server in cluster.fleet.servers)
    assert by_server == pytest.approx(sum(cluster.accounts.energy_j.values()), rel=1e-9)


def test_a_request_that_no_replica_can_hold_ends_no_other(replayer):
    """It comes while the first is answered."""
    trace = make_trace(np.array([0.0, 1.0]), np.array([300, 10_000_000]), np.array([400, 5]), "one too long")
    cluster = replayer.run_system(trace, System("x"), OWN, replace(PLAN, servers=1))
    assert cluster.finished.tolist() == [True, False] and cluster.rejected.tolist() == [False, True]


def test_a_delay_of_the_router_is_in_the_first_token(replayer):
    trace = make_trace(np.arange(7) * 30.0, np.full(7, 211), np.full(7, 3), "lone requests")
    plan = replace(PLAN, servers=1, rest="1400")
    at_once, later = (
        replayed(replayer, trace, replace(plan, route_s=delay_s), OWN)["ttft_p50_s"] for delay_s in (0, 0.07)
    )
    assert later - at_once == pytest.approx(0.07, abs=1e-6)


def test_a_replica_that_holds_nothing_draws_less_and_takes_a_moment_to_come_back(replayer):
    trace = make_trace(np.arange(5) * 50.0, np.full(5, 211), np.full(5, 30), "five requests")
    rests, stays = (replayed(replayer, trace, replace(PLAN, rest=clock), OWN) for clock in ("800", "1400"))
    # four replicas of four GPUs, idle nearly all the time: 0.8 - 0.55 of 40 W a GPU less
    saved_w = (stays["idle_kwh"] - rests["idle_kwh"]) * 3.6e6 / trace.span_s
    assert 0.9 * 16 * 40 * 0.25 < saved_w < 1.02 * 16 * 40 * 0.25
    assert rests["ttft_p50_s"] - stays["ttft_p50_s"] == pytest.approx(OWN.clock_latency_s, abs=1e-6)


def test_a_power_cap_slows_what_is_above_it(line):
    machine = SimulatedMachine()
    free, capped = machine.engine(4, "1980"), machine.engine(4, "1980@400")
    asked = (4096, 4096 * 1000.0, 0, 4)
    (time_s, energy_j), (capped_s, capped_j) = free.step(*asked), capped.step(*asked)
    assert energy_j / time_s > 4 * 500 and capped_j / capped_s == pytest.approx(4 * 400, rel=1e-6) and capped_s > time_s
    # of the 691 W that such a board was seen to hold
    assert capped.idle_w == free.idle_w and machine.caps_w((0.5,)) == [346] == SlowerMachine(machine, 2).caps_w((0.5,))
    tuner = PlanTuner(Trials(Replayer(machine, line), hours(4.0, seed=3, span_s=60), OWN), FAMILIES[2])
    assert {kind[1] for kind in tuner.kinds} == {f"1980@{watts}" for watts in (311, 415, 518, 622)}


@pytest.mark.slow
def test_every_system_is_tried_on_both_halves_and_slower(replayer, trace):
    runs = {each["system"]: each for each in every_system(replayer, trace, replace(OWN, servers=4, pools=2), cores=1)}
    assert all(list(each["tried"]["kept_percent"]) == list(TRIALS) for each in runs.values())
    best = runs[TUNED]
    assert min(best["tried"]["kept_percent"].values()) >= 99 and CAPPED not in runs  # a made-up machine has no caps
    assert [each["kept_on"] for each in best["margins"]] == list(MARGINS)


# -- what starts it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "pasted"), [("org/model-7b", "org/model-7b"), ("m; touch x", "'m; touch x'")])
def test_what_starts_a_replica_is_one_command_whatever_the_model_is_called(model, pasted):
    """A table of others names it, and whoever reads the plan pastes it; every limit is a flag."""
    told = vllm_line(Served(model, 48_665, 14_151), 4, 2048)
    assert told.startswith(f"vllm serve {pasted} --tensor-parallel-size 4 --max-num-batched-tokens 2048 ")
    for flag in ("--max-num-seqs 256", "--max-model-len 14151", "--num-gpu-blocks-override 3041", "--block-size 16"):
        assert f" {flag} " in told
    assert told.endswith(
        "--scheduling-policy fcfs --enable-chunked-prefill --no-enable-prefix-caching --no-async-scheduling"
    )


def test_the_router_and_the_clocks_are_started_by_a_line_each():
    told = started(
        SERVED[4], {"tp": 4, "step_tokens": 512, "router": LEAST, "replicas": 2, "clock": "1600", "rest": "345"}
    )
    assert told["router"].endswith("--port 8080 --worker-urls http://REPLICA-1:8000 http://REPLICA-2:8000")
    assert told["clocks"] == "nvidia-smi --lock-gpu-clocks=345,1600"
    capped = {"tp": 4, "step_tokens": 512, "router": EARLIEST, "replicas": 2, "clock": "1980@420", "rest": "1980@420"}
    told = started(SERVED[4], capped)
    assert told["clocks"] == "nvidia-smi --power-limit=420" and "--load-aware" in told["router"]


def test_the_context_is_the_models_or_the_longest_request():
    load = make_trace(np.arange(2.0), np.array([5000, 5]), np.array([7, 4]), "one long")
    assert model_len(load, "llama2-70b") == 5007 and model_len(load, "llama3-70b") > 8000
    assert model_len(load, "unknown") == 5007


def test_halves_are_traces_of_their_own():
    load = make_trace(np.array([1.0, 2.0, 51.5, 90.0]), np.arange(1, 5), np.arange(2, 6), "four", 100.0)
    first, second = halves(load)
    assert first.arrival_s.tolist() == [1.0, 2.0] and second.arrival_s.tolist() == [1.5, 40.0]
    assert second.input_tokens.tolist() == [3, 4] and first.span_s == second.span_s == 50
    assert halves(make_trace(np.array([1.0]), np.array([1]), np.array([1]), "one"))[1].arrival_s.tolist() == [1.0]


def test_the_replay_of_a_printed_plan_gives_the_printed_numbers(line, tmp_path, monkeypatch, capsys):
    from kernel_dvfs_serving.commands import plan, replay
    from kernel_dvfs_serving.trace import write_trace

    for command in (plan, replay):
        monkeypatch.setattr(command, "read_profile", lambda path: line)
        monkeypatch.setattr(
            command, "replayer_of", lambda options, profile, own, **more: Replayer(LineMachine(), line, **more)
        )
    write_trace(tmp_path / "trace.csv", hours(4.0, seed=3, span_s=90))
    (tmp_path / "profile.csv").write_text("made up")
    words = [str(tmp_path / "trace.csv"), "--profile", str(tmp_path / "profile.csv")]
    file = str(tmp_path / "plan.yaml")
    assert main(["serving", "plan", *words, "--keep", "97", "--servers", "3", "-o", file]) == 0
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("vllm serve line ") for line in said)
    assert main(["serving", "replay", *words, "--plan", file, "-o", str(tmp_path / "out.json")]) == 0
    again = capsys.readouterr().out.splitlines()[1]
    assert again[6:] == said[2][6:] and again[6:].strip()
    found = json.loads((tmp_path / "out.json").read_text())["tried"]
    (best, *_) = yaml.safe_load(Path(file).read_text())["plans"]
    assert found == {key: best[key] for key in found}


SEARCHING = """
import sys, time
sys.path[:0] = {paths!r}
from kernel_dvfs_serving import tuned
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import ClusterSettings
from kernel_dvfs_serving.trace import hours
from synthetic_profile import LineMachine, line_profile

class Endless(LineMachine):
    def engine(self, tp, clock):
        print("searches", flush=True)
        time.sleep(600)

if __name__ == "__main__":
    replayer = Replayer(Endless(), line_profile(requests=20))
    second = tuned.Second(tuned.Trials(replayer, hours(4.0, seed=3, span_s=60), ClusterSettings(servers=3)))
    second.ask(tuned.FAMILIES[0], 4, ([99.0], {{}}, [(8, "800", 2048)]))
    time.sleep(600)
"""


def test_a_machine_is_the_same_in_another_process():
    machine = SimulatedMachine(
        "a100_sxm",
        overrides={"memory": {"gb_per_s": 1000}},
        parked_w=50.5,
        host_s=0.0123,
    )
    other, plain = pickle.loads(pickle.dumps(machine)), SimulatedMachine("a100_sxm")
    assert other.parked_w == 50.5 and other.kv_tokens(4) == machine.kv_tokens(4)
    step = machine.engine(4, "1410").step(3, 900.0, 700.0)
    assert other.engine(4, "1410").step(3, 900.0, 700.0) == step != plain.engine(4, "1410").step(3, 900.0, 700.0)


@pytest.mark.slow
def test_a_second_process_ends_in_mid_search_with_the_first(tmp_path):
    script = tmp_path / "searching.py"
    script.write_text(SEARCHING.format(paths=[str(Path(__file__).parent), *map(str, sys.path)]))
    first = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "searches\n"
    first.kill()
    # its end of what is printed is open as long as it lives
    assert first.stdout.read() == ""
    first.wait()


def test_a_queue_that_grows_ends_a_replay_before_its_requests_end(replayer, monkeypatch):
    """A hundred prompts a second, of which one replica reads some fifty; each is promised within 0.4 s."""
    load = make_trace(np.arange(400) * 0.01, np.full(400, 500), np.full(400, 300), "too much")
    plan = Static(1, 8, "800", "800", 2048)
    full = replayed(replayer, load, plan, OWN)
    assert 11 < full["late"] < 400 and replayed(replayer, load, plan, OWN, limits=(full["late"],)) == full
    with pytest.raises(Hopeless):
        replayed(replayer, load, plan, OWN, limits=(full["late"] - 1,))
    monkeypatch.setattr(Cluster, "finish", lambda *_: pytest.fail("a request has ended"))
    with pytest.raises(Hopeless) as ended:
        replayed(replayer, load, plan, OWN, limits=(10.0,))
    assert ended.value.late == 11


def test_p99_of_gaps_is_a_stricter_promise_than_their_mean(line, trace):
    replayer = Replayer(LineMachine(), line, slo_scale=0.35)
    plan = replace(PLAN, step_tokens=512)
    mean, p99 = (replayed(replayer, trace, plan, replace(OWN, gaps=gaps)) for gaps in ("mean", "p99"))
    assert p99["tbt_kept_percent"] < mean["tbt_kept_percent"] - 1
    assert p99["ttft_kept_percent"] == mean["ttft_kept_percent"] and p99["energy_kwh"] == mean["energy_kwh"]


def test_recording_rules_are_of_prometheus_form(trials):
    found = [{"keep_percent": 97.0} | trials.verdict(PLAN)]
    (group,) = yaml.safe_load(yaml.safe_dump(recording_rules(written(found, ABOUT, SERVED))))["groups"]
    seen = {}
    for rule in group["rules"]:
        assert set(rule) <= {"record", "expr", "labels"}
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", rule["record"])
        for opening, closing in ("()", "{}", "[]"):
            assert rule["expr"].count(opening) == rule["expr"].count(closing)
        # two rules of one name with the same labels would be duplicates to Prometheus
        key = rule["record"], tuple(sorted(rule.get("labels", {}).items()))
        assert key not in seen
        seen[key] = rule["expr"]
    said = {name: expression for (name, _), expression in seen.items()}
    assert said["kernel_dvfs:planned_servers"] == "vector(6)"
    assert said["kernel_dvfs:tbt_p99_seconds"].split(" or ")[1].count("vllm:time_per_output_token_seconds") == 1
    assert "sglang:inter_token_latency_seconds" in said["kernel_dvfs:tbt_p99_seconds"]
