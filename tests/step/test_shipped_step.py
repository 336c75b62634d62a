"""The measured step that ships: its page says what the study's own tables say, and claims no choice."""

import csv
import io

import pandas as pd
import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.shipped import STEP
from kernel_dvfs.table_file import read_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("demo") / "step"
    assert main(["demo", "--step", "-o", str(made)]) == 0
    return made


def test_the_profile_adds_up_to_the_sum_that_the_study_found(folder):
    with open(STEP / "step_kernels.csv", newline="") as file:
        found = list(csv.DictReader(file))
    rows = [row for row in read_profile(folder / "profile.parquet").table.to_pylist() if row["study"] == "kernel"]
    for column, unit, per_step in (("time_s", 1e3, "time_per_step_ms"), ("energy_j", 1, "energy_per_step_j")):
        own = sum(row["launches_per_iteration"] * row[column] for row in rows)
        assert own * unit == pytest.approx(sum(float(row[per_step]) for row in found), rel=1e-9)
    assert len(rows) == len(found) == 122


def test_the_page_begins_with_the_step_and_says_that_nothing_was_chosen(folder):
    page = (folder / "report.html").read_text("utf-8")
    heading = page[page.index("<h1>") : page.index("</h1>")]
    assert "15.59 J" in heading and "22.54 ms" in heading and "25 of its 122 kernels" in heading
    assert "Nothing was chosen" in page and 'class="tag"' not in page and "What is missing" not in page
    assert "NVIDIA H200, board 16f757ee" in page
    first = page[page.index("The costliest kernels") :]
    assert first.index("mm 8192x2048x32000") < first.index("mm 32000x8192x2048") < first.index("log_softmax")


def test_no_total_of_the_shipped_step_lies_above_the_power_limit(folder):
    rows = read_rows(folder / "tables/step_totals.json")
    assert all(row["power_w"] <= 700 for row in rows) and rows[1]["residual_time_percent"] > 0
    page = (folder / "report.html").read_text("utf-8")
    assert "the sum scales them to what their sections leave: +6.5 % time, -6.4 % energy" in page
    assert "Its kernels add up to it within 2.6 % of time, 2.6 % of energy." in page


def test_the_shipped_tables_follow_from_what_was_measured():
    from experiments.benchmarks import shipped_step

    for name, table in shipped_step.tables().items():
        kept = pd.read_csv(STEP / f"{name}.csv")
        again = pd.read_csv(io.StringIO(table.to_csv(index=False)))
        pd.testing.assert_frame_equal(again, kept, rtol=1e-4)
    # what was measured of a product, and the work that its sizes are: 2 x 8192 x 2048 x 32000 in 1372.9 us
    with open(STEP / "step_kernels.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["tflop_per_s"]) == pytest.approx(782.1, rel=1e-3)
    assert float(row["peak_percent"]) == pytest.approx(100 * 782.1 / 1070.6, rel=1e-3)
    assert float(row["energy_per_pflop_j"]) == pytest.approx(1243.2, rel=1e-3)
