"""A cluster under load: requests and tokens are conserved whatever happens, energy adds up, what is shed is said."""

from collections import Counter

import numpy as np
import pytest
from synthetic_profile import QUICK

from kernel_dvfs_serving import dynamollm, pool_manager
from kernel_dvfs_serving import pools as sizing
from kernel_dvfs_serving.cluster import Cluster
from kernel_dvfs_serving.prediction import LoadForecast, slot_loads
from kernel_dvfs_serving.replay import Replayer, lines, outcome
from kernel_dvfs_serving.requests import classify
from kernel_dvfs_serving.system import SYSTEMS, ClusterSettings
from kernel_dvfs_serving.trace import hours, poisson, read_trace

pytestmark = pytest.mark.slow

# everything that can disturb: (system, wave of the load, settings)
TROUBLES = {
    "falling load": ("DynamoLLM", 0.9, {}),
    "rising load": ("DynamoLLM", -0.9, {"servers": 8}),
    "overload": ("DynamoLLM", 0.9, {"margin": 0.3}),
    "full pools": ("ScaleFreq", 0.9, {"misprediction": 0.3, "max_batch": 24}),
    "mispredicted": ("DynamoLLM", 0.9, {"misprediction": 0.4}),
    "token count": ("DynamoLLM", -0.9, {"misprediction": "token-count"}),
    "slow changes": (
        "DynamoLLM",
        -0.9,
        {"reshard_gap_s": 20.0, "start_s": 500.0, "pool_epoch_s": 60.0, "clock_latency_s": 4.0},
    ),
    "starved": ("DynamoLLM", 0.9, {"margin": 0.05, "clock_margin": 0.2, "misprediction": 0.2}),
    "no ladder": ("DynamoLLM", 0.9, {"emergencies": False, "margin": 0.3}),
    "small batches": ("DynamoLLM", 0.9, {"max_batch": 4, "margin": 0.3}),
}


@pytest.fixture(scope="module")
def troubled(replayer):
    """{trouble: (trace, finished cluster)}."""
    runs = {}
    for name, (system, swing, changed) in TROUBLES.items():
        heavy = hours(14.0, seed=7, span_s=400, swing=swing)
        runs[name] = heavy, replayer.run(heavy, system, ClusterSettings(**(QUICK | changed)))
    return runs


def conserved(cluster, trace) -> None:
    """Every request ends once, finished or rejected; every token of the finished ones was generated once."""
    assert (cluster.finished ^ cluster.rejected).all()
    assert cluster.tokens_out == trace.output_tokens[cluster.finished].sum()
    assert cluster.tokens_in == trace.input_tokens[cluster.finished].sum()
    # one gap before every token but the first; rejected requests have no token
    assert cluster.accounts.gap_count == (trace.output_tokens[cluster.finished] - 1).sum()
    assert np.isfinite(cluster.ttft_s[cluster.finished]).all() and (cluster.ttft_s[cluster.finished] > 0).all()


def adds_up(cluster) -> None:
    """Power integrated over time is the sum of energy by state, and that of all servers."""
    total_j = sum(cluster.accounts.energy_j.values())
    assert sum(sum(server.account.energy_j.values()) for server in cluster.fleet.servers) == pytest.approx(total_j)
    integral_j = sum(sum(powers) * cluster.accounts.bin_s for powers in cluster.accounts.power_w().values())
    assert integral_j == pytest.approx(total_j, rel=1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_conserves_requests_tokens_and_energy(replayer, replayed, trace, name):
    cluster = replayed(name)
    conserved(cluster, trace)
    adds_up(cluster)
    # GPUs of servers that are ours draw at least what parked ones do
    least_j = 8 * min(replayer.machine.parked_w, replayer.machine.engine(2, "800").idle_w / 2) * cluster.fleet.server_s
    assert sum(cluster.accounts.energy_j.values()) >= least_j * (1 - 1e-9)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_is_lost_or_doubled_in_any_emergency(troubled, trouble):
    heavy, cluster = troubled[trouble]
    conserved(cluster, heavy)
    adds_up(cluster)


def test_the_troubles_do_climb_the_ladder_move_requests_and_divide_servers(troubled):
    seen = Counter()
    for _, cluster in troubled.values():
        seen.update(cluster.events)
    wanted = [f"emergency step {step}" for step in (1, 2, 3, 4)]
    wanted += ["rejected", "mispredicted", "servers divided again", "servers started", "servers released"]
    wanted += ["clock changes", "held back", "sent to a larger pool"]
    assert [name for name in wanted if not seen[name]] == []


def test_a_pool_gets_the_load_that_its_servers_were_counted_for(replayer):
    """Short requests overflow past a middle pool that has no servers, into the one whose servers count on them."""
    load, own = poisson(32_000, span_s=600, seed=1), ClusterSettings(emergencies=False)
    cluster = replayer.run(load, "ScaleInst", own)
    plan = sizing.size(cluster.pools, cluster.columns, cluster.forecast.between(0, 600), own.servers)
    # the case in question: all of a pool passes one without servers, and another pool passes a part on
    assert 0 in plan.servers and any(0 < share < 1 for share in plan.shares)
    done = np.zeros(len(cluster.pools))
    for server in cluster.fleet.servers:
        done[server.pool or 0] += sum(replica.instance.processed(cluster.end_s) for replica in server.replicas)
    assert done / done.sum() == pytest.approx(
        np.array([each.mean() for each in plan.loads]) / sum(each.mean() for each in plan.loads), abs=0.03
    )


def test_promises_that_are_wider_are_planned_and_judged_alike(replayer, replayed, trace):
    wide = Replayer(replayer.machine, replayer.columns.profile, slo_scale=3.0)
    slow, usual = outcome(wide.run(trace, "DynamoLLM", ClusterSettings(**QUICK))), outcome(replayed("DynamoLLM"))
    assert slow["energy_kwh"] < usual["energy_kwh"] and slow["ttft_p99_s"] > usual["ttft_p99_s"]
    assert slow["kept_percent"] > 95


def test_rejected_requests_keep_no_promise_and_are_said(replayer):
    heavy = hours(40.0, seed=7, span_s=300)
    cluster = replayer.run(heavy, "ScaleInst", ClusterSettings(**(QUICK | {"margin": 0.05})))
    found = outcome(cluster)
    assert found["rejected"] > 0 and found["in_time"] + found["late"] + found["rejected"] == found["requests"]
    assert found["kept_percent"] == pytest.approx(100 * found["in_time"] / found["requests"])
    # what they took is spent, and counts for no token
    kept = cluster.finished & (cluster.ttft_s <= 2.0)
    assert 0 < found["tokens_in_time"] <= (heavy.input_tokens + heavy.output_tokens)[kept].sum()
    assert any("were shed" in line for line in lines(found))


def test_a_cluster_too_small_for_its_load_is_said(replayer):
    heavy = poisson(200_000, span_s=120, seed=1)
    found = outcome(replayer.run(heavy, "ScaleInst", ClusterSettings(**(QUICK | {"servers": 4}))))
    assert found["short_tps"] > 0 and any("too few servers" in line for line in lines(found))


def test_a_calm_static_cluster_keeps_its_promises_and_changes_nothing(replayed):
    found = outcome(replayed("SinglePool"), timeline=True)
    assert found["kept_percent"] > 99 and found["events"] == {} and found["rejected"] == 0
    assert found["server_hours"] == pytest.approx(4 * found["end_s"] / 3600)
    assert found["starting_kwh"] == found["switching_kwh"] == 0


def test_each_knob_turns_only_what_it_names(replayed):
    for name, system in SYSTEMS.items():
        events = replayed(name).events
        assert ("clock changes" in events) == system.scale_clock, name
        assert not ("servers divided again" in events and not system.scale_sharding), name
        assert not ("servers released" in events and not system.scale_instances), name


def test_savings_fall_with_load(replayer):
    own = ClusterSettings(**(QUICK | {"load_slot_s": 300.0}))
    saved = []
    for tps in (1000, 4000, 16000):
        load = poisson(tps, span_s=600, seed=2)
        energy = {name: outcome(replayer.run(load, name, own))["energy_kwh"] for name in ("SinglePool", "DynamoLLM")}
        saved.append(1 - energy["DynamoLLM"] / energy["SinglePool"])
    assert min(saved[:2]) > saved[2] > 0


def test_a_division_that_is_under_way_is_finished(replayer, trace):
    """One server is being divided and another is to be next, when loads are looked at again."""
    own, system = ClusterSettings(**QUICK), SYSTEMS["DynamoLLM"]
    kinds = classify(trace.input_tokens, trace.output_tokens)
    forecast = LoadForecast(slot_loads(trace, own.load_slot_s), own.load_slot_s, "oracle")
    cluster = Cluster(trace, system, replayer.machine, replayer.columns, forecast, own, kinds, dynamollm)
    dynamollm.begin(cluster)
    cluster.fleet.changing[0], then = cluster.fleet.servers[0], (cluster.fleet.servers[1], (4, 4))
    cluster.fleet.plans[0].append(then)
    pool_manager.epoch(cluster)
    assert list(cluster.fleet.plans[0]) == [then]


def test_a_run_repeats_itself_exactly(replayer, replayed, trace):
    first = outcome(replayed("DynamoLLM"))
    second = outcome(replayer.run(trace, "DynamoLLM", ClusterSettings(**QUICK)))
    assert {**first, "solve_s": 0} == {**second, "solve_s": 0}


def test_the_azure_hour_on_eight_servers_loses_nothing(replayer, shared):
    azure = read_trace(shared("traces/AzureLLMInferenceTrace_conv.csv"))
    conserved(replayer.run(azure, "DynamoLLM", ClusterSettings()), azure)
