"""gpu_energy.py: what it makes of a GPU whose power and counter are known: a stand-in on virtual time."""

import csv
import sys
from types import SimpleNamespace

import pytest
from cuda_signatures import stands_for

from experiments.calibration import energy
from kernel_dvfs_clocks.errors import InputError

WATT = {"idle": 80.0, "spin": 130.0, "fp32": 400.0, "gemm": 690.0, "dram_copy": 510.0}
SM_MHZ = {"gemm": 1310.0}
REPORTED_MHZ = 1980
PERIOD_S = 0.1


class Machine:
    """A board and its clock: reading NVML takes 4 ms, the energy counter moves every 100 ms."""

    def __init__(self):
        self.now_s, self.busy_until_s = 100.0, 100.0
        self.watt, self.energy_j, self.shown_j, self.shown_s = WATT["idle"], 1000.0, 1000.0, 100.0
        self.kind = "idle"

    def advance(self, seconds):
        while self.now_s + seconds >= self.shown_s + PERIOD_S:
            step_s = self.shown_s + PERIOD_S - self.now_s
            self.energy_j += self.watt * step_s
            self.now_s, seconds = self.now_s + step_s, seconds - step_s
            self.shown_s, self.shown_j = self.shown_s + PERIOD_S, self.energy_j
        self.energy_j += self.watt * seconds
        self.now_s += seconds

    def monotonic(self):
        self.advance(1e-4)
        return self.now_s

    def queue(self, kind, seconds):
        self.kind, self.watt = kind, WATT.get(kind, 200.0)
        self.busy_until_s = max(self.busy_until_s, self.now_s) + seconds

    def read(self, value):
        self.advance(0.004)
        return value


class Board:
    uuid = "GPU-1a2b"

    def __init__(self, machine):
        self._machine = machine

    def power_limit_mw(self):
        return 700_000

    def sm_mhz(self):
        return self._machine.read(REPORTED_MHZ)

    def mem_mhz(self):
        return 3201

    def temperature_c(self):
        return 50

    def throttled(self):
        capped_s = self._machine.now_s if self._machine.kind == "gemm" else 0.0
        return round(1e9 * capped_s), 0, 0

    def energy_mj(self):
        self._machine.read(None)
        return round(1e3 * self._machine.shown_j)


class Nvml:
    versions = {"driver": "580"}  # noqa: RUF012

    def __init__(self, machine):
        self._machine = machine

    def __enter__(self):
        return self

    def call(self, function, *arguments, gpu=""):
        if function == "nvmlDeviceGetHandleByUUID":
            return 1
        ((_, scope),) = arguments[1]
        watt = self._machine.read(self._machine.watt)
        return [SimpleNamespace(nvmlReturn=0 if scope == 0 else 3, value=SimpleNamespace(uiVal=1e3 * watt))]


def cuda_of(machine):
    """As much of the extension as the benchmark asks for."""

    class Runnable:
        kind, launch_s = "", 0.002

        def run(self, n=1):
            machine.queue(self.kind, n * self.launch_s)

        launch = run

        def time(self, n=1):
            machine.queue(self.kind, n * self.launch_s)
            machine.advance(max(0.0, machine.busy_until_s - machine.now_s))
            return 1e3 * n * self.launch_s

        def checksum(self):
            return 5

    @stands_for("EnergyProbe")
    class EnergyProbe(Runnable):
        def __init__(self, arena, kind, iterations=1, byte=0, warps=32, sms=132, operands="random", seed=1):
            if kind == "int32":
                raise RuntimeError("it broke\nhere")
            self.kind, self.operations, self.byte = kind, 1e9 * iterations, byte
            self.launch_s = iterations / 1.98e9 if kind == "spin" else 1e-5 * iterations if not byte else 0.004

        def info(self):
            of_byte = {"read_byte": self.byte, "write_byte": self.byte if self.kind == "dram_copy" else 0}
            rest = {"unit": "flop", "operations": 0 if self.byte else self.operations, "level": "", "sms": 132}
            return of_byte | rest

    @stands_for("Plan")
    class Plan(Runnable):
        kind = "gemm"

        def __init__(self, arena, op, settings, tensors=None, algorithm="timed"):
            assert op == "gemm" and set(tensors) == {"a", "b"}
            self.asked = algorithm
            asked.append(algorithm)

        def info(self):
            return {"algorithm_id": 66, "pinned": b"bytes"}

    @stands_for("Pass")
    class Pass(Runnable):
        kind = "gemm"

        def __init__(self, groups):
            self.launch_s = sum(times * sum(part.launch_s for part in parts) for parts, times in groups)

    @stands_for("Event")
    class Event:
        def __init__(self, device):
            pass

        def record(self):
            self.at_s = max(machine.busy_until_s, machine.now_s)

        def done(self):
            return machine.now_s >= self.at_s

        def since_ms(self, earlier):
            return 1e3 * (self.at_s - earlier.at_s)

    @stands_for("ClockProbe")
    class ClockProbe:
        def __init__(self, device, capacity):
            self.marks = []

        def mark(self):
            self.marks.append(SM_MHZ.get(machine.kind, float(REPORTED_MHZ)))

        def clear(self):
            self.marks = []

        def sm_mhz(self):
            return self.marks[1:]

    class Device:
        def __init__(self, index):
            pass

        def info(self):
            return {"name": "NVIDIA H200", "uuid": Board.uuid, "runtime": 13000}

        def synchronize(self):
            machine.advance(max(0.0, machine.busy_until_s - machine.now_s))

    asked = []
    return SimpleNamespace(
        Device=Device,
        Arena=lambda device: None,
        EnergyProbe=EnergyProbe,
        Plan=Plan,
        Pass=Pass,
        Event=Event,
        ClockProbe=ClockProbe,
        asked=asked,
    )


@pytest.fixture
def benchmark():
    from experiments.benchmarks import gpu_energy

    return gpu_energy


@pytest.fixture
def run(benchmark, monkeypatch, tmp_path):
    """`run(*words)`: the script's whole run; (lines of its table, of the counter's, stand-in extension, path)."""
    from kernel_dvfs.native import steady

    machine = Machine()
    cuda = cuda_of(machine)
    virtual = SimpleNamespace(monotonic=machine.monotonic, sleep=machine.advance)
    monkeypatch.setattr(benchmark, "time", virtual)
    monkeypatch.setattr(steady, "time", virtual)
    monkeypatch.setattr(benchmark, "load", lambda *_: cuda)
    monkeypatch.setattr(benchmark, "Board", lambda nvml, uuid: Board(machine))
    monkeypatch.setattr(benchmark, "Library", lambda: Nvml(machine))
    monkeypatch.setattr(benchmark, "library_sha256", lambda *_: "a" * 64)

    def run(*words, fails=None):
        output = tmp_path / "probes.csv"
        monkeypatch.setattr(sys, "argv", ["gpu_energy.py", "-o", str(output), *words])
        if fails is None:
            benchmark.main()
        else:
            with pytest.raises(SystemExit, match=fails):
                benchmark.main()
        return read(output), read(tmp_path / "probes_counter.csv"), cuda, output

    return run


def read(path):
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_power_time_and_clocks_are_those_of_the_load_and_a_failed_probe_says_why(run):
    lines, _, cuda, output = run("--budget-s", "100000", fails="error: 2 probes were not measured")
    table = {line["probe"]: line for line in lines}
    assert table["int32_w32"]["error"] == "RuntimeError: it broke here"
    for name, watt in (("idle", 80), ("spin_w1", 130), ("fp32_w32", 400), ("gemm", 690), ("dram_copy_w32", 510)):
        assert float(table[name]["power_w"]) == pytest.approx(watt, rel=2e-3), name
    assert float(table["gemm"]["time_us"]) == pytest.approx(2000, rel=1e-6)
    assert (float(table["gemm"]["sm_mhz"]), float(table["gemm"]["nvml_sm_mhz_median"])) == (1310, 1980)
    assert (table["gemm"]["throttle_share"], table["fp32_w32"]["throttle_share"]) == ("1.0", "0.0")
    # the memory's sensor is not there, the board's is
    assert (table["gemm"]["instant_power_w"], table["gemm"]["memory_power_w"]) == ("690.0", "")
    # a spin of half the cycles takes half of the time
    assert float(table["gemm_d50"]["time_us"]) == pytest.approx(2000 + 2000 * 1310 / 1980, rel=1e-3)
    # one algorithm for each shape
    assert cuda.asked.count("timed") == 3 and set(cuda.asked) == {"timed", b"bytes"}
    per_flop = 1e12 * (400 - 130) * 1e-6 * float(table["fp32_w32"]["time_us"]) / float(table["fp32_w32"]["operations"])
    assert float(table["fp32_w32"]["above_spin_pj_per_operation"]) == pytest.approx(per_flop, rel=0.01)
    assert table["gemm"]["above_spin_pj_per_operation"] == "", "at another clock"
    points = {point.probe: point for point in energy.read_points(output, 700)}
    assert "int32_w32" not in points
    assert (points["gemm"].core_mhz, points["gemm"].sm_mhz, points["gemm"].capped_share) == (1980, 1310, 1)


def test_what_is_left_when_the_time_is_over_says_so(run):
    lines, *_ = run("--only", "spin", "--budget-s", "3", fails="error: 2 probes")
    assert [line["error"].partition(" of ")[0] for line in lines] == ["", *["InputError: skipped: 4 s"] * 2]


def test_the_counter_is_set_against_the_integral_of_power(run):
    _, lines, *_ = run("--only", "idle", "--check-counter")
    assert [line["load"] for line in lines] == [
        name for name in ("spin_w1", "dram_copy_w32", "gemm") for _ in range(10)
    ]
    assert all(float(line["integral_over_counter"]) == pytest.approx(1, abs=2e-3) for line in lines)


def test_an_integral_of_power_is_that_of_its_trapezoids(benchmark):
    samples = [(0.0, 50.0), (1.0, 100.0), (2.0, 200.0), (9.0, 1e6)]
    # 100 W held before the first sample, 200 W after the last
    assert benchmark.integral_j(samples, 0.5, 3.0) == pytest.approx(0.5 * 100 + 150 + 200)
    with pytest.raises(InputError, match="1 samples of power in the window, two are needed"):
        benchmark.integral_j(samples, 0.5, 1.5)


@pytest.mark.parametrize(
    ("power_w", "sm_mhz", "expected"), [(330.0, 1980, "2"), (330.0, 1400, None), (130.0, 1980, "0")]
)
def test_energy_above_a_spin_is_only_told_at_its_clock(benchmark, power_w, sm_mhz, expected):
    spin = {"probe": "spin_w1", "load": "spin", "error": "", "sm_mhz": 1980, "power_w": 130.0}
    work = {"operations": 1e8, "read_byte": 0, "write_byte": 0, "time_us": 1.0}
    line = {"probe": "fp32", "load": "fp32", "error": "", "sm_mhz": sm_mhz, "power_w": power_w} | work
    benchmark.above_spin([spin, line])
    assert line.get("above_spin_pj_per_operation") == expected
