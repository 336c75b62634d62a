"""What another round of measuring is expected to gain, and what could be seen of it: answers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from kernel_dvfs.choice.problem import Problem
from kernel_dvfs.search.refine import Contest, contest, shortlist

# three targets, auto first. At 0.8 s more than auto's 4 s the second takes its 0.6 s, which save 10 J; the next best
# is 4.5 J for 0.5 s of the third, which no longer fit: so a second is worth 9 J
TIME_S = [[1.0, 1.5, 1.4], [2.0, 2.6, 2.5], [1.0, 1.5]]
ENERGY_J = [[10.0, 6.2, 6.9], [30.0, 20.0, 21.9], [5.0, 0.5]]
TIME_SE_S = np.array([0.02, 0.03, 0.05, 0.04, 0.07, 0.01, 0.03, 0.06])
ENERGY_SE_J = np.array([0.3, 0.2, 0.4, 0.9, 0.8, 0.5, 0.2, 0.25])
N = np.array([10, 1, 3, 7, 2, 4, 5, 6])
WINNER, RUNNER_UP, BASELINE = [0, 4, 6], [2, 5, 7], [0, 3, 6]
SLACK, PRICE_W = 0.2, 9.0
MADE = replace(Problem.of(TIME_S, ENERGY_J, [0, 0, 0]), time_se=TIME_SE_S, energy_se=ENERGY_SE_J, n=N)


def score_variance(option, price_w):
    """Of energy + price x time, where energy is power x time and the errors of power and time are independent."""
    power_w = MADE.energy[option] / MADE.time[option]
    of_power = ENERGY_SE_J[option] ** 2 - (power_w * TIME_SE_S[option]) ** 2
    return (power_w + price_w) ** 2 * TIME_SE_S[option] ** 2 + of_power


def expected_gain(one, other, price_w):
    """Energy, J: what seeing both once more saves, by integrating over what the difference may then be."""
    moved = math.sqrt(sum(score_variance(option, price_w) / (1 + N[option]) for option in (one, other)))
    distance = (MADE.energy + price_w * MADE.time)[[other, one]] @ [1, -1]
    found = stats.norm(distance, moved)
    return integrate.quad(lambda seen: -seen * found.pdf(seen), distance - 12 * moved, 0)[0]


def test_another_round_gains_what_the_next_measurements_may_turn_round():
    found = contest(MADE, SLACK, 0)
    assert found.winner.tolist() == WINNER and found.runner_up.tolist() == RUNNER_UP
    gain_j = sum(expected_gain(one, other, PRICE_W) for one, other in zip(WINNER, RUNNER_UP))
    assert found.gain_percent == pytest.approx(100 * gain_j / 45, rel=1e-6)
    # what could be seen: the target that is moved, less its auto
    error_j = math.sqrt(score_variance(4, PRICE_W) + score_variance(3, PRICE_W))
    assert found.error_percent == pytest.approx(100 * error_j / 45, rel=1e-6)


def test_where_all_stay_at_auto_the_runners_up_say_what_could_be_seen():
    found = contest(MADE, 0.0, 0)
    assert found.winner.tolist() == BASELINE and found.runner_up.tolist() == [2, 4, 7]
    # nothing is slower than auto for free: the price is that of the steepest first step, 10 J in 0.6 s
    price_w = 10 / 0.6
    gain_j = sum(expected_gain(one, other, price_w) for one, other in zip(BASELINE, [2, 4, 7]))
    variance = sum(score_variance(option, price_w) for option in (*BASELINE, 2, 4, 7))
    assert found.gain_percent == pytest.approx(100 * gain_j / 45, rel=1e-6)
    assert found.error_percent == pytest.approx(100 * math.sqrt(variance) / 45, rel=1e-6)


def test_without_counts_each_was_measured_once_and_what_is_known_for_certain_gains_nothing():
    once, uncounted = (contest(replace(MADE, n=n), SLACK, 0) for n in (np.ones(8), None))
    assert uncounted.gain_percent == once.gain_percent > contest(MADE, SLACK, 0).gain_percent
    certain = replace(MADE, time_se=np.zeros(8), energy_se=np.zeros(8))
    assert (contest(certain, SLACK, 0).gain_percent, contest(certain, SLACK, 0).error_percent) == (0, 0)
    alone = replace(Problem.of([[1.0]], [[1.0]], [0]), time_se=np.ones(1), energy_se=np.ones(1))
    assert contest(alone, 0.0, 0).gain_percent == 0, "it has no second option"


def test_no_choice_within_the_limit_is_no_contest_and_unknown_errors_are_refused():
    assert contest(MADE, -0.5, 0) is None and shortlist(MADE, -0.5, 0) is None
    with pytest.raises(ValueError, match="standard errors are unknown"):
        contest(replace(MADE, energy_se=None), SLACK, 0)


def test_a_choice_has_settled_when_another_round_is_expected_to_gain_no_more_than_could_be_seen():
    found = Contest(np.zeros(1, int), np.zeros(1, int), gain_percent=0.04, error_percent=0.16)
    assert found.has_settled(0.25) and not found.has_settled(0.2499)


def test_a_check_is_of_what_no_margin_the_margin_and_twice_the_margin_choose():
    """Saving 3 % of time with a standard error of 5, 1.5 %, and 20 % with one of 1 %, at 1.645 standard errors."""
    made = Problem.of([[1.0, 0.97, 0.97, 0.8, 0.8]], [[1.0, 0.8, 0.81, 0.9, 0.95]], [0])
    made = replace(made, time_se=np.array([0.0, 0.05, 0.015, 0.01, 0.01]), energy_se=np.zeros(5))
    assert shortlist(made, 0, 1.645).tolist() == [1, 2, 3]
    assert shortlist(made, 0, 0.0).tolist() == [1]
