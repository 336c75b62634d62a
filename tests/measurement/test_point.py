"""A measured point: what the protocol promises of it, whatever the GPU."""

import statistics

import pytest

from kernel_dvfs.measurement import target
from kernel_dvfs.measurement.campaign import Bench
from kernel_dvfs.measurement.point import reached_of, summary
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError

GEMM = MeasurementTarget("kernel", "forward_fc_gemm")
RESIDUAL = MeasurementTarget("kernel", "forward_attention_residual")


def test_measuring_again_gives_the_same_numbers(setup):
    assert Bench(setup, GEMM).point(Pair(1470, 9251)) == Bench(setup, GEMM).point(Pair(1470, 9251))


def test_another_repeat_campaign_or_seed_gives_others(setup, setup_of):
    bench = Bench(setup, GEMM)
    seeded = Bench(setup_of(seed=2), GEMM)
    times = {
        bench.point(BASELINE).get("summary")["time_us"],
        bench.point(BASELINE, repeat=1)["summary"]["time_us"],
        bench.point(BASELINE, campaign="fresh-0")["summary"]["time_us"],
        seeded.point(BASELINE)["summary"]["time_us"],
    }
    assert len(times) == 4


def test_measurements_scatter_around_the_truth(setup):
    truth = Bench(setup, RESIDUAL, exact=True).point(BASELINE)["summary"]
    bench = Bench(setup, RESIDUAL)
    measured = [bench.point(BASELINE, campaign=f"fresh-{i}")["summary"] for i in range(60)]
    for field in ("time_us", "energy_mj"):
        values = [each[field] / truth[field] - 1 for each in measured]
        assert abs(statistics.mean(values)) < 4 * statistics.stdev(values) / 60**0.5
        assert 0.001 < statistics.stdev(values) < 0.01


def test_a_simulated_device_tells_its_limit_in_mw_and_its_counter_in_ms(setup):
    """340 W, 100 ms, 4.1 ms."""
    device = Bench(setup, GEMM).device
    told = [device[name] for name in ("power_limit_mw", "counter_period_ms", "counter_read_ms")]
    assert told == [353_000, pytest.approx(100), pytest.approx(4.1)]


def test_every_point_starts_from_the_same_hot_board(setup):
    bench = Bench(setup, GEMM)
    first = bench.point(Pair(1470, 9251))
    bench.point(Pair(210, 405))
    assert bench.point(Pair(1470, 9251)) == first
    assert first["windows"][0]["temp_c"][0] > 50


def test_auto_under_the_cap_is_ok_and_says_so(setup_of):
    hungry = setup_of(gpu_overrides={"energy_pj": {"tensor_bf16_flop": 1.0}})
    point = Bench(hungry, GEMM).point(BASELINE)
    assert point["verdict"] == "ok" and point["reasons"] == ["power cap active"]
    assert point["request"]["policy"] == AUTO
    assert all(window["cap_ns"] > 0 for window in point["windows"])


def test_a_locked_clock_that_the_cap_takes_away_is_throttled_and_kept(setup_of):
    hungry = setup_of(gpu_overrides={"energy_pj": {"tensor_bf16_flop": 2.2}})
    point = Bench(hungry, GEMM).point(Pair(1890, 9251))
    assert point["verdict"] == "throttled"
    assert point["reached"]["core_mhz"] < 1800
    assert "asked 1890 MHz" in point["reasons"][0]


def test_a_folded_memory_clock_is_flagged_with_the_pair_that_it_is(setup):
    point = Bench(setup, RESIDUAL).point(Pair(1050, 405))
    assert point["verdict"] == "not_reached"
    assert point["reached"]["alias_of"] == "1050-810"
    same = Bench(setup, RESIDUAL, exact=True)
    assert same.point(Pair(1050, 405))["summary"] == same.point(Pair(1050, 810))["summary"]


def test_energy_is_power_times_time_of_the_same_windows(setup):
    point = Bench(setup, RESIDUAL).point(Pair(1470, 9251))
    energies = [w["energy_mj"] / w["duration_s"] * w["time_us"] * 1e-6 for w in point["windows"]]
    assert point["summary"]["energy_mj"] == pytest.approx(statistics.mean(energies))
    assert point["summary"]["energy_sd_mj"] == pytest.approx(statistics.stdev(energies))
    assert point["summary"]["n"] == len(point["windows"]) == 3


def test_a_summary_is_of_unequal_windows():
    """Energy of one run is the window's power times the time of a run, whatever the window's length."""
    numbers = ((2.03, 534.1, 412.7), (1.97, 529.6, 409.2), (2.11, 540.3, 431.9), (2.5, 611.0, 401.1))
    windows = [dict(zip(("duration_s", "energy_mj", "time_us"), each)) for each in numbers]
    power_mw = [energy / duration for duration, energy, _ in numbers]
    time_us = [time for *_, time in numbers]
    energy_mj = [power * time * 1e-6 for power, time in zip(power_mw, time_us)]
    expected = {"n": 4, "time_us": statistics.mean(time_us), "time_sd_us": statistics.stdev(time_us)}
    expected |= {"energy_mj": statistics.mean(energy_mj), "energy_sd_mj": statistics.stdev(energy_mj)}
    assert summary(windows) == pytest.approx(expected | {"power_mw": statistics.mean(power_mw)}, rel=1e-12)
    two = summary(windows[:2])
    assert two["time_sd_us"] == pytest.approx(statistics.stdev(time_us[:2]))
    alone = summary(windows[:1])
    assert (alone["n"], alone["time_sd_us"], alone["energy_sd_mj"]) == (1, None, None)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_reached_clock_is_the_median_of_the_windows_typical_ones(count):
    core, mem = (1410.0, 1395.0, 1515.0, 1290.0, 1402.0)[:count], (810.0, 405.0, 9251.0, 5001.0, 9251.0)[:count]
    windows = [{"core_mhz": [1.0, one, 3000.0], "mem_mhz": [2.0, other, 2e4]} for one, other in zip(core, mem)]
    assert reached_of(windows) == {"core_mhz": statistics.median(core), "mem_mhz": statistics.median(mem)}


def test_windows_are_as_long_as_asked_and_count_their_launches(setup):
    for window in Bench(setup, GEMM).point(BASELINE)["windows"]:
        assert 5.0 - 0.005 <= window["duration_s"] < 5.2
        assert window["launches"] == pytest.approx(window["duration_s"] / (window["time_us"] * 1e-6), abs=1)


def test_a_window_shorter_than_the_pass_still_counts_one_run(setup):
    short = setup.measurement | {"window_s": 1e-3}
    bench = Bench(type(setup)(*setup[:-1], short), MeasurementTarget("pass", "forward"), exact=True)
    windows = bench.point(BASELINE)["windows"]
    assert {window["launches"] for window in windows} == {1}
    assert all(window["duration_s"] < window["time_us"] * 1e-6 for window in windows)


def test_a_pass_is_about_the_sum_of_its_rows(setup):
    """Not exactly: the cap acts on the mean power of the pass, so its capped rows may run a little faster."""
    pair = Pair(1260, 9251)
    whole = Bench(setup, MeasurementTarget("pass", "forward"), exact=True).point(pair)["summary"]
    rows = 0.0
    for name, repeat in setup.targets["pass"]["forward"]:
        rows += repeat * Bench(setup, MeasurementTarget("kernel", name), exact=True).point(pair)["summary"]["time_us"]
    assert whole["time_us"] == pytest.approx(rows, rel=1e-9)


def test_clocks_are_released_even_if_the_window_fails(setup):
    bench = Bench(setup, GEMM)
    gpu = bench._hot
    with pytest.raises(RuntimeError), gpu.locked(Pair(1470, 9251), ("key",)):
        assert gpu.pair == Pair(1470, 9251)
        raise RuntimeError
    assert gpu.pair == BASELINE


def test_a_comparison_is_auto_chosen_chosen_auto(setup):
    comparison = Bench(setup, GEMM).compare(Pair(1470, 9251), 3)
    policies = [point["request"]["policy"] for point in comparison["points"]]
    assert policies == [AUTO, "lock", "lock", AUTO]
    assert comparison["repeat"] == 3
    times = [point["summary"]["time_us"] for point in comparison["points"]]
    assert len(set(times)) == 4, "each is a measurement of its own"


def test_an_unknown_target_is_refused_with_those_that_exist(setup):
    with pytest.raises(InputError, match="forward_gelu"):
        target.parse(setup, "kernel/forward_gelo")
    assert target.parse(setup, "forward_gelu") == MeasurementTarget("kernel", "forward_gelu")
