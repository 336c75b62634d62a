"""Clocks per kernel with changes that take time: dynamic programming against trying everything, and its limits."""

import itertools

import numpy as np
import pytest

from kernel_dvfs.pipeline.curve import curve_of, options_of
from kernel_dvfs.pipeline.slow_changes import cheapest, switched_kernel_level
from kernel_dvfs.pipeline.stages_from_kernels import kernel_level, launches, pass_level, read_kernels
from kernel_dvfs.workload.launch_order import launch_order

STAGES, BLOCKING_W = 4, 160.0


@pytest.fixture(scope="module")
def kernels(kernels_path):
    return read_kernels(kernels_path)


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_clocks_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    weight, change = rng.uniform(0, 1, (5, 3)), float(rng.choice([0.0, 0.1, 0.5, 5.0]))

    def price(choice):
        return weight[np.arange(5), list(choice)].sum() + change * np.count_nonzero(np.diff(choice))

    best = min(price(choice) for choice in itertools.product(range(3), repeat=5))
    assert price(cheapest(weight, change)) == pytest.approx(best)


def test_a_layer_is_launched_kernel_by_kernel_and_then_again():
    assert launch_order([("a", 1), ("b", 2), ("c", 2), ("d", 1)]) == ["a", "b", "c", "b", "c", "d"]


def test_slower_changes_leave_less_and_never_less_than_one_clock(kernels):
    profiles = [kernel_level(kernels, STAGES, BLOCKING_W)]
    profiles += [switched_kernel_level(kernels, STAGES, BLOCKING_W, latency_s) for latency_s in (0.0, 1e-5, 1e-3)]
    profiles.append(pass_level(kernels, STAGES))
    for key in launches(kernels, STAGES):
        curves = [curve_of(options_of(own.time_s, own.energy_j, BLOCKING_W)) for own in (p.of(*key) for p in profiles)]
        times = np.linspace(max(curve.ticks[0] for curve in curves), min(curve.ticks[-1] for curve in curves), 50)
        costs = [np.interp(times, curve.ticks, curve.cost_j) for curve in curves]
        tolerance = 3e-3 * abs(costs[-1]).max()
        for better, worse in itertools.pairwise(costs):
            assert (better <= worse + tolerance).all()
        # where nothing can change in time, one clock it is
        assert costs[-2] == pytest.approx(costs[-1], abs=tolerance)


def test_changes_that_take_no_time_leave_nearly_all_that_kernels_add(kernels):
    best, passes = kernel_level(kernels, STAGES, BLOCKING_W), pass_level(kernels, STAGES)
    free = switched_kernel_level(kernels, STAGES, BLOCKING_W, 1e-12)
    for key in launches(kernels, STAGES):
        settings = [each.of(*key) for each in (best, free, passes)]
        curves = [curve_of(options_of(own.time_s, own.energy_j, BLOCKING_W)) for own in settings]
        times = np.linspace(max(curve.ticks[0] for curve in curves), min(curve.ticks[-1] for curve in curves), 50)
        least, found, one = (np.interp(times, curve.ticks, curve.cost_j) for curve in curves)
        assert (found - least).max() <= 0.1 * (one - least).max(), key


def test_an_option_counts_its_changes(kernels):
    latency_s = 1e-5
    made = switched_kernel_level(kernels, STAGES, BLOCKING_W, latency_s)
    key = (1, "backward")
    own, names = made.of(*key), launch_order(launches(kernels, STAGES)[key])
    row_of = {str(tuple(None if mhz != mhz else mhz for mhz in pair)): at for at, pair in enumerate(kernels.pairs)}
    for option in range(len(own.time_s)):
        clocks = made.kernel_clocks[key].at(option)
        time_s, now = (len(clocks) - 1) * latency_s, None
        for place, name in enumerate(names):
            now = clocks.get(f"{place}:{name}", now)
            time_s += kernels.time_s[name][row_of[str(now)]]
        assert own.time_s[option] == pytest.approx(time_s)
