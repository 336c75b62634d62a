"""Tables of a real GPU alone: passes beside the sums of their kernels, auto beside locked at the highest clocks."""

from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.report.tables import locking, passes

NAN = float("nan")


def results(rows):
    columns = ("study", "target", "core_mhz", "mem_mhz", "time_s", "energy_j")
    profile = pd.DataFrame(rows, columns=columns).assign(reached_core_mhz=1400.0, verdict="ok")
    setup = SimpleNamespace(targets={"pass": {"forward": [["gelu", 24], ["gemm", 24], ["gelu", 1]]}})
    chosen = {"targets": {"forward": {"core_mhz": 1200, "mem_mhz": "auto"}}}
    return SimpleNamespace(
        profile=profile, workload={"setup": "0"}, setup=lambda digest: setup, schedule=lambda name: chosen
    )


ROWS = [
    ("kernel", "gelu", NAN, NAN, 1e-3, 0.5),
    ("kernel", "gemm", NAN, NAN, 3e-3, 2.0),
    ("pass", "forward", NAN, NAN, 0.0873, 60.6),
    ("kernel", "gelu", 1200.0, NAN, 1e-3, 0.4),
    ("kernel", "gemm", 1200.0, NAN, 4e-3, 1.5),
    ("pass", "forward", 1200.0, NAN, 0.121, 46.0),
]


def test_a_pass_stands_beside_the_sum_of_its_kernels_at_the_same_clocks():
    auto, chosen = passes.make(results(ROWS), ["pass-global-waste-slack0"]).to_dict("records")
    assert (auto["clocks"], chosen["clocks"]) == ("auto-auto", "1200-auto")
    assert auto["sum_time_ms"] == pytest.approx(97) and auto["time_difference_percent"] == pytest.approx(-10)
    assert auto["sum_energy_j"] == pytest.approx(60.5)
    assert chosen["sum_energy_j"] == pytest.approx(46) and chosen["energy_difference_percent"] == pytest.approx(0)


def test_without_schedules_only_auto_is_shown():
    assert list(passes.make(results(ROWS[:3]), []).chosen_by) == ["auto"]


def test_a_kernel_that_was_not_measured_there_is_named():
    with pytest.raises(InputError, match="pass forward at 1200-auto: the profile lacks gemm there"):
        passes.make(results([*ROWS[:4], ROWS[5]]), ["pass-global-waste-slack0"])


def test_a_kernel_that_was_left_out_above_the_cap_runs_as_at_the_highest_lower_clock():
    lower = [("kernel", "gemm", core, NAN, 5e-3, 1.5) for core in (1000.0, 900.0)]
    _, chosen = passes.make(results([*ROWS[:4], ROWS[5], *lower]), ["pass-global-waste-slack0"]).to_dict("records")
    assert chosen["sum_time_ms"] == pytest.approx(25 * 1 + 24 * 5)


def point(time_us, energy_mj, core_mhz, request=("auto", "auto")):
    return {
        "request": dict(zip(("core_mhz", "mem_mhz"), request, strict=True)),
        "reached": {"core_mhz": core_mhz},
        "summary": {"time_us": time_us, "energy_mj": energy_mj},
    }


def test_a_lock_that_costs_power_shows_with_its_interval():
    locked = (1980, 3201)
    repeats = [
        [point(100, 50, 1980), point(110, 45 + k, 1700, locked), point(110, 45 + k, 1720, locked), point(100, 50, 1980)]
        for k in range(3)
    ]
    comparisons = SimpleNamespace(points=[("gemm", k, points) for k, points in enumerate(repeats)])
    (row,) = locking.make(SimpleNamespace(comparisons=lambda *paths: comparisons), ["gemm"]).to_dict("records")
    assert (row["locked"], row["repeats"], row["auto_core_mhz"], row["locked_core_mhz"]) == ("1980-3201", 3, 1980, 1710)
    assert row["time_change_percent"] == pytest.approx(10) and row["energy_change_percent"] == pytest.approx(-8)
    assert row["energy_low_percent"] < -8 < row["energy_high_percent"]
