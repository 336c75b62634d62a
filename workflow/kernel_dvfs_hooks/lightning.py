"""Lightning: Trainer(callbacks=[EnergyCallback()]) logs joules to the trainer's loggers."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from kernel_dvfs_hooks.energy import Energy


class EnergyCallback(Callback):
    """energy_j_per_step, power_w and tokens_per_j each log_every_n_steps; energy_believed is 1 where the verdict is ok,
    and else 0, with a line that says why.

    gpu: as of Energy. tokens_per_step: of all ranks.
    """

    def __init__(self, gpu: str = "", tokens_per_step: int = 0) -> None:
        self._energy, self._tokens_per_step = Energy(gpu), tokens_per_step
        self._step = self._logged = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """See Callback, here and below."""
        self._step = self._logged = trainer.global_step
        self._energy.begin(self._step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self._step:  # gradients are still accumulated
            return
        self._step = trainer.global_step
        self._energy.step(self._step)
        if self._step % trainer.log_every_n_steps:
            return
        self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer, last=True)
        self._energy.end()

    def _log(self, trainer: Any, last: bool = False) -> None:
        tokens = self._tokens_per_step * (self._step - self._logged) if trainer.is_global_zero else 0
        metrics, self._logged = self._energy.since(self._step, tokens, last), self._step
        if metrics:
            believed = {"energy_believed": float(metrics.pop("energy_verdict") == "ok")}
            for logger in trainer.loggers:  # what a module logs is written again with each later log
                logger.log_metrics(metrics | believed, self._step)
