"""The engine against another simulator, written apart: it knows nothing of runs of steps, and makes every token by
itself. Times, energy and counts agree to rounding, also where caches fill up and requests are pre-empted."""

from math import ceil

import numpy as np
import pytest
from synthetic_profile import LineEngine

from kernel_dvfs_serving.instance import Instance, InstanceObserver
from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.scheduler import Limits

CHUNK, BATCH, SLOW_S = 96, 12, 0.021


class Sum(InstanceObserver):
    """Energy, and every gap between tokens."""

    def __init__(self):
        self.energy_j, self.gaps = 0.0, []

    def busy(self, start_s, end_s, energy_j):
        self.energy_j += energy_j

    def idle(self, start_s, end_s, energy_j):
        self.energy_j += energy_j

    def gap(self, seconds, count):
        self.gaps += [seconds] * count


class Job:
    """A request, token by token."""

    def __init__(self, number, arrival_s, prompt, answer, deadline_s):
        self.number, self.arrival_s, self.prompt, self.answer = number, arrival_s, prompt, answer
        self.deadline_s, self.cached, self.times, self.decodes = deadline_s, 0, [], False

    @property
    def known(self):
        """Tokens of the prompt, and those that came."""
        return self.prompt + len(self.times)


def drawn(seed, count, rate):
    """Awkward requests: bursts, prompts of one token and of many chunks, answers of one token."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / rate, count) * rng.choice([0.1, 3.0], count))
    prompts = rng.choice([1, 7, 61, 97, 250, 411], count)
    answers = rng.choice([1, 2, 5, 33, 90, 149], count)
    slack_s = rng.choice([0.05, 0.4, 2.0], count)
    return list(zip(arrival_s.tolist(), prompts.tolist(), answers.tolist(), slack_s.tolist()))


def one_by_one(engine, requests, blocks, priority):
    """(jobs by number, J, times that a request was pre-empted) of a naive simulation: a loop over steps."""
    jobs = [Job(number, at, p, a, at + slack) for number, (at, p, a, slack) in enumerate(requests)]
    coming, waiting, running = list(jobs), [], []
    now_s, energy_j, preempted = 0.0, 0.0, 0

    def free(given=()):
        return blocks - sum(ceil((job.cached + dict(given).get(job, 0)) / 16) for job in running)

    while coming or waiting or running:
        while coming and coming[0].arrival_s <= now_s:
            waiting.append(coming.pop(0))
        if priority:
            waiting.sort(key=lambda job: (job.deadline_s, job.arrival_s))
        if not (waiting or running):
            energy_j += engine.idle_w * (coming[0].arrival_s - now_s)
            now_s = coming[0].arrival_s
            continue
        given, left, full = {}, CHUNK, False
        for job in list(running):
            if job not in running or left == 0:
                continue
            size = min(job.known - job.cached, left)
            while job in running and ceil((job.cached + size) / 16) - ceil(job.cached / 16) > free(given):
                victim = max(running, key=lambda job: (job.deadline_s, job.arrival_s)) if priority else running[-1]
                running.remove(victim)
                left += given.pop(victim, 0)
                victim.cached, victim.decodes = 0, False
                waiting.insert(0, victim)
                preempted, full = preempted + 1, True
            if job not in running:
                break
            given[job] = size
            left -= size
        if priority:
            waiting.sort(key=lambda job: (job.deadline_s, job.arrival_s))
        while waiting and left and not full and len(running) < BATCH and ceil(waiting[0].known / 16) <= free(given):
            job = waiting.pop(0)
            running.append(job)
            given[job] = min(job.known, left)
            left -= given[job]
        decoding = [job for job in given if job.decodes]
        chunks = [job for job in given if job not in decoding]
        pairs = sum(given[job] * job.cached + given[job] * (given[job] + 1) // 2 for job in chunks)
        time_s, step_j = engine.step(sum(given.values()), pairs, sum(job.known for job in decoding), len(given))
        now_s, energy_j = now_s + time_s, energy_j + step_j
        for job, size in given.items():
            job.cached += size
            if job.cached == job.known:
                job.times.append(now_s)
                job.decodes = True
        running = [job for job in running if len(job.times) < job.answer]
    return jobs, energy_j, preempted


def by_events(engine, requests, blocks, priority):
    """(requests by number, Sum, the instance) of the engine of the project."""
    account = Sum()
    # one block more is the engine's own
    instance = Instance(engine, 16 * (blocks + 1), Limits(CHUNK, BATCH, priority), 0.0, account, SLOW_S)
    coming = [Request(n, at, p, a, slo_s=slack) for n, (at, p, a, slack) in enumerate(requests)]
    every = list(coming)
    while coming or instance.next_s is not None:
        if coming and (instance.next_s is None or coming[0].arrival_s <= instance.next_s):
            request = coming.pop(0)
            instance.submit(request, request.arrival_s)
        else:
            instance.event(instance.next_s)
    return every, account, instance


# caches: one that never fills, and one that does again and again (the largest request takes 35 blocks)
@pytest.mark.parametrize("blocks", [5000, 67], ids=["roomy", "tight"])
@pytest.mark.parametrize("priority", [False, True], ids=["first-come", "deadline"])
def test_the_engine_is_that_of_a_loop_over_tokens(blocks, priority):
    engine = LineEngine(2, "1400")
    requests = drawn(7, 260, rate=4.0)
    jobs, energy_j, preempted = one_by_one(engine, requests, blocks, priority)
    found, account, instance = by_events(engine, requests, blocks, priority)
    assert account.energy_j == pytest.approx(energy_j, rel=1e-11)
    for job, request in zip(jobs, found):
        assert request.first_s == pytest.approx(job.times[0], abs=1e-7)
        assert request.finish_s == pytest.approx(job.times[-1], abs=1e-7)
        assert len(job.times) == request.generated == request.output
    gaps = np.sort(np.concatenate([np.diff(job.times) for job in jobs]))
    assert len(account.gaps) == len(gaps)
    # a run's gaps are told by their mean
    assert np.sort(account.gaps) == pytest.approx(gaps, rel=2e-3)
    slow = sum(int((np.diff(job.times) > SLOW_S).sum()) for job in jobs)
    assert slow > 50 and sum(request.slow for request in found) == pytest.approx(slow, rel=0.02)
    own = instance.scheduler
    assert own.blocks.free == blocks and own.unread == 0 and instance.preempted == preempted
    assert (preempted > 4) == (blocks < 1000)
