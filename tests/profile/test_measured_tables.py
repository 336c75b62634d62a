"""The published measurements load as they are, point for point."""

import csv

import pytest

from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import import_table, import_to_profile

# file, records, points, kernels, baseline: does it lock a clock
TABLES = [
    ("rtx3080ti_calibration.csv", 880, 858, 33, False),
    ("a100_ttu.csv", 1525, 1525, 25, True),
    ("v100_nvdvfs.csv", 1106, 1106, 158, True),
    ("rtx8000_nvdvfs.csv", 1580, 1580, 158, True),
    ("a100pcie_clock_powercap.csv", 140, 140, 4, True),
]


@pytest.mark.parametrize(("name", "records", "points", "kernels", "locked"), TABLES)
def test_a_measured_table_loads_point_for_point(measured, tmp_path, name, records, points, kernels, locked):
    imported = import_to_profile(measured(name), tmp_path / "profile.parquet")
    table, metadata, _ = read_profile(tmp_path / "profile.parquet")
    assert table.num_rows == points and sum(imported.columns["n"]) == records
    assert len(set(imported.columns["target"])) == kernels
    assert imported.notices == []
    assert metadata["gpu"]["slug"] == "table-" + name.removesuffix(".csv").replace("_", "-")
    baselines = table.filter(table["is_baseline"]).to_pylist()
    assert sorted(row["target"] for row in baselines) == sorted(set(imported.columns["target"]))
    assert all((row["core_mhz"] is not None) == locked for row in baselines)


def test_the_calibration_table_keeps_its_sums_and_pools_the_22_repeats(measured):
    path = measured("rtx3080ti_calibration.csv")
    columns = import_table(path).columns
    with open(path, newline="") as file:
        source = list(csv.DictReader(file))
    assert sum(n == 2 for n in columns["n"]) == 22
    baseline_s = sum(t for t, base in zip(columns["time_s"], columns["is_baseline"], strict=True) if base)
    assert baseline_s == pytest.approx(sum(float(r["time_ms"]) for r in source if r["is_auto"] == "1") / 1e3)
    pooled = sum(n * e for n, e in zip(columns["n"], columns["energy_j"], strict=True))
    assert pooled == pytest.approx(sum(float(row["energy_mj"]) for row in source) / 1e3)


def test_the_power_cap_of_the_a100_pcie_is_part_of_each_point(measured):
    imported = import_table(measured("a100pcie_clock_powercap.csv"))
    assert imported.settings == ["core_mhz", "mem_mhz", "power_cap_w"]
    columns = imported.columns
    points = zip(columns["target"], columns["core_mhz"], columns["power_cap_w"], columns["is_baseline"], strict=True)
    points = list(points)
    assert len({point[:3] for point in points}) == 140
    assert {point[1:3] for point in points if point[3]} == {(1410.0, 300.0)}
    assert set(columns["mem_mhz"]) == {None}


@pytest.mark.parametrize("name", ["v100_nvdvfs.csv", "a100pcie_clock_powercap.csv"])
def test_the_highest_clocks_are_the_published_reference(measured, name):
    path = measured(name)
    assert import_table(path, reference="highest").columns == import_table(path).columns
