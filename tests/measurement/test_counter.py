"""Windows cut at the edges of a slow energy counter are right; cut anywhere else they are not."""

import pytest

from kernel_dvfs.measurement.counter import AlignedWindow, EnergyCounter, compared
from kernel_dvfs_clocks.errors import CounterFault, InputError

PERIOD_S, READ_S = 0.1, 0.004


class Board:
    """A board of 700 W, a little less each second, whose counter moves every 100 ms; time passes by reading."""

    def __init__(self, start_s=0.0371):
        self.time_s = start_s
        self.fed = 0
        self.frozen_from_s = float("inf")
        self.fall_at_s = float("inf")

    def energy_mj(self, time_s):
        return 1e3 * (700 * time_s - 2 * time_s**2)

    def read(self):
        self.time_s += READ_S
        shown_s = min(self.time_s, self.frozen_from_s) // PERIOD_S * PERIOD_S
        return int(self.energy_mj(shown_s)) if self.time_s < self.fall_at_s else 0

    def now(self):
        return self.time_s

    def sleep(self, duration_s):
        self.time_s += duration_s

    def feed(self):
        self.fed += 1


@pytest.fixture
def board():
    return Board()


@pytest.fixture
def counter(board):
    return EnergyCounter(board.read, board.now, board.sleep, board.feed)


def test_the_period_is_measured(counter):
    assert counter.calibrate() == pytest.approx(PERIOD_S, abs=READ_S / 2)


def test_a_window_has_the_power_of_its_time_within_a_read(counter, board):
    counter.calibrate()
    window = counter.window(5.0)
    duration_s = window.end_s - window.start_s
    assert duration_s == pytest.approx(5.0, abs=PERIOD_S)
    true_w = (board.energy_mj(window.end_s) - board.energy_mj(window.start_s)) / 1e3 / duration_s
    assert window.energy_mj / 1e3 / duration_s == pytest.approx(true_w, rel=READ_S / 5.0)


@pytest.mark.parametrize(
    ("readings_w", "counter_w", "percent", "exceeds"),
    [
        ([400, 400, 400, 400], 460, 15, False),
        ([400, 400, 400, 400], 461, 15, True),
        ([400, 400, 400, 400], 347, 15, True),  # either way by the same factor
        # three stretches of 350, 450 and 450 W, 420 W on average: 100 W of it, by the root of three, are 13.75 % more
        ([300, 400, 500, 400], 540, 15, False),
        ([300, 400, 500, 400], 541, 15, True),
    ],
)
def test_a_counter_is_far_off_where_no_lag_and_no_sensor_explains_it(readings_w, counter_w, percent, exceeds):
    window = AlignedWindow(10.0, 20.0, 10_000 * counter_w)
    found = compared(window, [(at_s, 1000 * watt) for at_s, watt in zip((10.0, 13.0, 17.0, 20.0), readings_w)])
    assert found.exceeds(percent) == exceeds


@pytest.mark.parametrize("held_up", [1, 3])
def test_an_edge_that_is_seen_late_bounds_no_window(counter, board, held_up):
    """What feeds the GPU, or the machine, holds reading up for 30 ms just as the counter moves."""
    counter.calibrate()
    left, feed = [held_up], board.feed

    def fed():
        feed()
        to_edge_s = PERIOD_S - board.time_s % PERIOD_S
        if left[0] and to_edge_s < 2 * READ_S:
            left[0] -= 1
            board.time_s += 0.030

    counter._feed = fed
    window = counter.window(1.0)
    assert not left[0]
    for edge_s in (window.start_s, window.end_s):
        assert edge_s % PERIOD_S <= 1.5 * READ_S, "seen at once"


def test_on_a_machine_that_is_always_late_an_edge_counts_all_the_same(counter, board):
    counter.calibrate()
    board.feed = counter._feed = lambda: board.sleep(0.02)
    assert counter.window(1.0).energy_mj


@pytest.mark.parametrize(("window_s", "lasts_s"), [(0.0, 0.1), (0.02, 0.1), (0.14, 0.1), (0.16, 0.2), (1.26, 1.3)])
def test_a_window_ends_at_the_edge_that_is_nearest_to_what_was_asked_for_but_not_at_once(counter, window_s, lasts_s):
    window = counter.window(window_s)
    assert window.end_s - window.start_s == pytest.approx(lasts_s, abs=READ_S)


def test_an_unaligned_window_is_off_by_a_share_of_a_period(board):
    """What the edges are good for: 0.9 s between any two reads are wrong by up to a period, 11 %."""
    board.time_s = 10.099
    first, start_s = board.read(), board.time_s
    board.sleep(0.89)
    last, end_s = board.read(), board.time_s
    true_mj = board.energy_mj(end_s) - board.energy_mj(start_s)
    assert abs((last - first) / true_mj - 1) > 0.05


def test_the_gpu_is_fed_all_the_time(counter, board):
    counter.window(2.0)
    assert board.fed > 2.0 / 0.02


def test_a_counter_that_stands_still_is_refused(counter, board):
    board.frozen_from_s = 1.0
    with pytest.raises(InputError, match=r"energy counter: stood at \d+ mJ for 1\.\d s"):
        counter.window(5.0)


def test_a_counter_that_falls_is_refused(counter, board):
    board.fall_at_s = 3.0
    with pytest.raises(InputError, match="energy counter: fell from"):
        counter.window(5.0)


def test_the_time_of_a_read_is_measured(counter):
    counter.calibrate()
    assert counter.read_s == pytest.approx(READ_S)


def test_samples_are_taken_more_than_once_a_period_and_never_while_an_edge_is_awaited(board):
    sampled_s = []
    counter = EnergyCounter(board.read, board.now, board.sleep, board.feed, lambda: sampled_s.append(board.time_s))
    window = counter.window(5.0)
    inside = [at_s for at_s in sampled_s if window.start_s <= at_s <= window.end_s]
    assert inside == sampled_s and 55 <= len(inside) <= 85
    assert max(inside) < window.end_s - 0.01
    # of what repeats with the counter, each fifth is seen as often as another, about
    fifths = [sum(int(5 * (at_s % 0.1) / 0.1) == fifth for at_s in inside) for fifth in range(5)]
    assert min(fifths) > len(inside) / 10


def test_a_fault_says_whether_the_counter_fell(counter, board):
    board.fall_at_s = 3.0
    with pytest.raises(CounterFault) as fault:
        counter.window(5.0)
    assert fault.value.fell


@pytest.mark.parametrize(
    ("scale", "swing_w", "verdict"),
    [(1.0, 0, "agree"), (1.049, 0, "agree"), (1.06, 0, "disagree"), (0.94, 0, "disagree"), (0.9, 300, "not steady")],
)
def test_the_counter_is_held_against_the_integral_of_the_power(counter, board, scale, swing_w, verdict):
    """scale: what the reading shows of the true power, 700 - 4 t W; swing_w: a square wave of two seconds around it."""

    def read_mw():
        board.time_s += 0.0007
        swing = swing_w / 2 if board.time_s % 2 < 1 else -swing_w / 2
        return int(1e3 * (scale * (700 - 4 * board.time_s) + swing))

    counter.calibrate()
    found = counter.against_power(read_mw, 4.0)
    assert found.time_s == pytest.approx(4.0, abs=PERIOD_S)
    assert found.counter_j == pytest.approx(2772, rel=0.03)
    assert found.difference_percent == pytest.approx(100 / scale - 100, abs=0.3)
    assert found.verdict == verdict
    before = board.fed
    counter.window(0.3)
    assert board.fed > before, "the load is fed as before"
