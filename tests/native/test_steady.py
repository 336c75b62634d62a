"""A steady load never lets the GPU idle, and knows the time and the clock of what ran in a window."""

from types import SimpleNamespace

import pytest
from cuda_signatures import stands_for
from virtual_gpu import Queue

from kernel_dvfs.native import steady
from kernel_dvfs_clocks.errors import InputError


class Gpu(Queue):
    """A device on virtual time: launches run one after the other, the host's clock moves 0.2 ms a look."""

    def __init__(self, launch_us, sm_mhz=1500.0):
        super().__init__()
        self.launch_us, self.sm_mhz = launch_us, sm_mhz

    def monotonic(self):
        self.now_s += 2e-4
        return self.now_s

    def sleep(self, duration_s):
        self.now_s += duration_s

    def run(self, n):
        self.run_us(n * self.launch_us)

    # --- the parts of `cuda` that Steady uses ---

    def ClockProbe(self, gpu, marks):
        return Probe(gpu, marks)


@stands_for("ClockProbe")
class Probe:
    def __init__(self, gpu, marks):
        self.gpu, self.capacity, self.marks = gpu, marks, 0

    def mark(self):
        assert self.marks < self.capacity
        self.marks += 1

    def clear(self):
        self.marks = 0

    def sm_mhz(self):
        return [self.gpu.sm_mhz] * (self.marks - 1)


class Plan:
    def __init__(self, gpu, launches=1):
        self.gpu, self.launches, self.captured = gpu, launches, False

    def run(self, n):
        self.gpu.run(n * self.launches)

    launch = run

    def time(self, n):
        self.run(n)
        self.gpu.synchronize()
        return 1e-3 * n * self.launches * self.gpu.launch_us

    def capture(self, n):
        self.captured = True
        return Plan(self.gpu, n)


@pytest.fixture
def gpu_of(monkeypatch):
    def make(launch_us):
        gpu = Gpu(launch_us)
        monkeypatch.setattr(steady.time, "monotonic", gpu.monotonic)
        monkeypatch.setattr(steady.time, "sleep", gpu.sleep)
        return gpu

    return make


def window(load, gpu, duration_s):
    """(start, end) of a while in which the load is fed as a counter's window feeds it."""
    start_s = gpu.now_s
    while gpu.now_s < start_s + duration_s:
        load.feed()
        gpu.sleep(0.004)
    return start_s, gpu.now_s


@pytest.mark.parametrize("launch_us", [2.5, 80.0, 12000.0, 650e3])
def test_a_window_has_the_launch_time_and_clock_that_the_gpu_had(gpu_of, launch_us):
    gpu = gpu_of(launch_us)
    plan = Plan(gpu)
    load = steady.Steady(gpu, gpu, plan)
    assert load.by_graph == plan.captured == (launch_us < steady.GRAPH_BELOW_US)
    load.run_for(0.5)
    idle_s = gpu.idle_s
    found = load.between(*window(load, gpu, 5.0))
    assert found["time_us"] == pytest.approx(launch_us, rel=1e-9)
    assert found["sm_mhz"] == 1500
    assert found["launches"] * launch_us == pytest.approx(5e6, rel=4 * max(steady.BATCH_S, 1e-6 * launch_us) / 5)
    assert gpu.idle_s == idle_s, "the queue ran dry"


def test_more_batches_than_the_probe_has_marks_go_on(gpu_of, monkeypatch):
    monkeypatch.setattr(steady, "_MARKS", 20)
    gpu = gpu_of(1000.0)
    load = steady.Steady(gpu, gpu, Plan(gpu))
    load.run_for(3.0)
    assert load.between(*window(load, gpu, 0.3))["time_us"] == pytest.approx(1000)


def test_a_window_without_two_batches_is_refused(gpu_of):
    gpu = gpu_of(650e3)
    load = steady.Steady(gpu, gpu, Plan(gpu))
    with pytest.raises(InputError, match=r"window of 0\.5 s: 1 batches of launches ended in it, two are needed"):
        load.between(*window(load, gpu, 0.5))


def test_stopping_waits_for_what_is_queued(gpu_of):
    gpu = gpu_of(1000.0)
    load = steady.Steady(gpu, gpu, Plan(gpu))
    load.feed()
    load.stop()
    assert gpu.now_s >= gpu.busy_until_s


class Board(SimpleNamespace):
    """A board whose energy counter moves every 100 ms, by 50 J; all else stands still."""

    def energy_mj(self):
        self.gpu.now_s += 4e-3  # a read takes as long
        return 50_000 * int(self.gpu.now_s * 10)

    def __getattr__(self, name):
        values = {"throttled": (0, 0, 0), "sm_mhz": 1500, "mem_mhz": 3201, "compute_processes": 1, "power_mw": 500_000}
        return lambda: values.get(name, 0)


@pytest.mark.parametrize("launch_us", [2.5, 80.0, 650e3])
def test_a_real_gpu_s_warm_up_and_windows_know_what_has_just_run(gpu_of, monkeypatch, launch_us):
    """The seam over a board and the steady load fit together: neither is a stub here."""
    from kernel_dvfs.measurement.real.gpu import RealGpu

    monkeypatch.setattr(steady, "_MARKS", 400)  # 15 s of batches: less than the windows together
    gpu = gpu_of(launch_us)
    about = dict.fromkeys(("name", "uuid", "pci_bus_id", "vbios", "power_limit_mw", "ecc", "energy_scope", "clocks"))
    guard = SimpleNamespace(board=Board(gpu=gpu), nvml=SimpleNamespace(versions={}))
    loads = SimpleNamespace(now_s=gpu.monotonic, sleep=gpu.sleep, facts={})
    counter = SimpleNamespace(period_s=0.1, read_s=0.004)
    real = RealGpu(guard, about, {"clocks": "auto-only"}, loads, counter, 1, lambda: True, print)
    load = SimpleNamespace(start=lambda: steady.Steady(gpu, gpu, Plan(gpu)), run_s=1e-6 * launch_us, less=None)
    real.warm_up(load, 2.0)
    for number in range(4):
        window = real.window(load, 5.0, None, number)
        assert window["time_us"] == pytest.approx(launch_us)
        assert window["core_mhz"] == [1500, 1500, 1500] and window["energy_mj"] == 2_500_000
        unseen_s = window["duration_s"] - 1e-6 * window["launches"] * launch_us
        assert -1e-9 <= unseen_s < 4 * max(steady.BATCH_S, 1e-6 * launch_us), "the batches that lie across an edge"
