"""A forecast's kernels at auto are what was measured of them, and answer to clocks as their work says."""

import pytest

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import held
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import LaunchWork, parameters
from kernel_dvfs_clocks.clocks import BASELINE

GEMM = LaunchWork("gemm", 6.87e10, 0.0, 0.0, 8.4e7)
STREAM = LaunchWork("residual", 0.0, 0.0, 0.0, 1.3e8)


@pytest.fixture(scope="module")
def h200():
    return gpu_spec.resolve("h200_sxm")


def at_auto(spec, work, power_w=None, pair=BASELINE):
    temperature_c = spec["thermal"]["ambient_c"] + spec["thermal"]["c_per_w"] * (power_w or 0.0)
    return settle(spec, [(parameters(spec, work), 1)], pair, temperature_c)


@pytest.mark.parametrize(("work", "time_s", "power_w"), [(GEMM, 1.5e-4, 560.0), (STREAM, 4.2e-5, 480.0)])
def test_time_and_power_at_auto_are_those_that_were_measured(h200, work, time_s, power_w):
    found = at_auto(h200, held(h200, work, time_s, power_w), power_w)
    assert (found.time_s, found.power_w) == pytest.approx((time_s, power_w), rel=1e-3) and not found.capped


def test_a_kernel_that_ran_under_the_cap_is_held_at_the_clock_that_it_ran(h200):
    found = at_auto(h200, held(h200, GEMM, 1.34e-4, 690.0, 1665.0), 690.0)
    assert found.capped and found.core_mhz == pytest.approx(1665, abs=16)
    assert (found.time_s, found.power_w) == pytest.approx((1.34e-4, 690), rel=0.01)


def test_without_a_power_the_model_s_own_energy_stays(h200):
    assert held(h200, STREAM, 1e-4).energy_factor == pytest.approx(1)
    assert at_auto(h200, held(h200, STREAM, 1e-4)).time_s == pytest.approx(1e-4, rel=1e-6)


def test_a_kernel_of_unknown_power_does_not_exceed_the_cap_in_the_time_that_it_took(h200):
    found = at_auto(h200, held(h200, GEMM, 1.0e-4))
    assert found.power_w <= h200["governor"]["cap_w"] + 1e-6 and found.time_s == pytest.approx(1.0e-4, rel=0.01)


def test_it_answers_to_the_core_clock_as_its_work_does(h200):
    slow, slower = (1200, 3201), (990, 3201)
    for work, least, most in ((GEMM, 1.15, 1.22), (STREAM, 0.999, 1.15)):
        own = held(h200, work, 1e-4)
        ratio = at_auto(h200, own, pair=slower).time_s / at_auto(h200, own, pair=slow).time_s
        plain = at_auto(h200, work, pair=slower).time_s / at_auto(h200, work, pair=slow).time_s
        assert least < ratio < most and ratio == pytest.approx(plain, rel=1e-6)
