"""Identical launches are pooled unless their data say that they differ, and the schedule says which were."""

import numpy as np
import pytest

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
