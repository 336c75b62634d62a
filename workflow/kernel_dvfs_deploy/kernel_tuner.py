"""An observer for Kernel Tuner: energy, clocks and a verdict of each configuration, as a study here has them.

    from kernel_dvfs_deploy.kernel_tuner import EnergyObserver
    tune_kernel(..., observers=[NVMLObserver(["core_freq"]), EnergyObserver()])

Only reads. NVMLObserver sets the clocks that `nvml_gr_clock` and `nvml_mem_clock` ask for; what was reached is judged
here. Kernel Tuner repeats each configuration for `seconds` and polls `during` meanwhile (its continuous observers), so
energy is taken between two edges of the board's counter, as in measurement.counter, and not from power readings.
Source of the interface: kernel_tuner/observers/observer.py and core.py, 1.5.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement.counter import AlignedWindow
from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS
from kernel_dvfs.measurement.real.watch import Watch, look_at, state_of
from kernel_dvfs.measurement.verdict import judge
from kernel_dvfs_clocks.clocks import AUTO, Pair
from kernel_dvfs_clocks.errors import CounterFault, InputError
from kernel_dvfs_clocks.nvml.board import resolve
from kernel_dvfs_clocks.nvml.library import Library

try:
    from kernel_tuner.observers.observer import BenchmarkObserver, ContinuousObserver
except ImportError:
    raise InputError("Kernel Tuner is not installed: pip install kernel_tuner") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernel_dvfs_clocks.nvml.board import Board


class EnergyObserver(BenchmarkObserver):
    """Adds to each configuration's results: energy_j (of a launch), core_freq and mem_freq (MHz, medians), verdict,
    verdict_reasons (words), counter_s (length of the window between two edges).

    gpu: UUID or index, where there are several. seconds: how long a configuration is repeated. Raises InputError where
    no such GPU is there.
    """

    def __init__(self, gpu: str = "", seconds: float = 3.0) -> None:
        # open as long as the process: Kernel Tuner does not say when it is done
        self._nvml = Library().__enter__()
        self._watch = _Watch(resolve(self._nvml, gpu.removeprefix("nvml:")), time.monotonic)
        self.continuous_observer = _Repeated(self._watch, seconds)

    def register_configuration(self, params: Mapping[str, Any]) -> None:
        """Kernel Tuner tells which clocks a configuration asks for."""
        self._watch.asked = Pair(params.get("nvml_gr_clock", AUTO), params.get("nvml_mem_clock", AUTO))

    def get_results(self) -> dict[str, Any]:
        """Return nothing of single launches: they are too short for the counter."""
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
        return self._watch.results(self.results["time"])


class _Watch:
    """Edges of a board's counter while a load runs, and what they tell. now_s: as time.monotonic."""

    def __init__(self, board: Board, now_s: Callable[[], float]) -> None:
        self._board, self._now_s = board, now_s
        self.asked = Pair(AUTO, AUTO)
        self.begin()

    def begin(self) -> None:
        board = self._board
        self._watch = Watch(lambda: look_at(board, counts=False), lambda: state_of(board), self._now_s, own_processes=1)
        self._edges: list[tuple[float, int]] = []  # (s, mJ) of each move of the counter
        self._last_mj, self._fault = board.energy_mj(), ""

    def look(self) -> None:
        """Between the launches and their end, as often as possible."""
        energy_mj = self._board.energy_mj()
        if energy_mj == self._last_mj or self._fault:
            return
        try:
            self._watch.check_rises(energy_mj)
        except CounterFault as fault:
            self._fault = str(fault)
        self._last_mj = energy_mj
        self._edges.append((self._now_s(), energy_mj))
        self._watch.look()

    def end(self) -> None:
        self._watch.end()

    def results(self, time_ms: float) -> dict[str, Any]:
        """Return the results of launches of `time_ms` each; energy_j is left out where the counter does not tell it."""
        edges, watch = self._edges, self._watch
        counter = self._fault
        if len(edges) <= LEAST_PERIODS and not counter:
            counter = (
                f"the energy counter moved {len(edges)} times meanwhile, at least {LEAST_PERIODS + 1} are needed: give "
                "EnergyObserver more seconds"
            )
        if not edges:
            return {"verdict": "counter", "verdict_reasons": counter}
        (first_s, first_mj), (last_s, last_mj) = edges[0], edges[-1]
        window = AlignedWindow(first_s, last_s, last_mj - first_mj)
        seen = watch.watched(last_s - first_s)
        reached = {"core_mhz": seen["core_mhz"][1], "mem_mhz": seen["mem_mhz"][1]}
        counter = counter or watch.contradiction(window)
        verdict, reasons, _ = judge(self.asked, reached, [seen], counter, watch.disturbances())
        results: dict[str, Any] = {"core_freq": reached["core_mhz"], "mem_freq": reached["mem_mhz"], "verdict": verdict}
        results |= {"verdict_reasons": "; ".join(reasons), "counter_s": last_s - first_s}
        if not counter:
            results["energy_j"] = window.energy_mj / (last_s - first_s) / 1000 * time_ms / 1000
        return results
