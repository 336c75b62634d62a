"""The measured step that ships: its page says what the study's own tables say, and claims no choice."""

import csv

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.shipped import STEP


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("demo") / "step"
    assert main(["demo", "--step", "-o", str(made)]) == 0
    return made


def test_the_profile_adds_up_to_the_sum_that_the_study_found(folder):
    with open(STEP / "step_totals.csv", newline="") as file:
        total = next(row for row in csv.DictReader(file) if row["step"] == "sum of its kernels")
    rows = [row for row in read_profile(folder / "profile.parquet").table.to_pylist() if row["study"] == "kernel"]
    for column, unit, found in (("time_s", 1e3, "time_ms"), ("energy_j", 1, "energy_j")):
        own = sum(row["launches_per_iteration"] * row[column] for row in rows)
        assert own * unit == pytest.approx(float(total[found]), rel=1e-9)
    assert len(rows) == int(total["kernels"]) == 122


def test_the_page_begins_with_the_step_and_says_that_nothing_was_chosen(folder):
    page = (folder / "report.html").read_text("utf-8")
    heading = page[page.index("<h1>") : page.index("</h1>")]
    assert "15.59 J" in heading and "22.54 ms" in heading and "25 of its 122 kernels" in heading
    assert "Nothing was chosen" in page and 'class="tag"' not in page and "What is missing" not in page
    assert "NVIDIA H200, board 16f757ee" in page
    first = page[page.index("The costliest kernels") :]
    assert first.index("mm 8192x2048x32000") < first.index("mm 32000x8192x2048") < first.index("log_softmax")
