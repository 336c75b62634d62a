"""The observer for Kernel Tuner, on a board of known power; and in Kernel Tuner's own loop where that is installed."""

import importlib
import sys
import types

import pytest

from kernel_dvfs_clocks.clocks import Pair

POWER_CAP = 0x4


class Board:
    """A counter that moves every 100 ms, of a load that begins at 0.237 s."""

    def __init__(self, load_w=371.5, idle_w=83.25, processes=1):
        self.now_s, self.load_w, self.idle_w, self.processes = 0.0, load_w, idle_w, processes
        self.sm, self.mem, self.reasons = 1500, 2619, 0

    def energy_mj(self):
        told_s = int(self.now_s * 10 + 1e-9) / 10
        loaded_s = max(0.0, told_s - 0.237)
        return round(1000 * (self.idle_w * (told_s - loaded_s) + self.load_w * loaded_s))

    def temperature_c(self):
        return 51

    def throttled(self):
        return (0, 0, 0)

    def sm_mhz(self):
        return self.sm

    def mem_mhz(self):
        return self.mem

    def event_reasons(self):
        return self.reasons

    def compute_processes(self):
        return self.processes

    def power_mw(self):
        return round(1000 * (self.load_w if self.now_s >= 0.237 else self.idle_w))

    def power_limit_mw(self):
        return 700_000

    def mig(self):
        return False


@pytest.fixture
def observer(monkeypatch):
    """The module, on Kernel Tuner itself where it is installed, else on classes with its constructor."""
    try:
        importlib.import_module("kernel_tuner.observers.observer")
    except ImportError:

        class ContinuousObserver:
            def __init__(self, name, observables, parent, continuous_duration=1):
                self.continuous_duration, self.results = continuous_duration, None

        made = types.ModuleType("kernel_tuner.observers.observer")
        made.BenchmarkObserver, made.ContinuousObserver = object, ContinuousObserver
        for name in ("kernel_tuner", "kernel_tuner.observers"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "kernel_tuner.observers.observer", made)
    monkeypatch.delitem(sys.modules, "kernel_dvfs_deploy.kernel_tuner", raising=False)
    yield importlib.import_module("kernel_dvfs_deploy.kernel_tuner")
    sys.modules.pop("kernel_dvfs_deploy.kernel_tuner", None)


def watched(observer, board, asked=("auto", "auto"), seconds=3.0, time_ms=3.7):
    watch = observer._Watch(board, lambda: board.now_s)
    watch.asked = Pair(*asked)
    part = observer._Repeated(watch, seconds)
    board.now_s = 0.237
    part.before_start()
    part.after_start()
    while board.now_s < 0.237 + seconds:
        board.now_s += 0.013
        part.during()
    part.after_finish()
    part.results = {"time": time_ms}
    return part.get_results()


def test_energy_is_that_of_a_launch_between_two_edges_of_the_counter(observer):
    found = watched(observer, Board())
    # the power before the load, and what no edge has told, do not count; an edge is seen at most 13 ms late
    assert found["energy_j"] == pytest.approx(371.5 * 3.7e-3, rel=0.013 / 2.8)
    assert found["verdict"] == "ok" and 2.7 < found["counter_s"] < 3.0
    assert (found["core_freq"], found["mem_freq"]) == (1500, 2619)


def test_a_clock_that_was_not_reached_is_told_with_what_held_it(observer):
    board = Board()
    assert watched(observer, board, (1980, 2619))["verdict"] == "not_reached"
    board = Board()
    board.reasons = POWER_CAP
    found = watched(observer, board, (1980, 2619))
    assert found["verdict"] == "throttled"
    assert found["verdict_reasons"] == "core clock: asked 1980 MHz, reached 1500 MHz; power cap active"
    assert watched(observer, Board(), (1500, "auto"))["verdict"] == "ok"


def test_another_process_disturbs_and_a_short_run_tells_no_energy(observer):
    found = watched(observer, Board(processes=3))
    assert found["verdict"] == "disturbed" and "2 other process(es)" in found["verdict_reasons"]
    found = watched(observer, Board(), seconds=1.5)
    assert found["verdict"] == "counter" and "energy_j" not in found
    assert "give EnergyObserver more seconds" in found["verdict_reasons"]
    assert watched(observer, Board(), seconds=0.02)["verdict"] == "counter"


def test_a_counter_that_falls_or_that_power_contradicts_tells_no_energy(observer):
    class Falls(Board):
        def energy_mj(self):
            return super().energy_mj() - 500_000 * (self.now_s > 2)

    found = watched(observer, Falls())
    assert found["verdict"] == "counter" and "fell from" in found["verdict_reasons"] and "energy_j" not in found

    class Doubles(Board):
        def energy_mj(self):
            return 2 * super().energy_mj()

    found = watched(observer, Doubles())
    assert found["verdict"] == "counter" and "the power reading 371.5 W" in found["verdict_reasons"]


def test_kernel_tuners_own_loop_drives_it(observer):
    core = pytest.importorskip("kernel_tuner.core", reason="Kernel Tuner is not installed")
    board = Board()
    watch = observer._Watch(board, lambda: board.now_s)
    watch.asked = Pair(1500, 2619)
    part, left = observer._Repeated(watch, 3.0), []

    def finished():
        board.now_s += 0.013
        return board.now_s > 0.237 + 0.0037 * len(left)

    device = types.SimpleNamespace(
        synchronize=lambda: None,
        start_event=lambda: setattr(board, "now_s", 0.237),
        run_kernel=lambda *_: left.append(1),
        stop_event=lambda: None,
        kernel_finished=finished,
    )
    tuner = types.SimpleNamespace(dev=device, continuous_observers=[part])
    result = {"time": 3.7}
    part.results = result
    core.DeviceInterface.benchmark_continuous(tuner, None, None, None, None, result, part.continuous_duration)
    assert result["verdict"] == "ok" and result["energy_j"] == pytest.approx(371.5 * 3.7e-3, rel=0.01)


def test_without_kernel_tuner_it_says_what_to_install(monkeypatch):
    from kernel_dvfs_clocks.errors import InputError

    for name in ("kernel_tuner", "kernel_tuner.observers", "kernel_tuner.observers.observer"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "kernel_dvfs_deploy.kernel_tuner", raising=False)
    with pytest.raises(InputError, match="pip install kernel_tuner"):
        importlib.import_module("kernel_dvfs_deploy.kernel_tuner")
