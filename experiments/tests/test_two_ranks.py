"""What the comparison of one rank with two says: by hand, and of the result that is kept."""

import csv

import pytest


@pytest.fixture(scope="module")
def two_ranks(script):
    return script("experiments/benchmarks/two_ranks.py")


def test_kernels_that_are_launched_another_number_of_times_are_named_and_nccl_is_apart(two_ranks):
    def rank(kernels, **more):
        return {"device": "a GPU", "loop_ms": 1.5, "kernels": kernels} | more

    found = {
        ("one", 0): rank({"gemm": [4, 10.0], "add": [2, 3.0]}),
        ("two", 0): rank({"gemm": [4, 16.0], "add": [3, 4.5], "ncclDevKernel_X": [1, 7.0]}, capture="refused: why"),
    }
    one, two, *more = two_ranks.summary(found, ["add", "gemm", "ncclDevKernel_X"]).splitlines()
    assert "6 launches of 2 kernels, 13.0 us; NCCL 0.0 us" in one and one.endswith(": 0")
    assert "7 launches of 2 kernels, 20.5 us; NCCL 7.0 us" in two and two.endswith(": 1")
    assert more == ["    add", "    capture: refused: why"]


def test_what_the_result_says_is_in_its_table(root):
    with (root / "experiments/results/two_ranks_h100.csv").open(encoding="utf-8", newline="") as file:
        rows = {row.pop("kernel"): {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)}
    (nccl,) = [rows.pop(name) for name in list(rows) if name.startswith("nccl")]
    assert len(rows) == 38 and nccl["launches_two_0"] == nccl["launches_two_1"] == 2
    assert all(row["launches_one_0"] == row["launches_two_0"] == row["launches_two_1"] for row in rows.values())
    assert sum(row["launches_one_0"] for row in rows.values()) == 104
    slower = sorted(row["time_us_two_0"] / row["time_us_one_0"] for row in rows.values())
    assert [round(ratio, 2) for ratio in slower[-2:]] == [1.55, 1.83]
    assert max(abs(row["time_us_two_1"] / row["time_us_one_0"] - 1) for row in rows.values()) < 0.05
