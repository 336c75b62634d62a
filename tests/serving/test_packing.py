"""The packing router on a made-up machine: who gets a request, in which order prompts are read, what is lost with a
server; nothing is lost of a request."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_profile import LineEngine

from kernel_dvfs_serving.instance import Instance
from kernel_dvfs_serving.packing import LADDER, PARTS, Packing, Static, boost_of
from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.system import Settings
from kernel_dvfs_serving.trace import hours, make_trace
from kernel_dvfs_serving.tuned import PACKING, replayed

OWN = Settings(servers=3)
PLAN = Packing(3, 4, "1400", boost="1980", rest="800", answer_tokens=150.0)


def test_the_earliest_deadline_is_read_first_and_what_is_late_last():
    instance = Instance(LineEngine(4, "1980"), 300_000, chunk_tokens=512, deadline_first=True)
    late, long, short = (
        Request(number, 0.0, tokens, 5, slo_s=slo_s)
        for number, tokens, slo_s in ((0, 300, -1.0), (1, 1500, 2.0), (2, 200, 0.25))
    )
    for request in (late, long, short):
        instance.submit(request, 0.0)
    assert instance.unread == 2000
    first = {}
    now_s = 0.0
    while instance.next_s is not None and len(first) < 3:
        now_s = instance.next_s
        instance.event(now_s)
        for request in (late, long, short):
            if request.first_s is not None:
                first.setdefault(request.number, request.first_s)
    # the late one was read at once, while it was alone; of the two that waited, the short one's deadline is earlier
    assert sorted(first, key=first.get) == [0, 2, 1]
    assert instance.unread == 0


def test_a_light_load_is_packed_into_one_replica(replayer):
    # 1 request/s of 300 + 100 tokens: one replica in time for all; the least loaded router would use all six
    count = 120
    trace = make_trace(np.arange(count) * 1.0, np.full(count, 300), np.full(count, 100), "light")
    clusters = {
        plan: replayer.run_system(trace, PACKING, OWN, plan)
        for plan in (PLAN, replace(PLAN, parts=PARTS._replace(packs=False)))
    }
    used = []
    for cluster in clusters.values():
        replicas = [each for server in cluster.fleet.servers for each in server.replicas]
        used.append(sum(each.instance.processed(cluster.end_s) > 0 for each in replicas))
    assert used[0] == 1 and used[1] > 1


@pytest.mark.parametrize("changed", [{}, {"route_s": 0.013}, {"fails_s": 97.0}, {"route_s": 0.013, "fails_s": 97.0}])
@pytest.mark.parametrize("parts", LADDER.values(), ids=LADDER)
def test_every_request_ends_once_whatever_happens(replayer, parts, changed):
    trace = hours(9.0, seed=5, span_s=400, swing=0.7)
    own = replace(OWN, start_s=60.0)
    cluster = replayer.run_system(trace, PACKING, own, replace(PLAN, parts=parts, **changed))
    assert (cluster.finished ^ cluster.rejected).all() and not cluster.rejected.any()
    assert cluster.tokens_in == trace.input_tokens.sum() and cluster.tokens_out == trace.output_tokens.sum()
    assert cluster.events["servers failed"] == ("fails_s" in changed)
    replicas = [each for server in cluster.fleet.servers for each in server.replicas]
    assert all(each.outstanding == pytest.approx(0, abs=1e-6) and each.instance.unread == 0 for each in replicas)
    by_server = sum(sum(server.account.energy_j.values()) for server in cluster.fleet.servers)
    assert by_server == pytest.approx(sum(cluster.accounts.energy_j.values()), rel=1e-9)


def test_a_delay_of_the_router_is_in_the_first_token(replayer):
    trace = make_trace(np.arange(7) * 30.0, np.full(7, 211), np.full(7, 3), "lone requests")
    at_once, later = (
        replayed(replayer, trace, Static(1, 4, "1980", route_s=delay_s), OWN)["ttft_p50_s"] for delay_s in (0, 0.07)
    )
    assert later - at_once == pytest.approx(0.07, abs=1e-6)


def test_resting_saves_what_idle_replicas_draw(replayer):
    trace = make_trace(np.arange(5) * 50.0, np.full(5, 211), np.full(5, 30), "five requests")
    rests, stays = (
        replayed(replayer, trace, replace(PLAN, parts=PARTS._replace(rests=rests)), OWN) for rests in (True, False)
    )
    # six replicas of four GPUs: two stay ready, the rest draw 0.8 - 0.55 of 40 W a GPU less, nearly all the time
    saved_w = (stays["idle_kwh"] - rests["idle_kwh"]) * 3.6e6 / trace.span_s
    assert 0.6 * 4 * 4 * 40 * 0.25 < saved_w < 1.05 * 4 * 4 * 40 * 0.25
    assert rests["kept_percent"] == 100


def test_a_boost_is_a_fifth_above_where_there_is_one():
    clocks = ["800", "1000", "1150", "1400"]
    assert [boost_of(each, clocks) for each in clocks] == ["1000", "1400", "1400", "1400"]
