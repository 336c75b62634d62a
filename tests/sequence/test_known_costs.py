"""What a chain of clock changes costs, worked out by hand for four launches."""

from dataclasses import replace

import numpy as np
import pytest

from kernel_dvfs.layout import LAUNCH, PASS, RUN
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence import baselines
from kernel_dvfs_deploy.sequence.chains import chain_of
from kernel_dvfs_deploy.sequence.changes import Changes, Spread, Timing
from kernel_dvfs_deploy.sequence.costs import stalls
from kernel_dvfs_deploy.sequence.deployable import deploy
from kernel_dvfs_deploy.sequence.launches import Sequence, read_sequence
from kernel_dvfs_deploy.sequence.programme import _Known, _line_search
from kernel_dvfs_deploy.sequence.replay import expected, replay

# auto; a lower core clock; both lower
PAIRS = ((1400.0, None), (1000.0, None), (1000.0, 500.0))
NAMES = ("a", "b", "a", "b")
MADE = Sequence(
    names=NAMES,
    kernel=np.array([0, 1, 0, 1]),
    time_s=1e-3 * np.array([[1.0, 1.4, 1.7], [2.0, 2.1, 3.0]]),
    energy_j=np.array([[0.30, 0.25, 0.21], [0.9, 0.8, 0.5]]),
    pairs=PAIRS,
    baseline=0,
    stall_w=np.array([50.0, 40.0, 30.0]),
    passes=(("forward", 0), ("backward", 2)),
)
CORE_S, MEM_S = 1e-4, 5e-5
# b at both clocks lowered, and the a after it
THERE_AND_BACK = Changes(0, (1, 3), (2, 0))


def played(timing, changes):
    """(time, energy) by the programme's sums, which are those of playing it."""
    totals, ran = chain_of(MADE, timing).totals(changes), replay(MADE, timing, changes)
    assert (ran.time_s, ran.energy_j) == pytest.approx(totals, rel=1e-12)
    assert ran.asked == ran.landed == len(changes)
    return totals


def test_changes_at_boundaries_cost_their_stalls_at_the_power_of_the_clock_that_is_left():
    """1.0, stall, 3.0 and 1.7, stall, 2.0 ms; 0.3, 0.15 ms x 50 W, 0.5 and 0.21, 0.15 ms x 30 W, 0.9 J."""
    time_s, energy_j = played(Timing("ahead", 5e-4, 0.0, CORE_S, MEM_S), THERE_AND_BACK)
    assert time_s == pytest.approx(8.0e-3)
    assert energy_j == pytest.approx(1.91 + 0.0075 + 0.0045)


def test_only_the_clock_that_changes_stalls():
    """From pair 1 to 2 the memory clock alone, back to 1 the same: 1.4, 0.05, 3.0, 0.05, 1.4 and 2.1 ms."""
    time_s, energy_j = played(Timing("ahead", 5e-4, 0.0, CORE_S, MEM_S), Changes(1, (1, 2), (2, 1)))
    assert time_s == pytest.approx(8.0e-3)
    assert energy_j == pytest.approx(0.25 + 0.5 + 0.25 + 0.8 + 5e-5 * (40 + 30))


def test_a_change_that_lags_leaves_what_is_done_until_it_lands_at_the_old_clock():
    """A quarter of b's 2.0 ms at auto, the rest at the low pair; of the last b a sixth of 3.0 ms there."""
    time_s, energy_j = played(Timing("lag", 5e-4, 0.0, CORE_S, MEM_S), THERE_AND_BACK)
    assert time_s == pytest.approx(1e-3 * (1.0 + 0.5 + 0.15 + 0.75 * 3.0 + 1.7 + 0.5 + 0.15 + 2.0 * 5 / 6))
    assert energy_j == pytest.approx(0.3 + 0.9 / 4 + 0.0075 + 0.5 * 0.75 + 0.21 + 0.5 / 6 + 0.0045 + 0.9 * 5 / 6)


def test_a_change_that_outlasts_a_launch_lands_in_the_next_one():
    """1.1 ms after a begins at auto: all of its 1.0 ms and 0.1 of b's 2.0 ms are done."""
    time_s, energy_j = played(Timing("lag", 1.1e-3), Changes(0, (0, 2), (2, 0)))
    # back 1.1 ms after the second a begins, 1.1 of its 1.7 ms
    assert time_s == pytest.approx(1e-3 * (1.1 + 0.95 * 3.0 + 1.1 + (0.6 / 1.7) * 1.0 + 2.0))
    assert energy_j == pytest.approx(0.3 + 0.05 * 0.9 + 0.95 * 0.5 + 0.21 * 1.1 / 1.7 + 0.3 * 0.6 / 1.7 + 0.9)


@pytest.mark.parametrize(("latency_s", "can"), [(1.7e-3, True), (1.701e-3, False)])
def test_a_pair_is_kept_for_the_latency_at_least(latency_s, can):
    """The second a takes 1.7 ms at the low pair, and the first launches before it take longer than that."""
    totals = chain_of(MADE, Timing("ahead", latency_s)).totals(Changes(0, (2, 3), (2, 0)))
    assert (totals == pytest.approx((6.7e-3, 2.31))) is can and np.isfinite(totals[0]) == can


@pytest.mark.parametrize(("latency_s", "can"), [(1.0e-3, True), (1.001e-3, False)])
def test_no_change_lands_before_a_latency_after_the_begin(latency_s, can):
    assert np.isfinite(chain_of(MADE, Timing("ahead", latency_s)).totals(THERE_AND_BACK)[0]) == can


def test_sums_and_pairs_up_to_each_boundary():
    """With lag nothing is settled between a request and the boundary after its landing."""
    chain = chain_of(MADE, Timing("lag", 5e-4, 0.0, CORE_S, MEM_S))
    sums = chain.until(THERE_AND_BACK)
    assert sums[:, 0] == pytest.approx(1e-3 * np.array([0, 1.0, 3.9, 5.6, 7.25 + 10 / 6 - 1.0]), nan_ok=True)
    assert chain.states(THERE_AND_BACK).tolist() == [0, 0, 2, 2, 0]
    ahead = chain_of(MADE, Timing("ahead", 2.5e-3))
    # at the low pair 2.5 ms are over after a and b
    assert ahead.states(Changes(2, (2,), (0,))).tolist() == [2, -1, 2, -1, 0]
    assert np.isnan(ahead.until(Changes(2, (), ()))[1, 0])


def test_jitter_spreads_a_landing_evenly_over_both_sides_of_a_boundary():
    """Landing 1 ms +- 0.5 ms after the first a begins, which takes 1.0 ms at auto: half of all land beyond it, within
    0.5 ms, so b has run for 0.5^2 / 2 = 0.125 ms on average and a for 0.875 ms. Back 1 ms +- 0.5 ms after the second a
    begins, which takes 1.4 ms there: a tenth land beyond it, within 0.1 ms.
    """
    time_s, energy_j = chain_of(MADE, Timing("lag", 1e-3, 0.5)).totals(Changes(0, (0, 2), (1, 0)))
    there, back = 0.5**2 / 2, 0.1**2 / 2
    done = ((1 - there) / 1.0, there / 2.0, (1 - back) / 1.4, back / 2.1)
    time = ((1.0, 1.4), (2.0, 2.1), (1.4, 1.0), (2.1, 2.0))
    energy = ((0.3, 0.25), (0.9, 0.8), (0.25, 0.3), (0.8, 0.9))
    assert time_s == pytest.approx(1e-3 * sum(share * old + (1 - share) * new for share, (old, new) in zip(done, time)))
    assert energy_j == pytest.approx(sum(share * old + (1 - share) * new for share, (old, new) in zip(done, energy)))


def test_what_is_expected_is_the_mean_of_as_many_iterations_as_are_asked_for():
    timing, changes = Timing("lag", 1e-3, 0.5), Changes(0, (0, 2), (1, 0))
    first, second, third = (replay(MADE, timing, changes, seed) for seed in range(3))
    assert len({first.time_s, second.time_s, third.time_s}) == 3
    assert expected(MADE, timing, changes) == first
    mean = [sum(values) / 3 for values in zip(first, second, third)]
    assert expected(MADE, timing, changes, 3) == pytest.approx(mean, rel=1e-12)
    steady = Timing("lag", 1e-3)
    assert expected(MADE, steady, changes, 3) == replay(MADE, steady, changes)


def test_one_pair_for_all_is_that_of_least_energy_within_the_limit():
    """6.0 ms and 2.4 J at auto; 7.0 ms and 2.1 J; 9.4 ms and 1.42 J."""
    for slack, pair in ((0.0, 0), (0.166, 0), (0.167, 1), (0.566, 1), (0.567, 2)):
        assert baselines.single(MADE, slack) == Changes(pair, (), ())
    assert baselines.single(MADE, -0.01) is None


@pytest.mark.parametrize("limit_ms", [6.0, 6.2, 6.5, 7.0, 8.3, 9.4])
def test_where_changes_are_free_each_kernel_has_one_pair_the_best_of_all_nine(limit_ms):
    best = []
    for a in range(3):
        for b in range(3):
            time_s, energy_j = (2 * (values[0, a] + values[1, b]) for values in (MADE.time_s, MADE.energy_j))
            if time_s <= 1e-3 * limit_ms * (1 + 1e-9):
                best.append((energy_j, Changes.of_pairs([a, b, a, b])))
    assert baselines.latency_free(MADE, limit_ms / 6 - 1) == min(best)[1]
    with pytest.raises(InputError, match=r"no choice keeps -50 % slowdown"):
        baselines.latency_free(MADE, -0.5)


def test_a_change_that_is_replaced_before_it_lands_is_asked_for_and_never_seen():
    """Due 3.0 ms after the begin and 1.4 ms later, each asked for 1.7 ms ahead: the second before the first lands."""
    ran = replay(MADE, Timing("ahead", 1.7e-3), Changes(0, (2, 3), (1, 2)))
    assert (ran.time_s, ran.energy_j) == pytest.approx((1e-3 * (1.0 + 2.0 + 1.0 + 3.0), 0.3 + 0.9 + 0.3 + 0.5))
    assert (ran.asked, ran.landed) == (2, 1)
    ran = replay(MADE, Timing("ahead", 1.4e-3), Changes(0, (2, 3), (1, 2)))
    assert ran.time_s == pytest.approx(1e-3 * (1.0 + 2.0 + 1.4 + 3.0)) and ran.landed == 2, "just in time"


@pytest.mark.parametrize("limit_ms", [6.0, 6.3, 7.0, 7.25, 7.5, 7.9, 8.2, 9.0, 12.0])
@pytest.mark.parametrize("latency_s", [5e-4, 1.5e-3])
def test_one_pair_a_pass_is_the_best_of_all_nine_with_both_stalls_paid(limit_ms, latency_s):
    timing = Timing("ahead", latency_s, 0.0, CORE_S, MEM_S)
    best = []
    for first in range(3):
        for second in range(3):
            # as early in the first pass as a change may land, at the clock that the iteration begins with
            begin = 1 if MADE.launch_time_s[0, second] >= latency_s else 2
            changes = Changes(second, (begin, 2), (first, second)) if first != second else Changes(second, (), ())
            if begin == 2 and first != second:
                continue  # no launch is left for the other pair
            time_s, energy_j = replay(MADE, timing, changes)[:2]
            if time_s <= 1e-3 * limit_ms * (1 + 1e-9):
                best.append((energy_j, changes))
    assert baselines.per_pass(MADE, timing, limit_ms / 6 - 1) == min(best)[1]
    assert baselines.per_pass(MADE, timing, 5.9 / 6 - 1) is None


@pytest.mark.parametrize("stall_w", [(50.0, 40.0, 30.0), (1100.0, 700.0, 500.0), (100.0, 700.0, 1100.0)])
@pytest.mark.parametrize("limit_ms", [6.0, 7.0, 7.5, 7.9, 8.2, 9.0, 12.0])
def test_of_pairs_a_pass_none_is_played_that_is_too_slow_or_uses_more(limit_ms, stall_w, monkeypatch):
    """By the least energy first, where sums tell it exactly: the first that keeps the limit is the best of all."""
    made = replace(MADE, stall_w=np.array(stall_w))
    chain = chain_of(made, Timing("ahead", 5e-4, 0.0, CORE_S, MEM_S))
    play, tried = chain.totals, []
    monkeypatch.setattr(chain, "totals", lambda changes: tried.append(changes) or play(changes))
    found = baselines.per_pass(made, chain.timing, limit_ms / 6 - 1, chain)
    assert tried == [found]


class Blind:
    """A programme that finds one choice at every price, too slow with 10 s and 1 J, where 5 s and 9 J are known."""

    sequence = MADE
    slow, fits = Changes(1, (), ()), Changes(0, (), ())

    def totals(self, changes):
        return {self.slow: (10.0, 1.0), self.fits: (5.0, 9.0)}[changes]

    def best(self, price):
        cost = 1 + price * 10
        return min(cost, 9 + price * 5), cost, self.slow


def test_where_no_price_finds_a_choice_within_the_limit_the_best_known_one_is_built_upon():
    """The line through both has the price 8 J / 5 s, at which every choice costs 17 J: 7.4 J within 6 s."""
    chain = Blind()
    known = _Known(chain, 6.0)
    known.offer(chain.fits)
    assert _line_search(chain, known, chain.slow, 6.0) == pytest.approx((17 - 1.6 * 6, 1.6))
    assert known.best == (9.0, 5.0, chain.fits) and known.fastest_s == 5.0
    # without it, the best of the bounds at rising prices, of which the first is auto's mean power, 400 W
    scale = MADE.baseline_energy_j / MADE.baseline_time_s
    assert _line_search(chain, _Known(chain, 6.0), chain.slow, 6.0) == pytest.approx((9 - scale, scale))
    nothing = _Known(chain, 4.0)
    bound, price = _line_search(chain, nothing, chain.slow, 4.0)
    assert nothing.best is None and bound == pytest.approx(9 + price)


def test_rows_say_what_each_way_saves_in_percent_of_auto():
    prompt = Timing.spread(Spread(5e-4, 5e-4), Spread(6e-4, 6e-4), CORE_S, MEM_S)
    rows = {own.way: own.row(MADE, prompt, None) for own in deploy(MADE, prompt, 0.6)}
    run, launch = rows[RUN], rows[LAUNCH]
    assert (run["time_change_percent"], run["energy_change_percent"]) == pytest.approx(
        (100 * (9.4 / 6 - 1), 100 * (1.42 / 2.4 - 1))
    )
    assert (run["latency_ms"], run["gap_points"], run["changes"], run["costs"]) == (None, 0, 0, None)
    costs = [launch[name] for name in ("latency_ms", "mem_latency_ms", "core_stall_ms", "mem_stall_ms")]
    assert costs == pytest.approx([0.5, 0.6, 0.1, 0.05])
    assert launch["energy_change_percent"] == pytest.approx(rows[PASS]["energy_change_percent"])
    assert launch["energy_change_percent"] == pytest.approx(100 * (1.42 / 2.4 - 1)), "all of it at the lowest pair"
    assert launch["time_bound_percent"] is None and launch["again"] == [], "claimed alone"


def test_an_iteration_of_a_profile_has_each_replicates_own_time_and_the_least_power_as_that_of_a_stall():
    """x and y are replicates: measured once and thrice, their means 1.25 ms and 1.5 ms are those of either."""
    rows = [
        # kernel, group, core MHz, ms, mJ, measurements
        ("x", "g", None, 1.1, 330.0, 1),
        ("x", "g", 900.0, 1.2, 240.0, 1),
        ("z", None, None, 2.0, 500.0, 1),
        ("z", None, 900.0, 3.0, 510.0, 1),
        ("y", "g", None, 1.3, 342.0, 3),
        ("y", "g", 900.0, 1.6, 252.0, 3),
    ]
    columns = {
        "study": ["kernel"] * 6,
        "target": [row[0] for row in rows],
        "launches_per_iteration": [1] * 6,
        "replicate_group": [row[1] for row in rows],
        "core_mhz": [row[2] for row in rows],
        "mem_mhz": [None] * 6,
        "time_s": [1e-3 * row[3] for row in rows],
        "energy_j": [1e-3 * row[4] for row in rows],
        "n": [row[5] for row in rows],
        "verdict": ["ok"] * 6,
        "is_baseline": [row[2] is None for row in rows],
        "metadata": {"workload": {"name": "w", "launches": [0, 1, 2, 0]}, "settings": ["core_mhz", "mem_mhz"]},
    }
    found = read_sequence(columns).sequence
    assert found.names == ("x", "z", "y", "x") and found.baseline == found.pairs.index((None, None))
    auto, low = (found.pairs.index((core, None)) for core in (None, 900.0))
    assert found.launch_time_s[:, auto] == pytest.approx([1.25e-3, 2e-3, 1.25e-3, 1.25e-3])
    assert found.launch_energy_j[:, low] == pytest.approx([0.249, 0.51, 0.249, 0.249])
    # 0.339 J in 1.25 ms and 0.5 J in 2 ms; 0.249 J in 1.5 ms and 0.51 J in 3 ms
    assert found.stall_w[[auto, low]] == pytest.approx([250.0, 166.0])
    assert (found.baseline_time_s, found.baseline_energy_j) == pytest.approx((5.75e-3, 1.517))
    assert read_sequence(columns, stall_w=0.0).sequence.stall_w.tolist() == [0.0, 0.0]
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="expected a number of W >= 0"):
            read_sequence(columns, stall_w=wrong)
    lacking = {name: values[:3] + values[4:] if name != "metadata" else values for name, values in columns.items()}
    with pytest.raises(InputError, match=r"kernel z has no usable row at pair 900-auto .* 1 such.*--shared-pairs"):
        read_sequence(lacking)
    shared = read_sequence(lacking, shared_pairs=True)
    assert shared.sequence.pairs == ((None, None),) and len(shared.notices) == 1
    only = found.only(np.array([auto]))
    assert (only.pairs, only.baseline, only.stall_w.tolist()) == (((None, None),), 0, [pytest.approx(250.0)])


class Measured:
    """Of a latency file: what was measured of the core clock alone."""

    about = "measured on G"

    @staticmethod
    def stall_s(domain):
        return {"core": 3e-4, "mem": None}[domain]


def test_stalls_are_those_told_then_those_measured_then_those_assumed():
    assert stalls(None, None, None).both_s == (1e-4, 1e-4) and stalls(None, None, None).source == "assumed"
    found = stalls(None, None, Measured)
    assert found.both_s == (3e-4, 1e-4) and found.source == "core measured on G, memory assumed"
    assert stalls(0.0, 2e-3, Measured).both_s == (0.0, 2e-3) and stalls(0.0, 2e-3, Measured).source == "assumed"
