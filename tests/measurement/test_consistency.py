"""Which numbers a record may hold: each border from both sides, everything else as it was measured."""

import copy

import pytest

from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.point import reached_of, summary

LIMIT_W = 350.0


def window(time_us=412.7, power_w=263.4, duration_s=2.03, mhz=1410.0, **more):
    about = {"duration_s": duration_s, "energy_mj": 1e3 * power_w * duration_s, "time_us": time_us}
    about |= {"core_mhz": [mhz - 45, mhz, mhz + 15], "mem_mhz": [1215, 1215, 1215], "temp_c": [51.5, 53]}
    about |= {"cap_ns": 0, "thermal_delta": 0, "reasons": {}, "processes": None}
    return about | {"launches": round(1e6 * duration_s / time_us)} | more


WINDOWS = [window(), window(power_w=271.9, time_us=409.2, duration_s=1.97), window(mhz=1395.0)]


def recorded(windows=WINDOWS, **device):
    """A point as a record has it."""
    known = {"power_limit_mw": 1e3 * LIMIT_W, "energy_scope": "board", "counter_period_ms": 100, "counter_read_ms": 4}
    request = {"policy": "lock", "core_mhz": 1410, "mem_mhz": 1215}
    about = {"device": known | device, "request": request, "windows": windows}
    return copy.deepcopy(about | {"summary": summary(windows), "reached": reached_of(windows)})


def test_a_point_as_it_was_measured_agrees_with_itself():
    assert consistency.of_point(recorded()) == "" == consistency.of_point(recorded(power_limit_mw=None))


@pytest.mark.parametrize("group", ["summary", "reached"])
def test_each_number_follows_from_the_windows_to_a_millionth(group):
    for name, value in recorded()[group].items():
        for share, agrees in ((1 + 0.99e-6, True), (1 - 0.99e-6, True), (1 + 1.01e-6, False), (1 - 1.01e-6, False)):
            point = recorded()
            point[group][name] = value * share
            assert (consistency.of_point(point) == "") is agrees, (name, share)
            assert agrees or consistency.of_point(point).startswith(f"{group}.{name} is {value * share}, but its win")
        point = recorded()
        point[group][name] = None
        assert f"{group}.{name} is None" in consistency.of_point(point)


def borders(name, values):
    return [pytest.param(name, value, fits, id=f"{name}-{value}") for value, fits in values]


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        *borders("temp_c", [([-50, 200], True), ([-51, 20], False), ([20, 201], False)]),
        *borders("core_mhz", [([30, 30, 30], True), ([29, 30, 30], False), ([1410, 1410, 20001], False)]),
        *borders("core_mhz", [([20000] * 3, True), ([1410, 1410, 1409], False)]),
        *borders("mem_mhz", [([30, 30, 30], True), ([29, 30, 30], False), ([1410, 1410, 20001], False)]),
        # 5 % more than the window's 2.03 s
        *borders("cap_ns", [(2_131_500_000, True), (2_131_500_001, False)]),
        # launches x 412.7 us: from half of the window less two, to 5 % more than it and one
        *borders("launches", [(2458, True), (2457, False), (5165, True), (5166, False)]),
    ],
)
def test_a_window_holds_what_a_board_can_do(name, value, fits):
    windows = [window(), window(**{name: value}), window()]
    assert (consistency.of_point(recorded(windows)) == "") is fits
    assert fits or consistency.of_point(recorded(windows)).startswith("windows[1].")


@pytest.mark.parametrize(
    ("device", "power_w", "fits"),
    [
        # of a board's counter half as much again as the limit, of a module's twice as much
        ({}, 524.9, True),
        ({}, 525.1, False),
        ({"energy_scope": "module"}, 699.9, True),
        ({"energy_scope": "module"}, 700.1, False),
        ({"power_limit_mw": None}, 9_999.0, True),
        ({"power_limit_mw": None}, 10_001.0, False),
        ({}, 1.001, True),
        ({}, 0.999, False),
    ],
)
def test_mean_power_lies_between_a_watt_and_what_the_limit_allows(device, power_w, fits):
    said = consistency.of_point(recorded([window(power_w=power_w)], **device))
    assert (said == "") is fits and (fits or "no power of this GPU in mW" in said)


@pytest.mark.parametrize(("limit_mw", "most_mw"), [(350_000, 525_000), (None, 10_000_000)])
def test_the_least_and_the_most_power_are_such_as_a_board_may_draw(limit_mw, most_mw):
    for power_mw, fits in ((1000, True), (999.999, False), (most_mw, True), (1.000001 * most_mw, False)):
        point = recorded(power_limit_mw=limit_mw)
        energy_mj = power_mw * point["summary"]["time_us"] * 1e-6
        point["summary"] |= {"power_mw": power_mw, "energy_mj": energy_mj}
        assert (consistency.of_summary("", point, point["device"]) == "") is fits


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({"counter_period_ms": 1, "counter_read_ms": 1}, ""),
        ({"counter_period_ms": 10_000}, ""),
        ({"counter_period_ms": 0.99, "counter_read_ms": 0.5}, "no such counter"),
        ({"counter_period_ms": 10_001}, "no such counter"),
        ({"counter_read_ms": 100}, ""),
        ({"counter_read_ms": 100.1}, "no such counter"),
        ({"power_limit_mw": 999.0, "energy_scope": "module"}, "no limit in mW"),
        ({"power_limit_mw": 1.01e7}, "no limit in mW"),
        ({"power_limit_mw": 1e7}, ""),
    ],
)
def test_a_counter_and_a_limit_are_such_as_there_are(device, said):
    point = recorded(**device)
    found = consistency.of_summary("", {"by_difference": True} | point, point["device"])
    assert (found == "") is (said == "") and said in found


def test_energy_is_nearly_power_times_time():
    for share, fits in ((0.901, True), (0.899, False), (1.099, True), (1.101, False)):
        point = recorded()
        power_x_time_mj = point["summary"]["power_mw"] * point["summary"]["time_us"] * 1e-6
        point["summary"]["energy_mj"] = share * power_x_time_mj
        said = consistency.of_summary("points[2].", point, point["device"])
        assert (said == "") is fits and (fits or said.startswith("points[2].summary.energy_mj is"))


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        (("auto", "auto", "auto"), True),
        (("auto", 1410, "auto"), False),
        (("lock", "auto", "auto"), False),
        (("lock", "auto", 1215), True),
    ],
)
def test_the_policy_is_auto_where_both_clocks_are(request_, fits):
    point = recorded()
    point["request"] = dict(zip(("policy", "core_mhz", "mem_mhz"), request_))
    assert (consistency.of_point(point) == "") is fits


@pytest.mark.parametrize(("mhz", "fits"), [(30, True), (29.9, False), (20_000, True), (20_001, False)])
def test_a_reached_clock_is_one_in_mhz(mhz, fits):
    for domain in ("core_mhz", "mem_mhz"):
        point = recorded()
        point["reached"][domain] = mhz
        assert (consistency.of_summary("", point, point["device"]) == "") is fits


def test_a_comparisons_point_keeps_whether_it_is_of_differences():
    raw = {"duration_s": 1.0, "energy_mj": 3e5, "time_us": 900.0}
    point = recorded()
    assert consistency.without_windows(point).keys() == point.keys() - {"windows"}
    point["windows"][1] |= {"with_beginning": raw, "beginning": raw}
    assert consistency.without_windows(point)["by_difference"] is True
    assert consistency.of_point(point) == ""
    # 999 W is no module's of 350 W, and less than a watt is nobody's
    for part in ("with_beginning", "beginning"):
        for power_w in (999.0, 0.9):
            spoilt = copy.deepcopy(point)
            spoilt["windows"][1][part] = raw | {"energy_mj": 1e3 * power_w}
            assert consistency.of_point(spoilt).startswith(f"windows[1].{part} has {1e3 * power_w} mW")
