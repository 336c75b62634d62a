"""The tuned static plan of a trace: its bounds, its search, its file and its replay."""

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from math import inf
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
import yaml
from synthetic_profile import LineEngine, LineMachine

from kernel_dvfs.errors import InputError
from kernel_dvfs_serving.cluster import Cluster, Hopeless
from kernel_dvfs_serving.deployment import recording_rules
from kernel_dvfs_serving.experiments import tuned_systems
from kernel_dvfs_serving.machine import SimulatedMachine
from kernel_dvfs_serving.packing import PARTS, Mix, Static
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import hours, make_trace
from kernel_dvfs_serving.tuned import (
    STATIC_PLAN,
    Second,
    Tuner,
    lines,
    lone_ttft_s,
    read_static,
    replayed,
    started,
    written,
)

OWN = Settings(servers=3)
ABOUT = {"cells": 3, "slo_scale": 0.9, "gaps": "p99"}


@pytest.fixture(scope="module")
def trace():
    """Five minutes of conversation, which no plan here takes as epochs."""
    return hours(4.0, seed=5, span_s=300)


@pytest.fixture(scope="module")
def tuner(replayer, trace):
    return Tuner(replayer, trace, OWN)


def test_a_lone_prompt_is_read_chunk_by_chunk():
    engine = LineEngine(4, "1980")
    # 512, 512 and 76 tokens: pairs 131328, 512 * 512 + 131328 and 76 * 1024 + 2926
    by_hand = 3 * 0.012 + 1100 * 1e-4 + 1e-10 * (131_328 + 393_472 + 80_750)
    assert lone_ttft_s(engine, 1100, 512) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.slow
def test_no_other_plan_within_the_servers_is_cheaper(tuner):
    found = {each["keep_percent"]: each for each in tuner.frontier((97.0, 99.0))}
    plans = [Static(count, tp, clock) for tp, clock in tuner.kinds for count in range(1, OWN.servers + 1)]
    every = [tuner.on(plan) for plan in plans]
    assert found
    for level, best in found.items():
        if "mix" in best:
            # a mix is only taken where it is cheaper
            uniform = min(each["j_per_token_in_time"] for each in every if each["kept_percent"] >= level)
            assert best["kept_percent"] >= level and best["j_per_token_in_time"] < uniform
            continue
        keeping = [each["j_per_token_in_time"] for each in every if each["kept_percent"] >= level]
        assert best["kept_percent"] >= level and best["j_per_token_in_time"] == min(keeping)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [None, pytest.param(PARTS, marks=pytest.mark.nightly)])
def test_a_spare_is_a_server_without_which_the_promise_is_kept(replayer, trace, parts):
    """The cheapest with it, of all that keep the promise without it; a server that is lost is not missed."""
    tuner = Tuner(replayer, trace, replace(OWN, servers=4, spare=1), parts)
    (best,) = tuner.frontier((97.0,))
    pairs = [
        [tuner.on(tuner.plan(more, tp, clock)) for more in (count, count + 1)]
        for tp, clock in tuner.kinds
        for count in (1, 2, 3)
    ]
    cheapest = min(whole["j_per_token_in_time"] for bare, whole in pairs if bare["kept_percent"] >= 97)
    assert best["servers"] > 1 and best["j_per_token_in_time"] <= cheapest
    assert "mix" in best or best["j_per_token_in_time"] == cheapest
    lost = replace(tuner.plan_of(best), fails_s=trace.span_s / 2)
    alone = replace(lost, servers=best["servers"] - 1, mix=None)
    kept = [replayed(replayer, trace, each, OWN)["kept_percent"] for each in (lost, alone)]
    assert kept[0] >= 97 and kept[0] > kept[1] + 0.5
    # which the search has replayed itself, and says
    assert best["kept_lost_percent"] == kept[0] < 100
    (said,) = (each for each in lines([best], [], (97.0,)) if "lost half way" in each)
    assert f"{int(100 * kept[0]) / 100:.2f} % kept" in said and "fewer" not in said
    (broken,) = (each for each in lines([best | {"kept_lost_percent": 96.99}], [], (97.0,)) if "lost half way" in each)
    assert broken.endswith("96.99 % kept, fewer than 97")
    assert Tuner(replayer, trace, replace(OWN, servers=1, spare=1), parts).frontier() == []


@pytest.mark.slow
def test_what_keeps_the_promise_with_its_spare_alone_is_not_taken_for_kept(replayer, trace):
    """One server is too few, two would do: with one of them spare there is no plan, with none it is both."""
    promise = {"servers": 2, "promise_percent": 99.9}
    with_both = tuned_systems(replayer, trace, Settings(**promise), trace, None)
    assert with_both[0]["servers"] == 2 and with_both[0]["kept_percent"] >= 99.9
    static, packing, _ = tuned_systems(replayer, trace, Settings(spare=1, **promise), trace, None)
    assert static["servers"] == 1 and static["kept_percent"] < 99.9
    assert packing["servers"] == 1 or packing["kept_percent"] >= 99.9


def test_the_bounds_leave_out_only_what_cannot_be_it(tuner):
    for tp, clock in tuner.kinds:
        assert tuner.on(Static(3, tp, clock))["kept_percent"] <= tuner._lone_percent(tp, clock)
        one, two = (tuner.on(Static(count, tp, clock)) for count in (1, 2))
        cost = two["j_per_token_in_time"]
        assert tuner._affordable(tp, clock, cost) >= 2
        # the second server takes what it draws idle, at least
        assert tuner._affordable(tp, clock, cost, 1, 3.6e6 * one["energy_kwh"]) >= 2


def test_a_plan_runs_at_its_own_clock_and_degree(tuner):
    slow, fast = tuner.on(Static(3, 4, "800")), tuner.on(Static(3, 4, "1980"))
    assert slow["tbt_p50_s"] > 1.5 * fast["tbt_p50_s"]
    assert slow["servers"] == 3 and slow["replicas"] == 6


@pytest.mark.slow
def test_a_plan_comes_back_from_its_file(tuner, replayer, trace, tmp_path):
    found = tuner.frontier((97.0,))
    path = tmp_path / "plan.yaml"
    packer = Tuner(replayer, trace, OWN, PARTS)
    packed = packer.frontier((97.0,))
    path.write_text(yaml.safe_dump(written(found, packed, ABOUT, "line")))
    (best,) = found
    again = read_static(str(path), packing=True).plan
    assert again == replace(packer.plan(again.servers, again.tp, again.clock), answer_tokens=again.answer_tokens)
    read = read_static(str(path))
    assert (read.cells, read.slo_scale, read.gaps) == (3, 0.9, "p99")
    assert (read.plan.servers, read.plan.tp, read.plan.clock) == (best["servers"], best["tp"], best["clock"])
    with pytest.raises(InputError, match=r"no plan keeps 99\.9 %; it has 97"):
        read_static(str(path), 99.9)
    path.write_text(path.read_text().replace(f"tp: {best['tp']}", "tp: 3"))
    with pytest.raises(InputError, match="degree 3 are not possible"):
        read_static(str(path))


def test_a_plan_of_one_server_says_that_it_has_no_spare(tuner):
    for count, said in ((1, True), (2, False)):
        found = [{"keep_percent": 97.0} | tuner.on(Static(count, 4, "1980"))]
        assert any(line.startswith("note: one server has no spare") for line in lines(found, [], (97.0,))) == said
        (plan,) = written(found, [], ABOUT, "line")["plans"]
        assert ("note" in plan) == said


@pytest.mark.slow
def test_a_replay_that_is_ended_could_not_have_won(replayer, trace):
    """What is said of an ended replay holds of the whole one; asked for less, it is replayed in full."""
    tuner = Tuner(replayer, trace, OWN)
    whole = Tuner(replayer, trace, OWN)
    ends = set()
    # of the two that keep more than 90 % one is as dear as is allowed, and the other dearer
    enough_j = whole.on(Static(2, 8, "1400"))["j_per_token_in_time"] * 1.01
    for plan, level, most_j in (
        (Static(1, 4, "1400"), 99.0, inf),
        (Static(2, 8, "1400"), 90.0, enough_j),
        (Static(2, 8, "1980"), 90.0, enough_j),
    ):
        full, found = whole.on(plan), tuner.on(plan, level, most_j)
        ends.add(found.get("ended"))
        if found.get("ended") == "late":
            assert full["kept_percent"] <= found["kept_percent"] < level
        elif found.get("ended") == "dear":
            assert full["j_per_token_in_time"] > most_j
        assert tuner.on(plan) == full
    assert ends == {"late", "dear", None}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [None, PARTS])
def test_no_plan_takes_less_than_its_bound(line, parts):
    """Also at the power cap; and a replay that the bound ends has not begun."""
    load = hours(9.0, seed=2, span_s=120)
    tuner = Tuner(Replayer(SimulatedMachine(), line), load, OWN, parts)
    for tp, clock in tuner.kinds:
        plan = tuner.plan(1, tp, clock)
        spent_j = 3.6e6 * tuner.on(plan)["energy_kwh"]
        least_j = tuner._floor_w(plan) * load.span_s + tuner._rest_j(plan)[0]
        assert 0.4 * spent_j < least_j < spent_j
        other = Tuner(Replayer(SimulatedMachine(), line), load, OWN, parts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cluster, "_arrive", lambda _: pytest.fail("a request has come"))
            most_j = 0.999 * least_j / tuner._tokens
            assert other.on(plan, most_j=most_j)["ended"] == "dear"


class KnownMachine(LineMachine):
    """Whose engines take at least what is written here; the least of all, 2, 70 and 10 J, are of three engines."""

    def __init__(self, floor):
        super().__init__()
        self.floor = floor  # whose clock's least power is drawn anyway; None: that of each

    def engine(self, tp, clock):
        made = LineEngine(tp, clock)
        asked = LineEngine(tp, self.floor or clock).least_w, 300
        made.idle_w = None  # steps may draw less
        least_j = {"1400": (2.0, 300.0, 90.0), "1980": (5.0, 70.0, 20.0), "800": (9.0, 80.0, 10.0)}[clock]
        made.least_j = lambda *given: least_j if given == asked else None
        return made


@pytest.mark.parametrize(
    ("parts", "mix", "floor", "context_j"),
    [
        (None, Mix(8, 4, "1980"), None, 20.0),
        (PARTS, None, "800", 10.0),
        (PARTS._replace(rests=False), None, "1400", 20.0),
    ],
)
def test_what_requests_take_at_least_by_hand(line, parts, mix, floor, context_j):
    """Prompts of 3 and 5 tokens, answers of 1 and 4: 3 and 8 tokens, 6 and 15 pairs, 0 and 6 + 7 + 8 cached ones."""
    load = make_trace(np.arange(2.0), np.array([3, 5]), np.array([1, 4]), "two")
    tuner = Tuner(Replayer(KnownMachine(floor), line), load, replace(OWN, max_batch=300, chunk_tokens=200), parts)
    second_j = 2.0 * 8 + 70.0 * 15 + context_j * 21
    assert tuner._rest_j(tuner.plan(2, 8, "1400", mix)) == [second_j + 2.0 * 3 + 70.0 * 6, second_j, 0.0]


@pytest.mark.parametrize(
    ("tokens", "mix", "held"), [(40_000, None, 1), (40_001, None, 0), (40_001, Mix(4, 4, "800"), 1)]
)
def test_a_request_that_no_replica_of_a_plan_can_hold_takes_nothing(tuner, replayer, tokens, mix, held):
    load = make_trace(np.arange(2.0), np.array([tokens - 7, 5]), np.array([7, 4]), "one long")
    whole, second, none = Tuner(replayer, load, OWN)._rest_j(Static(1, 2, "800", mix=mix))
    assert (whole > second) == held and second > none == 0.0


@pytest.mark.slow
def test_a_plan_that_rejects_some_is_the_cheapest_where_it_keeps_enough(replayer):
    """One request of 25 fits into TP8 alone, whose plans are dear; at 95 % it is rejected."""
    prompts, answers = np.full(1000, 400), np.full(1000, 100)
    prompts[::25], answers[::25] = 10_000, 295_000
    tuner = Tuner(replayer, make_trace(np.arange(1000) * 0.03, prompts, answers, "some long"), OWN)
    (best,) = tuner.frontier((95.0,))
    every = [tuner.on(Static(count, *kind)) for kind in tuner.kinds for count in (1, 2, 3)]
    keeping = [each["j_per_token_in_time"] for each in every if each["kept_percent"] >= 95.0]
    assert best["rejected"] == 40 and best["j_per_token_in_time"] == min(keeping)


@pytest.mark.slow
def test_a_second_process_finds_what_one_finds_and_is_not_missed(replayer):
    trace = hours(4.0, seed=3, span_s=60)
    alone = {parts: Tuner(replayer, trace, OWN, parts).frontier() for parts in (None, PARTS)}
    assert alone[None] and alone[PARTS]
    with Second(replayer, trace) as second:
        for parts, found in alone.items():
            assert Tuner(replayer, trace, OWN, parts, second).frontier() == found
        (process,) = active_children()
        process.kill()
        process.join()
        assert Tuner(replayer, trace, OWN, second=second).frontier() == alone[None]
    with Second(replayer, trace) as second:
        second.ask(OWN, None, "wish", ())
        with pytest.raises(AttributeError, match="wish"):
            second.answer()


SEARCHING = """
import sys, time
sys.path[:0] = {paths!r}
from kernel_dvfs_serving import tuned
from kernel_dvfs_serving.replay import Replayer
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import hours
from synthetic_profile import LineMachine, line_profile

class Endless(LineMachine):
    def engine(self, tp, clock):
        print("searches", flush=True)
        time.sleep(600)

if __name__ == "__main__":
    second = tuned.Second(Replayer(Endless(), line_profile(requests=80)), hours(4.0, seed=3, span_s=60))
    second.ask(Settings(servers=3), None, "search", ([99.0], {{}}, [(8, "800")]))
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
    plan = Static(1, 8, "800")
    full = replayed(replayer, load, plan, OWN)
    assert 11 < full["late"] < 400 and replayed(replayer, load, plan, OWN, limits=(full["late"],)) == full
    with pytest.raises(Hopeless):
        replayed(replayer, load, plan, OWN, limits=(full["late"] - 1,))
    monkeypatch.setattr(Cluster, "finish", lambda *_: pytest.fail("a request has ended"))
    with pytest.raises(Hopeless) as ended:
        replayed(replayer, load, plan, OWN, limits=(10.0,))
    assert ended.value.late == 11


def test_a_mix_divides_its_servers_as_it_says(replayer, trace):
    plan = Static(3, 8, "1400", mix=Mix(8, 2, "1980"))
    assert plan.instances == [(8, "1400")] * 2 + [(2, "1980")] * 4
    cluster = replayer.run_system(trace, STATIC_PLAN, OWN, plan)
    replicas = [(each.tp, each.clock) for server in cluster.fleet.servers for each in server.replicas]
    assert replicas == plan.instances
    done = [sum(each.instance.processed(cluster.end_s) for each in server.replicas) for server in cluster.fleet.servers]
    # both kinds take their part, by what they can read
    assert min(done) > 0.3 * max(done)


def test_p99_of_gaps_is_a_stricter_promise_than_their_mean(line, trace):
    replayer = Replayer(LineMachine(), line, slo_scale=0.35)
    plan = Static(2, 4, "1400")
    mean, p99 = (replayed(replayer, trace, plan, replace(OWN, gaps=gaps)) for gaps in ("mean", "p99"))
    assert p99["tbt_kept_percent"] < mean["tbt_kept_percent"] - 1
    assert p99["ttft_kept_percent"] == mean["ttft_kept_percent"] and p99["energy_kwh"] == mean["energy_kwh"]


def test_recording_rules_are_of_prometheus_form(tuner):
    found = [{"keep_percent": 97.0} | tuner.on(Static(2, 4, "1980"))]
    (group,) = yaml.safe_load(yaml.safe_dump(recording_rules(written(found, [], ABOUT, "line"))))["groups"]
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


@pytest.mark.parametrize(("model", "pasted"), [("org/model-7b", "org/model-7b"), ("m; touch x", "'m; touch x'")])
def test_what_starts_a_replica_is_one_command_whatever_the_model_is_called(model, pasted):
    """A table of others names it, and whoever reads the plan pastes it."""
    told = started(model, 4, packs=False)
    assert told["vllm"] == f"vllm serve {pasted} --tensor-parallel-size 4"
    assert told["sglang"] == f"python -m sglang.launch_server --model-path {pasted} --tp 4"
