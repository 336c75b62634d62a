"""When a point has enough windows."""

import statistics

import numpy as np
import pytest
from scipy import stats

from kernel_dvfs.measurement.stopping import Fixed, UntilSteady, interval_percent, rule


def windows_until_done(enough, energies):
    for count in range(len(energies) + 1):
        if enough.is_finished(energies[:count]):
            return count
    raise AssertionError("never")


def test_a_fixed_number_is_that_number():
    assert windows_until_done(Fixed(3), [1.0] * 9) == 3


def test_quiet_windows_stop_at_the_least_number():
    enough = UntilSteady(3, 8, 1.0)
    assert windows_until_done(enough, [100.0, 100.01, 99.99] + [1.0] * 9) == 3 and enough.unstable == ""


def test_noise_that_shrinks_gets_more_windows_until_it_is_small_enough():
    energies = [100.0, 103.0, 101.0, 101.5, 101.4, 101.4, 101.4, 101.4, 101.4, 101.4]
    enough = UntilSteady(3, 10, 1.0)
    count = windows_until_done(enough, energies)
    assert 3 < count < 10 and interval_percent(energies[:count]) <= 1.0 and enough.unstable == ""


def test_noise_that_does_not_shrink_is_unstable_before_the_limit():
    enough = UntilSteady(2, 50, 1.0)
    assert windows_until_done(enough, [100.0, 101.0, 150.0] + [100.0] * 50) == 3
    assert "after 3 windows" in enough.unstable


def test_at_the_limit_noise_is_unstable():
    enough = UntilSteady(2, 4, 0.01)
    assert windows_until_done(enough, [100.0, 104.0, 102.0, 102.1, 102.0]) == 4
    assert "wanted: 0.01 %" in enough.unstable


def test_the_interval_is_that_of_student():
    assert interval_percent([99.0, 101.0]) == pytest.approx(12.706, rel=1e-3)
    assert interval_percent([99.0, 100.0, 101.0]) == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    # eleven values 95 to 105: mean 100, standard deviation 11**0.5; t with ten degrees of freedom is 2.228, far from 2
    assert interval_percent([float(value) for value in range(95, 106)]) == pytest.approx(2.2281, rel=1e-4)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 9, 10, 11, 12, 13, 17, 30, 31, 120, 1000])
def test_the_interval_is_scipys_whatever_the_number_of_windows(count):
    """Unequal energies, in mJ: the half width of Student's interval of their mean, percent of it."""
    energies = list(np.random.default_rng(count).normal(734.2, 3.1, count))
    mean, sem = statistics.fmean(energies), stats.sem(energies)
    low, high = stats.t.interval(0.95, count - 1, loc=mean, scale=sem)
    assert interval_percent(energies) == pytest.approx(100 * (high - low) / 2 / mean, rel=1e-9)


@pytest.mark.parametrize("count", [4, 11, 12])
def test_a_point_is_done_where_its_interval_is_as_narrow_as_wanted_and_not_before(count):
    """The last window narrows the interval to the border; where a hair less is wanted, it stays unstable."""
    energies = [512.0 + 9.0 * (-1) ** number / (1 + number) for number in range(count)]
    border = interval_percent(energies)
    assert all(interval_percent(energies[:fewer]) > 1.001 * border for fewer in range(2, count))
    enough = UntilSteady(2, count, border)
    assert windows_until_done(enough, energies) == count and enough.unstable == ""
    enough = UntilSteady(2, count, 0.999 * border)
    assert windows_until_done(enough, energies) == count and f"after {count} windows" in enough.unstable
    enough = UntilSteady(2, count + 1, 0.999 * border)
    assert not any(enough.is_finished(energies[:fewer]) for fewer in range(count + 1)), "one more may do"


def test_an_interval_that_stays_as_wide_has_not_shrunk():
    enough = UntilSteady(2, 9, 1e-9)
    enough.is_finished([1.0, 3.0])
    assert enough.is_finished([1.0, 3.0]) and enough.unstable


def test_the_rule_follows_the_settings():
    assert isinstance(rule({"windows": 3}), Fixed)
    assert isinstance(rule({"windows": 3, "max_windows": 6, "energy_ci_percent": 1}), UntilSteady)
    assert isinstance(rule({"windows": 1, "max_windows": 1, "energy_ci_percent": 1}), Fixed)
    # the larger of both numbers is the limit
    few = rule({"windows": 4, "max_windows": 2, "energy_ci_percent": 1e-9})
    assert windows_until_done(few, [100.0, 104.0, 102.0, 102.1, 102.0]) == 4 and "wanted: 1e-09 %" in few.unstable
    assert windows_until_done(rule({"windows": 1, "max_windows": 2, "energy_ci_percent": 50}), [1.0, 1.0]) == 2
    two = rule({"windows": 1, "max_windows": 2, "energy_ci_percent": 1e-9})
    assert windows_until_done(two, [100.0, 104.0, 102.0]) == 2 and "after 2 windows" in two.unstable
