"""Passes of an iteration with marks of time between its kernels: what each takes, without what the marks add."""

import pytest
from cuda_signatures import stands_for
from virtual_gpu import Queue

from kernel_dvfs.native import passing
from kernel_dvfs.native.passing import Marked, Passing, marked_pass, quick, room_for
from kernel_dvfs_clocks.errors import InputError

MARK_US = 2.5


class Gpu(Queue):
    """A device on virtual time; what runs on it is asked for its kernels: [us or marks]."""

    run = Queue.run_us

    def monotonic(self):
        return self.now_s

    # --- the parts of `cuda` that are used ---

    def ClockProbe(self, gpu, marks):
        return Probe(gpu, marks)

    def TimeMarks(self, gpu, room):
        return Marks(gpu, room)

    def Pass(self, groups):
        return Pass(self, groups)


@stands_for("ClockProbe")
class Probe:
    def __init__(self, gpu, marks):
        self.gpu, self.capacity, self.marks = gpu, marks, []

    def mark(self):
        assert len(self.marks) < self.capacity
        self.marks.append(self.gpu.busy_until_s)

    def clear(self):
        self.marks = []

    def sm_mhz(self):
        return [1500.0] * (len(self.marks) - 1)


@stands_for("TimeMarks")
class Marks:
    def __init__(self, gpu, room):
        self.gpu, self.room, self.times = gpu, room, []

    def run(self, n=1):
        for _ in range(n):
            self.gpu.run(MARK_US)
            if len(self.times) < self.room:
                self.times.append(round(1e9 * self.gpu.busy_until_s))

    def clear(self):
        self.times = []

    def times_ns(self):
        self.gpu.synchronize()
        return list(self.times)


class Kernel:
    def __init__(self, gpu, us):
        self.gpu, self.us = gpu, us

    def run(self, n=1):
        self.gpu.run(n * self.us)


@stands_for("Pass")
class Pass:
    def __init__(self, gpu, groups):
        self.gpu, self.groups, self.captured = gpu, groups, False

    def run(self, n=1):
        for _ in range(n):
            for plans, repeat in self.groups:
                for _ in range(repeat):
                    for plan in plans:
                        plan.run(1)

    def time(self, n=1):
        begin_s = self.gpu.busy_until_s
        self.run(n)
        self.gpu.synchronize()
        return 1e3 * (self.gpu.busy_until_s - begin_s)

    def capture(self, n=1):
        self.captured = True
        return Graph(self)


@stands_for("Graph")
class Graph:
    def __init__(self, recorded):
        self._recorded = recorded

    def launch(self, n=1):
        self._recorded.run(n)


def passed(monkeypatch, groups, settle_s, pass_s):
    """groups: [([(name, us)], repeat)]; (what passes found, GPU, whether by a graph, seconds from start to end)."""
    gpu = Gpu()
    monkeypatch.setattr(passing.time, "monotonic", gpu.monotonic)
    names = [name for each, repeat in groups for _ in range(repeat) for name, _ in each]
    marks = gpu.TimeMarks(gpu, room_for(len(names)))
    unit = marked_pass(gpu, marks, [([Kernel(gpu, us) for _, us in each], repeat) for each, repeat in groups])
    run = quick(gpu, unit)
    begin_s, gpu.idle_s = gpu.now_s, 0.0
    made = Passing(Marked(gpu, gpu, marks, run, names), settle_s, pass_s)
    while not made.is_over():
        made.feed()
        gpu.now_s += 0.002
    took_s = gpu.now_s - begin_s
    found = made.passes()
    assert not made.settles()
    return found, gpu, unit.captured, took_s


# seconds of a pass: 1.2, 0.03, 60 us
@pytest.mark.parametrize(
    ("layers", "product_us", "gelu_us"), [(24, 40_000.0, 10_000.0), (6, 4000.0, 1000.0), (2, 15.0, 6.0)]
)
def test_each_kernel_has_its_own_time_and_the_gpu_never_idles(monkeypatch, layers, product_us, gelu_us):
    groups = [([("product", product_us), ("gelu", gelu_us)], layers), ([("loss", 3 * gelu_us)], 1)]
    found, gpu, by_graph, took_s = passed(monkeypatch, groups, 0.5, 2.5)
    expected = {"product": product_us, "gelu": gelu_us, "loss": 3 * gelu_us}
    assert found["time_us"] == pytest.approx(expected, rel=1e-3)
    whole_us = layers * (product_us + gelu_us) + 3 * gelu_us
    assert found["iteration_us"] == pytest.approx(whole_us, rel=1e-3) and found["sm_mhz"] == 1500.0
    marked_s = 1e-6 * (whole_us + (2 * layers + 3) * MARK_US)
    settled_s = max(0.5, marked_s)
    assert by_graph
    assert found["n"] == pytest.approx(max(1, 2.5 / marked_s), abs=max(1, 0.04 / marked_s))
    assert took_s == pytest.approx(settled_s + found["n"] * marked_s, abs=max(0.1, 0.6 * marked_s))
    assert gpu.idle_s < 0.02, "but while the first pass is timed"


def test_a_window_beside_the_passes_sees_no_idle_gpu_however_late_it_begins(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(passing.time, "monotonic", gpu.monotonic)
    marks = gpu.TimeMarks(gpu, room_for(2))
    unit = marked_pass(gpu, marks, [([Kernel(gpu, 170_000.0), Kernel(gpu, 430_000.0)], 1)])
    made = Passing(Marked(gpu, gpu, marks, quick(gpu, unit), ["a", "b"]), 0.5, 2.5)
    while made.settles():
        made.feed()
        gpu.now_s += 0.002
    gpu.now_s += 0.55  # what looks at the board for the first time takes a while
    made.stay(2.9)
    end_s, gpu.idle_s = gpu.now_s + 2.8, 0.0
    while gpu.now_s < end_s:
        made.feed()
        gpu.now_s += 0.002
    assert made.is_over() and gpu.idle_s == 0 and gpu.busy_until_s >= end_s
    assert made.passes()["time_us"] == pytest.approx({"a": 170_000, "b": 430_000}, rel=1e-3)


def test_one_pass_is_whole_however_long_it_takes(monkeypatch):
    found, *_, took_s = passed(monkeypatch, [([("long", 4e6)], 1)], 0.5, 2.5)
    assert found["n"] == 1 and found["time_us"] == pytest.approx({"long": 4e6}) and took_s < 8.1


def test_marks_that_are_missing_are_found_out(monkeypatch):
    monkeypatch.setattr(Marks, "times_ns", lambda self: self.times[:-1])
    with pytest.raises(InputError, match="passes: 4 marks of 1 passes of 3 launches"):
        passed(monkeypatch, [([("a", 1e6), ("b", 1e6), ("c", 1e6)], 1)], 0.5, 2.5)
