"""Hugging Face's Trainer: Trainer(..., callbacks=[EnergyCallback()]) logs joules beside the loss."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerCallback

from kernel_dvfs_hooks.energy import Energy


class EnergyCallback(TrainerCallback):
    """energy_j_per_step, power_w, tokens_per_j and energy_verdict in each log of the training; train_energy_j in its
    last one, where all of it was counted.

    gpu: as of Energy. tokens_per_step: of all ranks, where the Trainer does not count them itself
    (include_num_input_tokens_seen). Callbacks before this one (those of report_to) do not see what it adds: move them
    behind it by trainer.pop_callback and trainer.add_callback.
    """

    def __init__(self, gpu: str = "", tokens_per_step: int = 0) -> None:
        self._energy, self._tokens_per_step = Energy(gpu), tokens_per_step
        self._last = (0, 0)  # steps and tokens at the last log

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See TrainerCallback, here and below."""
        self._last = state.global_step, int(state.num_input_tokens_seen)
        self._energy.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._energy.step(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        # not by train_runtime: every log has it where the Trainer counts tokens; and not by train_loss alone: users log
        # that. The history is asked, since the Trainer's PrinterCallback takes total_flos from the logs.
        is_last = {"train_loss", "total_flos"} <= set(state.log_history[-1])
        if not is_last and "loss" not in (logs or {}):
            return  # an evaluation's
        last, self._last = self._last, (state.global_step, int(state.num_input_tokens_seen))
        tokens = self._last[1] - last[1] or self._tokens_per_step * (self._last[0] - last[0])
        # the Trainer has summed them over all ranks
        metrics = self._energy.since(state.global_step, tokens if state.is_world_process_zero else 0, is_last)
        if is_last and math.isfinite(self._energy.total_j):
            metrics["train_energy_j"] = self._energy.total_j
        logs |= metrics
        state.log_history[-1] |= metrics

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._energy.end()
