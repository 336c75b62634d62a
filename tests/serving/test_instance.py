"""One instance: every token is generated once, whatever interrupts it; energy adds up."""

import numpy as np
import pytest
from synthetic_profile import KV_TOKENS, LineEngine

from kernel_dvfs_serving import make_profile
from kernel_dvfs_serving.instance import Instance
from kernel_dvfs_serving.make_profile import simulate_instance, weighted_quantile
from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.scheduler import Limits
from kernel_dvfs_serving.servers import Account, Accounts
from kernel_dvfs_serving.trace import hours


@pytest.fixture
def engine():
    return LineEngine(8, "1980")


def test_all_tokens_of_a_trace_come_once_and_runs_are_those_of_single_steps(engine, monkeypatch):
    trace = hours(3.0, seed=1, span_s=300)
    arrays = trace.arrival_s, trace.input_tokens, trace.output_tokens
    whole = simulate_instance(engine, KV_TOKENS[8], *arrays)
    assert whole.finished.all() and whole.gap_count.sum() == (trace.output_tokens - 1).sum()

    class OneStep(Instance):
        def _plan_run(self, steps):
            super()._plan_run(1)

    monkeypatch.setattr(make_profile, "Instance", OneStep)
    single = simulate_instance(engine, KV_TOKENS[8], *arrays)
    assert single.energy_j == pytest.approx(whole.energy_j, rel=1e-9)
    assert single.end_s == pytest.approx(whole.end_s, rel=1e-12)
    assert np.allclose(single.ttft_s, whole.ttft_s, rtol=1e-9, atol=1e-9)


def test_a_lone_request_takes_its_chunks_and_then_one_step_a_token(engine):
    found = simulate_instance(engine, KV_TOKENS[8], [1.0], [1000], [5], chunk_tokens=512)
    first = engine.step(512, 512 * 513 // 2, 0, 1)[0] + engine.step(488, 488 * 512 + 488 * 489 // 2, 0, 1)[0]
    assert found.ttft_s[0] == pytest.approx(first)
    assert found.busy_s == pytest.approx(first + engine.run(1, 1001, 4)[0])
    idle_j = engine.idle_w * 1.0
    assert found.energy_j == pytest.approx(idle_j + engine.busy_w * found.busy_s)


def test_no_more_is_admitted_than_the_kv_cache_and_the_batch_hold(engine):
    highest = {"blocks": 0, "batch": 0}

    class Watched(Instance):
        def event(self, now_s):
            left = super().event(now_s)
            own = self.scheduler
            highest["blocks"] = max(highest["blocks"], own.blocks.count - own.blocks.free)
            highest["batch"] = max(highest["batch"], len(own.running))
            return left

    instance = Watched(engine, 5000, Limits(512, 3))
    for number in range(20):
        instance.submit(Request(number, float(number), 900, 300), 0.0)
    now_s, left = 0.0, []
    while instance.next_s is not None:
        now_s = instance.next_s
        left += instance.event(now_s)
    # 311 blocks: 5000 tokens less the engine's own; three of 900 to 1200 tokens fit
    assert len(left) == 20 and 200 < highest["blocks"] <= 311 and highest["batch"] == 3
    with pytest.raises(RuntimeError, match="never fit"):
        instance.submit(Request(99, now_s, 5000, 1), now_s)


def test_where_the_cache_is_full_the_latest_gives_it_up_and_every_token_comes_once(engine):
    accounts = Accounts()
    instance = Instance(engine, 1600 + 16, Limits(512, 8), recorder=Account(accounts), slow_gap_s=0.05)
    requests = [Request(number, 0.01 * number, 401 + number, 213) for number in range(5)]
    for request in requests:
        instance.submit(request, request.arrival_s)
    while instance.next_s is not None:
        instance.event(instance.next_s)
    assert instance.preempted > 0 and all(each.generated == 213 for each in requests)
    assert accounts.gap_count == 5 * 212 and instance.scheduler.blocks.free == instance.scheduler.blocks.count == 100
    # a request that gave its cache up has a long gap
    assert max(each.slow for each in requests) > 0


def test_a_halted_instance_gives_its_requests_up_and_another_goes_on_where_it_stopped(engine):
    accounts = Accounts()
    first = Instance(engine, KV_TOKENS[8], Limits(512, 256), recorder=Account(accounts))
    requests = [Request(number, 0.0, 600, 50) for number in range(4)]
    for request in requests:
        first.submit(request, 0.0)
    now_s, left = 0.0, []
    for _ in range(6):
        now_s = first.next_s
        left += first.event(now_s)
    # in the middle of a run of decode steps
    now_s += 0.3 * (first.next_s - now_s)
    stop_s = first.halt(now_s)
    left += first.event(stop_s)
    assert first.next_s is None
    taken = first.take_running(stop_s)
    assert len(taken) + len(left) + len(first.waiting) == 4 and any(0 < each.generated < 50 for each in taken)
    second = Instance(engine, KV_TOKENS[8], now_s=stop_s + 2.0, recorder=Account(accounts))
    for request in taken:
        second.submit(request, stop_s + 2.0)
    while second.next_s is not None:
        left += second.event(second.next_s)
    assert len(left) == 4 and all(each.finish_s is not None and each.generated == 50 for each in left)
    # every token but the first of each request has one gap before it; the pause is in four of them
    assert accounts.gap_count == 4 * 49
    assert sum(count for place, count in accounts.gaps.items() if place >= 200 * np.log(2.0) - 1) == len(taken)


def test_an_answer_beyond_its_bound_is_handed_back_at_the_bound(engine):
    instance = Instance(engine, KV_TOKENS[8])
    request = Request(0, 0.0, 100, 300)
    request.stop_at = 100
    instance.submit(request, 0.0)
    left = []
    while instance.next_s is not None:
        left += instance.event(instance.next_s)
    assert left == [request] and request.generated == 100 and request.finish_s is None


def test_a_new_clock_counts_from_the_end_of_the_step_in_progress(engine):
    slow = LineEngine(8, "800")
    instance = Instance(engine, KV_TOKENS[8])
    instance.submit(Request(0, 0.0, 10, 100), 0.0)
    instance.event(instance.next_s)
    before = instance.next_s
    instance.set_engine(slow, instance._run_start_s + 1e-6)
    assert instance.next_s < before and instance.engine is engine
    instance.event(instance.next_s)
    assert instance.engine is slow


def test_weighted_quantiles_count_every_gap():
    assert weighted_quantile([3.0, 1.0, 2.0], [1, 98, 1], 0.98) == 1.0
    assert weighted_quantile([3.0, 1.0, 2.0], [1, 98, 1], 0.99) == 2.0
    assert np.isnan(weighted_quantile([], [], 0.5))
