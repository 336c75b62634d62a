"""Race and walk: what is shared, asked for, shown and left to gain; answers worked out by hand or by brute force."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.search import race

AUTO = (None, None)
# four targets of 1, 1, 2 and 1 launches, auto first; the second trades as the first does, at another level
KEYS = [AUTO, (1900.0, 9251.0), (1500.0, 9251.0), (1500.0, 5001.0), (1100.0, 9251.0), (1700.0, 5001.0)]
TIME_S = [
    [1.00, 0.99, 1.01, 1.04, 1.20, 1.02],
    [0.50, 0.495, 0.505, 0.52, 0.60, 0.51],
    [3.00, 2.97, 3.30, 3.60, 4.20, 3.40],
    [0.20, 0.20, 0.24, 0.22, 0.33, 0.21],
]
ENERGY_J = [
    [10.0, 9.7, 8.9, 8.0, 7.9, 8.8],
    [6.0, 5.82, 5.34, 4.8, 4.74, 5.28],
    [36.0, 35.0, 31.0, 30.5, 29.0, 31.5],
    [2.0, 1.9, 1.7, 1.75, 1.6, 1.8],
]
N = np.array([[4, 1, 2, 1, 1, 3], [4, 1, 1, 1, 1, 1], [5, 2, 1, 1, 1, 1], [4, 1, 1, 3, 1, 1]])
TIME_SD = np.array([0.004, 0.004, 0.002, 0.02])  # of a measurement's logarithm
POWER_SD = np.array([0.006, 0.006, 0.009, 0.03])


def made(n=N, time_sd=TIME_SD, power_sd=POWER_SD) -> Problem:
    problem = Problem.of(TIME_S, ENERGY_J, [0] * 4, keys=[KEYS] * 4)
    problem = replace(problem, members=(("a",), ("b",), ("c", "d"), ("e",)))
    relative = [sd[:, None] / np.sqrt(n) for sd in (time_sd, np.hypot(time_sd, power_sd))]
    errors = [(of * np.array(table)).ravel() for of, table in zip(relative, (TIME_S, ENERGY_J))]
    return replace(problem, time_se=errors[0], energy_se=errors[1], n=n.ravel().astype(float))


def shrunk(sd, members=(1, 1, 2, 1), n=N):
    """Variance of one measurement: a target's own beside ten degrees of freedom of the median of all."""
    members = np.array(members)
    own = sd**2 * members
    freedom = (n - 1).sum(1) * members
    return (freedom * own + 10 * np.median(own)) / (freedom + 10) / members


def test_the_scatter_of_a_target_is_drawn_to_the_median_while_it_has_few_repeats():
    found = race.estimate(made(), 0.0)
    assert found.single == pytest.approx(shrunk(TIME_SD))
    # a target of which nothing was measured twice has the median's
    once = N.copy()
    once[3] = 1
    assert race.estimate(made(once), 0.0).single[3] == pytest.approx(np.median(TIME_SD[:3] ** 2 * [1, 1, 2]))
    # one repeat of one pair counts, too
    little = N.copy()
    little[0] = [2, 1, 1, 1, 1, 1]
    assert race.estimate(made(little), 0.0).single == pytest.approx(shrunk(TIME_SD, n=little))
    # nothing was measured twice: as good as exact
    assert race.estimate(made(np.ones_like(N)), 0.0).single == pytest.approx(1e-12 / np.array([1, 1, 2, 1]))
    # as a profile has it, whose scatter is then unknown
    unknown = made(once)
    for error in (unknown.time_se, unknown.energy_se):
        error[18:] = np.nan
    assert race.estimate(unknown, 0.0).single == pytest.approx(race.estimate(made(once), 0.0).single)


def test_a_target_without_look_alikes_keeps_what_was_measured_of_it():
    found = race.estimate(made(), 0.0)
    own = np.log(np.array(TIME_S[2]) / TIME_S[2][0])
    assert found.time[2] == pytest.approx(own, abs=1e-4)
    assert found.time_variance[2] == pytest.approx(shrunk(TIME_SD)[2] / N[2], rel=0.05)
    assert found.problem.time.reshape(4, 6)[2] == pytest.approx(TIME_S[2], rel=1e-4)


@pytest.mark.parametrize(("noisier", "differ"), [(1, False), (10, True)])
def test_look_alikes_share_up_to_a_constant_and_know_more_together(noisier, differ):
    """By hand: two rows of three unlike variances each, seven cells, one of them not measured of the second."""
    draw = np.random.default_rng(3)
    truth = np.array([0.0, 0.01, -0.02, 0.04, 0.03, -0.01, 0.02])
    spread = np.array([[1, 2, 4, 1, 1, 2, 1], [3, 1, 1, 2, 1, 1, 1]]) * 1e-6 * np.array([[noisier], [1]])
    mean = truth + np.array([[0.0], [0.3]]) + np.sqrt(spread) * draw.standard_normal((2, 7))
    mean[0] += 0.6 * differ * np.sqrt(spread[0]) * [1.9, -1.1, 1.2, -1.3, 0.9, -1.8, 0]
    mean[1, 6] = np.nan
    matters = np.ones((2, 7), dtype=bool)
    value, variance = race.shared(mean, np.where(np.isnan(mean), np.nan, spread), matters)
    both = np.arange(6)
    weight = 1 / spread[:, both].sum(0)
    difference = mean[0, both] - mean[1, both]
    level = (weight * difference).sum() / weight.sum()
    apart = (weight * (difference - level) ** 2).sum()
    like = math.exp(-0.15 * max(apart - 5, 0))
    prior = mean[1, both] + level
    prior_variance = spread[1, both] / like
    trust = 1 / (spread[0, both] + prior_variance) ** 2
    excess = (trust * ((mean[0, both] - prior) ** 2 - spread[0, both] - prior_variance)).sum() / trust.sum()
    assert (excess > 0) == differ
    prior_variance = prior_variance + max(excess, 0)
    own = prior_variance / (prior_variance + spread[0, both])
    assert value[0, both] == pytest.approx(prior + own * (mean[0, both] - prior))
    assert variance[0, both] == pytest.approx(own * spread[0, both])
    # what only one of them has stays its own
    assert value[0, 6] == mean[0, 6] and variance[0, 6] == spread[0, 6] and np.isnan(value[1, 6])


def test_targets_are_unlike_by_what_differs_beyond_noise_where_it_matters():
    spread = np.full((2, 6), 1e-6)
    mean = np.zeros((2, 6))
    mean[1] = [0.5, 0.5, 0.5, 0.5, 0.5, 0.6]  # alike but for the last cell
    everywhere, but_there = np.ones((2, 6), dtype=bool), np.ones((2, 6), dtype=bool)
    but_there[:, 5] = False
    unlike, _ = race.shared(mean, spread, everywhere)
    alike, variance = race.shared(mean, spread, but_there)
    assert unlike == pytest.approx(mean) and variance[0, 0] == pytest.approx(0.5e-6)
    assert alike[0, 5] == pytest.approx(0.05), "pooled where nobody looked"
    # a cell counts that may matter to one of them
    to_one = everywhere.copy()
    to_one[1, 5] = False
    assert race.shared(mean, spread, to_one)[0] == pytest.approx(mean)
    # fewer than five cells in common say nothing
    few, kept = race.shared(mean[:, :4], spread[:, :4], everywhere[:, :4])
    assert few == pytest.approx(mean[:, :4]) and kept == pytest.approx(spread[:, :4])


def test_an_estimate_in_which_two_targets_trade_alike_is_surer_of_them_than_of_the_others():
    found = race.estimate(made(), 0.0)
    own = shrunk(TIME_SD)[:, None] / N
    assert (found.time_variance[:2, 1:] < 0.8 * own[:2, 1:]).all()
    assert (found.time_variance[2:] > 0.95 * own[2:]).all()


def test_tables_that_might_be_true_scatter_as_the_estimate_says():
    known = race.estimate(made(), 0.0)
    draw = np.random.default_rng(0)
    drawn = [known.drawn(draw) for _ in range(4000)]
    base = np.repeat(known.problem.baseline, 6)
    for name, variance in (("time", known.time_variance), ("energy", known.time_variance + known.power_variance)):
        logs = np.log([getattr(each, name) for each in drawn])
        expected = variance.ravel() + variance.ravel()[base]
        expected[known.problem.baseline] = 0
        assert logs.var(0) == pytest.approx(expected, rel=0.12)
        assert (np.array([getattr(each, name) for each in drawn])[:, base[0]] == getattr(known.problem, name)[0]).all()


def test_a_block_measures_auto_and_what_some_plausible_table_would_choose():
    sure = race.estimate(made(time_sd=TIME_SD / 1e3, power_sd=POWER_SD / 1e3), 0.0)
    [least] = race.chosen(sure.problem, [0.0137])
    wanted = race.picks(sure, [0.0137], np.random.default_rng(1))
    assert set(np.flatnonzero(wanted)) == {*least, *sure.problem.baseline}
    unsure = race.estimate(made(time_sd=TIME_SD * 5, power_sd=POWER_SD * 5), 0.0)
    more = [race.picks(unsure, [0.0137], np.random.default_rng(seed)).sum() for seed in range(8)]
    assert max(more) > wanted.sum() and len(set(more)) > 1
    both = race.picks(sure, [0.0137, 0.2], np.random.default_rng(1))
    assert both.sum() > wanted.sum() and both[race.chosen(sure.problem, [0.2])[0]].all()


def test_what_takes_little_time_is_measured_less_often():
    # half of the 6.2 s of auto... 1, 0.5, two of 1.5 and 0.2 s: the launch at the middle takes 1.5 s
    assert race.per_block(made()).tolist() == [2, 1, 4, 1]
    equal = Problem.of([[1.0], [0.8], [0.6], [0.3]], [[1.0]] * 4, [0] * 4)
    assert race.per_block(equal).tolist() == [2, 2, 2, 1], "the least once"


def test_half_of_the_time_is_counted_from_the_largest_launches_on():
    """3 of 6 s are in one launch, so it is the measure, and a third of it is little."""
    problem = Problem.of([[3.0], [1.0], [1.0], [1.0]], [[1.0]] * 4, [0] * 4)
    assert race.per_block(problem).tolist() == [4, 1, 1, 1]


def test_what_is_clearly_slower_or_draws_clearly_more_says_nothing_of_who_trades_alike(monkeypatch):
    """Cells just within and just beyond 10 % + three times the slack of time, 3 % of energy, each with its errors."""
    slack, time_sd, power_sd = 0.02, 0.01, 0.02
    n = np.array([4.0, 1, 2, 3, 1, 5, 2])
    sd = time_sd * np.sqrt(1 / n + 1 / n[0])
    slow, costly = 0.10 + 3 * slack + sd, 0.03 + 2 * power_sd / np.sqrt(n) + sd
    just = 1e-4
    log_time = np.array([0, slow[1] - just, slow[2] + just, 0.01, 0.01, -0.02, -0.02])
    log_energy = np.array([0, -0.1, -0.1, costly[3] - just, costly[4] + just, costly[5] - just, costly[6] + just])
    time, energy = 2 * np.exp([log_time] * 2), 30 * np.exp([log_energy] * 2)
    made = Problem.of(time, energy, [0, 0])
    errors = [
        values.ravel() * each / np.sqrt(np.tile(n, 2))
        for values, each in ((time, time_sd), (energy, np.hypot(time_sd, power_sd)))
    ]
    seen = []
    monkeypatch.setattr(race, "shared", lambda mean, variance, matters: (seen.append(matters), (mean, variance))[1])
    race.estimate(replace(made, time_se=errors[0], energy_se=errors[1], n=np.tile(n, 2)), slack)
    assert len(seen) == 2
    for matters in seen:
        assert matters.tolist() == [[True, True, False, True, False, True, False]] * 2


def test_between_the_clocks_of_the_sweep_the_halves_next_to_the_choice_are_asked_for():
    known = race.estimate(made(time_sd=TIME_SD / 1e3, power_sd=POWER_SD / 1e3), 0.0)
    supported = {9251.0: list(range(1100, 1915, 100)), 5001.0: list(range(1100, 1915, 100)), None: []}
    [least] = race.chosen(known.problem, [0.05])
    pairs = [KEYS[each] for each in known.problem.key[least]]
    found = race.halfway(known.problem, [least], supported.__getitem__)
    time = np.array([own[0] for own in TIME_S])
    votes: dict = {}
    for (core, mem), weight in zip(pairs, time):
        if core is None:
            continue
        measured = sorted(key[0] for key in KEYS if key[1] == mem and key[0])
        place = measured.index(core)
        for low, high in itertools.pairwise(measured[max(place - 1, 0) : place + 2]):
            free = [mhz for mhz in supported[mem] if low < mhz < high]
            if free:
                key = free[len(free) // 2], mem
                votes[key] = votes.get(key, 0) + weight
    assert 1 <= len(found) <= race.NEW and found == sorted(votes, key=lambda key: -votes[key])[: race.NEW]
    assert race.halfway(known.problem, [least], lambda mem: []) == []


def test_the_clock_that_auto_reached_is_asked_for_beside_memory_clocks_that_are_chosen():
    """By hand: of 6.2 s of auto 3 s ran at 1777 MHz, 1.5 s below and 1.7 s above, so 1777 is the median."""
    problem, reached_mhz = made(), np.array([1650.0, 1650.0, 1777.0, 1900.0])
    problem = replace(problem, time=problem.time * np.repeat([1, 1, 1, 8.5], 6))
    supported = {9251.0: [1500, 1760, 1777, 1800], 5001.0: [1500, 1700, 1790], None: [1770]}
    [option] = race.chosen(problem, [0.05])
    mems = {KEYS[key][1] for key in problem.key[option]} - {None}
    expected = {9251.0: (1777.0, 9251.0), 5001.0: None}  # 1700 is measured there
    found = race.at_auto(problem, [option], supported.__getitem__, reached_mhz)
    assert found == [expected[mem] for mem in sorted(mems) if expected[mem]] and found
    # auto is chosen too, but the core alone was never asked for, and some GPUs cannot lock it
    assert None in {KEYS[key][1] for key in problem.key[problem.baseline]} and all(mem for _, mem in found)
    assert race.at_auto(problem, [option], lambda mem: [2000], reached_mhz) == [], "none that auto reaches"


def test_a_path_leads_from_the_fastest_schedule_to_just_beyond_its_last_limit():
    known = race.estimate(made(), 0.05)
    path = race.path(known, [0.0, 0.05])
    problem = known.problem
    time, energy = (values[path].sum(1) for values in (problem.time, problem.energy))
    assert time[0] == pytest.approx(np.minimum.reduceat(problem.time, problem.first).sum())
    assert (np.diff(time) > 0).all() and (np.diff(energy) < 0).all(), "each is slower and saves more"
    for slack in (0.0, 0.05):
        [best] = race.chosen(problem, [slack])
        assert energy.min() <= problem.energy[best].sum()
        near = np.abs(time / problem.baseline_time - 1 - slack).min()
        assert near < 0.02
    assert 1.05 < time[-1] / problem.baseline_time < 1.12
    every = itertools.product(range(6), repeat=4)
    costs = [
        (
            sum(problem.time[6 * k + one] for k, one in enumerate(option)),
            sum(problem.energy[6 * k + one] for k, one in enumerate(option)),
        )
        for option in every
    ]
    for now, spent in zip(time, energy):
        assert spent == pytest.approx(min(energy for took, energy in costs if took <= now * (1 + 1e-9)))


def test_a_path_ends_three_standard_errors_beyond_its_last_limit():
    known = race.estimate(made(time_sd=TIME_SD * 3, power_sd=POWER_SD * 3), 0.05)
    problem, slack = known.problem, 0.05
    [option] = race.chosen(problem, [slack])
    variance = sum(
        problem.time[6 * k] ** 2 * (known.time_variance[k, problem.key[at]] + known.time_variance[k, 0])
        for k, at in enumerate(option)
        if at != 6 * k
    )
    beyond = slack + 3 * math.sqrt(variance) / problem.baseline_time
    last = race.path(known, [slack])[-1]
    assert last.tolist() == race.chosen(problem, [beyond])[0].tolist() != option.tolist()


def test_a_walk_stops_before_the_first_schedule_that_does_not_keep_its_limit():
    draws = np.random.default_rng(5).standard_normal((7, 5))
    draws -= draws.mean(0)
    draws /= draws.std(0, ddof=1)
    mean, sd = np.array([-0.9, -0.4, -0.05, -0.5, 0.3]), np.array([0.2, 0.1, 0.1, 0.05, 0.3])
    changes = mean + sd * draws
    bound = mean + stats.t.ppf(0.92, 6) * sd / math.sqrt(7)
    assert bound[1] < -0.3 < bound[2] and bound[3] < -0.3, "the fourth would keep it, but is never asked"
    assert race.furthest(changes, -0.3, 0.08) == 2
    assert race.furthest(changes, bound[2] + 1e-9, 0.08) == 4 and race.furthest(changes, bound[2] - 1e-9, 0.08) == 2
    assert race.furthest(changes, -2.0, 0.08) == 0 and race.furthest(changes, 9.0, 0.08) == 5
    # a surer answer takes a smaller step
    assert race.furthest(changes, bound[1] + 1e-3, 0.08) == 2 and race.furthest(changes, bound[1] + 1e-3, 0.01) == 1


def test_a_walk_ends_over_its_limit_no_more_often_than_it_promises():
    """Schedules whose true change rises through the limit, with errors that they share in part."""
    draw = np.random.default_rng(11)
    true = np.linspace(-0.2, 0.1, 301)
    over = 0
    for _ in range(2000):
        shared = draw.standard_normal((6, 1)) * 0.05
        passed = race.furthest(true + shared + 0.002 * draw.standard_normal((6, 301)), 0.0, 0.1)
        over += passed > 0 and true[passed - 1] > 1e-12
    assert 0.05 < over / 2000 < 0.1 + 3 * math.sqrt(0.09 / 2000)


def test_what_is_left_to_gain_is_what_knowing_all_would_save_and_what_the_walk_keeps_free():
    known = race.estimate(made(time_sd=TIME_SD * 3, power_sd=POWER_SD * 3), 0.0)
    problem = known.problem
    found = race.outlook(known, 0.0, 7)
    share = 100 / problem.baseline_energy
    racing, three, nine, fewer = (each / share for each in (found.race, *(found.walk(n, 0.1) for n in (3, 9, 1))))
    # by brute force, with other draws: the price is the slope of the best energy around the limit
    hull = [race.chosen(problem, [slack])[0] for slack in np.linspace(-0.008, 0.03, 400)]
    points = {(problem.time[each].sum(), problem.energy[each].sum()) for each in hull}
    limit = problem.baseline_time
    price = min(
        ((e0 - e1) / (t1 - t0), (t0, t1))
        for (t0, e0), (t1, e1) in itertools.product(points, points)
        if t0 <= limit < t1
        and all(e0 + (e0 - e1) / (t1 - t0) * t0 <= e + (e0 - e1) / (t1 - t0) * t + 1e-9 for t, e in points)
    )[0]
    score = (problem.energy + price * problem.time).reshape(4, 6)
    option = score.argmin(1) + 6 * np.arange(4)
    draw = np.random.default_rng(99)
    lost = []
    for _ in range(4000):
        table = known.drawn(draw)
        true = table.energy + price * table.time
        lost.append((true[option] - true.reshape(4, 6).min(1)).sum())
    assert racing == pytest.approx(np.mean(lost), rel=0.25) and racing > 0
    sd = math.sqrt(
        sum(
            problem.time[6 * k] ** 2 * 2 * known.single[k] / count
            for k, count in enumerate([2, 1, 4, 1])
            if option[k] != 6 * k
        )
    )
    assert known.block_sd(option) == pytest.approx(sd)
    assert three == pytest.approx(price * stats.t.ppf(0.9, 2) * sd / math.sqrt(3), rel=0.02) and fewer == three
    assert nine == pytest.approx(price * stats.t.ppf(0.9, 8) * sd / 3, rel=0.02)
    # nothing binds, nothing is to be known
    certain = race.estimate(made(time_sd=TIME_SD / 1e5, power_sd=POWER_SD / 1e5), 0.0)
    assert race.outlook(certain, 10.0, 7)[:2] == pytest.approx((0, 0), abs=1e-9)
    assert race.outlook(certain, -0.5, 7) == (0, 0, 0), "no choice keeps it"


def left(racing: float, walking: float) -> dict:
    return {"race": racing, "walk": walking, "another_hour": racing}


def test_the_race_goes_on_while_it_may_gain_more_than_walking_and_half_of_the_budget_is_left():
    eager, sated = [left(0.2, 0.3), left(0.31, 0.3)], [left(0.2, 0.3), left(0.3, 0.3)]
    assert race.races_on(eager, 480, 70, 1000) and not race.races_on(sated, 480, 70, 1000)
    assert race.races_on(eager, 499, 70, 1000) and not race.races_on(eager, 500, 70, 1000), "half is spent"
    # a walk takes three blocks
    assert race.races_on(eager, 0, 70, 280) and not race.races_on(eager, 0, 70, 279)


def test_a_walk_measures_what_its_path_holds_beside_auto_and_nothing_of_targets_that_stay():
    path = np.array([[1, 6, 14, 18], [1, 6, 12, 18], [4, 6, 12, 18]])  # flat: the second and the fourth stay at auto
    wanted = race.compared(made(), path)
    assert np.flatnonzero(wanted).tolist() == [0, 1, 4, 12, 14]


def test_a_walk_has_shown_enough_where_a_hundredth_of_its_saving_is_left_to_gain():
    known = race.estimate(made(time_sd=TIME_SD / 1e3, power_sd=POWER_SD / 1e3), 0.05)
    problem = known.problem
    for slack in (0.0137, 0.05):
        [option] = race.chosen(problem, [slack])
        saving = 100 * (1 - problem.energy[option].sum() / problem.baseline_energy)
        found = race.outlook(known, slack, 7)
        assert found.saving == pytest.approx(saving) and saving > 2
        step = 0.0039 * saving / (stats.t.ppf(0.9, 5) / math.sqrt(6))
        just = found._replace(race=0.006 * saving, step=step)
        assert just.is_shown(6, 0.1) and not just.is_shown(5, 0.1)
        assert not just._replace(race=0.0062 * saving).is_shown(6, 0.1)
    # where nothing can be saved, a hundredth of a point
    nothing = race.Outlook(0.006, 0.0039 / (stats.t.ppf(0.9, 2) / math.sqrt(3)), 0.0)
    assert nothing.is_shown(3, 0.1) and not nothing._replace(race=0.0062).is_shown(3, 0.1)


def test_a_schedule_that_is_passed_but_saves_nothing_is_none():
    time = np.array([[-0.5, -0.2, 0.4], [-0.4, -0.3, 0.5], [-0.6, -0.1, 0.3]])
    energy = np.array([[0.3, -0.2, -5.0], [0.4, 0.1, -6.0], [0.2, -0.3, -4.0]])
    assert race.furthest(time, 0.1, 0.1) == 2 and race.passed(time, energy, 0.1, 0.1) == 2
    assert race.furthest(time, -0.15, 0.1) == 1 and race.passed(time, energy, -0.15, 0.1) == 0
    assert race.passed(time, energy, -3.0, 0.1) == 0


def test_another_hour_brings_all_of_the_race_or_what_it_adds_to_the_walk():
    known = race.estimate(made(time_sd=TIME_SD * 3, power_sd=POWER_SD * 3), 0.0)
    outlook = race.outlook(known, 0.0, 7)
    few, many, few_later, many_later = (outlook.walk(blocks, 0.1) for blocks in (4, 30, 4 + 2.5, 30 + 2.5))
    # part of a block counts for the error, not for the freedom
    assert few_later == pytest.approx(outlook.step * stats.t.ppf(0.9, 5) / math.sqrt(6.5))
    found = [outlook.left(blocks, 2.5, 0.1) for blocks in (4, 30)]
    assert [each["race"] for each in found] == [outlook.race] * 2
    assert [each["walk"] for each in found] == [few, many]
    hours = [max(outlook.race, few - few_later), max(outlook.race, many - many_later)]
    assert [each["another_hour"] for each in found] == pytest.approx(hours)
    assert outlook.race > many - many_later > 0
    # an hour of hundreds of blocks brings more to a walk than a race that has found nearly all
    sure = replace(known, time_variance=known.time_variance / 1e6, power_variance=known.power_variance / 1e6)
    other = race.outlook(sure, 0.0, 7).left(3, 400, 0.1)
    assert other["race"] < 0.1 * other["another_hour"] < 0.1 * other["walk"]


def test_an_estimate_needs_errors_and_counts():
    for name in ("n", "time_se", "energy_se"):
        with pytest.raises(ValueError, match="n, time_se and energy_se"):
            race.estimate(replace(made(), **{name: None}), 0.0)
