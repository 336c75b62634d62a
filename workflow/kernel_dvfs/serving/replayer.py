"""Replays traces through serving systems: the machine that instances run on, and all else that a Cluster needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_dvfs.serving import kernel_clocks
from kernel_dvfs.serving.cluster import Cluster
from kernel_dvfs.serving.columns import Columns, mhz
from kernel_dvfs.serving.prediction import LoadForecast, predicted, slot_loads
from kernel_dvfs.serving.profile import KERNEL_LEVEL, Profile
from kernel_dvfs.serving.requests import classify
from kernel_dvfs.serving.steps import Engine, StepModel
from kernel_dvfs.serving.system import SYSTEMS, Settings
from kernel_dvfs.serving.trace import Trace


class Machine:
    """Simulated engines by degree and clock, KV caches, and the power of a GPU that holds no instance.

    gpu, model, overrides: as steps.StepModel. parked_w: of one GPU without instance; None: the model's own at its
    lowest clock.
    """

    def __init__(
        self,
        gpu: str = "h100_sxm",
        model: str = "llama2-70b",
        overrides: dict | None = None,
        parked_w: float | None = None,
    ):
        self._make = lambda tp: StepModel(gpu=gpu, model=model, tp=tp, overrides=overrides)
        self._models: dict[int, StepModel] = {}
        largest = self.model(8)
        self.kv_byte_per_token = largest.model.kv_byte_per_token
        self.parked_w = largest.idle_w(largest.clocks[0]) / largest.tp if parked_w is None else parked_w

    def model(self, tp: int) -> StepModel:
        """Steps of an instance of that degree."""
        if tp not in self._models:
            self._models[tp] = self._make(tp)
        return self._models[tp]

    def engine(self, tp: int, clock: str) -> Engine:
        """The engine at a clock as the profile names it: MHz, or kernel:MHz."""
        return kernel_clocks.engine(self.model(tp), mhz(clock), clock.startswith(KERNEL_LEVEL))

    def kv_tokens(self, tp: int) -> int:
        """KV cache of an instance, tokens."""
        return self.model(tp).kv_tokens


class Replayer:
    """A machine and its profile, on which traces are replayed.

    columns: options of columns.Columns. Raises InputError for a trace with a class that is feasible nowhere.
    """

    def __init__(self, machine: Machine, profile: Profile, **columns: Any):
        self.machine, self.profile = machine, profile
        self._options = columns
        self._columns: dict[bool, Columns] = {}

    def columns(self, kernel_level: bool = False) -> Columns:
        """The columns of the profile, at one clock or one per kernel."""
        if kernel_level not in self._columns:
            self._columns[kernel_level] = Columns(self.profile, kernel_level=kernel_level, **self._options)
        return self._columns[kernel_level]

    def run(self, trace: Trace, system: str, settings: Settings) -> Cluster:
        """The finished Cluster of a system, by name."""
        own = SYSTEMS[system]
        columns = self.columns(own.kernel_level)
        kinds = classify(trace.input_tokens, trace.output_tokens)
        columns.require(np.unique(kinds).tolist())
        loads = slot_loads(trace, settings.load_slot_s)
        forecast = LoadForecast(loads, settings.load_slot_s, settings.load_prediction, settings.margin)
        return Cluster(trace, own, self.machine, columns, forecast, settings, predicted(trace, settings)).run()
