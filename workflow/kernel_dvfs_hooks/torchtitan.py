"""torchtitan: a configuration with metrics=EnergyMetrics.Config(log_freq=10) logs joules with its other metrics. In
torchtitan 0.2, which PyTorch 2.11 takes, it is a TrainSpec with build_metrics_processor_fn=EnergyMetrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtitan.components.metrics import MetricsProcessor

from kernel_dvfs_hooks.energy import Energy

_HAS_CONFIG = hasattr(MetricsProcessor, "Config")  # since 0.3


class EnergyMetrics(MetricsProcessor):
    """energy/j_per_step, energy/power_w, energy/tokens_per_j, and energy/believed (1 where the verdict is ok), in what
    torchtitan writes to TensorBoard and Weights & Biases; on the first rank also as a line. gpu: as of Energy."""

    if _HAS_CONFIG:

        @dataclass(kw_only=True, slots=True)
        class Config(MetricsProcessor.Config):
            """gpu: as of Energy."""

            gpu: str = ""

    def __init__(self, config: Any, parallel_dims: Any, model_args: Any = None, gpu: str = "", **options: Any) -> None:
        # before 0.3 torchtitan tells of the model, too, which a MetricsProcessor does not take
        super().__init__(config, parallel_dims=parallel_dims, **options)
        self._energy = Energy(config.gpu if _HAS_CONFIG else gpu)
        self._begun = False

    def should_log(self, step: int) -> bool:
        """See MetricsProcessor, here and below. torchtitan asks as each step begins; before 0.3 as it ends."""
        done = step - 1 if _HAS_CONFIG else step
        if self._begun:
            self._energy.step(done)
        else:
            self._begun = True
            self._energy.begin(done)
        return bool(super().should_log(step))

    def log(self, step: int, *values: Any, extra_metrics: dict[str, Any] | None = None, **more: Any) -> None:
        # ranks that share a batch each count all of it
        tokens = self.ntokens_since_last_log / self.parallel_dims.non_data_parallel_size
        metrics = self._energy.since(step, tokens)
        energy_metrics = {}
        if metrics:
            energy_metrics = {f"energy/{name.removeprefix('energy_')}": value for name, value in metrics.items()}
            energy_metrics["energy/believed"] = float(energy_metrics.pop("energy/verdict") == "ok")
        super().log(step, *values, extra_metrics=(extra_metrics or {}) | energy_metrics, **more)
        if metrics:
            self._energy.say(step, metrics)

    def close(self) -> None:
        self._energy.end()
        super().close()
