"""What a real GPU's points are made of, on a board of made-up numbers and virtual time."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement.counter import EnergyCounter
from kernel_dvfs.measurement.real import gpu as real
from kernel_dvfs.measurement.real import latency, loads, specimen
from kernel_dvfs.measurement.real.gpu import RealGpu, TimeAccount
from kernel_dvfs.measurement.real.watch import Watch, look_at, state_of
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import CounterFault, InputError

LISTED = {"405": [210, 420], "2619": [210, 1500, 1980], "1593": [210, 1755]}
SETTINGS = {"clocks": "external", "lock": "range", "after": {}}


class Board:
    """500 W, seen by a counter that moves every 100 ms and takes 4 ms to read. While something runs it gets warmer by
    half a degree a second, otherwise cooler by a quarter, as far as its lowest and highest temperature."""

    uuid, less, run_s = "GPU-1", None, 1e-4

    def __init__(self, celsius=60.0, highest_c=90.0):
        self.time_s, self.celsius, self.highest_c, self.runs = 7.0, celsius, highest_c, False
        self.facts, self.board, self.nvml = {}, self, SimpleNamespace(versions={})
        self.counters, self.processes, self.limit_mw, self.shown = [(0, 0)], 3, 700_000, []
        self.asked, self.warms = [], 0.5
        self.reads_mw, self.is_divided = 500_000, False

    def now_s(self):
        return self.time_s

    def sleep(self, seconds):
        self.time_s += seconds
        self.celsius = min(self.celsius + seconds * (self.warms if self.runs else -0.25), self.highest_c)

    def temperature_c(self):
        return round(self.celsius, 3)

    def energy_mj(self):
        self.sleep(0.004)
        return int(500e3 * (self.time_s // 0.1 * 0.1))

    def throttled(self):
        return self.counters.pop(0) if len(self.counters) > 1 else self.counters[0]

    def event_reasons(self):
        # the power cap in every third sample, a thermal slowdown in every fourth, idle in all, which nobody asks about
        number = len(self.shown)
        self.shown.append([1400 + 13 * (number * 7 % 5), 2619 if number % 4 else 1593])
        return 0x1 | 0x4 * (number % 3 == 0) | 0x20 * (number % 4 == 1)

    def sm_mhz(self):
        return self.shown[-1][0]

    def mem_mhz(self):
        return self.shown[-1][1] if self.shown else 2619

    def compute_processes(self):
        return self.processes

    def power_limit_mw(self):
        return self.limit_mw

    def power_mw(self):
        return self.reads_mw

    def mig(self):
        return self.is_divided

    def persistence(self):
        return True

    # as a load

    def start(self):
        self.runs = True
        return self

    def stop(self):
        self.runs = False

    def feed(self):
        pass

    def run_for(self, seconds):
        self.sleep(seconds)

    def own_mhz(self):
        return None

    def between(self, start_s, end_s):
        self.asked.append((start_s, end_s))
        return {"sm_mhz": 1414.26, "launches": 2431, "time_us": 412.7}


def gpu_of(board, own_processes=1, **settings):
    names = ("name", "uuid", "pci_bus_id", "vbios", "ecc", "energy_scope")
    about = dict.fromkeys(names) | {"power_limit_mw": 700_000, "clocks": {"core_mhz": {"listed": LISTED}}}
    about["clocks"]["mem_mhz"] = [405, 1593, 2619]
    counter = EnergyCounter(board.energy_mj, board.now_s, board.sleep, board.feed)
    counter.period_s, counter.read_s = 0.1, 0.00412345
    return RealGpu(board, about, SETTINGS | settings, board, counter, own_processes, lambda: True, lambda line: None)


@pytest.mark.parametrize(("run_s", "least_s"), [(1e-4, 1.3), (0.5, 3.0)])
def test_a_window_is_what_counter_samples_and_load_said_while_it_ran(run_s, least_s):
    """It is as long as asked, and holds six runs of a long load."""
    board = Board()
    board.run_s, board.counters = run_s, [(1_000_000, 5), (401_000_000, 7)]
    gpu = gpu_of(board)
    gpu._start(board)
    window = gpu.window(board, 1.3, (), 0)
    assert window["duration_s"] == pytest.approx(least_s, abs=0.06)
    assert window["energy_mj"] / window["duration_s"] == pytest.approx(500e3, rel=0.005)
    ((start_s, end_s),) = board.asked
    assert window["duration_s"] == end_s - start_s
    assert (window["launches"], window["time_us"]) == (2431, 412.7)
    core, mem = zip(*board.shown)
    assert len(board.shown) > 10 * least_s - 4 and min(core) == 1400 and max(core) == 1452
    # the middle one is the device's own count
    assert window["core_mhz"] == [1400, 1414.3, 1452]
    assert window["mem_mhz"] == [1593, sorted(mem)[len(mem) // 2], 2619] == [1593, 2619, 2619]
    assert window["cap_ns"] == 400_000_000 and window["thermal_delta"] == 2
    many = len(board.shown)
    thirds, fourths = len(range(0, many, 3)), len(range(1, many, 4))
    assert window["reasons"] == {"0x4": round(thirds / many, 4), "0x20": round(fourths / many, 4)}
    assert window["processes"] == 2
    first_c, last_c = window["temp_c"]
    assert first_c == 60 and last_c == pytest.approx(60 + 0.5 * (board.time_s - 7.0), abs=0.01)


def test_time_under_the_cap_is_at_most_the_windows_and_what_is_not_told_is_nothing():
    board = Board()
    board.counters = [(0, None), (9_000_000_000, 3)]
    gpu = gpu_of(board)
    gpu._start(board)
    window = gpu.window(board, 1.0, (), 0)
    assert window["cap_ns"] == round(1e9 * window["duration_s"]) and window["thermal_delta"] == 0


@pytest.mark.parametrize(
    ("reads_w", "believed"), [(500, True), (390, True), (640, True), (350, False), (720, False), (None, True)]
)
def test_a_window_whose_energy_the_power_readings_contradict_is_none(reads_w, believed):
    board = Board()
    board.reads_mw = reads_w and 1000 * reads_w
    gpu = gpu_of(board)
    gpu._start(board)
    if believed:
        assert gpu.window(board, 1.3, (), 0)["energy_mj"]
        return
    with pytest.raises(CounterFault, match=rf"energy counter: 50\d(\.\d)? W on average, the power reading {reads_w} W"):
        gpu.window(board, 1.3, (), 0)


@pytest.mark.parametrize(("limit_w", "is_possible"), [(700, True), (500, True), (496, False)])
def test_a_window_of_more_power_than_the_limit_lets_through_is_disturbed(limit_w, is_possible):
    """500 W over 5 s: edges that are seen a read late are good for a watt of it, the limit itself for half of one."""
    board = Board()
    board.limit_mw = 1000 * limit_w
    gpu = gpu_of(board)
    gpu._about["power_limit_mw"] = board.limit_mw
    gpu._start(board)
    window = gpu.window(board, 5.0, (), 0)
    found = gpu.disturbances([window | {"processes": 0}])
    assert found == [] if is_possible else found[0].endswith("W on average, above the power limit of 496 W")
    assert gpu.disturbances([]) == [], "said once"


@pytest.mark.parametrize(
    ("found", "own", "foreign"), [(3, 1, 2), (1, 1, 0), (0, 1, 0), (None, 1, None), (3, None, None)]
)
def test_processes_of_others_are_all_but_our_own(found, own, foreign):
    board = Board()
    board.processes = found
    watch = Watch(lambda: look_at(board), lambda: state_of(board), board.now_s, own)
    watch.end()
    assert watch.foreign == foreign


def test_the_device_tells_its_counters_period_and_read_in_ms():
    device = gpu_of(Board()).device()
    assert (device["counter_period_ms"], device["counter_read_ms"]) == (100.0, 4.123)
    assert (device["kind"], device["persistence"], device["power_limit_mw"]) == ("nvml", True, 700_000)


def free(core=1980, mem=2619, **more):
    return {"core_mhz": [1, 2, core], "mem_mhz": [1, mem, 3], "reasons": {}, "cap_ns": 0, "thermal_delta": 0} | more


@pytest.mark.parametrize(
    ("windows", "after", "refused"),
    [
        # four fifths of 1980 and of 2619 MHz, in the window that saw most
        ([free(core=1584)], {}, None),
        ([free(core=1583)], {}, r"its core clock stays at 1583 of 1980 MHz"),
        ([free(core=300), free(core=1584)], {}, None),
        ([free(mem=2096)], {}, None),
        ([free(mem=2095)], {}, r"its memory clock stays at 2095 of 2619 MHz"),
        ([free(mem=405), free(mem=2619)], {}, None),
        ([free(core=1200)], {"core": (210, 1500)}, None),
        ([free(core=1199)], {"core": (210, 1500)}, r"its core clock stays at 1199 of 1500 MHz"),
        ([free(core=1583)], {"mem": (405, 1593)}, r"1583 of 1980 MHz"),
        ([free(mem=1275)], {"mem": (405, 1593)}, None),
        ([free(core=300, cap_ns=1)], {}, None),
        ([], {}, None),
    ],
)
def test_a_clock_far_below_the_highest_for_no_reason_was_locked_by_somebody_else(windows, after, refused):
    gpu = gpu_of(Board(), after=after)
    if refused:
        with pytest.raises(InputError, match=refused):
            gpu.check_free(windows)
    else:
        gpu.check_free(windows)


def test_processes_of_others_and_another_power_limit_are_disturbances():
    board = Board()
    board.limit_mw, board.is_divided = 650_000, True
    found = gpu_of(board).disturbances([{"processes": count} for count in (0, 2, None, 1)])
    assert found == [
        "2 other process(es) computed on the GPU",
        "the power limit changed from 700000 to 650000 mW",
        "MIG was turned on",
    ]


@pytest.mark.parametrize(
    ("run_s", "settles_s", "takes_s"),
    [
        # slices of a quarter of a second, or of six runs; 3 s at least, then until two agree
        (1e-4, 0.0, 3.0),
        (1e-4, 4.1, 4.5),
        (0.2, 4.1, 6.0),
        # for 5 s more at most, or four slices
        (1e-4, 99.0, 8.0),
        (0.2, 99.0, 8.4),
        (0.5, 99.0, 15.0),
    ],
)
def test_a_warm_up_goes_on_until_clocks_agree_or_for_long_enough(run_s, settles_s, takes_s):
    """They fall by a percent from slice to slice until they settle."""
    board = Board()
    board.run_s, begin_s, falling = run_s, board.time_s, iter(range(99))
    board.between = lambda start_s, end_s: {
        "sm_mhz": 1980 * 0.99 ** next(falling) if end_s - begin_s < settles_s else 900.0
    }
    gpu = gpu_of(board)
    gpu.warm_up(board, 3.0)
    assert board.time_s - begin_s == pytest.approx(takes_s, abs=0.02)
    assert gpu.account.take()["warm_up"] == pytest.approx(takes_s, abs=0.02)


def test_clocks_that_are_not_ours_to_set_are_taken_as_they_are_or_refused():
    gpu = gpu_of(Board())
    with gpu.locked(Pair(1500, 2619), ("key",)) as latency_s:
        assert gpu._pair == Pair(1500, 2619) and latency_s == 0 and gpu.settings_made == 0
    assert gpu.request(Pair(1500, 2619)) == {}
    only = gpu_of(Board(), clocks="auto-only")
    only.take(BASELINE)
    with pytest.raises(InputError, match="configure clocks: lock"):
        only.take(Pair(1500, 2619))


@pytest.mark.parametrize(
    ("lock", "core", "mem"), [("range", [210, 1500], [405, 2619]), ("exact", [1500, 1500], [2619, 2619])]
)
def test_a_request_says_which_clocks_it_allowed(lock, core, mem):
    board = Board()
    board.through = "nvml"
    gpu = gpu_of(board, clocks="lock", lock=lock)
    found = gpu.request(Pair(1500, 2619))
    assert (found["lock"], found["core_range_mhz"]) == (lock, core) and found["mem_range_mhz"][1] == mem[1]
    assert gpu.request(BASELINE) == {}
    for pair, left in ((Pair(1500, AUTO), "mem_range_mhz"), (Pair(AUTO, 2619), "core_range_mhz")):
        assert [name for name, value in gpu.request(pair).items() if value is None] == [left]


@pytest.mark.parametrize(
    ("core", "mem", "is_settled"),
    [
        ([1000.0], [5], False),
        ([1000.0, 1005.0], [5, 5], True),
        ([1000.0, 995.0], [5, 5], True),
        ([1000.0, 1005.1], [5, 5], False),
        ([1000.0, 1000.0], [5, 6], False),
        # to and fro by 3 % of the highest at most
        ([1970.0, 2000.0, 1940.0], [5, 5, 5], True),
        ([1970.0, 2000.0, 1939.0], [5, 5, 5], False),
        ([2000.0, 1940.0, 1990.0], [5, 5, 5], True),
        ([1940.0, 1970.0, 2000.0], [5, 5, 5], False),
        ([2000.0, 1970.0, 1940.0], [5, 5, 5], False),
        ([1970.0, 2000.0, 1940.0], [6, 5, 5], False),
        ([9.0, 1970.0, 2000.0, 1940.0], [1, 5, 5, 5], True),
    ],
)
def test_clocks_have_settled_where_they_stay_or_sway_by_little(core, mem, is_settled):
    assert bool(real._has_settled(list(zip(core, mem)))) is is_settled


def test_a_part_of_a_points_time_within_another_stops_that_one():
    clock = iter([0.0, 2.0, 5.0, 6.5, 10.0, 11.0, 13.0, 20.0, 20.0]).__next__
    account = TimeAccount(clock)
    with account.part("windows"), account.part("preparing"):
        pass
    spent = account.take()
    # 2 s before, 3 of windows, 1.5 within, 3.5 of windows again, 1 after
    assert spent == dict.fromkeys(real.PARTS, 0.0) | {"other": 3.0, "windows": 6.5, "preparing": 1.5}
    assert account.take()["other"] == 7.0


# --- a change of clocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "shown", "there", "arrived", "shown_s", "ends_s"),
    [
        # held for 50 ms since the later of both, NVML's sight of it and the device's own
        ("core", [(0.02, 9)], [(0.03, 9)], True, 0.02, 0.08),
        ("core", [(0.04, 9)], [(0.01, 9)], True, 0.04, 0.09),
        ("core", [(0.02, 0.06), (0.1, 9)], [(0.03, 9)], True, 0.1, 0.15),
        ("core", [(0.02, 9)], [(0.03, 0.07), (0.11, 9)], True, 0.02, 0.16),
        # at the limit of half a second what the device runs counts, whatever NVML shows
        ("core", [], [(0.3, 9)], True, None, 0.5),
        ("core", [], [(0.44, 9)], True, None, 0.5),
        ("core", [], [(0.46, 9)], False, None, 0.5),
        ("core", [(0.1, 9)], [], False, 0.1, 0.5),
        # of the memory clock NVML alone knows
        ("mem", [(0.1, 9)], [], True, 0.1, 0.15),
        ("mem", [(0.1, 0.13), (0.2, 9)], [(0.0, 9)], True, 0.2, 0.25),
        ("mem", [], [(0.0, 9)], False, None, 0.5),
    ],
)
def test_a_clock_has_come_where_it_stays_for_a_while(domain, shown, there, arrived, shown_s, ends_s):
    board = Board()
    begin_s = board.time_s

    def at(spans):
        now_s = board.time_s - begin_s
        return 1500 if any(first <= now_s < last for first, last in spans) else 900

    bench = latency._Bench.__new__(latency._Bench)
    bench._domain, bench._loads, bench._shown = domain, board, lambda: at(shown)
    bench._protocol, bench._pace = SimpleNamespace(limit_s=0.5, hold_s=0.05), lambda: 1e-3 * at(there)
    found, found_s = bench._comes_to(1500)
    assert found is arrived and (found_s is None) == (shown_s is None)
    assert found_s is None or found_s - begin_s == pytest.approx(shown_s, abs=0.0051)
    assert board.time_s - begin_s == pytest.approx(ends_s, abs=0.0101)


def test_changes_are_those_between_the_lowest_a_middle_and_the_highest_clock_or_those_asked_for():
    clocks = {"core_mhz": {"listed": {"405": [210], "2619": [210, 900, 1500, 1980]}}, "mem_mhz": [2619, 405]}
    found = latency.transitions(clocks, [], [])
    assert found == [
        *(("core", one, other) for one in (210, 1500, 1980) for other in (210, 1500, 1980) if one != other),
        *(("mem", 405, 2619), ("mem", 2619, 405)),
    ]
    assert latency.transitions(clocks, [1980, 900, 900], [405]) == [("core", 900, 1980), ("core", 1980, 900)]
    with pytest.raises(InputError, match="--mem 500: this GPU has no such clock"):
        latency.transitions(clocks, [], [500])
    with pytest.raises(InputError, match="lists no clocks"):
        latency.transitions(clocks | {"core_mhz": {}}, [], [])


# --- which GPU, and what runs on it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "given", "asked"),
    [("", ["GPU-2", "GPU-1"], "GPU-2"), ("1", ["GPU-2"], "1"), ("", [], ""), ("GPU-7", [], "GPU-7")],
)
def test_a_job_takes_the_gpu_that_is_named_else_the_first_that_slurm_gave_it(
    monkeypatch, tmp_path, which, given, asked
):
    monkeypatch.setattr(specimen, "given_by_slurm", lambda: given)
    monkeypatch.setattr(specimen, "identify", lambda name, results: {"uuid": f"that of '{name}'"})
    assert specimen.here(which, "results", str(tmp_path / "said")) == f"that of '{asked}'"
    assert (tmp_path / "said").read_text() == f"that of '{asked}'\n"


@pytest.mark.parametrize(
    ("visible", "given"), [("2,0", ["GPU-c", "GPU-a"]), ("0,7,x", ["GPU-a"]), ("3", None), ("", None)]
)
def test_slurm_gives_gpus_by_their_place(monkeypatch, visible, given):
    monkeypatch.setattr(specimen, "Library", lambda: nullcontext("nvml"))
    monkeypatch.setattr(specimen, "by_index", lambda nvml: dict(enumerate(["GPU-a", "GPU-b", "GPU-c"])))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert specimen.given_by_slurm() == [], "outside of jobs"
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    if given:
        assert specimen.given_by_slurm() == given
    else:
        with pytest.raises(InputError, match="Slurm gave this job no GPU"):
            specimen.given_by_slurm()


@pytest.mark.parametrize(
    ("hook", "is_fake", "said"),
    [("", False, None), ("h.json", False, "is a driver's; unset it"), ("", True, "is a fake: no kernel can run")],
)
def test_a_simulated_load_and_a_real_driver_are_never_mixed(monkeypatch, hook, is_fake, said):
    monkeypatch.setenv(loads.HOOK, hook)
    nvml = SimpleNamespace(shared_library=SimpleNamespace(**({"fakenvml_now": 0} if is_fake else {})))
    if said is None:
        assert loads._simulated(nvml, "GPU-1") is None
    else:
        with pytest.raises(InputError, match=said):
            loads._simulated(nvml, "GPU-1")
