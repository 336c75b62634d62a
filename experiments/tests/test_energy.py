"""Energy probes find the spec of a GPU again that they were run on: here a simulated one, with noise."""

import math
import random
from dataclasses import replace

import pytest

from experiments.calibration import calibrate_h200, energy
from experiments.calibration.probes import PROBES
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, parameters
from kernel_dvfs.gpu.model import clock_w, launch_time_s, relative_voltage
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError

# the GPU to be found: all that the probes see, other than the spec that the search starts from
STATIC_W, CLOCK_W_PER_GHZ = 97.0, 11.0
VOLTAGE = [[1005, 1.0], [1305, 1.11], [1475, 1.2], [1601, 1.24], [1727, 1.33], [1854, 1.38], [1980, 1.5]]
SWEEP_MHZ, SWEEP_PJ = (900, 1005, 1110, 1200, 1305, 1395), 6.1  # locked clocks of FP64 products
ENERGY_PJ = {
    "fp32": 1.1,
    "fp32/zero": 0.6,
    "sfu": 4.0,
    "int32": 0.9,
    "shared": 1.5,
    "shared/zero": 1.1,
    "l2_read": 14.0,
    "l2_read/zero": 9.0,
    "dram_read": 30.0,
    "dram_read/zero": 22.0,
    "dram_write": 36.0,
    "dram_write/zero": 25.0,
    "dram_copy": 33.0,
    "dram_copy/zero": 24.0,
    "tensor": 0.65,
    "tensor/zero": 0.3,
    "gemm": 0.75,
    "gemm/zero": 0.4,
    "gemm/half": 0.6,
    "gemm_outer": 0.7,
    "gemm_outer/zero": 0.35,
    "gemm_inner": 0.5,
}
# SMs count fewer cycles than the clock that the driver reports while tensor cores work
TENSOR_CLOCK_SHARE = 0.9
LIMIT_W = 700
LAUNCH_S = 1.8e-6
# of the whole GPU: operations or bytes per cycle, at full intensity
PER_CYCLE = {"fp32": 33_792, "sfu": 2_112, "int32": 16_896, "tensor": 330_000, "gemm": 500_000, "shared": 16_896}
PER_CYCLE |= {"l2_read": 7_000}
DRAM_BYTE_PER_S = 4.2e12
FULL_WARPS = 16


@pytest.fixture
def spec():
    return calibrate_h200.start(0.08)


@pytest.fixture
def truth():
    return board(capped_extra_power=0.08)


def board(**governor):
    return specs.resolve(
        "h200_sxm",
        {
            "memory": {"static_w": {"3201": STATIC_W}},
            "core": {"clock_w_per_ghz": CLOCK_W_PER_GHZ, "v_over_v0": VOLTAGE},
            "governor": governor,
        },
    )


def measured(truth, probe, noise):
    """What gpu_energy.py would find on the simulated GPU, as a Point."""
    operands = probe.settings.get("operands", "random")
    if probe.load in ("idle", "spin"):
        operands = ""
    warps = 0 if probe.load in ("idle", "gemm") else probe.settings.get("warps", 32)
    label = next((name for name in ("gemm_outer", "gemm_inner") if probe.name.startswith(name)), probe.load)
    name = label if operands in ("random", "") else f"{label}/{operands}"
    pj = ENERGY_PJ.get(name, 0.0)
    operations = read = write = 0.0
    memory_s = dram_j = 0.0
    run_ghz = 4e-3
    intensity = min(1.0, probe.settings.get("warps", FULL_WARPS) / FULL_WARPS)
    intensity *= probe.settings.get("sms", truth["sm_count"]) / truth["sm_count"]
    count = PER_CYCLE.get(probe.load, 0) * 1e9 * run_ghz * intensity
    if probe.load == "gemm":
        s = probe.settings
        count = operations = 2.0 * s["count"] * s["m"] * s["n"] * s["k"]
        run_ghz = count / PER_CYCLE["gemm"] / 1e9 / probe.duty
        read, write = 2.0 * s["count"] * (s["m"] + s["n"]) * s["k"], 2.0 * s["count"] * s["m"] * s["n"]
    elif probe.load.startswith("dram"):
        read = write = 4e9
        read *= probe.load != "dram_write"
        write *= probe.load != "dram_read"
        run_ghz, memory_s = 0.0, (read + write) / DRAM_BYTE_PER_S / intensity
    elif probe.load in ("shared", "l2_read"):
        read = count
    else:
        operations = count
    byte = read + write
    core_j = 1e-12 * pj * (count or 0.0)
    if probe.load == "gemm" or probe.load.startswith("dram"):
        zero = "/zero" if operands == "zero" else ""
        core_j += 1e-12 * ENERGY_PJ["l2_read" + zero] * byte
        dram_j = 1e-12 * (pj if memory_s else ENERGY_PJ["dram_copy" + zero]) * byte
    share = 1.0
    if probe.load in ("tensor", "gemm"):
        share = 1 / (probe.duty / TENSOR_CLOCK_SHARE + 1 - probe.duty)
    if probe.load == "spin":
        operations = 1e9 * run_ghz * truth["sm_count"]  # one a cycle of each SM
    kernel = Kernel(run_ghz / share, memory_s, LAUNCH_S, 3, core_j, dram_j)
    temp_c = 55.0
    state = settle(truth, [(kernel, 1)], BASELINE, temp_c)
    power_w = state.power_w * math.exp(noise.gauss(0, 0.005))
    clocks = (state.core_mhz, state.core_mhz * share)
    values = (power_w, *clocks, temp_c, float(state.capped), state.time_s, operations, read, write)
    return energy.Point(probe.name, probe.load, operands, probe.duty, warps, *values, limit_w=LIMIT_W)


def locked(truth, mhz):
    """What a sweep of locked clocks tells of an FP64 product."""
    core, tflop = truth["core"], 0.033 * mhz
    power_w = STATIC_W + clock_w(core, mhz) + SWEEP_PJ * relative_voltage(core, mhz) ** 2 * tflop
    clocks = power_w, mhz, mhz, energy.REFERENCE_C, 0
    return energy.Point(f"fp64_{mhz}", "fp64", "", 1, 0, *clocks, 1.0, 1e12 * tflop, 0, 0)


def points_of(truth, seed=1):
    noise = random.Random(seed)
    return [measured(truth, probe, noise) for probe in PROBES] + [locked(truth, mhz) for mhz in SWEEP_MHZ]


@pytest.mark.parametrize("seed", range(3))
def test_the_probes_find_a_gpu_again_that_differs_from_the_spec_they_start_from(spec, truth, seed):
    points = points_of(truth, seed)
    assert len({round(point.core_mhz) for point in points}) >= 6, "the cap leaves the ladder several clocks"
    found = energy.calibrate(points, spec)
    assert max(map(abs, found.power_error.values())) < 0.03
    for (mhz, voltage), (_, true) in zip(found.v_over_v0, VOLTAGE, strict=True):
        assert voltage == pytest.approx(true, rel=0.05), mhz
    standing = found.static_w + found.clock_w_per_ghz * found.v_over_v0[-1][1] ** 2 * 1.98
    assert standing == pytest.approx(STATIC_W + CLOCK_W_PER_GHZ * VOLTAGE[-1][1] ** 2 * 1.98, rel=0.02)
    for name in ("gemm", "gemm/zero", "tensor", "fp32", "sfu", "l2_read", "dram_read", "dram_copy"):
        assert found.energy_pj[name] == pytest.approx(ENERGY_PJ[name], rel=0.12), name


def test_what_a_board_draws_more_at_its_cap_is_not_taken_for_what_its_products_take(spec, truth):
    points, steady = points_of(truth), specs.merge(spec, {"governor": {"capped_extra_power": 0.0}})
    known, taken = (energy.calibrate(points, each).energy_pj for each in (spec, steady))
    for name in ("gemm", "gemm/half", "gemm_inner", "gemm_outer"):
        assert known[name] == pytest.approx(ENERGY_PJ[name], rel=0.04), name
        assert taken[name] > 1.07 * known[name], name


def test_without_a_spin_nothing_is_concluded(spec, truth):
    points = [point for point in points_of(truth) if point.load != "spin"]
    with pytest.raises(InputError, match="a spin and an L2 read are needed"):
        energy.calibrate(points, spec)


def test_rates_clocks_and_the_cap_are_found_again(spec, truth):
    points = points_of(truth)
    assert energy.clock_share(points) == pytest.approx(TENSOR_CLOCK_SHARE, rel=1e-6)
    assert energy.latency_us(points, spec) == pytest.approx(1e6 * LAUNCH_S, rel=1e-3)
    assert energy.sm_byte_per_clock(points, spec) == pytest.approx(PER_CYCLE["l2_read"] / 132, rel=0.01)
    peak = spec["rates"]["tensor_bf16_tflop_per_s_per_ghz"] * 1e3
    assert energy.tensor_efficiency(points, spec) == pytest.approx(PER_CYCLE["gemm"] / peak, rel=0.01)
    assert energy.cap_w(points, LIMIT_W) == pytest.approx(truth["governor"]["cap_w"], rel=0.01)


@pytest.mark.parametrize("name", ["dram_copy_w32", "dram_read_w32", "gemm_inner"])
def test_with_the_figures_of_a_probe_the_model_takes_as_long_as_the_probe(spec, truth, name):
    points = points_of(truth)
    point = energy.probe(points, name)
    given = energy.figures(points, spec, LIMIT_W)
    families = given.pop("families")
    found = specs.resolve("h200_sxm", given)
    found["families"]["gemm"] |= families["default"] | families["attention_gemm"]
    found["families"]["gemm"] |= {"dram_efficiency": energy.dram_efficiency(points, spec, name), "latency_us": 0}
    work = LaunchWork("gemm", point.operations, 0, 0, point.read_byte + point.write_byte)
    time_s = launch_time_s(parameters(found, work), point.core_mhz / 1000, 1.0)
    assert time_s == pytest.approx(point.time_s, rel=0.01)


def test_a_probe_whose_clock_is_held_by_something_else_tells_no_voltage(spec, truth):
    points = points_of(truth)
    odd = energy.probe(points, "gemm_d50")
    held = [replace(point, sm_mhz=0.9 * point.sm_mhz) if point == odd else point for point in points]
    assert odd in energy.steady(points)
    assert energy.steady(held) == [point for point in points if point != odd]
    assert "gemm_d50" not in energy.calibrate(held, spec).power_error


def test_no_cap_is_concluded_from_a_board_that_was_never_near_its_limit(truth):
    with pytest.raises(InputError, match="none ran at the power limit"):
        energy.cap_w([point for point in points_of(truth) if point.power_w < 500], LIMIT_W)
