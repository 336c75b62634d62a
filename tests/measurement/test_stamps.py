"""What is worked out of stamps is what happened while they were made, under a coarse timer and noisy counts too."""

import numpy as np
import pytest

from kernel_dvfs.measurement.stamps import change_seen, pace, quiet

STEP_NS = 20_000
ASKED_S = 0.05


def stamps(clock, seconds=0.4, tick_ns=1000, noise=0.0, seed=0) -> np.ndarray:
    """Stamps of a board whose clock at times s is clock(s) GHz, 0 while it stands still; the request is at ASKED_S."""
    at_s = np.arange(0, seconds, 1e-6)
    at_ns = np.round(1e9 * at_s)
    ghz = np.broadcast_to(clock(at_s), at_s.shape)
    cycles = np.concatenate([[0], np.cumsum(ghz * 1000)])[:-1]
    running = np.flatnonzero(ghz)
    running_ns, places, next_ns = at_ns[running], [], 0
    while (number := np.searchsorted(running_ns, next_ns)) < len(running):
        places.append(running[number])
        next_ns = max(next_ns + STEP_NS, running_ns[number])
    seen = cycles[places] + noise * np.random.default_rng(seed).standard_normal(len(places))
    ticks = at_ns[places] // tick_ns * tick_ns
    return np.stack([ticks, seen, cycles[places], at_s[places] >= ASKED_S], axis=1).astype(np.int64)


def change(lag_s, stall_s, ramp_s, before=1.98, after=0.345):
    def clock(at_s):
        into_s = at_s - ASKED_S - lag_s
        ramp = before + (after - before) * (into_s - stall_s) / (ramp_s or 1)
        return np.select([into_s < 0, into_s < stall_s, into_s < stall_s + ramp_s], [before, 0.0, ramp], after)

    return clock


@pytest.mark.parametrize("tick_ns", [32, 1000])
@pytest.mark.parametrize("to_ghz", [0.345, 1.8, 1.965])
@pytest.mark.parametrize(("lag_s", "stall_s"), [(0.0001, 0.0), (0.013, 0.0), (0.013, 0.0007), (0.15, 0.02)])
def test_effect_settling_and_stall_are_found_to_a_step(lag_s, stall_s, to_ghz, tick_ns):
    seen = change_seen(stamps(change(lag_s, stall_s, 0.0, after=to_ghz), tick_ns=tick_ns), 1, "core")
    # a change of less than 1 % of the clock is seen over a longer stretch than one of 80 %
    allowed_s = (2 if to_ghz < 1.9 else 25) * 1e-9 * STEP_NS
    assert seen.first_effect_s == pytest.approx(lag_s, abs=allowed_s)
    assert seen.settled_s == pytest.approx(lag_s + stall_s, abs=allowed_s)
    assert seen.stall_s == seen.longest_stall_s == pytest.approx(stall_s, abs=1e-9 * STEP_NS)
    assert seen.is_settled and 1e3 * seen.after == pytest.approx(1e3 * to_ghz, rel=1e-3)


def test_a_ramp_lies_between_first_effect_and_settling():
    seen = change_seen(stamps(change(0.01, 0.0, 0.04)), 1, "core")
    assert seen.first_effect_s == pytest.approx(0.01, abs=0.0002), "0.2 % of the clock is 0.1 ms of this ramp"
    assert seen.settled_s == pytest.approx(0.05, abs=0.0002)
    assert seen.stall_s == 0


def test_no_change_is_none():
    seen = change_seen(stamps(lambda _: 1.5, noise=3), 1, "core")
    assert (seen.first_effect_s, seen.settled_s, seen.stall_s, seen.is_settled) == (None, None, 0.0, False)
    assert seen.step_s == pytest.approx(1e-9 * STEP_NS)


@pytest.mark.parametrize(
    ("after", "changes"), [(1.98, False), (1.983, False), (1.977, False), (1.985, True), (1.975, True)]
)
def test_a_pace_that_comes_back_to_within_a_fifth_of_a_percent_has_not_changed(after, changes):
    """Of 1.98 GHz, after 9 ms at 0.9 GHz: stamps each 20 us, the request at the 400th, the slow ones from the 450th."""
    rows, place = np.zeros((2000, 4), np.int64), np.arange(1999)
    rows[:, 0] = 20_000 * np.arange(2000)
    ghz = np.where(place < 450, 1.98, np.where(place < 900, 0.9, after))
    rows[1:, 1] = np.cumsum(np.rint(20_000 * ghz))
    rows[:, 3] = np.arange(2000) >= 400
    seen = change_seen(rows, 1, "core")
    assert (seen.before, seen.after) == pytest.approx((1.98, after), abs=1e-4)
    if changes:
        assert seen.first_effect_s == pytest.approx(51 * 20e-6) and seen.is_settled
    else:
        assert (seen.first_effect_s, seen.settled_s, seen.is_settled) == (None, None, False)


def test_several_stalls_add_up_and_the_longest_is_told():
    """A millisecond after the request 3 ms, 2 ms later 1 ms, and a clock of its own before it has settled."""

    def clock(at_s):
        into_s = at_s - ASKED_S
        stands = (into_s < 0.004) | ((into_s >= 0.006) & (into_s < 0.007))
        return np.select([into_s < 0.001, stands, into_s < 0.008], [1.98, 0.0, 0.9], 0.345)

    seen = change_seen(stamps(clock), 1, "core")
    assert seen.stall_s == pytest.approx(0.004, abs=2e-9 * STEP_NS)
    assert seen.longest_stall_s == pytest.approx(0.003, abs=1e-9 * STEP_NS)
    assert seen.first_effect_s == pytest.approx(0.001, abs=2e-9 * STEP_NS)
    assert seen.settled_s == pytest.approx(0.008, abs=2e-9 * STEP_NS) and seen.is_settled


@pytest.mark.parametrize("cycles", [21_000, 1_000])
def test_a_change_between_two_stamps_begins_in_the_first_interval_that_differs_and_ends_with_it(cycles):
    """Stamps each 20 us from 7 ms on, the request between the 400th and the next, another pace from the 450th on: of
    1.05 GHz, or of 50 MHz, which is slow but no standstill."""
    rows = np.zeros((2000, 4), np.int64)
    rows[:, 0] = 7_000_000 + 20_000 * np.arange(2000)
    rows[1:, 1] = np.cumsum(np.where(np.arange(1999) < 450, 30_000, cycles))
    rows[:, 3] = np.arange(2000) >= 400
    seen = change_seen(rows, 1, "core")
    assert (seen.before, seen.after) == pytest.approx((1.5, cycles / 20_000))
    assert seen.is_settled and seen.stall_s == seen.longest_stall_s == 0
    # 50 steps and a half from the request to that stamp, and half a step or a whole one more
    assert seen.first_effect_s == pytest.approx(51 * 20e-6) and seen.settled_s == pytest.approx(51.5 * 20e-6)
    assert pace(rows, "core") == pytest.approx((450 * 30_000 + 1549 * cycles) / (1999 * 20_000))


def test_a_gap_between_stamps_began_half_a_step_after_the_last_one():
    """Stamps each 20 us, the request at the 400th, another pace from the 450th on, after a gap of 0.5 ms there, and one
    of 0.3 ms at the 460th, when it has settled."""
    steps = np.full(1999, 20_000)
    steps[[450, 460]] = 500_000, 300_000
    rows = np.zeros((2000, 4), np.int64)
    rows[1:, 0] = np.cumsum(steps)
    rows[1:, 1] = np.cumsum(np.where(np.arange(1999) < 450, 30_000, np.where(steps > 20_000, 21_000, 1.05 * steps)))
    rows[461:, 1] += 21 * 14_000
    rows[:, 3] = np.arange(2000) >= 400
    seen = change_seen(rows, 1, "core")
    assert seen.stall_s == seen.longest_stall_s == pytest.approx(490e-6)
    assert seen.first_effect_s == pytest.approx(51 * 20e-6) and seen.settled_s == pytest.approx(50.5 * 20e-6 + 500e-6)


def test_a_clock_that_wanders_at_the_end_has_not_settled():
    wandering = stamps(lambda at_s: np.select([at_s < 0.1, at_s % 0.01 < 0.004], [1.98, 0.5], 0.7))
    seen = change_seen(wandering, 1, "core")
    assert not seen.is_settled


@pytest.mark.parametrize(
    ("between", "after", "stall_s"),
    [
        (0.0, 2500.0, 0.003),
        # below a tenth of the usual pace it stands still, and the usual one is the lower of both
        (249.0, 2500.0, 0.003),
        (251.0, 2500.0, 0.0),
        (350.0, 300.0, 0.0),
    ],
)
def test_memory_that_stands_still_is_a_stall_though_stamps_go_on(between, after, stall_s):
    rows = stamps(lambda _: 1.5)
    time_s = 1e-9 * rows[:, 0]
    rate = np.where(time_s < 0.08, 4000.0, np.where(time_s < 0.083, between, after))  # bytes per ns
    rows[:, 2] = np.concatenate([[0], np.cumsum(rate[:-1] * np.diff(rows[:, 0]))])
    seen = change_seen(rows, 1, "mem")
    assert seen.first_effect_s == pytest.approx(0.03, abs=4e-5) and seen.settled_s == pytest.approx(0.033, abs=4e-5)
    assert seen.stall_s == pytest.approx(stall_s, abs=4e-5 if stall_s else 0)
    assert pace(rows[:100], "mem") == pytest.approx(4000)


def test_too_few_stamps_are_refused():
    with pytest.raises(ValueError, match="are needed"):
        change_seen(stamps(lambda _: 1.5, seconds=0.052), 1, "core")
    with pytest.raises(ValueError, match="are needed"):
        quiet(stamps(lambda _: 1.5, seconds=0.004), "core")


def test_while_nothing_changes_step_gap_pace_and_scatter_are_those_of_the_stamps():
    """Steps of 20 us and one of 95; cycles at 1.5 a ns, off by a normal error; bytes at 4000 a ns but for one jump."""
    steps = np.full(400, 20_000)
    steps[123] = 95_000
    off = np.random.default_rng(3).normal(0, 0.01, 400)
    rows = np.zeros((401, 4), np.int64)
    rows[1:, 0] = np.cumsum(steps)
    rows[1:, 1] = np.cumsum(np.rint(steps * (1.5 + off)))
    rows[1:, 2] = np.cumsum(4000 * steps)
    seen = quiet(rows, "core")
    assert (seen.step_s, seen.longest_gap_s) == pytest.approx((20e-6, 75e-6))
    paces = np.diff(rows[:, 1]) / steps
    middle = np.median(paces)
    assert seen.pace == pytest.approx(middle)
    # of a normal distribution the deviation is 1.4826 times the middle of its distances
    assert seen.scatter_share == pytest.approx(1.4826 * np.median(np.abs(paces - middle)) / middle)
    assert seen.scatter_share == pytest.approx(0.01 / 1.5, rel=0.1)
    still = quiet(rows, "mem")
    assert (still.pace, still.scatter_share) == pytest.approx((4000, 0), abs=1e-9)
    assert pace(rows, "core") == pytest.approx(rows[-1, 1] / rows[-1, 0])
    assert np.isnan(pace(rows[:1], "core")) and pace(rows[:2], "mem") == pytest.approx(4000)
