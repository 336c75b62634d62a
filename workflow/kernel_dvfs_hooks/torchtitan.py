"""torchtitan: a configuration with metrics=EnergyMetrics.Config(log_freq=10) logs joules with its other metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtitan.components.metrics import MetricsProcessor

from kernel_dvfs_hooks.energy import Energy


class EnergyMetrics(MetricsProcessor):
    """energy/j_per_step, energy/power_w, energy/tokens_per_j, and energy/believed (1 where the verdict is ok), in what
    torchtitan writes to TensorBoard and Weights & Biases; on the first rank also as a line."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """gpu: as of Energy."""

        gpu: str = ""

    def __init__(self, config: Config, **about: Any) -> None:
        super().__init__(config, **about)
        self._energy = Energy(config.gpu)
        self._begun = False

    def should_log(self, step: int) -> bool:
        """See MetricsProcessor, here and below. torchtitan asks as each step begins."""
        if self._begun:
            self._energy.step(step - 1)
        else:
            self._begun = True
            self._energy.begin(step - 1)
        return bool(super().should_log(step))

    def log(self, step: int, *about: Any, extra_metrics: dict[str, Any] | None = None, **more: Any) -> None:
        # ranks that share a batch each count all of it
        tokens = self.ntokens_since_last_log / self.parallel_dims.non_data_parallel_size
        told = self._energy.since(step, tokens)
        own = {}
        if told:
            own = {f"energy/{name.removeprefix('energy_')}": value for name, value in told.items()}
            own["energy/believed"] = float(own.pop("energy/verdict") == "ok")
        super().log(step, *about, extra_metrics=(extra_metrics or {}) | own, **more)
        if told:
            self._energy.say(step, told)

    def close(self) -> None:
        self._energy.end()
        super().close()
