"""A load whose runs begin with something else: that is measured as well, and taken off."""

from types import SimpleNamespace

import pytest

from kernel_dvfs.measurement import consistency
from kernel_dvfs.measurement.point import reached_of, summary
from kernel_dvfs.measurement.real.gpu import RealGpu, TimeAccount, less
from kernel_dvfs_clocks.errors import InputError


def window(time_us, power_w, mhz=1500.0, duration_s=1.0, **more):
    about = {"duration_s": duration_s, "energy_mj": 1e3 * power_w * duration_s, "time_us": time_us}
    about |= {"core_mhz": [mhz - 30, mhz, mhz + 30], "mem_mhz": [2619, 2619, 2619], "temp_c": [50, 51]}
    about |= {"cap_ns": 0, "thermal_delta": 0, "reasons": {}, "processes": None}
    return about | {"launches": round(1e6 * duration_s / time_us)} | more


def test_time_energy_and_clock_are_those_of_the_rest():
    # 6 ms of 400 W at 1600 MHz, then 4 ms of 700 W at 1400 MHz: 520 W at 1520 MHz together
    found = less(window(10_000.0, 520.0, 1520.0), window(6_000.0, 400.0, 1600.0, duration_s=1.5))
    assert found["time_us"] == pytest.approx(4_000.0) and found["duration_s"] == pytest.approx(0.4)
    assert found["energy_mj"] / found["duration_s"] == pytest.approx(700e3)
    # of one run, as points are summed up
    assert found["energy_mj"] / found["duration_s"] * found["time_us"] * 1e-6 == pytest.approx(2800.0)
    assert found["core_mhz"] == [1400.0, 1400.0, 1550.0], "by cycles"
    assert found["beginning"] == {"duration_s": 1.5, "energy_mj": 600e3, "time_us": 6_000.0}
    assert found["with_beginning"]["time_us"] == 10_000.0


def test_time_under_the_cap_is_that_of_the_rest_and_no_longer_than_it():
    whole = window(10_000.0, 520.0, cap_ns=500_000_000, processes=1)
    found = less(whole, window(6_000.0, 400.0, cap_ns=300_000_000, duration_s=2.0, processes=3, thermal_delta=2))
    assert found["cap_ns"] == 400_000_000, "0.5 s less 0.6 of 0.15 s is 0.41 s of 0.4 s"
    assert found["processes"] == 3 and found["thermal_delta"] == 2


def test_what_takes_no_longer_than_its_beginning_is_refused():
    with pytest.raises(InputError, match=r"took no time or energy of its own .* raise window_s"):
        less(window(6_000.0, 500.0), window(6_000.0, 500.0))


@pytest.mark.parametrize("rests", [False, True])
def test_each_window_is_followed_by_one_of_the_beginning_and_the_load_runs_on(rests):
    done = []

    def load(name, beginning=None):
        running = SimpleNamespace(stop=lambda: done.append(f"stop {name}"), own_mhz=lambda: 1333.0 if rests else None)
        return SimpleNamespace(name=name, less=beginning, start=lambda: done.append(f"start {name}") or running)

    gpu = RealGpu.__new__(RealGpu)
    gpu.account = TimeAccount(lambda: 0.0)
    windows = {"both": window(10_000.0, 520.0), "first": window(6_000.0, 400.0)}
    gpu._window = lambda own, seconds: done.append(f"window {own.name}") or windows[own.name]
    gpu._run = lambda seconds: done.append(f"wait {seconds:g} s")
    own = load("both", load("first"))
    gpu._start(own)
    for number in range(2):
        found = gpu.window(own, 1.0, (), number)
        assert found["time_us"] == pytest.approx(4_000.0)
        # a rest measured by itself runs at a clock of its own: the load tells its clock
        assert found["core_mhz"][1] == (1333.0 if rests else 1500.0)
    # until the power reading, a mean of the last second, tells of the beginning alone
    turn = ["window both", "stop both", "start first", "wait 1 s", "window first", "stop first", "start both"]
    assert done == ["start both", *turn, *turn]


def recorded(window, power_limit_mw=700_000):
    """A point of one window, as a record has it."""
    device = {"power_limit_mw": power_limit_mw, "energy_scope": "board", "counter_period_ms": 100}
    request = {"policy": "auto", "core_mhz": "auto", "mem_mhz": "auto"}
    about = {"device": device | {"counter_read_ms": 1}, "request": request, "windows": [window]}
    return about | {"summary": summary([window]), "reached": reached_of([window])}


def test_a_kernel_may_draw_what_one_was_measured_to_draw_and_no_unit_may_be_wrong():
    assert consistency.of_point(recorded(window(318.1, 867.21))) == ""
    for power_w in (1100.0, 867.21e3, 0.86721):
        assert "no power of this GPU in mW" in consistency.of_point(recorded(window(318.1, power_w)))


def test_a_difference_is_bound_by_what_its_windows_drew():
    noisy = less(window(10_000.0, 700.0), window(9_500.0, 670.0))  # 1270 W of its own
    assert noisy["energy_mj"] / noisy["duration_s"] == pytest.approx(1_270e3)
    assert consistency.of_point(recorded(noisy)) == ""
    compared = {name: value for name, value in recorded(noisy).items() if name != "windows"}
    device = compared["device"]
    assert consistency.of_summary("", compared | consistency.by_difference([noisy]), device) == ""
    assert "no power of this GPU" in consistency.of_summary("", compared, device)
    noisy["beginning"]["energy_mj"] *= 1e3
    assert consistency.of_point(recorded(noisy)).startswith("windows[0].beginning has 670000000.0 mW: no power of")
