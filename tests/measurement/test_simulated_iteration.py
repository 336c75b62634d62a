"""The simulated GPU visited: one governor for all kernels of an iteration, offsets of kernels, scatter by length."""

import json
import math
import statistics
from types import SimpleNamespace

import pytest

from kernel_dvfs.gpu.spec import resolve
from kernel_dvfs.measurement import visit as visits
from kernel_dvfs.measurement.campaign import Bench, open_visitor
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.simulated_iteration import SimulatedVisitor, iteration_of
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.visit import Visit, read_visit, round_of
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.shape import fault

# a product that hits the power cap alone, two kernels that stay far below it, and one that is light
HOT, COOL, WARM, TINY = "product", "gelu", "softmax", "bias"
WORK = {
    HOT: (["gemm", 1.237e12, 0.0, 0.0, 8.1e8], 7),
    COOL: (["gelu", 0.0, 3.1e9, 6.7e8, 1.29e9], 12),
    WARM: (["softmax", 0.0, 2.3e9, 5.9e8, 2.57e9], 18),
    TINY: (["bias", 0.0, 1.1e5, 0.0, 3.7e6], 31),
}
# the second pass launches the product again, between others
PASSES = {"there": [[HOT, 3], [COOL, 12], [HOT, 4]], "back": [[WARM, 18], [TINY, 31]]}
LOW, HIGH = Pair(1155, 3201), Pair(1875, 3201)  # at which the iteration is uncapped, and capped
SILENT = {
    "window": [{"below_s": None, "time_sd": 0.0, "energy_sd": 0.0}],
    "offset_sd": {"governed": 0.0, "locked": 0.0},
    "short": {state: {"time_sd": 0.0, "power_sd": 0.0, "falls": 1} for state in ("free", "capped")},
    "capped_pass_sd": 0.0,
}


def setup_of(seed=1, spec=None, **noise) -> Setup:
    """noise: what is not silent; none at all: the spec's own."""
    over = {"noise": SILENT | noise, "sensor": {"read_s": 0.0}} if noise else {}
    kernels = {
        name: {"work": work, "launches_per_iteration": count, "replicate_group": None}
        for name, (work, count) in WORK.items()
    }
    settings = {"seed": seed, "warmup_s": 3.7, "window_s": 5.0, "windows": 1}
    gpu = {"kind": "simulated", "spec": resolve("h200_sxm", over | (spec or {}))}
    return Setup("0" * 12, gpu, {"name": "odd"}, {"kernel": kernels, "pass": PASSES}, settings)


@pytest.fixture(scope="module")
def plain():
    return setup_of()


@pytest.fixture(scope="module")
def true(plain):
    return SimulatedVisitor(plain, exact=True)


def visit_of(pair, session=0, place=0, pass_s=0.37, window_s=0.5, metered=tuple((name,) for name in WORK)):
    return Visit(session, place, pair, pass_s, window_s, metered)


# --- one governor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [BASELINE, LOW, HIGH, Pair(1155, AUTO), Pair(345, 2201)])
@pytest.mark.parametrize("gpu", ["h200_sxm", "rtx_3080_ti"])
def test_an_iteration_takes_the_sum_of_its_kernels_whatever_holds_the_clock(gpu, pair, true):
    """The second board hunts at its cap: its clock is two."""
    visitor = true
    if gpu == "rtx_3080_ti":
        board = resolve(gpu, {"energy_pj": {"tensor_bf16_flop": 2.2}})
        visitor, pair = SimulatedVisitor(setup_of()._replace(gpu={"kind": "simulated", "spec": board}), True), BASELINE
    passes = visitor.visit(visit_of(pair))["passes"]
    of_kernels = math.fsum(count * passes["time_us"][name] for name, (_, count) in WORK.items())
    assert passes["iteration_us"] == pytest.approx(of_kernels, rel=1e-12)
    # and the governor's own mean over the clocks that it hunts between
    whole = visitor.visit(visit_of(pair, metered=(tuple(WORK),)))["powers"][0]
    assert whole["time_us"] == pytest.approx(passes["iteration_us"], rel=1e-4), "it is warmer"


def test_all_kernels_of_an_iteration_run_at_one_clock_where_the_cap_rules(true):
    """So a hot kernel is faster in it than alone, and cool ones are slower."""
    at_auto = true.visit(visit_of(BASELINE))
    alone_us = {power["kernels"][0]: power["time_us"] for power in at_auto["powers"]}
    alone_mhz = {power["kernels"][0]: power["core_mhz"] for power in at_auto["powers"]}
    within_us = at_auto["passes"]["time_us"]
    assert alone_mhz[HOT] + 50 < at_auto["reached"]["core_mhz"] < alone_mhz[COOL] - 50
    assert within_us[HOT] < 0.98 * alone_us[HOT] and within_us[COOL] > 1.005 * alone_us[COOL]
    assert at_auto["verdict"] == "ok" and at_auto["reasons"] == ["power cap active"]


def test_a_locked_kernel_that_the_cap_leaves_alone_is_the_same_within_an_iteration(true):
    locked = true.visit(visit_of(LOW))
    assert locked["reached"] == {"core_mhz": 1155, "mem_mhz": 3201} and locked["verdict"] == "ok"
    for power in locked["powers"]:
        name = power["kernels"][0]
        assert power["core_mhz"] == 1155
        assert power["time_us"] == pytest.approx(locked["passes"]["time_us"][name], rel=1e-12)


def test_the_power_of_an_uncapped_iteration_is_that_of_its_kernels_by_their_time(true):
    locked = true.visit(visit_of(LOW, metered=(*((name,) for name in WORK), tuple(WORK))))
    *each, whole = locked["powers"]
    energy = [count * power["power_mw"] * power["time_us"] for power, (_, count) in zip(each, WORK.values())]
    assert whole["power_mw"] == pytest.approx(math.fsum(energy) / whole["time_us"], rel=2e-3), "but for temperature"


def test_a_lock_that_the_cap_takes_away_is_throttled_and_a_window_says_of_which_kernel_alone_it_takes_it(true):
    high = true.visit(visit_of(HIGH))
    assert high["verdict"] == "throttled" and high["reached"]["core_mhz"] < 1800
    assert high["passes"]["is_capped"]
    assert high["reasons"][-1] == "power cap active" and high["reasons"][0].startswith("core clock: asked 1875 MHz")
    between = true.visit(visit_of(Pair(1500, 3201)))
    assert between["verdict"] == "ok" and between["reached"]["core_mhz"] == 1500
    assert between["reasons"] == [] and not between["passes"]["is_capped"]
    assert {each["kernels"][0] for each in between["powers"] if each["is_capped"]} == {HOT}
    assert between["powers"][0]["core_mhz"] < 1500 == between["powers"][1]["core_mhz"]


def test_an_iteration_is_made_of_all_kernels_by_their_launches(plain):
    assert {name: count for name, (_, count) in iteration_of(plain).items()} == {HOT: 7, COOL: 12, WARM: 18, TINY: 31}


# --- what is drawn ----------------------------------------------------------------------------------------------------


def test_a_visit_measured_again_alone_is_the_same_whatever_was_measured_before(plain):
    asked = visit_of(LOW, session=3, place=2)
    first = SimulatedVisitor(plain)
    for other in (visit_of(BASELINE), visit_of(HIGH, session=3, place=1), visit_of(LOW, session=3, place=1)):
        first.visit(other)
    assert json.dumps(first.visit(asked)) == json.dumps(SimulatedVisitor(plain).visit(asked))
    others = [asked._replace(session=4), asked._replace(place=1), asked._replace(pair=Pair(1170, 3201))]
    for other in (*map(SimulatedVisitor(plain).visit, others), SimulatedVisitor(setup_of(seed=2)).visit(asked)):
        assert other["passes"]["time_us"] != first.visit(asked)["passes"]["time_us"]
        assert other["powers"][0]["power_mw"] != first.visit(asked)["powers"][0]["power_mw"]


@pytest.mark.parametrize(("pair", "sd"), [(LOW, 0.003), (BASELINE, 0.007)])
def test_a_session_shifts_each_kernel_at_a_pair_by_an_offset_of_its_own(pair, sd):
    """Passes and windows share it, and so do two visits of the pair."""
    setup = setup_of(offset_sd={"governed": 0.007, "locked": 0.003})
    drawn, exact = SimulatedVisitor(setup), SimulatedVisitor(setup, exact=True)
    truth = exact.visit(visit_of(pair))
    shifts = {name: [] for name in WORK}
    powers = []
    for session in range(400):
        found = drawn.visit(visit_of(pair, session))
        another = drawn.visit(visit_of(pair, session, place=5, window_s=0.9))["passes"]
        # but for when the energy counter is read
        assert another["power_mw"] == pytest.approx(found["passes"]["power_mw"], rel=1e-5)
        assert another | {"power_mw": 0} == found["passes"] | {"power_mw": 0}
        for name, power, known in zip(WORK, found["powers"], truth["powers"], strict=True):
            factor = found["passes"]["time_us"][name] / truth["passes"]["time_us"][name]
            assert power["time_us"] / known["time_us"] == pytest.approx(factor, rel=1e-4)
            shifts[name].append(math.log(factor))
        powers.append(math.log(found["powers"][1]["power_mw"] / truth["powers"][1]["power_mw"]))
    for each in (*shifts.values(), powers):
        assert statistics.stdev(each) == pytest.approx(sd, rel=0.12) and abs(statistics.mean(each)) < 4 * sd / 20
    assert abs(statistics.correlation(shifts[HOT], shifts[COOL])) < 0.15
    assert abs(statistics.correlation(shifts[COOL], powers)) < 0.15


def test_an_iteration_and_a_window_of_several_kernels_draw_no_offset_of_their_own():
    setup = setup_of(offset_sd={"governed": 0.007, "locked": 0.011})
    metered = ((COOL, TINY), (COOL,), (TINY,))
    truth = SimulatedVisitor(setup, exact=True).visit(visit_of(LOW, metered=metered))
    for session in range(5):
        found = SimulatedVisitor(setup).visit(visit_of(LOW, session, metered=metered))
        time_us = found["passes"]["time_us"]
        of_kernels = math.fsum(count * time_us[name] for name, (_, count) in WORK.items())
        assert found["passes"]["iteration_us"] == pytest.approx(of_kernels, rel=1e-12)
        assert found["powers"][0]["time_us"] == pytest.approx(12 * time_us[COOL] + 31 * time_us[TINY], rel=1e-12)
        shift = [power["power_mw"] / known["power_mw"] for power, known in zip(found["powers"], truth["powers"])]
        weight = [12 * truth["passes"]["time_us"][COOL], 31 * truth["passes"]["time_us"][TINY]]
        mean = (weight[0] * shift[1] + weight[1] * shift[2]) / sum(weight)
        assert shift[0] == pytest.approx(mean, rel=1e-4) and shift[1] != pytest.approx(shift[2], rel=1e-3)


def spread(setup, pair, window_s, name, count=500) -> tuple[float, float]:
    """Standard deviations of time and power of a kernel's windows, in a session each."""
    visitor = SimulatedVisitor(setup)
    found = [
        visitor.visit(visit_of(pair, number, 0, 0.1, window_s, ((name,),)))["powers"][0] for number in range(count)
    ]
    return tuple(statistics.stdev(math.log(each[field]) for each in found) for field in ("time_us", "power_mw"))


def test_short_windows_scatter_more_most_of_all_at_the_power_cap():
    short = {
        "free": {"time_sd": 0.002, "power_sd": 0.012, "falls": 1},
        "capped": {"time_sd": 0.03, "power_sd": 0.05, "falls": 3},
    }
    setup = setup_of(short=short)
    for pair, name, time_sd, power_sd, falls in ((LOW, COOL, 0.002, 0.012, 1), (BASELINE, HOT, 0.03, 0.05, 3)):
        for window_s in (0.5, 0.7, 1.0):
            times = (0.5 / window_s) ** falls
            found = spread(setup, pair, window_s, name)
            assert found[0] == pytest.approx(time_sd * times, rel=0.12)
            assert found[1] == pytest.approx(power_sd * times, rel=0.12)


def test_what_a_window_of_five_seconds_scatters_comes_on_top():
    window = [{"below_s": None, "time_sd": 0.003, "energy_sd": 0.005}]
    short = {state: {"time_sd": 0.004, "power_sd": 0.003, "falls": 1} for state in ("free", "capped")}
    setup = setup_of(window=window, short=short)
    for window_s, more in ((0.5, 1), (5.0, 0.1)):
        found = spread(setup, LOW, window_s, COOL)
        assert found[0] == pytest.approx(math.hypot(0.003, more * 0.004), rel=0.12)
        assert found[1] == pytest.approx(math.hypot(0.004, more * 0.003), rel=0.12)


def test_a_board_at_its_cap_changes_the_time_of_all_kernels_of_its_passes_together():
    setup = setup_of(capped_pass_sd=0.006)
    for pair, sd in ((BASELINE, 0.006), (LOW, 0.0)):
        visitor, truth = SimulatedVisitor(setup), SimulatedVisitor(setup, exact=True).visit(visit_of(pair))["passes"]
        factors = []
        for place in range(400):
            passes = visitor.visit(visit_of(pair, 0, place, metered=()))["passes"]
            factors.append(passes["iteration_us"] / truth["iteration_us"])
            for name in WORK:
                assert passes["time_us"][name] / truth["time_us"][name] == pytest.approx(factors[-1], rel=1e-9)
        assert statistics.stdev(factors) == pytest.approx(sd, rel=0.12, abs=1e-12)


# --- what a visit takes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "window_s", "settle_s", "kernel_s"),
    [(LOW, 0.5, 0.5, 0.25), (BASELINE, 0.7, 2.0, 0.7), (BASELINE, 3.1, 2.0, 2.0), (Pair(AUTO, 2201), 0.5, 0.5, 0.25)],
)
def test_a_visit_takes_the_change_settling_whole_passes_and_its_windows(plain, pair, window_s, settle_s, kernel_s):
    found = SimulatedVisitor(plain).visit(
        visit_of(pair, pass_s=0.37, window_s=window_s, metered=((HOT,), (COOL, TINY)))
    )
    passes, lengths = found["passes"], [power["duration_s"] for power in found["powers"]]
    passes_s = passes["n"] * passes["iteration_us"] * 1e-6
    assert 0.37 <= passes_s < 0.37 + passes["iteration_us"] * 1e-6
    assert all(window_s - 0.005 < length < window_s + 0.11 for length in lengths)
    switch_s = found["request"]["switch_s"]
    assert (switch_s == 0) == (pair == BASELINE)
    assert found["spent_s"] == pytest.approx(switch_s + settle_s + passes_s + 2 * kernel_s + sum(lengths), abs=2e-6)
    assert found["temp_c"][0] == SimulatedVisitor(plain).visit(visit_of(LOW))["temp_c"][0], "each from the same board"


def test_times_alone_take_no_windows_and_a_pass_longer_than_asked_is_one(true):
    found = true.visit(visit_of(LOW, pass_s=0.01, metered=()))
    assert found["powers"] == [] and found["passes"]["n"] == 1
    switch_s = found["request"]["switch_s"]
    assert found["spent_s"] == pytest.approx(switch_s + 0.5 + 1e-6 * found["passes"]["iteration_us"], abs=2e-6)


def test_a_window_holds_a_round_however_long_that_is(true):
    found = true.visit(visit_of(Pair(345, 3201), window_s=0.05, metered=((HOT, COOL),)))
    power = found["powers"][0]
    times = found["passes"]["time_us"]
    assert power["time_us"] == pytest.approx(7 * times[HOT] + 12 * times[COOL], rel=1e-12)
    assert power["duration_s"] == pytest.approx(max(0.05, 1e-6 * power["time_us"]), rel=1e-12)


def test_a_round_is_the_fewest_launches_that_stand_as_in_an_iteration():
    launches = {"a": 6, "b": 9, "c": 15, "d": 7}
    assert round_of(["c", "a", "b"], launches) == {"c": 5, "a": 2, "b": 3}
    assert round_of(["b"], launches) == {"b": 1} and round_of(["a", "d"], launches) == {"a": 6, "d": 7}


# --- passes of a sweep ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("campaign", ["sweep", "fresh-2"])
def test_a_pass_of_a_sweep_draws_its_offset_from_its_kernels(name, campaign):
    setup = setup_of(offset_sd={"governed": 0.007, "locked": 0.011})
    kernels = {kernel for kernel, _ in PASSES[name]}

    def measured(target, exact=False):
        return Bench(setup, target, exact).point(LOW, campaign)["summary"]

    whole, truth = (measured(MeasurementTarget("pass", name), exact) for exact in (False, True))
    own = {kernel: measured(MeasurementTarget("kernel", kernel)) for kernel in kernels}
    known = {kernel: measured(MeasurementTarget("kernel", kernel), exact=True) for kernel in kernels}
    sum_us = math.fsum(count * own[kernel]["time_us"] for kernel, count in PASSES[name])
    assert whole["time_us"] == pytest.approx(sum_us, rel=1e-9)
    assert abs(whole["time_us"] / truth["time_us"] - 1) > 1e-4, "it has one"
    weights = [count * known[kernel]["time_us"] for kernel, count in PASSES[name]]
    shifts = [own[kernel]["power_mw"] / known[kernel]["power_mw"] for kernel, _ in PASSES[name]]
    mean = math.fsum(weight * shift for weight, shift in zip(weights, shifts)) / math.fsum(weights)
    assert whole["power_mw"] / truth["power_mw"] == pytest.approx(mean, rel=1e-6)


# --- records and refusals ---------------------------------------------------------------------------------------------


def test_a_visit_is_recorded_and_read_where_the_same_was_asked(plain, tmp_path):
    asked = visit_of(LOW, session=2, place=3, metered=((HOT,), (COOL, TINY)))
    visitor = open_visitor(plain, "setup.json")
    file = str(tmp_path / visits.path(asked))
    assert file.endswith("/visit/s2/3-1155-3201.json")
    visits.write(file, plain, visitor, visitor.visit(asked))
    found = read_visit(file, plain, asked)
    assert found is not None and fault(found, visits.VisitRecord) == ""
    assert {name: found[name] for name in visitor.visit(asked)} == visitor.visit(asked)
    assert found["run"] == {"setup": plain.digest, "seed": 1} and found["device"] == visitor.device
    for other in (asked._replace(pass_s=0.38), asked._replace(metered=((HOT,),)), asked._replace(pair=HIGH)):
        assert read_visit(file, plain, other) is None
    assert read_visit(file, plain._replace(digest="1" * 12), asked) is None
    text = (tmp_path / visits.path(asked)).read_text("utf-8")
    (tmp_path / visits.path(asked)).write_text(text.replace('"n": ', '"n": 1'), "utf-8")
    with pytest.raises(InputError, match="was changed since it was written"):
        read_visit(file, plain, asked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (visit_of(LOW, metered=((HOT, "gelu_2"),)), "'gelu_2': not in workload odd; it has product, gelu"),
        (visit_of(LOW, metered=((),)), "none given"),
        (visit_of(Pair(1156, 3201)), "no core clock 1156 MHz"),
    ],
)
def test_what_cannot_be_measured_is_one_line(true, asked, why):
    with pytest.raises(InputError, match=why):
        true.visit(asked)


def test_a_kind_of_gpu_that_cannot_measure_has_no_visitor():
    with pytest.raises(InputError, match="gpu kind 'table' cannot measure"):
        open_visitor(SimpleNamespace(gpu={"kind": "table"}), "")
