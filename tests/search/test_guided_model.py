"""The search's model is the simulated GPU's, its slopes are right, and a fit finds again what it was made from."""

from dataclasses import replace

import numpy as np
import pytest
from testbeds import KERNELS, made_up

from kernel_dvfs.gpu.clocks import top_core_mhz
from kernel_dvfs.gpu.kernel import Kernel
from kernel_dvfs.gpu.model import clock_w, launch_j, launch_time_s, relative_bandwidth, relative_voltage, static_w
from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.search import gpu_model, posterior
from kernel_dvfs.search.fit import fit


@pytest.fixture(scope="module")
def spec() -> dict:
    # not of the model of a search: a clock that hunts at the cap. The kernels' powers were made for a board of 1958 MHz
    return resolve("rtx_3080_ti", {"governor": {"hunting_mhz": 0}, "clocks": {"auto_core_mhz": 1958}})


@pytest.fixture(scope="module")
def made(spec):
    return made_up(spec)


def every(one):
    return one.seen(one.candidates.offered, 1)


def some(one, share=0.3, seed=3):
    mask = np.random.default_rng(seed).random(one.candidates.offered.shape) < share
    mask[:, 0] = True
    return mask


def at_of(spec, core_mhz, mem_mhz):
    return gpu_model.At(
        *np.log(
            [
                core_mhz / 1000,
                relative_bandwidth(spec["memory"], mem_mhz),
                static_w(spec, mem_mhz, spec["thermal"]["reference_c"]),
                spec["core"]["clock_w_per_ghz"],
                relative_voltage(spec["core"], core_mhz),
                spec["memory"]["dram_energy_scale"][str(mem_mhz)],
                1.0,
            ]
        )
    )


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("core_mhz", "mem_mhz"), [(630, 810), (1470, 5001), (1890, 9251)])
def test_time_and_power_are_those_of_the_simulated_gpu(spec, name, core_mhz, mem_mhz):
    core, memory, latency, core_j, dram_j = KERNELS[name]
    kernel = Kernel(core, memory, latency, 3, core_j, dram_j)
    time_s = launch_time_s(kernel, core_mhz / 1000, relative_bandwidth(spec["memory"], mem_mhz))
    standing_w = static_w(spec, mem_mhz, spec["thermal"]["reference_c"]) + clock_w(spec["core"], core_mhz)
    power_w = standing_w + launch_j(spec, kernel, core_mhz, mem_mhz) / time_s
    theta = np.log([core, memory, latency, 3, core_j, dram_j])
    assert np.exp(gpu_model.predict(theta, at_of(spec, core_mhz, mem_mhz))) == pytest.approx([time_s, power_w])


def test_slopes_are_those_of_the_model(spec):
    theta = np.log([2e-3, 0.9e-3, 2e-5, 2.5, 0.09, 0.05])
    at = at_of(spec, 1470, 5001)
    slopes = gpu_model.with_slopes(theta, at)
    step = 1e-6
    for unknown in range(len(theta)):
        moved = theta + step * (np.arange(6) == unknown)
        by = (np.array(gpu_model.predict(moved, at)) - gpu_model.predict(theta, at)) / step
        assert [slopes.by_theta_time[unknown], slopes.by_theta_power[unknown]] == pytest.approx(by, abs=1e-4)
    for unknown in range(len(at)):
        moved_at = gpu_model.At(*(value + step * (n == unknown) for n, value in enumerate(at)))
        by = (np.array(gpu_model.predict(theta, moved_at)) - gpu_model.predict(theta, at)) / step
        assert [slopes.by_at_time[unknown], slopes.by_at_power[unknown]] == pytest.approx(by, abs=1e-4)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_third_of_the_points_tells_the_others(spec, recorded):
    one = made_up(spec, recorded=recorded)
    shown = some(one)
    log_time, log_energy = posterior.tables(fit(one.candidates, one.seen(shown, 1)))
    hidden = ~shown
    hidden[:, one.candidates.core_mhz < 600] = False  # far below the optimum, and below what the probes show
    wrong_time = np.abs(np.exp(log_time[0]) / one.true_time_s - 1)[hidden]
    wrong_energy = np.abs(np.exp(log_energy[0]) / one.true_energy_j - 1)[hidden]
    assert np.median(wrong_time) < 0.01 and wrong_time.mean() < 0.03
    assert np.median(wrong_energy) < 0.015 and wrong_energy.mean() < 0.04


def test_constants_of_the_gpu_are_found_from_points_alone(made, spec):
    fitted = fit(made.candidates, every(made))
    place, g = fitted.gpu.places, np.exp(fitted.g)
    truth = {mem: spec["memory"]["static_w"][str(mem)] for mem in (810, 5001, 9251)}
    assert g[place["log_ps"]] == pytest.approx(list(truth.values()), rel=0.04)
    relative = [relative_bandwidth(spec["memory"], mem) for mem in truth]
    assert g[place["log_b"]] == pytest.approx(relative, rel=0.03)
    *requested, top_ghz = fitted.gpu.voltage_ghz
    assert 1.89 < top_ghz < 1.97
    # what reaches the top asked for more, and has the voltage of that
    asked_mhz = [*(1000 * ghz for ghz in requested), top_core_mhz(spec["clocks"])]
    volts = [relative_voltage(spec["core"], mhz) for mhz in asked_mhz]
    assert g[place["log_v"]] == pytest.approx(volts, rel=0.03)
    assert fitted.gpu.cap_w == pytest.approx(spec["governor"]["cap_w"], rel=0.03)
    assert fitted.scatter.max() < 0.01 and fitted.unfit.max() < 2


def test_a_kernel_that_the_model_cannot_describe_is_noticed(spec):
    def folded(name, pair, time, energy):
        # above 1260 MHz this kernel runs as if at half the clock
        odd = name == "balanced" and pair[0] != "auto" and pair[0] > 1260
        return (1.8 * time, 1.5 * energy) if odd else (time, energy)

    one = made_up(spec, spoil=folded)
    unfit = fit(one.candidates, every(one)).unfit
    assert unfit.argmax() == list(KERNELS).index("balanced") and unfit.max() > 2
    assert np.sort(unfit)[-2] < 2


def test_what_the_fit_leaves_open_covers_what_is_so(spec):
    one = made_up(spec, noise=0.005)
    shown = some(one, share=0.25)
    fitted = fit(one.candidates, one.seen(shown, 1))
    draws = posterior.tables(fitted, 64, 1, posterior.calibrate(fitted))[0]
    hidden = ~shown
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    inside = (np.log(one.time_s) >= low - 0.005) & (np.log(one.time_s) <= high + 0.005)
    assert inside[hidden].mean() > 0.85


def test_no_constant_of_the_searched_gpu_is_in_the_prior(spec):
    share = np.array([mhz / 1965 for mhz, _ in spec["core"]["v_over_v0"]])
    curve = np.exp(gpu_model.log_voltage(share)[0])
    volts = [volt for _, volt in spec["core"]["v_over_v0"]]
    assert np.abs(curve[3:] / volts[3:] - 1).max() > 0.05


def test_the_fall_of_the_top_clock_and_what_auto_adds_are_learnt_where_clocks_are_not_recorded(spec):
    one = made_up(spec, recorded=False)
    fitted = fit(one.candidates, every(one))
    g, place, top = fitted.g, fitted.gpu.places, spec["clocks"]["top"]
    # from no power to the highest: the model's line has no knee
    steepest = top["mhz_per_w"] * fitted.gpu.highest_w / top_core_mhz(spec["clocks"])
    assert 0.4 * steepest < g[place["fall"]][0] < steepest
    assert g[place["log_x"]][0] == pytest.approx(np.log1p(spec["governor"]["auto_extra_power"]), abs=0.004)


def test_what_the_model_gets_wrong_of_all_kernels_alike_is_expected_of_the_next(spec):
    odd_pair = (1470, 5001)

    def slower(name, pair, time, energy):
        return (1.005 * time, 1.005 * energy) if tuple(pair) == odd_pair else (time, energy)

    one = made_up(spec, spoil=slower)
    place = one.candidates.pairs.index(odd_pair)
    fitted = fit(one.candidates, every(one))
    shared = fitted.shared[:, 0]
    # as many kernels as the doubt is worth: half of it is believed
    assert shared[place] == pytest.approx(0.5 * np.log(1.005), rel=0.35)
    assert np.abs(np.delete(shared, place)).max() < 0.4 * shared[place]
    shown = every(one)
    kept = shown.pair != place
    few = type(shown)(*(getattr(shown, name)[kept] for name in type(shown).__dataclass_fields__))
    found = posterior.tables(fit(one.candidates, few, fitted))[0][0]
    blind = posterior.tables(fit(one.candidates, few))[0][0]
    off = [np.abs(table[:, place] - np.log(one.time_s[:, place])).mean() for table in (found, blind)]
    assert off[0] < 0.7 * off[1]


def test_a_run_that_the_cap_held_says_how_far_the_governors_model_is_off(spec):
    def slower(name, pair, time, energy):
        held = name == "core-hot" and energy / time > 0.99 * spec["governor"]["cap_w"]
        return (1.05 * time, 1.05 * energy) if held else (time, energy)

    one = made_up(spec, spoil=slower, recorded=False)
    hot = list(KERNELS).index("core-hot")
    seen = every(one)
    fitted = fit(one.candidates, seen)
    assert seen.target[fitted.held].tolist().count(hot) >= 4 and not (fitted.held & fitted.used).any()
    deaf = replace(fitted, held=np.zeros_like(fitted.held))
    told, untold = (abs(posterior.tables(each)[0][0, hot, 0] - np.log(one.time_s[hot, 0])) for each in (fitted, deaf))
    assert untold > 0.03 and told < 0.4 * untold
