"""The engine against another simulator, written apart: it knows nothing of runs of steps, and makes every token by
itself. Times, energy and counts agree to rounding, also where caches fill up and requests are pre-empted."""

import numpy as np
import pytest
from synthetic_profile import LineEngine

from kernel_dvfs_serving.instance import Instance, Recorder
from kernel_dvfs_serving.requests import Request

CHUNK, BATCH, SLOW_S = 96, 12, 0.021


class Sum(Recorder):
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
        self.deadline_s, self.read, self.made, self.times = deadline_s, 0, 0, []
        self.kept = 0  # answer tokens that have to be read again


def drawn(seed, count, rate):
    """Awkward requests: bursts, prompts of one token and of many chunks, answers of one token."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / rate, count) * rng.choice([0.1, 3.0], count))
    prompts = rng.choice([1, 7, 61, 97, 250, 411], count)
    answers = rng.choice([1, 2, 5, 33, 90, 149], count)
    slack_s = rng.choice([0.05, 0.4, 2.0], count)
    return list(zip(arrival_s.tolist(), prompts.tolist(), answers.tolist(), slack_s.tolist()))


def one_by_one(engine, requests, kv_tokens, deadline_first, preempts):
    """(jobs by number, J, times that a request was pre-empted) of a naive simulation: a loop over steps."""
    jobs = [Job(number, at, p, a, at + slack) for number, (at, p, a, slack) in enumerate(requests)]
    coming, waiting, reading, decoding = list(jobs), [], [], []
    now_s, energy_j, preempted = 0.0, 0.0, 0

    def held():
        if preempts:
            return sum(j.prompt + j.kept + 1 for j in reading) + sum(j.prompt + j.made for j in decoding)
        return sum(j.prompt + j.answer for j in [*reading, *decoding])

    while coming or waiting or reading or decoding:
        while coming and coming[0].arrival_s <= now_s:
            waiting.append(coming.pop(0))
        if not (waiting or reading or decoding):
            energy_j += engine.idle_w * (coming[0].arrival_s - now_s)
            now_s = coming[0].arrival_s
            continue
        while preempts and decoding and held() + len(decoding) > kv_tokens:
            rank = (lambda j: (j.deadline_s, j.number)) if deadline_first else (lambda j: j.number)
            victim = max([*reading, *decoding], key=rank)
            if victim in decoding:
                victim.kept = victim.made
                decoding.remove(victim)
            else:
                reading.remove(victim)
            victim.read = 0
            waiting.insert(0, victim)
            preempted += 1
        left, pairs, prompt_tokens, chunks = CHUNK - len(decoding), 0, 0, []
        queue = [*reading, *waiting]
        if deadline_first:
            queue.sort(key=lambda j: (j.deadline_s < now_s and not j.kept, j.deadline_s, j.number))
        for job in queue:
            if left <= 0:
                break
            if job in waiting:
                need = job.prompt + (job.kept + 1 if preempts else job.answer)
                growth = len(decoding) + 1 if preempts and (decoding or reading) else 0
                if len(reading) + len(decoding) >= BATCH or held() + need + growth > kv_tokens:
                    if deadline_first:
                        continue
                    break
                waiting.remove(job)
                reading.append(job)
            size = min(left, job.prompt + job.kept - job.read)
            pairs += size * job.read + size * (size + 1) // 2
            left, prompt_tokens = left - size, prompt_tokens + size
            chunks.append((job, size))
        time_s, step_j = engine.step(prompt_tokens + len(decoding), pairs, sum(j.prompt + j.made for j in decoding))
        now_s, energy_j = now_s + time_s, energy_j + step_j
        for job in list(decoding):
            job.made += 1
            job.times.append(now_s)
        for job, size in chunks:
            job.read += size
            if job.read == job.prompt + job.kept:
                reading.remove(job)
                decoding.append(job)
                job.made, job.kept = job.kept + 1, 0
                job.times.append(now_s)
        decoding = [job for job in decoding if job.made < job.answer]
    return jobs, energy_j, preempted


def by_events(engine, requests, kv_tokens, deadline_first, preempts):
    """(requests by number, Sum, the instance) of the engine of the project."""
    account = Sum()
    instance = Instance(engine, kv_tokens, 0.0, BATCH, CHUNK, account, deadline_first, SLOW_S, preempts)
    coming = [Request(n, at, p, a, slo_s=slack) for n, (at, p, a, slack) in enumerate(requests)]
    every = list(coming)
    while coming or instance.next_s is not None:
        if coming and (instance.next_s is None or coming[0].arrival_s <= instance.next_s):
            request = coming.pop(0)
            instance.submit(request, request.arrival_s)
        else:
            instance.event(instance.next_s)
    return every, account, instance


# caches: one that never fills, and one that does again and again (the largest request takes 560 tokens)
@pytest.mark.parametrize("preempts", [False, True], ids=["reserved", "growing"])
@pytest.mark.parametrize("kv_tokens", [100_000, 1_117], ids=["roomy", "tight"])
@pytest.mark.parametrize("deadline_first", [False, True], ids=["first-come", "deadline"])
def test_the_engine_is_that_of_a_loop_over_tokens(preempts, kv_tokens, deadline_first):
    engine = LineEngine(2, "1400")
    requests = drawn(7, 260, rate=4.0)
    jobs, energy_j, preempted = one_by_one(engine, requests, kv_tokens, deadline_first, preempts)
    found, account, instance = by_events(engine, requests, kv_tokens, deadline_first, preempts)
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
    assert instance.kv_used == 0 and instance.unread == 0 and instance.preempted == preempted
    assert (preempted > 4) == (preempts and kv_tokens < 2_000)
