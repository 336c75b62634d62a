"""Two boards of one type: how they differ, and what carrying a schedule from one to the other costs."""

import json

import pandas as pd
import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.layout import STRICT
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs.report import comparison
from kernel_dvfs.report.comparison import specimens


def board(root, uuid, name="NVIDIA H200", chosen=1500, factor=1.0, low_w=80.0, kind="nvml"):
    """A folder with two kernels, `a` launched three times, at auto and at 1500 MHz, where they draw less power."""
    path = root / f"{name.lower().replace(' ', '-')}-{uuid}" / "gpt3-xl-b40-tp1"
    rows = [
        dict.fromkeys(COLUMNS)
        | {"study": "kernel", "target": target, "launches_per_iteration": 3 if target == "a" else 1, "n": 1}
        | {"verdict": "ok", "core_mhz": core, "is_baseline": core is None}
        | {"time_s": factor, "energy_j": factor * (low_w if core else 100.0)}
        for target in ("a", "b")
        for core in (None, 1500.0)
    ]
    about = {"kind": kind, "name": name, "slug": path.parent.name}
    path.mkdir(parents=True)
    columns = {column: [row[column] for row in rows] for column in COLUMNS}
    write_profile(path / "profile.parquet", columns, about, {"name": path.name}, ["core_mhz", "mem_mhz"])
    (path / "schedules").mkdir()
    targets = {target: {"core_mhz": chosen, "mem_mhz": "auto"} for target in ("a", "b")}
    (path / f"schedules/{STRICT}.json").write_text(json.dumps(whole_schedule(targets=targets)))


def test_two_boards_of_a_type_are_compared_at_the_points_that_both_have(tmp_path):
    board(tmp_path, "1a2b3c4d")
    board(tmp_path, "5e6f7a8b", factor=1.02, low_w=90.0)
    (row,) = specimens(tmp_path).to_dict("records")
    assert (row["first"], row["second"]) == ("nvidia-h200-1a2b3c4d", "nvidia-h200-5e6f7a8b")
    assert (row["kernels"], row["points"]) == (2, 4)
    assert row["auto_time_difference_percent"] == pytest.approx(2)
    assert row["auto_energy_difference_percent"] == pytest.approx(2)
    # 102 x 0.9 / 80 = 14.75 % more at 1500 MHz
    assert row["largest_energy_difference_percent"] == pytest.approx(14.75)
    assert row["median_energy_difference_percent"] == pytest.approx((2 + 14.75) / 2)
    assert row["carried_energy_change_percent"] == pytest.approx(-10)
    assert row["own_energy_change_percent"] == pytest.approx(-10)


def test_clocks_that_the_other_board_was_not_measured_at_are_not_guessed(tmp_path):
    board(tmp_path, "1a2b3c4d", chosen=1700)
    board(tmp_path, "5e6f7a8b")
    (row,) = specimens(tmp_path).to_dict("records")
    assert pd.isna(row["carried_energy_change_percent"]) and row["own_energy_change_percent"] == pytest.approx(-20)


def test_other_types_and_simulated_gpus_are_no_specimens(tmp_path):
    board(tmp_path, "1a2b3c4d")
    board(tmp_path, "5e6f7a8b", name="NVIDIA A100")
    board(tmp_path, "one", name="H200", kind="simulated")
    board(tmp_path, "two", name="H200", kind="simulated")
    assert specimens(tmp_path).empty
    comparison.write(tmp_path)
    assert (tmp_path / "comparison/specimens.csv").read_text().startswith("gpu,workload,first,second,")
    assert "No two boards" in (tmp_path / "comparison/specimens.md").read_text()


def test_the_table_names_both_boards(tmp_path):
    board(tmp_path, "1a2b3c4d")
    board(tmp_path, "5e6f7a8b", factor=1.02)
    comparison.write(tmp_path)
    text = (tmp_path / "comparison/specimens.md").read_text()
    assert "nvidia-h200-1a2b3c4d" in text and "nvidia-h200-5e6f7a8b" in text and "nan" not in text
