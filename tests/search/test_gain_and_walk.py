"""The price of time, expected gain, few pairs, exact paths, and what a walk shows: by hand and by brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from kernel_dvfs.search import gain, walk

# three targets, percent of an iteration; the first pair is auto
TIME = np.array([[50.0, 49.5, 51.0, 54.0, 60.0], [30.0, 30.6, 30.2, 31.0, 33.0], [20.0, 20.1, 20.3, 21.5, 20.05]])
ENERGY = np.array([[55.0, 54.0, 50.0, 46.5, 45.0], [27.0, 27.4, 25.8, 25.1, 24.6], [18.0, 18.2, 17.1, 16.6, 17.7]])
LOCKED = np.array([False, True, True, True, True])


def best(limit, time=TIME, energy=ENERGY, pairs=(1, 2, 3, 4)):
    """By brute force: (energy, choice) at a time limit; None where nothing keeps it."""
    row = np.arange(len(time))
    keeps = [each for each in itertools.product(pairs, repeat=len(time)) if time[row, each].sum() <= limit + 1e-9]
    found = [(energy[row, each].sum(), each) for each in keeps]
    return min(found) if found else None


@pytest.mark.parametrize("limit", [99.9, 100.0, 100.8, 102.0, 104.0])
def test_at_its_price_a_limit_is_kept_and_at_a_lower_one_it_is_not(limit):
    cost = gain.price(TIME, ENERGY, LOCKED, limit)
    row = np.arange(3)

    def total(price):
        return TIME[row, 1 + (ENERGY + price * TIME)[:, 1:].argmin(1)].sum()

    assert total(cost) <= limit < total(cost - 1e-4)


def test_the_price_of_a_loose_limit_is_none_and_of_an_impossible_one_the_dearest():
    assert gain.price(TIME, ENERGY, LOCKED, 130.0) == 0
    assert gain.price(TIME, ENERGY, LOCKED, 90.0) == pytest.approx(64)


def test_expected_gain_is_what_draws_save_beyond_the_best_that_was_seen():
    draw = np.random.default_rng(8)
    times, energies = TIME + draw.normal(0, 0.4, (5, 3, 5)), ENERGY + draw.normal(0, 0.9, (5, 3, 5))
    seen = np.array([True, True, False, True, False])
    usable = seen & LOCKED
    found = gain.expected_gain(TIME, ENERGY, (times, energies), usable, 0.7)
    for pair in (2, 4):
        saved = 0.0
        for target in range(3):
            known = min(ENERGY[target, c] + 0.7 * TIME[target, c] for c in (1, 3))
            for t, e in zip(times, energies):
                saved += max(0.0, known - e[target, pair] - 0.7 * t[target, pair]) / 5
        assert found[pair] == pytest.approx(saved)
    assert (found[usable] == 0).all()


def test_few_pairs_hold_all_but_a_hundredth_of_the_saving():
    draw = np.random.default_rng(3)
    time, energy = draw.uniform(5, 6, (9, 13)), draw.uniform(4, 7, (9, 13))
    energy[:, 0] = 8.0
    usable = np.arange(13) > 0
    usable[4] = False
    costs = [0.3, 0.6, 1.2]
    found = gain.few_pairs(time, energy, usable, costs)

    def total(pairs):
        return sum((energy + cost * time)[:, pairs].min(1).sum() for cost in costs)

    whole, auto = total(np.flatnonzero(usable)), total([0])
    assert 4 not in found and 0 not in found and len(found) <= gain.FEW
    assert total(found) - whole <= 0.01 * (auto - whole) or len(found) == gain.FEW
    assert total(found[:-1]) - whole > 0.01 * (auto - whole)
    # greedy: each is the best to add to those before
    for place, pair in enumerate(found):
        others = [c for c in np.flatnonzero(usable) if c not in found[:place]]
        assert pair == min(others, key=lambda c, before=found[:place]: total([*before, c]))


def test_a_path_holds_the_exact_choices_from_the_fastest_on():
    path = walk.path(TIME, ENERGY, [1, 2, 3, 4], [0.0, 2.0])
    row = np.arange(3)
    times, energies = (np.array([table[row, own].sum() for own in path]) for table in (TIME, ENERGY))
    assert (np.diff(times) > 0).all() and (np.diff(energies) < 0).all()
    assert times[0] == pytest.approx(TIME[:, 1:].min(1).sum())
    for limit in (-0.2, 0.0, 0.7, 2.0):
        kept = np.flatnonzero(times <= 100 + limit + 1e-9)[-1]
        assert energies[kept] == pytest.approx(best(100 + limit)[0])
    # only of the pairs that may be chosen
    assert set(np.unique(walk.path(TIME, ENERGY, [2, 4], [2.0]))) <= {2, 4}
    assert walk.path(TIME, ENERGY, [], [0.0]).shape == (0, 3)


CHANGES = np.array(
    [
        [-0.91, -0.32, -0.11, 0.02, -0.40],
        [-0.87, -0.41, -0.02, 0.09, -0.37],
        [-0.95, -0.36, -0.17, -0.03, -0.45],
        [-0.83, -0.30, 0.06, 0.11, -0.33],
        [-0.90, -0.35, -0.09, 0.05, -0.41],
    ]
)


@pytest.mark.parametrize("over", [0.1, 0.03])
@pytest.mark.parametrize("limit", [-1.0, -0.3, 0.0, 0.08, 0.2])
def test_a_step_is_taken_while_the_bound_keeps_the_limit_and_none_beyond_the_first_that_does_not(limit, over):
    blocks = len(CHANGES)
    passed = 0
    for column in CHANGES.T:
        error = np.std(column, ddof=1) / math.sqrt(blocks)
        if column.mean() + stats.t.ppf(1 - over, blocks - 1) * error > limit:
            break
        passed += 1
    assert walk.furthest(CHANGES, limit, over) == passed


def test_the_last_schedule_is_no_way_round_one_that_failed():
    # the fifth keeps every limit of these by itself
    assert walk.furthest(CHANGES, -0.3, 0.1) < 5
    assert walk.furthest(CHANGES[:, [4]], -0.3, 0.1) == 1


def test_fewer_than_four_blocks_show_nothing():
    assert walk.furthest(CHANGES[:3] - 9, 0.0, 0.1) == 0
    assert walk.furthest(CHANGES[:4] - 9, 0.0, 0.1) == 5
    assert walk.furthest(np.zeros((0, 5)), 0.0, 0.1) == 0


def test_a_walk_is_over_its_limit_as_seldom_as_it_says():
    """Schedules at 0, 0.1, ... of a standard deviation below and beyond the limit, four blocks, a common error."""
    draw, over = np.random.default_rng(5), 0
    mean = np.arange(-8, 9) * 0.1
    for _ in range(2000):
        changes = mean + draw.standard_normal((4, 1)) + 0.1 * draw.standard_normal((4, len(mean)))
        over += walk.furthest(changes, 0.05, 0.1) > 9
    assert over / 2000 == pytest.approx(0.1, abs=0.025)


def test_a_block_is_worth_what_a_smaller_margin_would_let_pass():
    """By hand: means and scatter stay, the bound falls with the blocks, and as many are looked ahead as pay best."""
    energy = np.array([-1.0, -2.2, -4.0, -4.9, -5.0])
    mean, own = CHANGES.mean(0), CHANGES.std(0, ddof=1)
    sd, blocks = np.maximum(own, np.median(own)), len(CHANGES)
    for limit in (-0.35, -0.02, 0.02, 0.1):

        def saved(count, spread, limit=limit):
            late = mean + stats.t.ppf(0.9, count - 1) / math.sqrt(count) * spread > limit
            passed = int(late.argmax()) if late.any() else len(mean)
            return energy[passed - 1] if passed else 0.0

        now = saved(blocks, own)
        ahead = [(now - saved(blocks + more, sd)) / more for more in range(1, walk.AHEAD * blocks + 1)]
        assert walk.worth_of_block(CHANGES, energy, limit, 0.1) == pytest.approx(max(0, *ahead))
    assert walk.worth_of_block(CHANGES, energy, -0.02, 0.1) > 0
    # where no schedule keeps the limit, or all do, no block will help
    assert walk.worth_of_block(CHANGES, energy, -2.0, 0.1) == walk.worth_of_block(CHANGES, energy, 2.0, 0.1) == 0
    assert walk.worth_of_block(CHANGES[:3], energy, -0.02, 0.1) == 0


def test_what_saves_nothing_is_not_worth_another_block():
    assert walk.worth_of_block(CHANGES, np.full(5, 0.7), -0.02, 0.1) == 0
