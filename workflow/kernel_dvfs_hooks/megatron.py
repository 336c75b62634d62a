"""Megatron-LM and Megatron Core: energy_of(forward_step) in place of forward_step, where that is handed over.

    pretrain(datasets, model_provider, ModelType.encoder_or_decoder, energy_of(forward_step), ...)

It is called for each microbatch, so steps are counted there, and a line says what they took. With several pipeline
stages steps are counted, and no joules: a stage's forward pass waits for that of the stage before, which would wait in
it for the sum over all ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.num_microbatches_calculator import get_num_microbatches

from kernel_dvfs_hooks.energy import Energy


def energy_of(
    forward_step: Callable[..., Any],
    every: int = 10,
    tokens_per_step: int = 0,
    gpu: str = "",
    log: Callable[[int, dict[str, Any]], object] | None = None,
) -> Callable[..., Any]:
    """Return forward_step, which also counts steps, and says every so many of them, on the first rank, what they took.

    tokens_per_step: of all ranks. gpu: as of Energy. log: called on all ranks with the number of steps done and what
    Energy.since returns, for a writer of one's own, such as Megatron-LM's get_tensorboard_writer().
    """
    energy = Energy(gpu)
    calls = steps = 0
    is_begun = is_summed = False

    def is_first() -> bool:
        return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0

    def begin() -> bool:
        if has_stages():
            if is_first():
                warnings.warn("kernel-dvfs: with pipeline stages no joules are told", stacklevel=3)
            return False
        energy.begin()
        return True

    @wraps(forward_step)
    def counted(data_iterator: Any, model: Any, *more: Any, **options: Any) -> Any:
        nonlocal calls, steps, is_begun, is_summed
        if model.training:
            if not is_begun:
                is_begun, is_summed = True, begin()
            elif calls == 0:  # the step before ends where this one begins: the optimiser's part is in it
                steps += 1
                energy.step(steps)
                tokens = every * tokens_per_step if is_first() else 0
                if is_summed and steps % every == 0 and (metrics := energy.since(steps, tokens)):
                    energy.say(steps, metrics)
                    if log:
                        log(steps, metrics)
            chunks = parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1
            calls = (calls + 1) % (get_num_microbatches() * chunks)
        return forward_step(data_iterator, model, *more, **options)

    return counted


def has_stages() -> bool:
    """Return whether the model is parted into pipeline stages."""
    is_known = parallel_state.model_parallel_is_initialized()
    return bool(is_known and parallel_state.get_pipeline_model_parallel_world_size() > 1)
