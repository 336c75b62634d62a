"""What the hooks of all trainers share: sums by hand, and a board read beside a loop of one's own."""

import os
import signal
import subprocess
import sys

import pytest
from known_board import BUSY_W, IDLE_W

from kernel_dvfs_hooks.energy import RankStretch, summed


def stretch(board, power_w, verdict="ok", reasons=(), steps=4, time_s=3.0, tokens=700.0):
    return RankStretch(board, steps, time_s, tokens, power_w, True, verdict, list(reasons))


def test_boards_add_up_once_each_for_as_long_as_each_was_watched_over_the_first_ranks_steps():
    every = [stretch("a 1", 310.0), stretch("a 2", 250.0, tokens=200.0), stretch("a 1", 320.0, tokens=0.0)]
    every += [stretch("b 1", 75.0, steps=5, time_s=9.0, tokens=25.0)]  # the same UUID on another host
    found = summed(every)
    energy_j = (320 + 250) * 3 + 75 * 9
    assert found["power_w"] == 320 + 250 + 75 and found["energy_j_per_step"] == pytest.approx(energy_j / 4)
    assert found["tokens_per_j"] == pytest.approx((700 + 200 + 25) / energy_j)
    assert found["energy_verdict"] == "ok"


def test_the_worst_verdict_is_told_with_its_rank_and_there_is_no_sum_without_a_board():
    good, short = stretch("a 1", 310.0), stretch("a 2", 250.0, "unstable", ["counted over 1.2 s"])
    disturbed = stretch("a 3", 111.0, "disturbed", ["1 other process(es)", "the power limit changed"])
    found = summed([good, short, disturbed])
    assert found["energy_verdict"] == "disturbed"
    assert found["reason"] == "rank 2: 1 other process(es); the power limit changed" and found["power_w"] == 671
    lost = stretch("", None, "counter", ["the GPU is lost"])
    assert summed([good, disturbed, lost]) == {"energy_verdict": "counter", "reason": "rank 2: the GPU is lost"}
    assert summed([good, stretch("a 2", None, "unstable", ["not moved"])]).keys() == {"energy_verdict", "reason"}
    assert "tokens_per_j" not in summed([stretch("a 1", 310.0, tokens=0.0)])


def test_a_rank_reads_the_board_that_torch_computes_on(monkeypatch):
    from types import SimpleNamespace

    from kernel_dvfs_hooks import energy

    boards = [SimpleNamespace(uuid="aa"), SimpleNamespace(uuid="bb"), SimpleNamespace()]
    cuda = SimpleNamespace(is_available=lambda: True, get_device_properties=boards.__getitem__)
    for place, uuid in ((0, "GPU-aa"), (1, "GPU-bb"), (2, "")):  # the last: a torch that does not tell
        cuda.current_device = lambda place=place: place
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        assert energy._of_torch() == uuid
    cuda.is_available = lambda: False
    assert energy._of_torch() == ""


def test_no_time_falls_between_stretches_and_no_tokens_count_before_the_first_step(monkeypatch):
    from types import SimpleNamespace

    from kernel_dvfs_hooks import energy

    clock = [100.0]

    class Slow:
        """A reader that takes 0.5 s to answer."""

        uuid = "GPU-1"

        def __init__(self, which):
            pass

        def begin(self):
            pass

        def so_far(self):
            clock[0] += 0.5
            return {"power_w": 310.0, "is_enough": True, "verdict": "ok", "reasons": []}

        def next(self):
            pass

    monkeypatch.setattr(energy, "Reader", Slow)
    monkeypatch.setattr(energy, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    watch = energy.Energy("0")
    watch.begin(7)
    assert watch.since(7, tokens=1000) == {}
    told = []
    for number, seconds in ((9, 2.0), (13, 3.3), (14, 0.7)):
        clock[0] += seconds
        told.append(watch.since(number, tokens=90 * (number - 7)))
    assert watch.total_j == pytest.approx(310 * (2.0 + 3.3 + 0.7 + 3 * 0.5)), "from begin to the last question"
    assert told[0]["tokens_per_j"] == pytest.approx(180 / (310 * 2.5))
    assert told[1]["energy_j_per_step"] == pytest.approx(310 * 3.8 / 4)


def test_joules_are_those_that_the_board_drew_from_when_it_was_watched_however_late_that_was(monkeypatch):
    from types import SimpleNamespace

    from kernel_dvfs_hooks import energy

    clock, drawn_j = [100.0], [0.0]

    def wait(seconds, power_w):
        clock[0] += seconds
        drawn_j[0] += seconds * power_w

    class Late:
        """A reader that comes up after 1.37 s, in which a training that does not wait for it would draw 83.7 W."""

        uuid = "GPU-1"

        def __init__(self, which):
            self._up_s = clock[0] + 1.37
            self._since = None

        def begin(self):
            wait(max(0.0, self._up_s - clock[0]), 83.7)
            self.next()

        def so_far(self):
            since_s, since_j = self._since or (self._up_s, 83.7 * 1.37)
            power_w = (drawn_j[0] - since_j) / (clock[0] - since_s)
            return {"power_w": power_w, "is_enough": True, "verdict": "ok", "reasons": []}

        def next(self):
            self._since = clock[0], drawn_j[0]

    monkeypatch.setattr(energy, "Reader", Late)
    monkeypatch.setattr(energy, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    watch = energy.Energy("0")
    for first in (0, 31):  # begun anew under the same reader: what was between counts for neither
        watch.begin(first)
        before_j, told_j = drawn_j[0], watch.total_j
        for seconds, power_w in ((1.37, 83.7), (0.61, 211.3), (2.13, 391.9)):  # it loads, it compiles, it runs
            wait(seconds, power_w)
        told = watch.since(first + 7, tokens=903)
        assert told["energy_j_per_step"] * 7 == pytest.approx(drawn_j[0] - before_j)
        assert told["tokens_per_j"] == pytest.approx(903 / (drawn_j[0] - before_j))
        wait(0.83, 391.9)
        watch.since(first + 9, last=True)
        assert watch.total_j - told_j == pytest.approx(drawn_j[0] - before_j)
        wait(5.7, 61.3)


def test_a_last_stretch_in_which_the_counter_has_not_moved_waits_until_it_has(monkeypatch):
    from types import SimpleNamespace

    from kernel_dvfs_hooks import energy

    clock, moves_s = [100.0], [100.37]

    class Counted:
        """A reader whose counter moves next at a known time."""

        uuid = "GPU-1"

        def __init__(self, which):
            pass

        def begin(self):
            pass

        def so_far(self):
            if clock[0] < moves_s[0]:
                return {"power_w": None, "is_enough": False, "verdict": "unstable", "reasons": ["not moved"]}
            return {"power_w": 391.9, "is_enough": False, "verdict": "unstable", "reasons": ["few moves"]}

        def next(self):
            pass

    def sleep(seconds):
        clock[0] += seconds

    monkeypatch.setattr(energy, "Reader", Counted)
    monkeypatch.setattr(energy, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    watch = energy.Energy("0", say=str)
    watch.begin()
    clock[0] += 0.05
    assert watch.since(2) == {} and clock[0] == 100.05, "another stretch follows, which this one joins"
    assert watch.since(2, last=True)["power_w"] == 391.9 and clock[0] < 100.4
    assert watch.total_j == pytest.approx(391.9 * 0.05)
    moves_s[0], begun_s = 1e9, clock[0]
    assert "power_w" not in watch.since(3, last=True) and clock[0] == pytest.approx(begun_s + 0.5, abs=0.021)
    assert watch.total_j != watch.total_j, "a part was not counted"


def test_what_a_board_draws_while_its_rank_waits_for_others_counts_to_the_next_stretch(monkeypatch):
    """Between `so_far` and `next` 20 s of little work, then 5 s of much."""
    from types import SimpleNamespace

    from kernel_dvfs_hooks import reader

    clock = [7.0]

    class Board:
        """A known power, in a counter that moves each 0.1 s."""

        drawn_mj = power_mw_now = shown_mj = 0.0
        limit_mw = 700_000

        def goes_on(self, seconds, power_w, window):
            self.power_mw_now = 1000 * power_w
            for number in range(round(seconds / 0.02)):
                clock[0] += 0.02
                self.drawn_mj += 0.02 * self.power_mw_now
                if number % 5 == 4:
                    self.shown_mj = self.drawn_mj
                window.look()

        def energy_mj(self):
            return int(self.shown_mj)

        def power_mw(self):
            return int(self.power_mw_now)

        def throttled(self):
            return 0, 0

        def power_limit_mw(self):
            return self.limit_mw

        def always(self):
            return 1

        compute_processes = event_reasons = sm_mhz = mem_mhz = temperature_c = always

        def mig(self):
            return False

    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    board = Board()
    window = reader.CounterWindow(board, 0.1, (clock[0], 0))
    board.goes_on(3, 391.9, window)
    assert window.so_far()["power_w"] == pytest.approx(391.9)
    board.goes_on(20, 83.7, window)
    board.limit_mw = 600_000  # changed while it waits: seen, too
    window = window.next()
    board.goes_on(5, 550.3, window)
    found = window.so_far()
    assert found["power_w"] == pytest.approx((20 * 83.7 + 5 * 550.3) / 25)
    assert found["verdict"] == "disturbed" and found["reasons"] == ["the power limit changed from 700000 to 600000 mW"]
    # begun anew: what was between counts for nothing
    board.goes_on(4, 83.7, window)
    window = window.begin()
    board.goes_on(3, 211.3, window)
    assert window.so_far() == {"power_w": pytest.approx(211.3), "is_enough": True, "verdict": "ok", "reasons": []}
    # a counter that falls while its rank waits
    board.goes_on(1, 211.3, window)
    board.drawn_mj = 0.0
    board.goes_on(1, 211.3, window)
    assert window.next().so_far()["verdict"] == "counter"


def test_a_reader_that_a_driver_holds_is_not_waited_for_without_end(monkeypatch):
    from types import SimpleNamespace

    from kernel_dvfs_hooks import reader

    done = []

    class Held:
        """A process that heeds no signal."""

        stdin = stdout = SimpleNamespace(close=lambda: None)

        def __init__(self, *words, **about):
            pass

        def terminate(self):
            done.append("terminate")

        def wait(self, timeout):
            done.append(timeout)
            raise subprocess.TimeoutExpired("reader", timeout)

        def kill(self):
            done.append("kill")

    held = SimpleNamespace(Popen=Held, PIPE=-1, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(reader, "subprocess", held)
    reader.Reader("0").close()
    assert done == ["terminate", 5.0, "kill"]


LOOP = """
import sys, time
from kernel_dvfs_hooks.energy import Energy
energy = Energy(say=lambda line: print(line, flush=True))
energy.begin(100)
for number in range(101, 401):
    time.sleep(0.02)
    energy.step(number)
    if number % 10 == 0 and (told := energy.since(number, tokens=70)):
        print(sorted(told.items()), flush=True)
        energy.say(number, told)
        {then}
energy.end()
"""


def loop(made, then="break"):
    return made.python(LOOP.replace("{then}", then))


def test_a_loop_of_ones_own_is_told_its_joules_and_waits_until_they_can_be_believed(lab):
    done = loop(lab())
    assert done.returncode == 0, done.stderr
    values, line = done.stdout.splitlines()
    told = dict(eval(values))
    assert told["energy_verdict"] == "ok" and told["power_w"] == pytest.approx(IDLE_W + BUSY_W / 2, rel=0.04)
    assert told["tokens_per_j"] * told["energy_j_per_step"] == pytest.approx(7)
    number = int(line.split()[1].rstrip(":"))
    assert number >= 190, "90 steps of 20 ms are too little for a counter that moves each 0.1 s"
    assert told["energy_j_per_step"] > told["power_w"] * 0.02 and line.endswith("tokens a joule: ok")


STARTS = """
import ctypes, os, time
from kernel_dvfs_hooks.energy import Energy
board, state = ctypes.CDLL("libnvidia-ml.so.1"), os.environ["FAKENVML_STATE"].encode()
def true_j():
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    assert not board.fakenvml_get(state, 0, b"energy_mj", text, size)
    return float(text.value) / 1000
energy = Energy()
energy.begin()
before_j = true_j()
time.sleep(1.1)  # it loads
assert not board.fakenvml_set(state, 0, b"utilisation", b"0.9")
time.sleep(1.6)
least_j = true_j() - before_j
energy.since(3, last=True)
print(energy.total_j, least_j, true_j() - before_j)
energy.end()
"""


def test_a_training_that_draws_little_as_it_starts_is_told_what_it_drew(lab):
    done = lab(utilisation=0.0).python(STARTS)
    assert done.returncode == 0, done.stderr
    told_j, least_j, most_j = map(float, done.stdout.split())
    assert 0.94 * least_j < told_j < 1.06 * most_j, "the counter moves each 0.1 s"


def test_somebody_else_on_the_board_is_told(lab):
    made = lab(period_ms=20)
    library, uuid = str(made.boards.library), made.boards.uuid.encode()
    opens = f"time.sleep(0.5); import ctypes; ctypes.CDLL({library!r}).fakenvml_open({uuid!r})"
    done = loop(made, f"if told['energy_verdict'] == 'disturbed': break\n        {opens}")  # after the first stretch
    assert done.returncode == 0, done.stderr
    assert "energy of the steps: disturbed: 1 other process" in done.stdout, done.stdout


def test_a_counter_that_falls_has_no_joules(lab):
    made = lab(period_ms=20)
    made.boards.set(counter="reset@4")
    done = loop(made, "if told['energy_verdict'] == 'counter': break")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "energy_verdict', 'counter'" in line)
    assert "power_w" not in line and "energy of the steps: counter: energy counter: fell" in done.stdout


def test_the_reader_ends_with_a_training_that_is_killed(lab):
    made = lab()
    process = made.start(sys.executable, "-c", LOOP.replace("{then}", "pass").replace("401", "100000"))
    assert "power_w" in process.stdout.readline()
    words = ["pgrep", "-P", str(process.pid), "-f", "kernel_dvfs_hooks.reader"]
    reader = int(subprocess.run(words, capture_output=True, text=True).stdout)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert made.comes_to(lambda: not os.path.exists(f"/proc/{reader}"))
    assert made.boards.get("sets") == "0" and not made.lease.exists()
