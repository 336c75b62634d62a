"""The physics of the simulated GPU, from gpu-model: time, power, voltage, governor, temperature."""

import math
from pathlib import Path

import pytest
import yaml

from kernel_dvfs.gpu.governor import GovernedLoad, is_governed, settle
from kernel_dvfs.gpu.kernel import Kernel, LaunchWork, clock_share, parameters
from kernel_dvfs.gpu.model import advance_c, launch_time_s, relative_bandwidth, relative_voltage, static_w
from kernel_dvfs.gpu.spec import merge, resolve
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, top_core_mhz

# one board, whatever is shipped
EARLIER = yaml.safe_load((Path(__file__).parents[2] / "config/earlier_board.yaml").read_text())["gpu_overrides"]


def board(**groups):
    """The spec of that board with single figures replaced."""
    return resolve("rtx_3080_ti", merge(EARLIER, groups))


TI = board()
# of twice the tensor energy that is thought likely, so that it surely hits the power cap
HUNGRY = board(energy_pj={"tensor_bf16_flop": 2.2})
GEMM = parameters(HUNGRY, LaunchWork("gemm", 1.37e12, 0, 0, 8.7e8))
STREAM = parameters(TI, LaunchWork("residual", 0, 7.5e8, 0, 6.7e8))
WARM_C = TI["thermal"]["reference_c"]


def at(kernel, core, mem, spec=TI):
    return settle(spec, [(kernel, 1)], Pair(core, mem), WARM_C)


def test_core_work_scales_with_the_core_clock_and_latency_does_not():
    kernel = Kernel(1e-3, 0.0, 5e-6, 3, 0.0, 0.0)
    assert launch_time_s(kernel, 1.0, 1.0) == pytest.approx(1.005e-3)
    assert launch_time_s(kernel, 2.0, 1.0) == pytest.approx(0.505e-3)


def test_equal_core_and_memory_work_overlap_by_the_third_root_of_two():
    kernel = Kernel(1e-3, 1e-3, 0.0, 3, 0.0, 0.0)
    assert launch_time_s(kernel, 1.0, 1.0) == pytest.approx(1e-3 * 2 ** (1 / 3))


def test_a_large_overlap_exponent_is_the_roofline_and_does_not_underflow():
    kernel = Kernel(1e-6, 3e-6, 0.0, 16, 0.0, 0.0)
    assert launch_time_s(kernel, 1.0, 1.0) == pytest.approx(3e-6, rel=1e-6)


def test_where_the_spec_says_so_memory_work_takes_less_time_at_a_lower_core_clock():
    kernel = Kernel(0.0, 2e-3, 1e-6, 3, 0.0, 0.0, memory_exponent=0.1)
    assert launch_time_s(kernel, 0.7, 0.5) == pytest.approx(4e-3 * 0.7**0.1 + 1e-6)
    a100 = resolve("a100_sxm")
    work = LaunchWork("residual", 0, 0, 0, 1e9)
    own, plain = (
        parameters(spec, work)
        for spec in (a100, resolve("a100_sxm", {"families": {"residual": {"memory_exponent": 0}}}))
    )
    highest_ghz = a100["clocks"]["auto_core_mhz"] / 1000
    assert own.memory_s * highest_ghz**own.memory_exponent == pytest.approx(plain.memory_s)
    assert plain == own._replace(memory_s=plain.memory_s, memory_exponent=0)


def test_the_highest_memory_clock_of_the_3080_ti_gives_no_more_bandwidth():
    bandwidth = {mhz: relative_bandwidth(TI["memory"], mhz) for mhz in (405, 810, 5001, 9251, 9501)}
    assert bandwidth[405] == pytest.approx(0.032, abs=0.001)
    assert bandwidth[810] == pytest.approx(0.076, abs=0.001)
    assert bandwidth[5001] == pytest.approx(0.550, abs=0.001)
    assert bandwidth[9501] == pytest.approx(1, abs=0.0005)


def test_voltage_is_flat_below_linear_between_and_steep_above():
    core = TI["core"]
    assert relative_voltage(core, 210) == relative_voltage(core, 1050) == 1
    assert relative_voltage(core, 1260) == pytest.approx(1.0205)
    assert relative_voltage(core, 1962) == 1.723
    assert relative_voltage(core, 1980) > 1.723


def test_an_idle_3080_ti_draws_the_measured_floor_of_each_memory_clock():
    for mhz, watts in ((405, 30.3), (810, 31.1), (5001, 64.6), (9251, 89.1), (9501, 89.8)):
        assert static_w(TI, mhz, WARM_C) == pytest.approx(watts)
    assert static_w(TI, 9251, WARM_C + 10) == pytest.approx(89.1 * 1.04)


def test_a_dense_gemm_hits_the_cap_and_its_clock_falls_below_the_request():
    state = at(GEMM, 1890, 9251)
    assert state.capped and 1500 < state.core_mhz < 1750
    assert not at(GEMM, 1530, 9251).capped and at(GEMM, 1695, 9251).capped


def kept(kernel, spec=TI):
    """The highest whole clock, MHz, that keeps the cap by itself."""
    low, high = 210, 1890
    while high - low > 1:
        middle = (low + high) // 2
        uncapped = spec | {"governor": spec["governor"] | {"cap_w": 1000}}
        low, high = (low, middle) if at(kernel, middle, 9251, uncapped).power_w > 340 else (middle, high)
    return low


def test_a_capped_board_hunts_about_the_clock_that_keeps_the_cap_so_that_its_mean_power_is_the_cap():
    state = at(GEMM, 1890, 9251)
    assert state.power_w == pytest.approx(TI["governor"]["cap_w"], rel=1e-12)
    uncapped = board(governor={"cap_w": 1000})
    low, high = (at(GEMM, kept(GEMM) + apart, 9251, uncapped) for apart in (-60, 60))
    share = (state.power_w - low.power_w) / (high.power_w - low.power_w)
    assert 0.3 < share < 0.5, "power rises faster than the clock"
    assert state.core_mhz == pytest.approx(low.core_mhz + share * (high.core_mhz - low.core_mhz), abs=1)
    assert 1 / state.time_s == pytest.approx(share / high.time_s + (1 - share) / low.time_s, rel=1e-3)


@pytest.mark.parametrize(("core", "mem", "clocks"), [(1890, 9251, 2), (AUTO, AUTO, 2), (1050, 5001, 1), (2100, 810, 1)])
def test_the_kernels_of_a_load_share_its_time_at_the_clocks_that_it_runs_at(core, mem, clocks):
    """Of a hot kernel, cooler ones and one twice: alone, the hot one runs at another clock."""
    load = [(GEMM, 3), (STREAM, 7), (WARM, 11), (GEMM, 2)]
    running = GovernedLoad(TI, load, Pair(core, mem))
    state = running.settled(WARM_C)
    launch_s = running.launch_s(state)
    assert len(state.runs) == clocks and math.fsum(runs.share for runs in state.runs) == pytest.approx(1)
    assert math.fsum(count * each for (_, count), each in zip(load, launch_s)) == pytest.approx(state.time_s, rel=1e-12)
    # runs that are counted: what of the time each clock has makes the mean clock and, at the cap, the mean power
    seconds = {mhz: share * running.time_s(mhz) for _, mhz, share in state.runs}
    assert math.fsum(mhz * each for mhz, each in seconds.items()) / state.time_s == pytest.approx(
        state.core_mhz, abs=0.01
    )
    bandwidth = relative_bandwidth(TI["memory"], state.mem_mhz)
    times = [launch_time_s(WARM, mhz / 1000, bandwidth) for _, mhz, _ in state.runs]
    assert min(times) - 1e-15 <= launch_s[2] <= max(times) + 1e-15 and launch_s[0] == launch_s[3]
    launch_j = running.launch_j(state, WARM_C)
    whole_j = math.fsum(count * each for (_, count), each in zip(load, launch_j))
    assert whole_j == pytest.approx(state.power_w * state.time_s, rel=1e-12) and launch_j[0] == launch_j[3]
    assert launch_j[0] / launch_s[0] > state.power_w > launch_j[1] / launch_s[1], "of a hot kernel, of a cool one"


def test_hunting_costs_time_and_a_request_that_keeps_the_cap_by_itself_does_not_pay_it():
    steady = board(governor={"hunting_mhz": 0})
    hunts, holds, asked = at(GEMM, 1890, 9251), at(GEMM, 1890, 9251, steady), at(GEMM, kept(GEMM), 9251)
    assert hunts.time_s > 1.001 * holds.time_s and not asked.capped
    assert asked.time_s == pytest.approx(holds.time_s, rel=1e-3)
    # no clock above the one asked for: a request just above the one that keeps the cap is seldom left
    near = at(GEMM, kept(GEMM) + 3, 9251)
    assert near.capped and near.core_mhz > kept(GEMM) - 3


def test_what_hunting_costs_grows_with_the_square_of_how_far_it_goes():
    # from nothing to the mean of two requests each so far away: the curvature of time over power
    cost = {}
    for far_mhz in (40, 80, 120):
        spec = board(governor={"hunting_mhz": far_mhz})
        steady = board(governor={"hunting_mhz": 0})
        cost[far_mhz] = at(GEMM, 1890, 9251, spec).time_s / at(GEMM, 1890, 9251, steady).time_s - 1
    assert cost[80] / cost[40] == pytest.approx(4, rel=0.15) and cost[120] / cost[40] == pytest.approx(9, rel=0.15)


@pytest.mark.parametrize(
    ("pair", "reached_mhz", "expected"),
    [
        (BASELINE, 1700.0, True),
        (Pair(AUTO, 5001), 1930.0, True),
        (Pair(2100, 9251), 1934.0, True),  # more than a board sustains
        (Pair(1890, AUTO), 1890.0, False),
        (Pair(1890, 9251), 1889.0, True),  # held by the cap
        (Pair(210, 9251), 243.0, False),
    ],
)
def test_a_clock_is_the_governors_where_no_lock_is_or_where_it_is_not_reached(pair, reached_mhz, expected):
    assert is_governed(pair, reached_mhz) is expected


def test_a_board_that_draws_more_while_held_has_the_clock_of_a_lower_cap_and_a_lock_below_the_cap_pays_nothing():
    held = board(governor={"capped_extra_power": 0.08})
    lower = board(governor={"cap_w": TI["governor"]["cap_w"] / 1.08})
    state, other = at(GEMM, 1890, 9251, held), at(GEMM, 1890, 9251, lower)
    assert state.capped and state.power_w == pytest.approx(TI["governor"]["cap_w"], rel=1e-12)
    # at what a lower cap leaves, but for the top clock, which follows the power that is drawn
    assert state.core_mhz == pytest.approx(other.core_mhz, rel=2e-3)
    assert state.time_s == pytest.approx(other.time_s, rel=2e-3) and state.time_s > 1.02 * at(GEMM, 1890, 9251).time_s
    locked = at(GEMM, kept(GEMM), 9251, held)
    assert not locked.capped and locked == at(GEMM, kept(GEMM), 9251) and locked.time_s < state.time_s
    running = GovernedLoad(held, [(GEMM, 3), (STREAM, 7)], Pair(AUTO, AUTO))
    whole = running.settled(WARM_C)
    gemm_j, stream_j = running.launch_j(whole, WARM_C)
    assert whole.capped and 3 * gemm_j + 7 * stream_j == pytest.approx(whole.power_w * whole.time_s, rel=1e-12)


def test_time_at_the_cap_moves_smoothly_with_the_work():
    works = [
        Kernel(GEMM.core_s_ghz, GEMM.memory_s, GEMM.latency_s, 3, j * GEMM.core_j, GEMM.dram_j) for j in (1, 1.001)
    ]
    less, more = (at(kernel, 1890, 9251) for kernel in works)
    assert less.capped and more.capped
    assert 1 < more.time_s / less.time_s < 1.001, "no step of the clock grid, which is 0.9 %"


def test_a_load_that_even_the_lowest_clock_does_not_keep_under_the_cap_runs_there():
    low = board(governor={"cap_w": 100})
    state = at(STREAM, 1890, 9251, low)
    assert state.capped and state.core_mhz == low["clocks"]["core_mhz"]["lowest"] and state.power_w > 100


# core-bound, below the cap: about 310 W at auto
WARM = Kernel(0.62e-3, 0.05e-3, 5e-6, 3, 0.021, 0.001)


def test_the_top_clock_and_its_power_agree():
    top = TI["clocks"]["top"]
    state = at(WARM, 2100, 9251)
    assert not state.capped and state.power_w > 250
    fallen = top["mhz_per_w"] * (state.power_w - top["above_w"])
    assert state.core_mhz == pytest.approx(top_core_mhz(TI["clocks"]) - fallen, abs=0.02)


def test_a_clock_that_power_holds_down_keeps_its_voltage_and_one_that_is_asked_for_does_not():
    held = at(WARM, 2100, 9251)
    asked = int(210 + 15 * ((held.core_mhz - 210) // 15))  # the highest of the grid that is not above
    lower = at(WARM, asked, 9251)
    assert lower.core_mhz == asked > held.core_mhz - 15
    assert lower.time_s < 1.008 * held.time_s, "hardly slower"
    assert lower.power_w < 0.95 * held.power_w, "but at a lower voltage"


def test_what_auto_adds_is_inside_the_cap():
    odd = board(governor={"auto_extra_power": 0.08})
    cap_w = TI["governor"]["cap_w"]
    for spec in (TI, odd):
        assert at(GEMM, AUTO, AUTO, spec).power_w == pytest.approx(cap_w)
    assert at(GEMM, AUTO, AUTO, odd).time_s > at(GEMM, AUTO, AUTO).time_s, "so it costs time there"


def test_below_the_cap_the_request_is_what_runs():
    state = at(GEMM, 1470, 9251)
    assert (state.core_mhz, state.capped) == (1470, False)


def test_a_streaming_kernel_saves_power_and_loses_no_time_at_a_lower_core_clock():
    fast, slow = at(STREAM, 1890, 9251), at(STREAM, 1470, 9251)
    assert slow.time_s < 1.02 * fast.time_s
    assert slow.power_w < 0.8 * fast.power_w


def test_a_gemm_saves_power_and_loses_no_time_at_a_lower_memory_clock():
    high, low = at(GEMM, 1470, 9251), at(GEMM, 1470, 5001)
    assert low.time_s < 1.02 * high.time_s
    assert low.power_w < high.power_w - 20


def test_auto_is_the_top_under_the_governor():
    top_mhz = TI["clocks"]["auto_core_mhz"]
    assert settle(TI, [(STREAM, 1)], BASELINE, WARM_C).core_mhz <= top_mhz
    cool = Kernel(1e-9, 1e-9, 5e-5, 3, 0.0, 0.0)
    assert settle(TI, [(cool, 1)], BASELINE, WARM_C).core_mhz == top_mhz
    assert settle(TI, [(cool, 1)], Pair(AUTO, 810), WARM_C).mem_mhz == 810


def test_the_light_load_and_extra_power_effects_of_auto_can_be_switched_off():
    tiny = Kernel(1e-9, 1e-9, 5e-6, 3, 0.0, 0.0)
    none = board(governor={"auto_light_load_core_mhz": None, "auto_extra_power": 0})
    spec = board(governor={"auto_light_load_core_mhz": 1650, "auto_extra_power": 0.05})
    plain, odd = settle(none, [(tiny, 1)], BASELINE, WARM_C), settle(spec, [(tiny, 1)], BASELINE, WARM_C)
    assert odd.core_mhz == 1650
    locked = settle(spec, [(tiny, 1)], Pair(1650, 9251), WARM_C)
    assert odd.power_w == pytest.approx(1.05 * locked.power_w)
    assert odd.power_w < plain.power_w


def test_cool_kernels_lend_power_to_a_capped_one():
    cool = Kernel(0.0, 1e-2, 0.0, 3, 0.0, 0.0)
    together = settle(TI, [(GEMM, 1), (cool, 1)], BASELINE, WARM_C)
    assert together.core_mhz > at(GEMM, AUTO, AUTO).core_mhz


def test_temperature_rises_towards_its_steady_state_and_no_further():
    thermal = TI["thermal"]
    hot = advance_c(thermal, thermal["ambient_c"], 300, 0.0, 1e6)
    assert hot == pytest.approx(thermal["ambient_c"] + 0.097 * 300)
    one_tau = advance_c(thermal, thermal["ambient_c"], 300, 0.0, thermal["tau_s"])
    assert one_tau == pytest.approx(thermal["ambient_c"] + 0.097 * 300 * (1 - math.exp(-1)))
    assert advance_c(thermal, hot, 300, 0.0, 100) == pytest.approx(hot)


def test_leakage_feeds_back_into_temperature():
    thermal = TI["thermal"]
    plain = advance_c(thermal, 35, 300, 0.0, 1e6)
    assert advance_c(thermal, 35, 300, 0.36, 1e6) > plain + 1


@pytest.mark.parametrize(
    ("work", "measured_us", "measured_w"),
    [
        # experiments/results/auto_only_h200.csv
        (LaunchWork("gemm", 1.0307921510e12, 0, 0, 6.963e8), 1558, 693),
        (LaunchWork("residual", 0, 7.55e8, 0, 6.7142e8), 166, 636),
        (LaunchWork("permute", 0, 0, 0, 1.00663e9), 247.9, 552),
    ],
)
def test_the_h200_spec_is_near_an_h200_that_it_was_not_made_from(work, measured_us, measured_w):
    h200 = resolve("h200_sxm")
    state = settle(h200, [(parameters(h200, work), 1)], BASELINE, h200["thermal"]["reference_c"])
    assert state.time_s * 1e6 == pytest.approx(measured_us, rel=0.06)
    assert state.power_w == pytest.approx(measured_w, rel=0.1)


def test_sms_count_fewer_cycles_than_the_reported_clock_while_tensor_cores_work():
    h200, plain = resolve("h200_sxm"), resolve("h200_sxm", {"core": {"tensor_clock_share": 1}})
    gemm, copy = LaunchWork("gemm", 1e12, 0, 0, 1e8), LaunchWork("permute", 0, 0, 0, 1e9)
    share = h200["core"]["tensor_clock_share"]
    assert clock_share(h200, gemm) == share < 1
    assert clock_share(h200, copy) == clock_share(TI, gemm) == 1
    slower, faster = (parameters(spec, gemm).core_s_ghz for spec in (h200, plain))
    assert slower == pytest.approx(faster / share)
    assert parameters(h200, copy) == parameters(plain, copy)


def test_instructions_cost_energy_and_no_time():
    h200, without = resolve("h200_sxm"), resolve("h200_sxm", {"energy_pj": {"instruction": 0}})
    row = LaunchWork("softmax", 0, 0, 0, 1e9)
    full, less = parameters(h200, row), parameters(without, row)
    instructions = 1e9 * h200["families"]["softmax"]["instruction_per_byte"]
    assert full.core_j - less.core_j == pytest.approx(instructions * h200["energy_pj"]["instruction"] * 1e-12)
    assert full.core_s_ghz == less.core_s_ghz
