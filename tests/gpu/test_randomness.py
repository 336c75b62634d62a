"""Draws, noise, the energy counter and switching latency: seeded, keyed, and of the size the spec says."""

import statistics

import pytest

from kernel_dvfs.gpu import noise as draws
from kernel_dvfs.gpu.clocks import AUTO, Pair
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.noise import Key, factors, latency_s, read_window
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.measurement.simulated import SimulatedGpu

TI = resolve("rtx_3080_ti")
PAIR = (1470, 9251)


def test_a_draw_depends_on_its_key_alone():
    assert draws.uniform(1, "a") == draws.uniform(1, "a")
    assert draws.uniform(1, "a") != draws.uniform(2, "a") != draws.uniform(2, "b")


def test_draws_are_uniform_and_normal():
    uniform = [draws.uniform("u", i) for i in range(4000)]
    assert abs(statistics.mean(uniform) - 0.5) < 0.02 and abs(statistics.pstdev(uniform) - 0.2887) < 0.01
    normal = [draws.normal("n", i) for i in range(4000)]
    assert abs(statistics.mean(normal)) < 0.05 and abs(statistics.pstdev(normal) - 1) < 0.04
    neighbours = statistics.correlation(normal[:-1], normal[1:])
    assert abs(neighbours) < 0.05


def scatter(launch_s, field):
    noise = TI["noise"] | {"offset_sd": {"governed": 0.3, "locked": 0.0}}
    key = Key("sweep", "w", "kernel/k", 0)
    got = [factors(noise, 1, key, PAIR, number, launch_s, is_governed=False)[field] for number in range(1500)]
    return statistics.pstdev(got)


def test_time_scatters_as_measured_for_each_length_of_launch():
    for launch_s, sd in ((10e-6, 0.018), (50e-6, 0.005), (5e-4, 0.0013), (5e-3, 0.001)):
        assert abs(scatter(launch_s, 0) / sd - 1) < 0.1


def test_energy_scatters_as_measured():
    # power carries what time does not
    for launch_s, time_sd, energy_sd in ((50e-6, 0.005, 0.009), (5e-3, 0.001, 0.0055)):
        expected = (energy_sd**2 - time_sd**2) ** 0.5
        assert abs(scatter(launch_s, 1) / expected - 1) < 0.1


@pytest.mark.parametrize(("is_governed", "sd"), [(True, 0.007), (False, 0.003)])
def test_an_offset_stays_through_a_campaign_and_changes_with_the_next(is_governed, sd):
    offsets = {"governed": 0.007, "locked": 0.003}
    noise = {"window": [{"below_s": None, "time_sd": 0.0, "energy_sd": 0.0}], "offset_sd": offsets}

    def offset(campaign, repeat, pair=PAIR):
        return factors(noise, 1, Key(campaign, "w", "kernel/k", repeat), pair, 0, 1e-3, is_governed)[0]

    assert offset("sweep", 0) == offset("sweep", 7)
    assert offset("sweep", 0) != offset("fresh-0", 0) != offset("fresh-1", 0)
    assert offset("sweep", 0) != offset("sweep", 0, (1470, 5001))
    spread = statistics.pstdev(offset(f"fresh-{i}", 0) for i in range(1500))
    assert abs(spread / sd - 1) < 0.1


def test_noise_has_no_bias_however_large_it_is():
    """So that the truth, a run without noise, is what measurements average to."""
    noise = {"window": [{"below_s": None, "time_sd": 0.2, "energy_sd": 0.3}]}
    noise["offset_sd"] = {"governed": 0.1, "locked": 0.1}
    got = [factors(noise, 1, Key(f"c{number}", "w", "kernel/k", 0), PAIR, 0, 1e-3, False) for number in range(20000)]
    time, power = (statistics.mean(each) for each in zip(*got, strict=True))
    assert abs(time - 1) < 0.007 and abs(power - 1) < 0.007


@pytest.mark.parametrize("pair", [Pair(2100, 9251), Pair(AUTO, AUTO), Pair(1470, 5001)])
def test_measurements_average_to_the_truth_at_every_kind_of_pair(pair):
    """The top of the curve falls with power and a capped board alternates, and neither is drawn."""
    for kernel in (Kernel(4e-3, 0.4e-3, 1e-5, 3, 0.16, 0.01), Kernel(1e-3, 0.8e-3, 3e-5, 3, 0.04, 0.03)):
        load, count = [(kernel, 1)], 600

        def once(exact, number, load=load):
            gpu = SimulatedGpu(TI, 1, exact)
            gpu.temperature_c = 60.0
            with gpu.locked(pair, ("c", "w", "kernel/k", number)):
                window = gpu.window(load, 5.0, (f"c{number}", "w", "kernel/k", 0), 0)
            return window["time_us"], window["energy_mj"] / window["duration_s"]

        true = once(True, 0)
        got = list(zip(*(once(False, number) for number in range(count)), strict=True))
        for values, exact in zip(got, true, strict=True):
            doubt = statistics.stdev(values) / count**0.5
            assert abs(statistics.mean(values) - exact) < 4 * doubt and doubt < 0.0005 * exact


def test_an_aligned_window_reads_power_to_a_read_time():
    errors = []
    for number in range(300):
        reading = read_window(TI["sensor"], 300.0, 5.0, ("key", number))
        assert reading.duration_s >= 5.0 - TI["sensor"]["read_s"]
        assert reading.energy_mj == int(reading.energy_mj)
        errors.append(reading.energy_mj / 1000 / reading.duration_s / 300.0 - 1)
    assert max(map(abs, errors)) <= 1.01 * TI["sensor"]["read_s"] / 5.0
    assert statistics.pstdev(errors) > 0


def test_switching_takes_a_distribution_of_times_and_nothing_when_nothing_changes():
    switching = TI["switching"]
    assert latency_s(switching, 1, PAIR, PAIR) == 0
    core = [latency_s(switching, seed, (1050, 9251), PAIR, seed) for seed in range(2000)]
    assert abs(statistics.median(core) / 0.015 - 1) < 0.15
    assert abs(statistics.quantiles(core, n=100)[98] / 0.1 - 1) < 0.4
    assert statistics.median(latency_s(switching, s, (1050, 810), PAIR, s) for s in range(500)) > statistics.median(
        core
    )


def test_a_target_clock_has_its_own_latency():
    switching = TI["switching"]

    def typical(target):
        return statistics.median(latency_s(switching, 1, (1050, 9251), (target, 9251), i) for i in range(200))

    times = [typical(target) for target in range(1065, 1965, 15)]
    assert max(times) > 2 * min(times)
