"""An observer for Kernel Tuner: energy, clocks and a verdict of each configuration, as a study here has them.

    from kernel_dvfs.deploy.kernel_tuner import EnergyObserver
    tune_kernel(..., observers=[NVMLObserver(["core_freq"]), EnergyObserver()])

Only reads. NVMLObserver sets the clocks that `nvml_gr_clock` and `nvml_mem_clock` ask for; what was reached is judged
here. Kernel Tuner repeats each configuration for `seconds` and polls `during` meanwhile (its continuous observers), so
energy is taken between two edges of the board's counter, as in measurement.counter, and not from power readings.
Source of the interface: kernel_tuner/observers/observer.py and core.py, 1.5.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS
from kernel_dvfs.measurement.verdict import judge

try:
    from kernel_tuner.observers.observer import BenchmarkObserver, ContinuousObserver
except ImportError:
    raise InputError("Kernel Tuner is not installed: pip install kernel_tuner") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_dvfs.gpu.nvml.board import Board
    from kernel_dvfs.measurement.window import Window


class _Edge(NamedTuple):
    """The counter has moved."""

    at_s: float
    energy_mj: int
    core_mhz: int
    mem_mhz: int
    reasons: int  # NVML's bits


class EnergyObserver(BenchmarkObserver):
    """Adds to each configuration's results: energy_j (of a launch), core_freq and mem_freq (MHz, medians), verdict,
    verdict_reasons (words), counter_s (length of the window between two edges).

    gpu: UUID or index, where there are several. seconds: how long a configuration is repeated. Raises InputError where
    no such GPU is there.
    """

    def __init__(self, gpu: str = "", seconds: float = 3.0) -> None:
        from kernel_dvfs.gpu.nvml.board import resolve
        from kernel_dvfs.gpu.nvml.library import Library

        # open as long as the process: Kernel Tuner does not say when it is done
        self._nvml = Library().__enter__()
        self._watch = _Watch(resolve(self._nvml, gpu.removeprefix("nvml:")), time.monotonic)
        self.continuous_observer = _Repeated(self._watch, seconds)

    def register_configuration(self, params: Mapping[str, Any]) -> None:
        """Kernel Tuner tells which clocks a configuration asks for."""
        self._watch.asked = Pair(params.get("nvml_gr_clock", AUTO), params.get("nvml_mem_clock", AUTO))

    def get_results(self) -> dict[str, Any]:
        """Nothing of single launches: they are too short for the counter."""
        return {}


class _Repeated(ContinuousObserver):
    """Sees the repeated launches. Kernel Tuner sets `results` before: its `time` is that of a launch, ms."""

    def __init__(self, watch: _Watch, seconds: float) -> None:
        super().__init__("kernel_dvfs", [], watch, continuous_duration=seconds)
        self._watch = watch

    def before_start(self) -> None:
        self._watch.begin()

    def after_start(self) -> None:
        pass

    def during(self) -> None:
        self._watch.look()

    def after_finish(self) -> None:
        self._watch.end()

    def get_results(self) -> dict[str, Any]:
        return self._watch.found(self.results["time"])


class _Watch:
    """Edges of a board's counter while a load runs, and what they tell. now_s: as time.monotonic."""

    def __init__(self, board: Board, now_s: Callable[[], float]) -> None:
        self._board, self._now_s = board, now_s
        self.asked = Pair(AUTO, AUTO)
        self._edges: list[_Edge] = []
        self._last_mj = 0
        self._others: int | None = 0
        self._before: tuple[float, tuple[int | None, int | None, int | None]] = (0.0, (None, None, None))

    def begin(self) -> None:
        board = self._board
        self._edges, self._last_mj = [], board.energy_mj()
        self._before = (board.temperature_c(), board.throttled())

    def look(self) -> None:
        """Between the launches and their end, as often as possible."""
        board, energy_mj = self._board, self._board.energy_mj()
        if energy_mj != self._last_mj:
            self._last_mj = energy_mj
            self._edges.append(_Edge(self._now_s(), energy_mj, board.sm_mhz(), board.mem_mhz(), board.event_reasons()))

    def end(self) -> None:
        processes = self._board.compute_processes()
        self._others = None if processes is None else max(processes - 1, 0)

    def found(self, time_ms: float) -> dict[str, Any]:
        """The results of launches of `time_ms` each; energy_j is left out where the counter does not tell it."""
        edges = self._edges
        periods = len(edges) - 1
        counter = "" if periods >= LEAST_PERIODS else f"the energy counter moved {max(periods + 1, 0)} times meanwhile"
        if counter:
            counter += f", at least {LEAST_PERIODS + 1} are needed: give EnergyObserver more seconds"
        elif any(after.energy_mj < before.energy_mj for before, after in pairwise(edges)):
            counter = "the energy counter fell: was the driver reloaded meanwhile?"
        others = [f"{self._others} other process(es) compute on the GPU"] if self._others else []
        if not edges:
            return {"verdict": "counter", "verdict_reasons": counter}
        window = self._window(time_ms)
        reached = {"core_mhz": window["core_mhz"][1], "mem_mhz": window["mem_mhz"][1]}
        verdict, reasons, _ = judge(self.asked, reached, [window], counter, others)
        found: dict[str, Any] = {"core_freq": reached["core_mhz"], "mem_freq": reached["mem_mhz"], "verdict": verdict}
        found |= {"verdict_reasons": "; ".join(reasons), "counter_s": window["duration_s"]}
        if not counter:
            power_w = window["energy_mj"] / window["duration_s"] / 1000
            found["energy_j"] = power_w * time_ms / 1000
        return found

    def _window(self, time_ms: float) -> Window:
        edges, (before_c, before) = self._edges, self._before
        after = self._board.throttled()
        duration_s = edges[-1].at_s - edges[0].at_s
        shown = Counter(hex(1 << bit) for edge in edges for bit in range(16) if edge.reasons >> bit & 1)
        return {
            "duration_s": duration_s,
            "energy_mj": edges[-1].energy_mj - edges[0].energy_mj,
            "launches": max(1, int(1000 * duration_s / time_ms)),
            "time_us": 1000 * time_ms,
            "core_mhz": _spread([edge.core_mhz for edge in edges]),
            "mem_mhz": _spread([edge.mem_mhz for edge in edges]),
            "temp_c": [before_c, self._board.temperature_c()],
            "cap_ns": _rise(before[0], after[0]),
            "thermal_delta": _rise(before[1], after[1]),
            "reasons": {bit: count / len(edges) for bit, count in shown.items()},
            "processes": self._others,
        }


def _spread(values: list[int]) -> list[float]:
    return [min(values), median(values), max(values)]


def _rise(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(after - before, 0)
