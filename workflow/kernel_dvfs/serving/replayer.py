"""Replays traces through serving systems: all that a Cluster needs besides the trace and the system."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_dvfs.serving.cluster import Cluster
from kernel_dvfs.serving.columns import Columns
from kernel_dvfs.serving.machine import Machine
from kernel_dvfs.serving.prediction import LoadForecast, predicted, slot_loads
from kernel_dvfs.serving.profile import Profile
from kernel_dvfs.serving.requests import classify
from kernel_dvfs.serving.system import SYSTEMS, Settings
from kernel_dvfs.serving.trace import Trace


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
