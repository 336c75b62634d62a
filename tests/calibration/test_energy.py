"""Energy probes find the spec of a GPU again that they were run on: here a simulated one, with noise."""

import math
import random

import pytest

from kernel_dvfs.calibration import energy
from kernel_dvfs.calibration.probes import PROBES
from kernel_dvfs.errors import InputError
from kernel_dvfs.gpu import spec as specs
from kernel_dvfs.gpu.clocks import BASELINE
from kernel_dvfs.gpu.governor import settle
from kernel_dvfs.gpu.kernel import Kernel

# the GPU to be found: all that the probes see, other than the spec that the search starts from
STATIC_W, CLOCK_W_PER_GHZ = 97.0, 11.0
VOLTAGE = [[1350, 1.0], [1475, 1.03], [1601, 1.08], [1727, 1.17], [1854, 1.29], [1980, 1.45]]
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
}
# of the whole GPU: operations or bytes per cycle, at full intensity
PER_CYCLE = {"fp32": 33_792, "sfu": 2_112, "int32": 16_896, "tensor": 330_000, "gemm": 500_000, "shared": 16_896}
PER_CYCLE |= {"l2_read": 3_000}
DRAM_BYTE_PER_S = 4.2e12
FULL_WARPS = 16


@pytest.fixture
def spec():
    return specs.resolve("h200_sxm")


@pytest.fixture
def truth(spec):
    return specs.resolve(
        "h200_sxm",
        {
            "memory": {"static_w": {"3201": STATIC_W}},
            "core": {"clock_w_per_ghz": CLOCK_W_PER_GHZ, "v_over_v0": VOLTAGE},
        },
    )


def measured(truth, probe, noise):
    """What gpu_energy.py would find on the simulated GPU, as a Point."""
    operands = probe.settings.get("operands", "random")
    if probe.load in ("idle", "spin"):
        operands = ""
    name = probe.load if operands in ("random", "") else f"{probe.load}/{operands}"
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
        core_j += 1e-12 * ENERGY_PJ["l2_read"] * byte
        dram_j = 1e-12 * (pj if memory_s else ENERGY_PJ["dram_copy"]) * byte
    kernel = Kernel(run_ghz, memory_s, 0.0, 3, core_j, dram_j)
    temp_c, top_mhz = 55.0, truth["clocks"]["auto_core_mhz"]
    state = settle(truth, [(kernel, 1)], BASELINE, temp_c, top_mhz)
    power_w = state.power_w * math.exp(noise.gauss(0, 0.005))
    values = (power_w, state.core_mhz, temp_c, state.time_s, operations, read, write)
    return energy.Point(probe.name, probe.load, operands, probe.duty, *values)


def points_of(truth, seed=1):
    noise = random.Random(seed)
    return [measured(truth, probe, noise) for probe in PROBES]


@pytest.mark.parametrize("seed", range(3))
def test_the_probes_find_a_gpu_again_that_differs_from_the_spec_they_start_from(spec, truth, seed):
    points = points_of(truth, seed)
    assert len({round(point.core_mhz) for point in points}) >= 6, "the cap leaves the ladder several clocks"
    found = energy.calibrate(points, spec)
    assert max(map(abs, found.power_error.values())) < 0.03
    for (mhz, voltage), (_, true) in zip(found.v_over_v0, VOLTAGE, strict=True):
        assert voltage == pytest.approx(true, rel=0.05), mhz
    standing = found.static_w + found.clock_w_per_ghz * found.v_over_v0[-1][1] ** 2 * 1.98
    assert standing == pytest.approx(STATIC_W + CLOCK_W_PER_GHZ * 1.45**2 * 1.98, rel=0.02)
    for name in ("gemm", "gemm/zero", "tensor", "fp32", "sfu", "l2_read", "dram_read", "dram_copy"):
        assert found.energy_pj[name] == pytest.approx(ENERGY_PJ[name], rel=0.12), name


def test_without_a_spin_nothing_is_concluded(spec, truth):
    points = [point for point in points_of(truth) if point.load != "spin"]
    with pytest.raises(InputError, match="a spin and an L2 read are needed"):
        energy.calibrate(points, spec)
