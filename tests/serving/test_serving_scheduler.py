"""The simulated scheduler by itself: runs of steps are those of single steps, and what a shared beginning saves.
Against vLLM's own: test_vllm_scheduler.py."""

import random

import pytest

from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.scheduler import EngineScheduler, Limits


def served(blocks, priority, prefix_cache, single):
    """[(steps done, requests that leave, free blocks)] of random requests, in runs or step by step."""
    rng = random.Random(11)
    own = EngineScheduler(Limits(96, 12, priority, prefix_cache), blocks)
    steps, number, found = 0, 0, []
    coming = []
    for _ in range(90):
        steps += rng.choice([0, 0, 2, 7, 60])
        coming.append((steps, rng.choice([1, 16, 61, 250, 411]), rng.choice([1, 2, 17, 90, 149]), rng.randrange(5)))
    steps = 0
    while coming or not own.empty:
        while coming and coming[0][0] <= steps:
            _, prompt, answer, priority_ = coming.pop(0)
            shared = tuple(range(min(prompt // 16, 9)))  # all prompts begin alike
            request = Request(number, float(number), prompt, answer, contents=shared)
            request.deadline_s = float(priority_)
            own.add(request)
            number += 1
        own.schedule()
        count = 1 if single else own.alike()
        if coming:
            count = min(count, max(1, coming[0][0] - steps))
        _, left = own.advance(count)
        steps += count
        if left:
            found.append((steps, [each.number for each in left], own.blocks.free))
    assert own.unread == 0 and own.blocks.free == blocks and number == 90
    return found


@pytest.mark.parametrize("prefix_cache", [False, True], ids=["no prefix cache", "prefix cache"])
@pytest.mark.parametrize("priority", [False, True], ids=["first come", "priority"])
@pytest.mark.parametrize("blocks", [3000, 61])
def test_a_run_of_steps_is_its_steps_one_by_one(blocks, priority, prefix_cache):
    whole, single = (served(blocks, priority, prefix_cache, each) for each in (False, True))
    assert whole == single and len(whole) > 40


def test_a_prompt_whose_beginning_is_known_reads_the_rest():
    own = EngineScheduler(Limits(512, 4, prefix_cache=True), 50)
    first = Request(0, 0.0, 70, 3, contents=("a", "b", "c", "d"))
    own.add(first)
    own.schedule()
    assert own.chunks == [(first, 70)] and own.blocks.free == 45
    own.advance()
    # alike for three blocks and no further, while the first still runs; its blocks are shared
    second = Request(1, 1.0, 90, 2, contents=("a", "b", "c", "x", "y"))
    own.add(second)
    own.schedule()
    assert own.chunks == [(second, 90 - 48)] and own.blocks.free == 45 - 3 and own.batch == 1
    while not own.empty:
        own.advance()
        own.schedule()
    # a prompt that is known as a whole has its last block read again
    third = Request(2, 2.0, 64, 2, contents=("a", "b", "c", "d"))
    own.add(third)
    own.schedule()
    assert own.chunks == [(third, 16)]


def test_what_does_not_fit_blocks_those_behind_it_and_of_a_full_cache_the_latest_waits_again():
    own = EngineScheduler(Limits(512, 8), 20)
    large, small = Request(1, 1.0, 200, 40), Request(2, 2.0, 5, 5)
    own.add(Request(0, 0.0, 127, 100))
    own.schedule()
    own.advance()
    own.add(large)
    own.add(small)
    own.schedule()  # 8 of 20 blocks are taken, 13 more are needed
    assert own.chunks == [] and own.waiting == [large, small]
    own.add(Request(3, 3.0, 10, 10))
    assert own.to_read() == [large, small, own.waiting[2]] and own.unread == 215


def test_a_request_that_can_never_fit_is_known():
    own = EngineScheduler(Limits(512, 8, context=300), 20)
    assert own.fits(Request(0, 0.0, 250, 50)) and not own.fits(Request(0, 0.0, 250, 51))
    assert not EngineScheduler(Limits(512, 8), 18).fits(Request(0, 0.0, 250, 50))
