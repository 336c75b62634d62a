"""One trace through one system: puts together what a Cluster needs."""

import numpy as np

from kernel_dvfs.serving.classes import classify
from kernel_dvfs.serving.cluster import Cluster
from kernel_dvfs.serving.columns import Columns
from kernel_dvfs.serving.load_prediction import LoadForecast, slot_loads
from kernel_dvfs.serving.output_prediction import by_token_count, confusion, predict
from kernel_dvfs.serving.system import SYSTEMS

TOKEN_COUNT = "token-count"


class Bench:
    """A machine and its profile, on which traces are replayed.

    columns: options of columns.Columns. Raises InputError for a trace with a class that is feasible nowhere.
    """

    def __init__(self, machine, profile, **columns):
        self.machine, self.profile = machine, profile
        self._options = columns
        self._columns = {}

    def columns(self, kernel_level: bool = False) -> Columns:
        """The columns of the profile, at one clock or one per kernel."""
        if kernel_level not in self._columns:
            self._columns[kernel_level] = Columns(self.profile, kernel_level=kernel_level, **self._options)
        return self._columns[kernel_level]

    def run(self, trace, system: str, settings) -> Cluster:
        """The finished Cluster of a system, by name."""
        system = SYSTEMS[system]
        columns = self.columns(system.kernel_level)
        kinds = classify(trace.input_tokens, trace.output_tokens)
        columns.require(np.unique(kinds).tolist())
        loads = slot_loads(trace, settings.load_slot_s)
        forecast = LoadForecast(loads, settings.load_slot_s, settings.load_prediction, settings.margin)
        return Cluster(trace, system, self.machine, columns, forecast, settings, predicted(trace, settings)).run()


def predicted(trace, settings) -> np.ndarray:
    """The class each request is taken for: misprediction is a share of answers, or `token-count`."""
    kinds = classify(trace.input_tokens, trace.output_tokens)
    if settings.misprediction == TOKEN_COUNT:
        return 3 * (kinds // 3) + by_token_count(trace.input_tokens, trace.output_tokens)
    if settings.misprediction == 0:
        return kinds
    return predict(kinds, confusion(settings.misprediction), settings.seed)
