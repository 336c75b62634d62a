"""Megatron-LM and Megatron Core: energy_of(forward_step) in place of forward_step, where that is handed over.

    pretrain(datasets, model_provider, ModelType.encoder_or_decoder, energy_of(forward_step), ...)

It is called for each microbatch, so steps are counted there, and a line says what they took.
"""

from __future__ import annotations

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
    is_begun = False

    def own_tokens() -> int:
        ranks = torch.distributed
        return 0 if ranks.is_initialized() and ranks.get_rank() else every * tokens_per_step

    @wraps(forward_step)
    def counted(data_iterator: Any, model: Any, *more: Any, **about: Any) -> Any:
        nonlocal calls, steps, is_begun
        if model.training:
            if not is_begun:
                is_begun = True
                energy.begin()
            elif calls == 0:  # the step before ends where this one begins: the optimiser's part is in it
                steps += 1
                energy.step(steps)
                if steps % every == 0 and (told := energy.since(steps, own_tokens())):
                    energy.say(steps, told)
                    if log:
                        log(steps, told)
            chunks = parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1
            calls = (calls + 1) % (get_num_microbatches() * chunks)
        return forward_step(data_iterator, model, *more, **about)

    return counted
