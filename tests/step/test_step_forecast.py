"""What a limit, a lock or another board would do to a step: from its own points, else forecast and said to be so."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.gpu.forecast import BY_CORE, BY_MEMORY, KernelAtAuto, held_load, peak_tflop_per_s, settled
from kernel_dvfs.gpu.kernel import LaunchWork
from kernel_dvfs.profile.step import write_shipped_step
from kernel_dvfs.report.results import Results
from kernel_dvfs_step.report import forecast as step_forecast

SPEC = gpu_spec.resolve("h200_sxm")


def point(core_mhz, time_ms, energy_j, mem_mhz=math.nan, time_se_ms=0.0, energy_se_j=0.0):
    return {
        **{"study": "step", "target": "step", "is_baseline": math.isnan(core_mhz), "core_mhz": core_mhz},
        **{"mem_mhz": mem_mhz, "reached_mem_mhz": 3201.0, "time_s": 1e-3 * time_ms, "energy_j": energy_j},
        **{"time_se_s": 1e-3 * time_se_ms, "energy_se_j": energy_se_j},
    }


def results_of(*points):
    gpu = {"name": "NVIDIA H200", "power_limit_mw": 700_000}
    return SimpleNamespace(gpu=gpu, workload={}, profile=pd.DataFrame(points), folder=None)


def rows_of(results):
    return {row["what"]: row for row in step_forecast.limits(results)}


def changes(row, quantity):
    return tuple(row[f"{quantity}_change{end}_percent"] for end in ("", "_least", "_most"))


def test_a_lock_that_was_measured_is_told_with_its_interval():
    rows = rows_of(
        results_of(
            point(math.nan, 23.0, 16.1, time_se_ms=0.023, energy_se_j=0.0322),
            point(1500.0, 25.0, 14.25, 3201.0, time_se_ms=0.05, energy_se_j=0.0285),
            point(1200.0, 29.0, 13.92, 2201.0),  # at another memory clock than auto's
        )
    )
    row = rows["core locked at 1500 MHz"]
    assert row["known"] == "measured" and "core locked at 1200 MHz" not in rows
    assert row["power_w"] == pytest.approx(570)
    # relative errors of 0.1 and 0.2 % of time, twice 0.2 % of energy, times the ratios 1.087 and 0.885
    at, least, most = changes(row, "time")
    assert (at, most - at, at - least) == pytest.approx((8.6957, 0.4764, 0.4764), abs=1e-4)
    at, least, most = changes(row, "energy")
    assert (at, most - at) == pytest.approx((-11.4907, 0.4907), abs=1e-4)


def test_a_power_limit_lies_between_the_points_on_both_sides():
    auto, upper, lower = point(math.nan, 23.0, 16.1), point(1500.0, 25.0, 14.25), point(1200.0, 29.0, 13.92)
    rows = rows_of(results_of(auto, upper, lower))
    # 630 W: 6 of 13 parts of the time at 700 W, in which a step takes 23 ms, the rest at 570 W and 25 ms
    row = rows["power limit of 630 W"]
    time_ms = 13 / (6 / 23 + 7 / 25)
    assert row["known"] == "between measured points"
    assert changes(row, "time") == pytest.approx((100 * (time_ms / 23 - 1), 0, 100 * (25 / 23 - 1)))
    energy = 100 * (0.63 * time_ms / 16.1 - 1)
    assert changes(row, "energy") == pytest.approx((energy, 100 * (14.25 / 16.1 - 1), 0))
    # 490 W lies between the locks; below the lowest of them nothing is known
    assert changes(rows["power limit of 490 W"], "time")[1:] == pytest.approx(
        (100 * (25 / 23 - 1), 100 * (29 / 23 - 1))
    )
    assert "power limit of 420 W" not in rows
    # of a simulated board nothing is measured
    simulated = results_of(auto, upper, lower)
    simulated.gpu["kind"] = "simulated"
    assert {row["known"] for row in step_forecast.limits(simulated)} == {"forecast"}


@pytest.mark.parametrize(("bound", "slower"), [(BY_CORE, 1980 / 1485), (BY_MEMORY, 1.0)])
def test_a_kernel_of_unknown_work_waits_for_the_core_or_for_the_memory(bound, slower):
    load = held_load([KernelAtAuto(None, 3, 2e-3, 430.0, 1980.0)], SPEC, bound)
    auto, locked = settled(SPEC, load), settled(SPEC, load, 1485)
    # a step warms the board more than a kernel of 430 W alone, and leakage takes its share
    assert auto.time_s == pytest.approx(6e-3, rel=1e-3) and 430 < auto.power_w < 440
    assert locked.time_s / auto.time_s == pytest.approx(slower, rel=0.01) and locked.power_w < auto.power_w


def test_a_limit_below_what_a_step_draws_makes_it_longer_and_one_above_changes_nothing():
    load = held_load([KernelAtAuto(LaunchWork("gemm", 5e11, 0, 0, 1e8), 1, 1e-3, 640.0, 1900.0)], SPEC)
    auto = settled(SPEC, load)
    assert settled(SPEC, load, cap_w=680.0).time_s == pytest.approx(auto.time_s, rel=0.01)
    held = settled(SPEC, load, cap_w=450.0)
    assert held.power_w == pytest.approx(450, rel=0.01) and held.time_s > 1.1 * auto.time_s
    assert peak_tflop_per_s(SPEC) == pytest.approx(540.7 * 1.98)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shipped")
    write_shipped_step(folder)
    return Results(folder)


def test_of_a_step_measured_at_auto_alone_all_is_forecast_and_says_how_well_it_is_held(shipped):
    first, *rows = step_forecast.limits(shipped)
    assert first["what"] == step_forecast.HELD
    # the simulated H200 is not fitted to this step: its kernels are held to it, the step is not
    assert abs(first["energy_change_percent"]) < 5 and abs(first["time_change_percent"]) < 5
    assert len(rows) >= 8 and {row["known"] for row in (first, *rows)} == {"forecast"}
    for row in rows:
        for quantity in ("time", "energy"):
            at, least, most = changes(row, quantity)
            assert least <= at <= most and most > least
    times = [changes(row, "time")[0] for row in rows if row["what"].startswith("power limit")]
    assert times == sorted(times) and times[0] > 0, "the lower the limit, the longer"


def test_other_boards_are_forecast_beside_this_one_which_was_measured(shipped):
    own, *others = step_forecast.boards(shipped)
    assert (own["board"], own["known"]) == ("NVIDIA H200", "measured")
    assert own["energy_per_token_mj"] == pytest.approx(1e3 * 15.591572 / 8192)
    assert {row["known"] for row in others} == {"forecast"} and "H200 SXM" not in {row["board"] for row in others}
    by_board = {row["board"]: row for row in others}
    # the same chip with less bandwidth can be no quicker, and a fifth of the products' rate no less than thrice as long
    assert by_board["H100 SXM"]["time_ms"] >= own["time_ms"]
    assert by_board["RTX 3080 Ti"]["time_ms"] > 3 * own["time_ms"]


def test_where_no_board_of_the_type_is_known_nothing_is_forecast(shipped, monkeypatch):
    monkeypatch.setitem(shipped.gpu, "name", "NVIDIA GeForce GTX 1080")
    assert step_forecast.limits(shipped) == [] == step_forecast.boards(shipped)
