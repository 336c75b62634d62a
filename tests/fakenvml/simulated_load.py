"""Kernels for boards of the fake NVML: the simulated GPU's model, at the clocks that the fake board really runs.

Loaded by measurement.real.loads where its hook names a record of this file and NVML says that it is a fake. The board
is told the power of the load at each of its clocks, and does the rest: limits, heat, energy. Time is the board's,
virtual or not. FAKE_DEATH=how@seconds kills this process that long after its first kernel has begun. FAKE_FIGURES:
JSON, what of the board differs from the spec of its type.
"""

import ctypes
import json
import os
import signal
from itertools import pairwise

from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs.gpu.model import clock_w, launch_time_s, relative_bandwidth, run_j, static_w
from kernel_dvfs.gpu.noise import normal
from kernel_dvfs.measurement.real.clock_probe import highest
from kernel_dvfs.measurement.real.loads import library_sha256
from kernel_dvfs.measurement.simulated import works
from kernel_dvfs.measurement.target import MeasurementTarget, iteration
from kernel_dvfs_clocks.nvml.board import Board

# by what a board's name holds
SPECS = {"H200": "h200_sxm", "RTX 3080 Ti": "rtx_3080_ti"}
_TEMPERATURE_C = 55
_NOISE_SD = 0.0005


def _spec(board: str) -> dict:
    """The spec of a board; as it lies beside the fake library, where it is the plain one of its type."""
    name = next(spec for part, spec in SPECS.items() if part in board)
    beside = os.path.join(os.environ.get("LD_LIBRARY_PATH", ""), f"{name}.json")
    if "FAKE_FIGURES" in os.environ or not os.path.isfile(beside):
        from kernel_dvfs.gpu import spec as gpu_spec  # with YAML: half of what this module would import

        return gpu_spec.resolve(name, json.loads(os.environ.get("FAKE_FIGURES", "{}")))
    with open(beside) as file:
        return json.load(file)


class SimulatedLoads:
    """What measurement.real.native_loads.NativeLoads offers, without CUDA."""

    def __init__(self, nvml, uuid: str):
        self._fake, self._uuid = nvml.shared_library, uuid.encode()
        self.facts = {"cuda_runtime": 0, "cublaslt": 0, "library_sha256": library_sha256()}  # there is no CUDA
        board = Board(nvml, uuid)
        self.spec = _spec(board.name())
        listed = board.supported_mhz()
        self.mem_mhz = sorted(listed, reverse=True)
        self.core_mhz = listed[self.mem_mhz[0]]
        assert self._fake.fakenvml_open(self._uuid) == 0
        how, _, after = os.environ.get("FAKE_DEATH", "").partition("@")
        self._death, self._death_after_s, self._first_s = how, float(after or 0), None

    def chooses(self, setup, target):
        return False

    def prepare(self, setup, target):
        kernels = self._kernels(setup, target)
        load = _Load(self, kernels, target.name)
        if target.study != "pass":
            return load
        from kernel_dvfs.workload.step import paced_kernel  # with dataclasses: it costs more than a kernel's point

        if paced_kernel(target.name):
            return self._paced(kernels, target.name)
        if target.name in setup.workload.get("by_difference", {}):
            # as measurement.real.step_loads: with all that comes before it in the step, which is taken off
            names = list(setup.targets["pass"])
            earlier = [MeasurementTarget("pass", name) for name in names[: names.index(target.name)]]
            before = [each for section in earlier for each in self._kernels(setup, section)]
            load = _Load(self, before + kernels, target.name)
            load.less = _Load(self, before, f"before {target.name}")
        return load

    def _paced(self, kernels, name):
        """With a fifth of the time at rest, which is taken off: on the fake board, too, that leaves the kernel more of
        the power limit."""
        rest_s = settle(self.spec, kernels, ("auto", "auto"), _TEMPERATURE_C).time_s / 4
        load = _Load(self, kernels, name, rest_s)
        load.less = _Load(self, [], f"rest of {name}", rest_s)
        load.about["rest_us"] = 1e6 * rest_s
        return load

    def iteration(self, setup):
        return _Iteration(self, setup)

    def _kernels(self, setup, target):
        return [(parameters(self.spec, work), count) for work, count in works(setup, target)]

    def probe(self, kind):
        # no more than the bytes: no instruction is counted of a probe
        family = dict(self.spec["families"]["residual" if kind == "dram_copy" else "bias"], instruction_per_byte=0)
        spec = self.spec | {"families": {"probe": family}}
        byte = 16 << 30
        return _Load(self, [(parameters(spec, LaunchWork("probe", 0, 0, 0, byte)), 1)], kind), byte

    def move(self):
        return True

    def clock_mhz(self, until_mhz):
        idle_w = [
            [static_w(self.spec, mem, _TEMPERATURE_C) + clock_w(self.spec["core"], core) for core in self.core_mhz]
            for mem in self.mem_mhz
        ]

        def slice_mhz():
            before_s, before, *_ = self.now()
            self.sleep(0.05)
            now_s, cycles, *_ = self.now()
            return (cycles - before) / (now_s - before_s)

        self.run(idle_w)
        try:
            return highest(slice_mhz, self.now_s, until_mhz)
        finally:
            self.run(None)

    def stamper(self, step_s, room, reads):
        return _Stamper(self, step_s, room, reads)

    def now(self) -> tuple:
        """(time s, core cycles so far in millions, core MHz, memory MHz)"""
        values = (ctypes.c_double * 4)()
        assert self._fake.fakenvml_now(self._uuid, values) == 0
        return tuple(values)

    def now_s(self) -> float:
        return self.now()[0]

    def sleep(self, seconds: float) -> None:
        self._fake.fakenvml_sleep(self._uuid, ctypes.c_double(seconds))

    def run(self, power_w) -> None:
        """Put a load on the board: power_w[memory clock][core clock], None for nothing."""
        if power_w is None:
            self._fake.fakenvml_load(self._uuid, None, 0, 0)
            return
        flat = [watt for row in power_w for watt in row]
        table = (ctypes.c_double * len(flat))(*flat)
        assert self._fake.fakenvml_load(self._uuid, table, len(power_w), len(power_w[0])) == 0

    def perhaps_die(self) -> None:
        if not self._death:
            return
        now_s = self.now_s()
        self._first_s = self._first_s or now_s
        if now_s - self._first_s > self._death_after_s:
            death, self._death = self._death, ""
            DEATHS[death]()


class _Load:
    less = None

    def __init__(self, loads, kernels, name, rest_s=0.0):
        self.loads, self.kernels, self.name, self.rest_s = loads, kernels, name, rest_s
        self._started = 0
        self.run_s = rest_s
        if kernels:
            self.run_s += settle(loads.spec, kernels, ("auto", "auto"), _TEMPERATURE_C).time_s
        self.about = {
            "shape": name,
            "dtype": "simulated",
            "instance": "simulated",
            "working_set_bytes": 0,
            "by_graph": False,
        }

    def start(self):
        self._started += 1
        return _Steady(self, 1 + _NOISE_SD * normal(self.name, self._started))

    def check(self):
        pass

    def time_s(self, core_mhz, mem_mhz) -> float:
        bandwidth = relative_bandwidth(self.loads.spec["memory"], int(mem_mhz))
        own_s = sum(count * launch_time_s(kernel, core_mhz / 1000, bandwidth) for kernel, count in self.kernels)
        return own_s + self.rest_s

    def power_w(self, core_mhz, mem_mhz) -> float:
        spec = self.loads.spec
        energy_j = run_j(spec, self.kernels, core_mhz, mem_mhz)
        standing_w = static_w(spec, mem_mhz, _TEMPERATURE_C) + clock_w(spec["core"], core_mhz)
        return standing_w + energy_j / self.time_s(core_mhz, mem_mhz)


class _Steady:
    """What native.steady.Steady offers."""

    def __init__(self, load, noise):
        self._load, self._loads, self._noise = load, load.loads, noise
        loads = self._loads
        loads.run([[load.power_w(core, mem) for core in loads.core_mhz] for mem in loads.mem_mhz])
        self._trace = [(*loads.now()[:2], 0.0)]  # time s, cycles, runs so far

    def feed(self):
        self._loads.perhaps_die()
        now_s, cycles, _, mem_mhz = self._loads.now()
        before_s, before, runs = self._trace[-1]
        if now_s > before_s:
            mhz = (cycles - before) / (now_s - before_s)
            runs += (now_s - before_s) / (self._load.time_s(mhz, mem_mhz) * self._noise)
            self._trace.append((now_s, cycles, runs))

    def run_for(self, duration_s):
        end_s = self._loads.now_s() + duration_s
        while (left_s := end_s - self._loads.now_s()) > 0:
            self.feed()
            self._loads.sleep(min(left_s, 0.05))
        self.feed()
        self._trace = self._trace[-1:]  # what ran is forgotten

    def between(self, start_s, end_s):
        self.feed()
        inside = [point for point in self._trace if start_s <= point[0] <= end_s]
        (first_s, first, begun), (last_s, last, ended) = inside[0], inside[-1]
        return {
            "time_us": 1e6 * (last_s - first_s) / (ended - begun),
            "launches": max(1, int(ended - begun)),
            "sm_mhz": (last - first) / (last_s - first_s),
        }

    def own_mhz(self):
        return self._loads.now()[2] if self._load.rest_s else None

    def stop(self):
        self._loads.run(None)


class _Iteration:
    """What measurement.real.loads.IterationLoad offers: all kernels under one governor, each with its own time."""

    def __init__(self, loads, setup):
        self._loads, counts = loads, {}
        for name, count in iteration(setup):
            counts[name] = counts.get(name, 0) + count
        self._kernels = {name: loads._kernels(setup, MeasurementTarget("kernel", name))[0][0] for name in counts}
        self._load = _Load(loads, [(self._kernels[name], count) for name, count in counts.items()], "iteration")
        self._rounds = {}

    def start(self, settle_s, pass_s):
        return _Passing(self._load, self._kernels, settle_s, pass_s)

    def round(self, counts):
        key = tuple(counts.items())
        if key not in self._rounds:
            kernels = [(self._kernels[name], count) for name, count in key]
            self._rounds[key] = _Load(self._loads, kernels, "+".join(counts))
        return self._rounds[key]

    def check(self):
        pass


class _Passing:
    """What native.passing.Passing offers."""

    def __init__(self, load, kernels, settle_s, pass_s):
        self._load, self._kernels, self._pass_s = load, kernels, pass_s
        self._steady, self._loads = load.start(), load.loads
        self._settled_s, self._end_s = self._loads.now_s() + settle_s, None

    def feed(self):
        self._steady.feed()

    def stay(self, seconds):
        pass  # it runs until it is stopped

    def settles(self):
        now_s, _, core_mhz, mem_mhz = self._loads.now()
        if now_s < self._settled_s:
            return True
        if self._end_s is None:
            self._steady.run_for(0)
            pass_s = self._load.time_s(core_mhz, mem_mhz)
            self._n = max(1, round(self._pass_s / pass_s))
            self._begin_s, self._end_s = self._loads.now_s(), self._loads.now_s() + self._n * pass_s
        return False

    def is_over(self):
        return not self.settles() and self._loads.now_s() >= self._end_s

    def passes(self):
        ran = self._steady.between(self._begin_s, self._loads.now_s())
        bandwidth = relative_bandwidth(self._loads.spec["memory"], int(self._loads.now()[3]))
        times_us = {
            name: 1e6
            * launch_time_s(kernel, ran["sm_mhz"] / 1000, bandwidth)
            * (1 + _NOISE_SD * normal("pass", name, round(1e9 * self._begin_s)))
            for name, kernel in self._kernels.items()
        }
        whole_us = sum(count * time_us for (_, count), time_us in zip(self._load.kernels, times_us.values()))
        return {"n": self._n, "iteration_us": whole_us, "time_us": times_us, "sm_mhz": ran["sm_mhz"]}

    def stop(self):
        self._steady.stop()


class _Stamper:
    """What measurement.real.loads.Stamper offers: stamps worked out of the stretches that the board has noted.

    The device's timer moves in steps of 1 us, as some do; bytes follow the memory clock, with a little scatter.
    """

    _TICK_NS = 1000
    _SCATTER = 0.01

    def __init__(self, loads, step_s, room, reads):
        self._loads, self._step_s, self._room, self._reads = loads, step_s, room, reads
        self._running = False

    def start(self):
        import numpy as np

        self._random = np.random.default_rng(1)
        spec, listed = self._loads.spec, self._loads
        work_w = 100.0 if self._reads else 0.0
        self._loads.run(
            [
                [work_w + static_w(spec, mem, 55) + clock_w(spec["core"], core) for core in listed.core_mhz]
                for mem in listed.mem_mhz
            ]
        )
        assert self._loads._fake.fakenvml_note(self._loads._uuid) == 0
        self._marks, self._running = [(-1.0, 0)], True
        self._next_s, self._read, self._stamps = self._loads.now_s(), 0.0, np.zeros((0, 4), np.int64)
        self._until_s = self._next_s

    def mark(self, number):
        self._marks.append((self._loads.now_s(), number))

    def stamps(self, first):
        self._loads.perhaps_die()
        if self._running:
            self._go_on()
        return self._stamps[first:]

    def stop(self):
        if self._running:
            self._go_on()
            self._running = False
            self._loads.run(None)

    def _go_on(self):
        """Stamp what has happened since the last stamp."""
        import numpy as np

        room = 1100
        values = (ctypes.c_double * (4 * room))()
        count = self._loads._fake.fakenvml_stretches(self._loads._uuid, values, room)
        assert 0 < count < room - 76, "more changes of clocks than the board can note"
        noted = np.array(values[: 4 * count]).reshape(-1, 4)
        for (begin_s, cycles, core_mhz, mem_mhz), (end_s, *_) in pairwise(noted):
            from_s = max(begin_s, self._until_s)
            if end_s <= from_s:
                continue
            if core_mhz:  # else the board stands still: no stamp, no byte
                self._next_s = max(self._next_s, from_s)
                times_s = np.arange(self._next_s, end_s, self._step_s)
                rate = 1e6 * mem_mhz * 1000 * self._reads
                scatter = rate * self._step_s * self._SCATTER * self._random.standard_normal(len(times_s))
                rows = np.empty((len(times_s), 4), np.int64)
                rows[:, 0] = np.floor(1e9 * times_s / self._TICK_NS) * self._TICK_NS
                rows[:, 1] = 1e6 * (cycles + core_mhz * (times_s - begin_s))
                rows[:, 2] = self._read + rate * (times_s - from_s) + scatter
                marked_s, numbers = zip(*self._marks)
                rows[:, 3] = np.array(numbers)[np.searchsorted(marked_s, times_s, side="right") - 1]
                self._stamps = np.concatenate([self._stamps, rows])[: self._room]
                self._next_s = times_s[-1] + self._step_s if len(times_s) else self._next_s
                self._read += rate * (end_s - from_s)
            self._until_s = end_s


def _segfault():
    ctypes.string_at(0)


def _raise():
    raise RuntimeError("a fault in the middle of a window")


DEATHS = {
    "exception": _raise,
    "os._exit": lambda: os._exit(3),
    "segfault": _segfault,
    **{name: lambda name=name: os.kill(os.getpid(), getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP")},
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGKILL to the group": lambda: os.killpg(os.getpgid(0), signal.SIGKILL),
}
