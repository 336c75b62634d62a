"""Visits of a rank: times from stamps, energies from the counter, and what is left out."""

import threading

import pytest

from kernel_dvfs.measurement.real.watch import BoardSample, BoardState, Watch
from kernel_dvfs_clocks.clocks import BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_pipeline import measuring
from kernel_dvfs_pipeline.measuring import Measuring, Timed, in_turns, mixes_of, pairs_to_try

PERIOD_S = 0.02
TOP_MHZ = 1980
LISTED = {"core_mhz": {"listed": {"2619": list(range(345, TOP_MHZ + 1, 15))}}, "mem_mhz": [2619]}
# W of a busy board by what runs, at the top clock; s of an operation there
WATT = {"forward": 310.0, "backward": 390.0, "backward_input": 350.0, "backward_weight": 280.0, "waiting": 83.0}
TOOK_S = {"forward": 0.0021, "backward": 0.0047, "backward_input": 0.0023, "backward_weight": 0.0019}


class Clock:
    """Time that passes only while a bench runs or waits, from look to look of the meter that is running, if one is."""

    def __init__(self):
        self._now_s, self._turn, self._meter, self._looked = 0.0, threading.Condition(), None, False

    def now_s(self):
        return self._now_s

    def begin(self):
        """A meter is about to be started."""
        self._meter, self._looked = None, False

    def sleep(self, seconds):
        """How a meter waits; where time has stopped, it looks again at once: it may have been told to end."""
        with self._turn:
            self._meter, self._looked = threading.current_thread(), True
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._looked, 0.01)

    def go_on(self, seconds):
        """To each step of the counter and to shortly before it."""
        end_s = self._now_s + seconds
        while self._now_s < end_s:
            step = int(self._now_s / PERIOD_S + 1e-6) + 1
            before_s, edge_s = step * PERIOD_S - 0.001, step * PERIOD_S + 1e-6
            with self._turn:
                self._turn.wait_for(lambda: self._looked or (self._meter and not self._meter.is_alive()), 20)
                self._now_s = min(end_s, before_s if self._now_s < before_s else edge_s)
                self._looked = False
                self._turn.notify_all()
        with self._turn:
            self._turn.wait_for(lambda: self._looked or (self._meter and not self._meter.is_alive()), 20)


class Board:
    """A board that draws by what its bench runs, and counts it in steps."""

    def __init__(self, clock):
        self.watt, self._lock, self._clock = 60.0, threading.Lock(), clock
        self._begin_s = self._last_s = clock.now_s()
        self._mj, self._edges = 0.0, [(0, 0.0)]

    def draw(self, watt):
        with self._lock:
            self._advance()
            self.watt = watt

    def _advance(self):
        now_s = self._clock.now_s()
        while (edge_s := self._begin_s + PERIOD_S * (self._edges[-1][0] + 1)) <= now_s:
            self._mj += 1000 * self.watt * (edge_s - self._last_s)
            self._last_s = edge_s
            self._edges.append((self._edges[-1][0] + 1, self._mj))
        self._mj += 1000 * self.watt * (now_s - self._last_s)
        self._last_s = now_s

    def energy_mj(self):
        with self._lock:
            self._advance()
            return int(self._edges[-1][1])


class Control:
    """Its clocks, which are there at once unless they are `stuck`."""

    period_s, through, reads_only = PERIOD_S, "nvml", False

    def __init__(self, stuck=()):
        self.about = {"name": "made up", "uuid": "GPU-0", "driver": "0"}
        self.clock = Clock()
        self.board, self.pair, self.stuck, self.clocks = Board(self.clock), BASELINE, stuck, LISTED

    def ask(self, pair):
        self.pair = pair

    def to_auto(self):
        self.pair = BASELINE

    def seen(self):
        core = self.pair[0]
        return TOP_MHZ if core == "auto" else core + (90 if core in self.stuck else 0), 2619

    def watch(self, now_s):
        self.clock.begin()
        state = BoardState(700000, False, 1, 50.0, 0, 0)
        return Watch(
            lambda: BoardSample(0, *self.seen(), int(1000 * self.board.watt), self.board.energy_mj()),
            lambda: state,
            now_s,
        )


class Bench:
    """Operations whose time goes with the clock, and power with its square."""

    def __init__(self, control, instructions, stage=3):
        self.control, self.stage, self.instructions = control, stage, instructions
        self.ran = []

    def mixes(self):
        return [(self.stage, mix) for mix in mixes_of(self.instructions)]

    def took_s(self, name, mhz):
        return TOOK_S[name] * (0.3 + 0.7 * TOP_MHZ / mhz)

    def watt(self, name, mhz):
        return 100 + (WATT[name] - 100) * (mhz / TOP_MHZ) ** 2.5

    def run(self, stage, mix, rounds):
        mhz = self.control.seen()[0]
        times_s = {name: self.took_s(name, mhz) for name in mix}
        round_s = sum(times_s.values())
        # the mean of what runs in turn
        self.control.board.draw(sum(self.watt(name, mhz) * times_s[name] for name in mix) / round_s)
        self.control.clock.go_on(rounds * round_s)
        self.control.board.draw(60.0)
        self.ran.append((stage, mix, rounds))
        return Timed(times_s, round_s)

    def wait(self, seconds, metered):
        def receive():
            self.control.board.draw(WATT["waiting"])
            self.control.clock.go_on(seconds)
            self.control.board.draw(60.0)

        metered(receive)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measuring, "SETTLE_S", 0.02)


def measured(instructions, pairs, stuck=()):
    control, said = Control(stuck), []
    bench = Bench(control, instructions)
    clock = control.clock
    own = Measuring(bench, control, lambda given: [given], 0.25, 2, 5, said.append, clock.now_s, clock.sleep)
    own.waiting(0.2)
    own.visits(pairs)
    return control, bench, own, said


@pytest.mark.parametrize(
    "instructions",
    [{"forward", "backward"}, {"forward", "backward_input", "backward_weight"}],
    ids=["backward", "zero bubble"],
)
def test_rows_tell_the_time_and_the_energy_of_each_operation(instructions):
    pairs = [Pair(1980, "auto"), Pair(1500, "auto")]
    control, bench, own, _ = measured(instructions, pairs)
    waits, *rows = own.rows
    assert (waits.instruction, waits.stage, waits.core_mhz) == ("waiting", 3, None)
    assert waits.energy_j / waits.time_s == pytest.approx(WATT["waiting"], rel=0.02)
    assert {row.instruction for row in rows} == instructions and len(rows) == 2 * len(instructions)
    for row in rows:
        assert (row.stage, row.dp_rank, row.tp_rank, row.mem_mhz) == (3, 2, 5, None)
        wanted_s = bench.took_s(row.instruction, row.core_mhz)
        assert row.time_s == pytest.approx(wanted_s)
        # by difference of two blocks
        assert row.energy_j == pytest.approx(wanted_s * bench.watt(row.instruction, row.core_mhz), rel=0.02)
    assert control.pair == BASELINE
    assert len(own.latency()["trials"]) == 1  # from auto nothing is learnt


def test_a_clock_that_is_not_reached_is_left_out_and_said():
    pairs = [Pair(1980, "auto"), Pair(1620, "auto"), Pair(1500, "auto")]
    _, _, own, said = measured({"forward"}, pairs, stuck=(1620,))
    assert {row.core_mhz for row in own.rows} == {None, 1980, 1500}
    assert said == ["1620-auto is left out: not_reached: core clock: asked 1620 MHz, reached 1710 MHz"]


def test_where_no_clock_can_be_used_nothing_is_written():
    with pytest.raises(InputError, match="no pair of clocks could be used"):
        measured({"forward"}, [Pair(1620, "auto")], stuck=(1620,))


def test_clocks_are_tried_until_none_saves_any_more(monkeypatch):
    # from 1200 MHz on the power no longer falls
    monkeypatch.setattr(Bench, "watt", lambda self, name, mhz: 100 + 200 * (max(mhz, 1200) / TOP_MHZ) ** 2.5)
    pairs = pairs_to_try(LISTED)
    assert pairs[0] == (1980, "auto") and pairs[-1][0] >= 0.4 * 1980 and len(pairs) == 11
    _, bench, own, _ = measured({"forward"}, pairs)
    tried = [row.core_mhz for row in own.rows if row.core_mhz]
    costs = [(bench.watt("forward", mhz) - WATT["waiting"]) * bench.took_s("forward", mhz) for mhz, _ in pairs]
    least = costs.index(min(costs))
    assert 5 < least < 8 and tried == [mhz for mhz, _ in pairs[: least + 3]]  # two more, which save nothing


def test_ranks_that_share_a_gpu_take_turns():
    """Three ranks, of which the first and the last share a GPU: all exchange at the same time, or wait for ever."""
    barrier, given, order = threading.Barrier(3), [None] * 3, []

    def rank(own, turn):
        def gather(value):
            given[own] = value
            barrier.wait(20)
            found = list(given)
            barrier.wait(20)
            return found

        def measure(gather):
            order.append(own)
            for number in range(3):
                assert gather((own, number)) == [(each, number) for each in (0, 1) if turn == 0] or turn == 1
            order.append(own)

        in_turns(gather, turn, 2, measure)

    threads = [threading.Thread(target=rank, args=(own, turn)) for own, turn in ((0, 0), (1, 0), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order[:4]) == [0, 0, 1, 1] and order[4:] == [2, 2]
