"""The page of all GPUs: what `comparison/` and the folders of other studies hold, and nothing else."""

import csv
import shutil

import pytest
from made_up_study import made_up
from page_reader import Page, numbers
from PIL import Image

from kernel_dvfs.cli.main import main
from kernel_dvfs.report import comparison
from kernel_dvfs.table_file import read_rows as rows
from kernel_dvfs.table_file import write_rows

BOARDS = ("1a2b3c4d", "5e6f7a8b")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A simulated study, and one workload on two boards of one type. Not to be changed: use `own`."""
    root = tmp_path_factory.mktemp("results")
    made_up(root / "sim-toy-1/toy-b40-tp1")
    for uuid in BOARDS:
        study = made_up(root / f"toy-1-{uuid}/toy-b40-tp1", kind="nvml")
    assert main(["report", str(study)]) == 0
    comparison.write(root)
    return root


@pytest.fixture
def own(results, tmp_path):
    return shutil.copytree(results, tmp_path / "results")


def page_of(results, code=0) -> Page:
    assert main(["report", str(results / "comparison")]) == code
    return Page((results / "comparison/report.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(results):
    return page_of(results)


def test_it_is_whole_and_loads_nothing(page):
    assert page.faults == [] and page.outside() == []
    assert {each[1:] for each in page.addresses if each.startswith("#")} <= set(page.ids)


def test_every_gpu_and_workload_is_a_row_with_the_csvs_numbers(page, results):
    expected = list(csv.DictReader((results / "comparison/gpus.csv").open()))
    assert len(expected) == 3
    first = page.tables["gpus"][0]
    assert {*first[:2]} == {"gpu", "kind"} and first[2] == "kernel_fresh_energy_change_percent"
    fresh = ["fresh" in name for name in first[2:]]
    assert fresh == sorted(fresh, reverse=True), "what was measured again stands before what is claimed"
    for row, wanted in zip(page.rows("gpus"), expected, strict=True):
        assert {name: value for name, (value, _) in row.items()} == {name: wanted[name] for name in row}
        bounds = [wanted[f"kernel_fresh_energy_{bound}_percent"] for bound in ("change", "low", "high")]
        shown = numbers(row["kernel_fresh_energy_change_percent"][1])
        for each, (seen, tolerance) in zip(bounds, shown, strict=True):
            assert abs(seen - float(each)) <= tolerance


def test_two_boards_of_one_type_are_told_apart_and_compared(page, results):
    assert {row["slug"][1] for row in page.rows("gpus")} == {"sim-toy-1", "toy-1-1a2b3c4d", "toy-1-5e6f7a8b"}
    found = rows(results / "comparison/gpus.json")
    labels = [comparison.label(row, found) for row in found]
    assert labels == ["simulated Toy <1>, toy-b40-tp1", *(f"Toy <1>, board {each}, toy-b40-tp1" for each in BOARDS)]
    twins = [row | {"gpu": "Toy"} for row in found[1:]]
    assert comparison.label(twins[0], twins) == "toy-1-1a2b3c4d, toy-b40-tp1"
    (pair,) = page.rows("specimens")
    assert (pair["first"][1], pair["second"][1]) == ("toy-1-1a2b3c4d", "toy-1-5e6f7a8b")
    assert pair["auto_energy_difference_percent"][1] == "0.00"


def test_a_study_with_a_page_of_its_own_is_linked_and_no_other(page, results):
    links = [each for each in page.addresses if each.startswith("../")]
    assert links == ["../toy-1-5e6f7a8b/toy-b40-tp1/report.html"]
    assert (results / "comparison" / links[0]).is_file()


def test_it_says_which_rows_are_simulated(page):
    assert "3, 1 simulated" in page.text and "Simulated GPUs." in page.text


def test_studies_beside_the_road_are_shown_where_they_are(own):
    pipeline = own / "pipeline/sim-a100/gpt3-175b/pp8"
    for name in ("tables", "figures"):
        (pipeline / name).mkdir(parents=True)
    levels = [{"level": f"kernel {number}", "energy_change_percent": -12.5} for number in range(12)]
    write_rows(pipeline / "tables/levels.json", levels)
    write_rows(pipeline / "tables/methods.json", [{"time_s": number} for number in range(100)])
    Image.new("RGB", (300, 200), "white").save(pipeline / "figures/timeline.png")
    page = page_of(own)
    assert page.faults == [] and page.outside() == []
    assert "Training pipelines" in page.text and "sim-a100/gpt3-175b/pp8" in page.text
    assert page.rows("levels")[0]["energy_change_percent"][1] == "−12.50" and "levels" not in page.folded
    write_rows(pipeline / "tables/levels.json", [*levels, levels[0]])
    assert page_of(own).folded == ["levels"], "of more than a dozen rows"
    from kernel_dvfs_pipeline.report.tables import OUTPUTS

    assert OUTPUTS["table", "levels"].caption in page.text
    _, image = page.images
    assert image["alt"].startswith("Timeline. Timeline of one iteration"), "title and caption"
    assert "tables/methods.json" in page.text, "what is no table of such a study is named and not shown"
    assert "Inference serving" not in page.text


def test_figures_beyond_what_can_be_mailed_stay_outside(own, monkeypatch):
    from kernel_dvfs.report.page import render

    monkeypatch.setattr(render, "LIMIT_BYTES", 1)
    (own / "serving/figures").mkdir(parents=True)
    Image.new("RGB", (300, 200), "white").save(own / "serving/figures/table1.png")
    page = page_of(own)
    assert page.images == [] and "too large to be mailed: table1.png" in page.text


def test_a_broken_table_beside_it_is_named(own, capsys):
    (own / "comparison/specimens.json").write_text("a,b\n1\n")
    page = page_of(own, code=2)
    said = capsys.readouterr().err
    assert "specimens.json" in said and said.count("\n") == 1 and "specimens.json" in page.text


def test_a_table_of_gpus_without_a_column_that_a_page_needs_is_refused_in_one_line(own, capsys):
    write_rows(own / "comparison/gpus.json", [{"gpu": "Toy", "workload": "toy"}])
    assert main(["report", str(own / "comparison")]) == 2
    assert capsys.readouterr().err == (
        f"error: table {own}/comparison/gpus.json: no column kind; delete it and run snakemake report\n"
    )
