"""Identical launches are pooled unless their data say that they differ, and the schedule says which were."""

import numpy as np
import pytest
from scipy import stats

from kernel_dvfs.choice.agreement import apart
from kernel_dvfs.choice.schedule import choose
from profiles import profile

PAIRS = [(None, None), *((float(core), 9251.0) for core in range(300, 2100, 100))]


def measured(factor=1.0, noise=0.002, seed=1):
    """Three launches of one kernel, the third `factor` times as slow."""
    draw = np.random.default_rng(seed)
    rows = []
    for name, own in (("a", 1.0), ("b", 1.0), ("c", factor)):
        for number, (core, mem) in enumerate(PAIRS):
            time, energy = np.exp(noise * draw.standard_normal(2))
            rows.append((name, 1, core, mem, own * (1 + 0.1 * number) * time, energy, {"replicate_group": "g"}))
    return profile(rows)


@pytest.mark.parametrize("seed", range(20))
def test_launches_that_differ_by_chance_alone_are_pooled(seed):
    schedule = choose(measured(noise=0.02, seed=seed))
    assert schedule["pooled"] == [["a", "b", "c"]] and schedule["apart"] == []


def test_a_launch_that_is_slower_at_every_pair_stands_apart_and_is_named():
    schedule = choose(measured(factor=1.02))
    assert schedule["pooled"] == [["a", "b"]]
    (apart,) = schedule["apart"]
    assert (apart["target"], apart["group"]) == ("c", "g")
    assert apart["time_percent"] == pytest.approx(2, abs=0.3)


def test_a_difference_too_small_to_matter_is_pooled_all_the_same():
    assert choose(measured(factor=1.002, noise=1e-5))["pooled"] == [["a", "b", "c"]]


# unequal, with mean 0 and standard deviation 1 over the keys
SPREAD = stats.zscore([0.3, -1.7, 0.9, 2.2, -0.4, -1.1, 0.6], ddof=1)
LEVEL = np.array([1.3, 2.9, 0.7, 5.1, 3.3, 1.9, 0.2])


def members(mean, sd, others=2):
    """{target: {key: value}}: the last one off from all the others by exp(mean + sd x SPREAD)."""
    same = {f"same{number}": dict(enumerate(LEVEL)) for number in range(others)}
    return same | {"odd": dict(enumerate(LEVEL * np.exp(mean + sd * SPREAD)))}


@pytest.mark.parametrize("quantity", ["time", "energy"])
@pytest.mark.parametrize(("others", "more"), [(1, 0), (2, 0), (2, 3), (4, 0)])
def test_a_difference_counts_beyond_students_t_of_all_tests_together(others, more, quantity):
    """One chance in a hundred, shared by two tests a member of every group of several, two-sided."""
    groups = {"g": [*(f"same{number}" for number in range(others)), "odd"], "alone": ["z"]}
    equal = members(0.0, 0.0, others) | {"z": {0: 1.0}}
    if more:
        groups["h"] = [f"h{number}" for number in range(more)]
        equal |= {name: dict(enumerate(LEVEL)) for name in groups["h"]}
    tests = 2 * (others + 1 + more)
    # the others differ from their mean by half of it at most, which is too little to matter
    mean, needed = -0.009, stats.t.ppf(1 - 0.01 / tests / 2, len(LEVEL) - 1)
    for share, is_apart in ((0.999, False), (1.001, True)):
        differs = equal | members(mean, abs(mean) * np.sqrt(len(LEVEL)) / (share * needed), others)
        found = apart(groups, *((differs, equal) if quantity == "time" else (equal, differs)))
        assert len(found) == is_apart
        for each in found:
            percents = {"time": each.time_percent, "energy": each.energy_percent}
            # of two either may be the odd one
            sign = -1 if others == 1 and each.target == "same0" else 1
            assert each.group == "g" and (each.target == "odd" or sign == -1)
            assert percents.pop(quantity) == pytest.approx(100 * np.expm1(sign * mean))
            assert list(percents.values()) == pytest.approx([0], abs=1e-12)


def test_a_difference_that_is_certain_counts_above_half_a_percent_and_only_over_three_common_keys():
    groups = {"g": ["same0", "same1", "odd"]}
    for mean, is_apart in ((0.00499, False), (0.00501, True)):
        assert bool(apart(groups, members(mean, 1e-7), members(0, 0))) is is_apart
    for keys, is_apart in ((2, False), (3, True)):
        few = members(0.1, 1e-7)
        few["same1"] = {key: few["same1"][key] for key in range(keys)}
        assert bool(apart(groups, few, members(0, 0))) is is_apart


def test_after_one_is_set_apart_the_others_are_looked_at_again():
    values = members(0.3, 1e-3) | {"odd": members(0.9, 1e-3)["odd"], "same1": members(0.3, 1e-3)["odd"]}
    found = apart({"g": ["same0", "same1", "odd"]}, values, values)
    assert len(found) == 2 and found[0].target == "odd"
    # 0.9 against the mean of 0 and 0.3
    assert found[0].time_percent == pytest.approx(100 * np.expm1(0.75), rel=1e-2)
