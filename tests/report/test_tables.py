"""Tables, each from the data that it reads."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from whole_schedule import whole_schedule, whole_walk

from kernel_dvfs.layout import PUBLISHED
from kernel_dvfs.report import measured_tables
from kernel_dvfs.report.measured_tables import locking, passes
from kernel_dvfs.report.results import Results
from kernel_dvfs.report.tables import clocks_by_kernel, headline, relaxed, strategies, tensor_energy, validation
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step.report import costs as step_costs

NAN = float("nan")


# --- passes: as they ran, and the sums of their kernels ---


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
    auto, chosen = passes(results(ROWS), ["pass-global-waste-slack0"]).to_dict("records")
    assert (auto["clocks"], chosen["clocks"]) == ("auto-auto", "1200-auto")
    assert auto["sum_time_ms"] == pytest.approx(97) and auto["time_difference_percent"] == pytest.approx(-10)
    assert auto["sum_energy_j"] == pytest.approx(60.5)
    assert chosen["sum_energy_j"] == pytest.approx(46) and chosen["energy_difference_percent"] == pytest.approx(0)


def test_without_schedules_only_auto_is_shown():
    assert list(passes(results(ROWS[:3]), []).chosen_by) == ["auto"]


def test_a_kernel_that_was_not_measured_there_is_named():
    with pytest.raises(InputError, match="pass forward at 1200-auto: the profile lacks gemm there"):
        passes(results([*ROWS[:4], ROWS[5]]), ["pass-global-waste-slack0"])


# --- locking: auto, and locked at the highest clocks ---


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
    comparisons = SimpleNamespace(points=[("gemm", k, points) for k, points in enumerate(repeats)], sessions=["a"] * 3)
    results = SimpleNamespace(comparisons=lambda *paths: comparisons)
    (row,) = locking(results, ["gemm"], ["both"], 1).to_dict("records")
    assert (row["way"], row["verdict"]) == ("both", "differs")
    assert (row["locked"], row["repeats"], row["auto_core_mhz"], row["locked_core_mhz"]) == ("1980-3201", 3, 1980, 1710)
    assert row["time_change_percent"] == pytest.approx(10) and row["energy_change_percent"] == pytest.approx(-8)
    assert row["energy_low_percent"] < -8 < row["energy_high_percent"]


# --- baseline: share of time under the power cap, and drift, from the repeats of auto ---


def record(hour, energy_mj, cap_s):
    return {
        "run": {"started_utc": f"2026-11-21T{hour:02}:00:00Z"},
        "summary": {"energy_mj": energy_mj},
        "windows": [{"cap_ns": round(1e9 * cap_s), "duration_s": 5.0}],
    }


def test_drift_is_the_slope_of_the_energy_in_percent_per_hour():
    assert measured_tables._drift([record(hour, 100 + hour, 0) for hour in range(5)]) == pytest.approx(100 / 102)


def test_the_last_row_is_the_iteration_as_the_sum_of_its_kernels():
    rows = [("kernel", 2000.0, 900.0), ("kernel", 500.0, 100.0), ("pass", 2400.0, 980.0)]
    total = measured_tables._total(
        pd.DataFrame(rows, columns=["study", "time_per_iteration_us", "energy_per_iteration_mj"])
    )
    assert (total["time_per_iteration_us"], total["energy_per_iteration_mj"], total["power_w"]) == (2500, 1000, 400)


@pytest.mark.parametrize("hours", [[], [1, 2], [3, 3, 3]])
def test_a_run_too_short_has_no_drift(hours):
    assert measured_tables._drift([record(hour, 100, 0) for hour in hours]) is None


def test_the_share_under_the_cap_is_over_all_windows():
    assert step_costs.cap_share([record(0, 1, 5.0), record(0, 1, 0.0), record(0, 1, 2.5)]) == pytest.approx(0.5)
    assert step_costs.cap_share([]) is None


# --- relaxed: the frontier that was chosen ---


POINTS = [
    {"slack_percent": -1.25, "scope": "local", "time_change_percent": -1.5, "energy_change_percent": 2.0},
    {"slack_percent": 0.0, "scope": "global", "time_change_percent": -0.01, "energy_change_percent": -7.5},
]


def test_its_rows_are_the_points_in_their_order(tmp_path):
    frontier(tmp_path, {"schema": "kernel-dvfs/frontier/1", "points": POINTS})
    assert relaxed(Results(tmp_path, PUBLISHED)).to_dict("records") == POINTS


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "not a kernel-dvfs/frontier/1 file"),
        ({"schema": "kernel-dvfs/frontier/1"}, "points is missing"),
        ({"schema": "x", "points": []}, "not a kernel-dvfs/frontier/1 file"),
        ([], "not a kernel-dvfs/frontier/1 file"),
    ],
)
def test_another_file_in_its_place_is_named(tmp_path, content, told):
    frontier(tmp_path, content)
    with pytest.raises(InputError, match=rf"schedules/published/frontier.json: {told}; delete it and run snakemake"):
        relaxed(Results(tmp_path, PUBLISHED))


def test_without_a_frontier_the_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"frontier.json"):
        relaxed(Results(tmp_path, PUBLISHED))


def frontier(folder, content):
    (folder / "schedules/published").mkdir(parents=True)
    (folder / "schedules/published/frontier.json").write_text(json.dumps(content))


# --- tensor_energy: what was chosen and validated at each energy ---


@pytest.mark.parametrize(("reference", "named"), [(None, "auto"), ("1410,1215", "the reference 1410,1215")])
def test_the_first_strategy_is_the_baseline_by_its_name(reference, named):
    study = SimpleNamespace(schedule=lambda name: whole_schedule(), workload={"reference": reference})
    assert [*strategies(study, ["kernel-global-waste-slack0"]).objective] == [named, "waste"]


def test_each_energy_shows_the_schedules_that_were_chosen_there():
    def schedule(energy):
        return {"time_change_percent": 0.0, "energy_change_percent": energy}

    repeats = [point(100, 100, 1980), point(100, 92, 1700), point(100, 92, 1700), point(100, 100, 1980)]
    measured = SimpleNamespace(
        points=[("gemm", k, repeats) for k in range(2)], launches={"gemm": 24}, sessions=["a", "b"]
    )
    variant = SimpleNamespace(pass_schedule=schedule(-1.0), own_schedule=schedule(-7.0), validation=measured)
    made = SimpleNamespace(
        schedule={"pass-global-waste-slack0": schedule(-2.0), "kernel-global-waste-slack0": schedule(-9.0)}.get,
        measured_again=lambda name, repeats: measured,
        variant={"tensor-energy-3.6": variant}.get,
    )
    default, other = tensor_energy(made, [3.6], 2.2, 2).to_dict("records")
    assert (default["is_default"], other["is_default"]) == (True, False)
    assert (default["pass_energy_change_percent"], other["pass_energy_change_percent"]) == (-2.0, -1.0)
    assert (default["kernel_claimed_energy_change_percent"], other["kernel_claimed_energy_change_percent"]) == (-9, -7)
    assert other["kernel_fresh_energy_change_percent"] == pytest.approx(-8)


# --- headline, validation: one verdict ---


def measured_twice(low, high):
    """Two repeats whose changes of time are these, percent; energy is 8 % less."""
    repeats = [
        [point(100, 100, 1980), point(100 + time, 92, 1700), point(100 + time, 92, 1700), point(100, 100, 1980)]
        for time in (low, high)
    ]
    points = [("gemm", k, each) for k, each in enumerate(repeats)]
    return SimpleNamespace(points=points, launches={"gemm": 24}, sessions=["a", "b"])


# (0.9, 1.0): t = 12.706, so that the interval is 0.315 to 1.585
@pytest.mark.parametrize(
    ("slack", "walked", "alone"),
    [
        (0.3, "contradicts", "breaks its limit"),
        (0.4, "does not contradict", "not shown to keep its limit"),
        (1.5, "does not contradict", "not shown to keep its limit"),
        (1.6, "does not contradict", "keeps its limit"),
    ],
)
def test_a_schedule_has_one_verdict_by_whether_a_walk_has_shown_its_bound(slack, walked, alone):
    schedules = {
        "walked": whole_schedule(slack_percent=slack, walk=whole_walk(time_bound_percent=0.25)),
        "alone": whole_schedule(slack_percent=slack),
    }
    made = SimpleNamespace(schedule=schedules.get, measured_again=lambda name, repeats: measured_twice(0.9, 1.0))
    rows = headline(made, ["walked", "alone"], 2).set_index("schedule")
    assert [*rows.verdict] == [walked, alone]
    assert rows.time_bound_percent["walked"] == 0.25 and pd.isna(rows.time_bound_percent["alone"])
    assert rows.another_minute_pp["walked"] == 0.002 and pd.isna(rows.another_minute_pp["alone"])
    assert [*rows.status] == ["shown by a walk", "optimal"] and not any("repeats_to" in each for each in rows.columns)
    made.schedule = lambda name: schedules["alone"]
    assert [*validation(made, 2).verdict.dropna()] == [alone], "of the time"


def test_a_caption_and_a_subject_of_any_letters_are_set_by_latex_as_they_stand(tmp_path):
    import pandas as pd

    from kernel_dvfs.report.write import write_table

    frame = pd.DataFrame({"a_b": ["50 % & more_#"], "n": [1.0]})
    write_table(frame, tmp_path, "t", r"Saved: -5 % of E_1 & {x} $y$ ~ ^ \cmd #1", "table my_file & co.csv")
    text = (tmp_path / "tables/t.tex").read_text()
    caption = text[text.index("\\caption{") + 9 : text.index("\\label")].strip().removesuffix("}")
    assert r"-5 \% of E\_1 \& \{x\} \$y\$ \textasciitilde{} \textasciicircum{} \textbackslash{}cmd \#1" in caption
    assert r"(table my\_file \& co.csv)" in caption


def test_table_1_has_the_clocks_asked_for_and_beside_them_what_ran():
    asked = [("a", 1500, "auto"), ("b", 2100, 5001), ("c", 1890, "auto"), ("d", "auto", "auto")]
    columns = ("target", "core_mhz", "mem_mhz", "reached_core_mhz", "reached_mem_mhz", "is_baseline")
    rows = [(name, NAN, NAN, 1733.0, 9251.0, True) for name, *_ in asked]
    rows += [("a", 1500.0, NAN, 1500.0, 9251.0, False), ("b", 2100.0, 5001.0, 1733.4, 5001.0, False)]
    rows += [("c", 1890.0, NAN, 1621.7, 9251.0, False)]  # held down by its power limit
    profile = pd.DataFrame(rows, columns=columns).assign(study="kernel", time_s=0.37, energy_j=2.9)

    def made(profile):
        targets = {name: {"core_mhz": core, "mem_mhz": mem} for name, core, mem in asked}
        return SimpleNamespace(profile=profile, workload={}, schedule=lambda name: {"targets": targets})

    table = clocks_by_kernel(made(profile), 0)
    assert [*zip(table.id, table.core_mhz, table.mem_mhz)] == asked
    assert [*zip(table.reached_core_mhz, table.reached_mem_mhz)] == [
        (1500, 9251),
        (1733, 5001),
        (1622, 9251),
        (1733, 9251),
    ]
    assert [*table.columns[4:8]] == ["mem_mhz", "core_mhz", "reached_mem_mhz", "reached_core_mhz"]
    # a table that does not tell
    untold = clocks_by_kernel(made(profile.assign(reached_core_mhz=NAN, reached_mem_mhz=NAN)), 0)
    assert not {"reached_core_mhz", "reached_mem_mhz"} & {*untold.columns}
