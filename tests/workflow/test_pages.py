"""The pages as the workflow makes them: of a real study, light, with its numbers, and Snakemake's own report."""

import csv
import subprocess
import zipfile

import pytest
from page_reader import Page, numbers
from reduced_study import FOLDER, planned, snakemake

from kernel_dvfs.table_file import write_rows

pytestmark = pytest.mark.workflow

PAGE = FOLDER / "report.html"


@pytest.fixture(scope="module")
def page(finished):
    return Page((finished / PAGE).read_text("utf-8"))


def test_the_pages_are_whole_load_nothing_and_can_be_mailed(finished, page):
    comparison = Page((finished / "results/comparison/report.html").read_text("utf-8"))
    for each in (page, comparison):
        assert each.faults == [] and each.outside() == [] and len(each.html) < 1_500_000
        assert "What is missing" not in each.text
    assert f"../{PAGE.relative_to('results')}" in comparison.addresses


def test_every_table_and_figure_of_the_study_is_on_the_page(finished, page):
    made = {path.stem for path in (finished / FOLDER / "tables").glob("*.csv") if path.read_text().count("\n") > 1}
    assert len(made) >= 8 and made <= set(page.tables)
    assert len(page.images) == len(list((finished / FOLDER / "figures").glob("*.png")))


def test_the_answer_is_that_of_the_validation(finished, page):
    (row, *_) = csv.DictReader((finished / FOLDER / "tables/headline.csv").open())
    names = ("fresh_{}_change", "fresh_{}_low", "fresh_{}_high", "claimed_{}_change")
    shown = {each["quantity"][0]: each for each in page.rows("measured_again")}
    assert set(shown) == {"energy", "time"}
    for quantity, each in shown.items():
        said = numbers(f"{each['fresh_change_percent'][1]} {each['claimed_change_percent'][1]}")
        for (value, tolerance), name in zip(said, names, strict=True):
            assert abs(value - float(row[f"{name.format(quantity)}_percent"])) <= tolerance, (quantity, name)


def test_parts_of_the_saving_add_up_to_the_claim(finished, page):
    kernels = page.rows("chosen_clocks")
    assert len(kernels) == 46
    (claim,) = (row for row in page.rows("measured_again") if row["quantity"][0] == "energy")
    parts = sum(float(row["part_of_the_saving_pp"][0]) for row in kernels)
    # the total pools identical launches, the table has each one's own measurements: alike within their scatter
    assert parts == pytest.approx(float(claim["claimed_change_percent"][0]), abs=0.02)
    for column in ("energy_share_percent", "time_share_percent"):
        assert sum(float(row[column][0]) for row in kernels) == pytest.approx(100)


def test_a_page_is_made_anew_when_what_it_shows_was_and_not_otherwise(study):
    beside = study / "results/pipeline/toy/tables"
    beside.mkdir(parents=True)
    write_rows(beside / "methods.json", [{"way": "one clock", "saved": 7}])
    assert planned(study) == {"comparison_page": 1}
    snakemake(study, "report")
    assert "tables/methods.json" in (study / "results/comparison/report.html").read_text() and planned(study) == {}
    (study / PAGE).unlink()
    snakemake(study, "report")
    assert (study / PAGE).is_file() and planned(study) == {}


@pytest.mark.nightly
def test_a_study_without_other_batches_does_not_miss_them(study):
    without = ["data_parallel_batches=[]", "tensor_parallel_degrees=[]"]
    snakemake(study, "report", config=without)
    page = Page((study / PAGE).read_text("utf-8"))
    assert "What is missing" not in page.text


@pytest.mark.parametrize("form", ["html", pytest.param("zip", marks=pytest.mark.nightly)])
def test_snakemake_makes_its_own_report_with_captions(finished, tmp_path, form):
    path = tmp_path / f"report.{form}"
    done: subprocess.CompletedProcess = snakemake(finished, "all", options=["--report", str(path)])
    assert "Report created" in done.stdout
    if form == "zip":
        names = zipfile.ZipFile(path).namelist()
        assert any(name.endswith("kernel_clocks.csv") for name in names)
        assert any(name.endswith("fig3_fig4_passes.png") for name in names)
    else:
        text = path.read_text("utf-8")
        assert "Figure 6. Claimed energy over tolerated slowdown" in text
        assert "Claimed is what the measurements that chose the clocks promised" in text
