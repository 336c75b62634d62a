"""The target `pipeline` in a clone: complete, nothing left to do, and only what a change touches is made once more."""

import os

import pytest
from reduced_study import clone, planned, snakemake

pytestmark = pytest.mark.workflow

SMALL = (
    "pipeline={model: gpt3-125m, batch: 8, tensor_parallel: 2, stages: 4, core_step_mhz: 200, microbatches: [4], "
    "unit_time_s: 0.0001, kernels: 10, straggler: [1.2], switch_latency_s: [0, 0.001]}"
)
FOLDER = "results/pipeline/sim-a100-sxm/gpt3-125m-b8-tp2/pp4"
TABLES = ("no_straggler", "straggler", "emulation", "breakdown", "levels", "switching", "certificate")
FIGURES = ("frontier", "straggler", "breakdown", "levels", "switching", "timeline")
DRAWN = {f"tables/{name}": 1 for name in TABLES} | {f"figures/{name}": 1 for name in FIGURES}
CSV = """stage,instruction,frequency,time,energy
0,forward,1400,0.05,20
0,forward,700,0.08,15
0,backward,1400,0.10,40
0,backward,700,0.16,30
1,forward,1400,0.06,24
1,forward,700,0.09,18
1,backward,1400,0.12,48
1,backward,700,0.18,36
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = clone(tmp_path_factory.mktemp("pipeline") / "clone")
    snakemake(directory, "pipeline", config=[SMALL])
    return directory


def test_the_study_is_complete_and_has_nothing_to_do_again(finished):
    tables = {path.name for path in (finished / FOLDER / "tables").iterdir()}
    assert tables == {f"{name}.{form}" for name in TABLES for form in ("csv", "json", "md", "tex")}
    figures = {path.name for path in (finished / FOLDER / "figures").iterdir()}
    assert figures == {f"{name}.{form}" for name in FIGURES for form in ("pdf", "png")}
    assert (finished / FOLDER / "mb4/plans/straggler-1.2.json").is_file()
    assert planned(finished, "pipeline", config=[SMALL]) == {}


def test_another_number_of_microbatches_sweeps_no_kernel_again(finished):
    jobs = planned(finished, "pipeline", config=[SMALL.replace("[4]", "[4, 6]")])
    assert "pipeline_kernels" not in jobs and jobs["pipeline_stages"] == 1 and DRAWN.items() <= jobs.items()
    # frontier and plans of each number, the certificate of each, and the levels of the first
    assert jobs["pipeline_solve"] == 2 and jobs["pipeline_solve_part"] == 3


def test_a_frontier_in_parts_is_solved_by_as_many_jobs_and_joined_by_one(finished):
    jobs = planned(finished, "pipeline", config=[SMALL.replace("{", "{frontier_parts: 3, ", 1)])
    assert jobs["pipeline_solve_times"] == 3 and jobs["pipeline_solve"] == 1 and jobs["pipeline_solve_part"] == 2


def test_the_pipeline_is_no_part_of_the_whole_study(finished):
    assert not any(rule.startswith("pipeline") for rule in planned(finished, "all", config=[SMALL]))


def test_a_csv_of_stages_is_taken_and_a_bad_one_refused_in_front_of_the_user(tmp_path):
    directory = clone(tmp_path / "clone")
    # a unit of time that suits its longer instructions, or the published algorithm takes ten thousand steps
    given = SMALL.replace("unit_time_s: 0.0001", "unit_time_s: 0.01")
    given = given.replace("stages: 4", "stages: 2, profile: mine.csv, blocking_w: 80, scale_time: 10, scale_energy: 20")
    (directory / "mine.csv").write_text(CSV.replace("0.18", "-0.18"))
    said = snakemake(directory, "pipeline", check=False, config=[given])
    line = next(line for line in said.stdout.splitlines() if line.startswith("error:"))
    assert said.returncode != 0 and "mine.csv, line 9, column time: '-0.18' is not above zero" in line
    (directory / "mine.csv").write_text(CSV)
    snakemake(directory, "pipeline", config=[given], options=["--until", "pipeline_solve"])
    (folder,) = (directory / "results/pipeline/table-mine").iterdir()
    assert (folder / "mb4/plans/one-clock.json").is_file() and (folder / "stages.csv").read_text().count("\n") == 9
    # kernels are not known, so neither are levels
    drawn = {name: 1 for name in DRAWN if not name.endswith("/levels")}
    assert planned(directory, "pipeline", config=[given]) == drawn | dict.fromkeys(
        ("pipeline_solve_part", "pipeline_page", "pipeline"), 1
    )


def replaced(path, content, about=None):
    """Write a file with the date that it had, or that of `about`; returns what it had."""
    about = about or path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return about


def refused(directory):
    said = snakemake(directory, "pipeline", check=False, dry=True, config=[SMALL])
    (line,) = (line for line in said.stdout.splitlines() if line.startswith("error:"))
    assert said.returncode != 0
    return line


def test_an_edited_record_is_refused_whatever_its_date_until_it_is_made_again(finished):
    path = finished / FOLDER / "mb4/methods.csv"
    whole = path.read_bytes()
    about = replaced(path, whole.replace(b"one clock,", b"one clock,1", 1))
    assert f"{FOLDER}/mb4/methods.csv: was changed since it was written" in refused(finished)
    path.unlink()
    assert planned(finished, "pipeline", config=[SMALL])["pipeline_solve"] == 1
    replaced(path, whole, about)
    assert planned(finished, "pipeline", config=[SMALL]) == {}


def test_another_source_is_solved_anew_or_refused_where_its_date_is_the_old_one(finished):
    path = finished / "results/pipeline/sim-a100-sxm/gpt3-125m-b8-tp2/kernels.parquet"
    whole = path.read_bytes()
    about = replaced(path, whole + b"x")
    assert f"{FOLDER}/study.json: was made of another source than" in refused(finished)
    os.utime(path)
    jobs = planned(finished, "pipeline", config=[SMALL])
    assert jobs["pipeline_stages"] == 1 and jobs["pipeline_solve"] == 1
    replaced(path, whole, about)
    assert planned(finished, "pipeline", config=[SMALL]) == {}


def test_a_lost_table_is_written_again_from_what_was_solved(finished):
    (finished / FOLDER / "tables/certificate.csv").unlink()
    assert planned(finished, "pipeline", config=[SMALL]) == {"tables/certificate": 1, "pipeline_page": 1, "pipeline": 1}
