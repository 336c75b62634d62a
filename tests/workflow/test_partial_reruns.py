"""What runs again, and what does not. Jobs are counted as Snakemake plans them."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from reduced_study import FOLDER, RECORDS, ROOT, begun, clone, command, planned, snakemake

pytestmark = pytest.mark.workflow

MEASURING = {"measure", "measure_again", "validate", "carry_over", "sweep_variant", "validate_variant"}


def record(study, name="kernel/forward_gelu/1470-9251/r0.json"):
    return study / FOLDER / "measurements" / name


def test_the_study_is_complete_and_leaves_nothing_half_written(finished):
    assert len(list((finished / FOLDER / "measurements").glob("*/*/*/r*.json"))) == RECORDS
    assert not [path for path in finished.rglob(".*-*") if path.is_file() and ".snakemake" not in path.parts]
    assert not list((finished / "results/native").rglob("*.so")), "nothing is compiled that is switched off"


# a clock that the board has not
REFUSED = str(FOLDER / "measurements/kernel/forward_gelu/1471-9251/r0.json")


def test_a_measurement_that_is_refused_within_snakemake_is_one_line_and_stays_in_its_log(study):
    done = snakemake(study, REFUSED, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stdout
    (line,) = {each for each in done.stdout.splitlines() if each.startswith("error: ")}
    assert "1471" in line
    log = study / "logs" / FOLDER / "measure/kernel-forward_gelu-1471-9251-r0.log"
    assert log.read_text() == f"{line}\n" and not (study / REFUSED).exists()


def test_without_the_option_that_keeps_measurements_in_one_process_a_run_says_so_and_measures_the_same(study):
    whole = record(study).read_bytes()
    record(study).unlink()
    said = snakemake(study, str(record(study).relative_to(study)), options=["--workflow-profile", "none"]).stdout
    assert said.count("note: --force-use-threads is missing") == 1
    assert record(study).read_bytes() == whole


def test_a_table_is_written_without_what_draws(study):
    code = (
        "import sys; from kernel_dvfs.cli.main import main;"
        "assert not main(['output', *sys.argv[1:]]); print(*{'pandas', 'plotnine'} & set(sys.modules))"
    )
    words = [sys.executable, "-c", code, str(FOLDER), "tables/claims"]
    done = subprocess.run(words, cwd=study, env={"PYTHONPATH": "workflow"}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pandas"], "imported, but nothing that draws"


def test_other_limits_measure_only_their_own_fresh_repeats(finished):
    jobs = planned(finished, config=["limits_percent=[5, 0, 2.5]"])
    assert not (MEASURING - {"measure_again"}) & set(jobs)
    assert jobs["choose_schedule"] == 2 * (6 + 2), "those of each that did not exist: as published six, relied on two"
    assert jobs["measure_again"] == 2, "a session a repeat serves all of them"


def test_another_way_to_choose_does_not_repeat_the_sweep(finished):
    jobs = planned(finished, config=["ties=untied", "weights=equal-time"])
    assert "choose_schedule" in jobs
    assert not {"measure", "aggregate", "sweep_variant"} & set(jobs)


A4000 = ("gpu=rtx_a4000", "grid={core_mhz: [1050, 1470], mem_mhz: [7001], auto: false}")


@pytest.mark.nightly
def test_another_gpu_measures_its_own_and_keeps_the_first(study):
    assert planned(study, config=A4000)["measure"] == RECORDS
    before = {path: path.stat().st_mtime_ns for path in (study / FOLDER).rglob("*") if path.is_file()}
    # what is compared between GPUs is their strict schedules, by claims those that are chosen as published
    folder, strict = "results/sim-rtx-a4000/gpt3-xl-b40-tp1/schedules", "kernel-global-waste-slack0.json"
    snakemake(study, f"{folder}/{strict}", f"{folder}/published/{strict}", config=A4000)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    back = planned(study)
    # the first GPU's claims about other GPUs, and the tables of all GPUs, have something new to say, and so their pages
    assert back == {"tables/claims": 1, "compare_gpus": 1, "report_page": 1, "comparison_page": 1}
    snakemake(study)
    assert "RTX A4000" in (study / "results/comparison/gpus.csv").read_text()
    assert planned(study) == {}


def files(study) -> dict:
    """{path: (time, bytes)} of what a study has made."""
    made = (path for path in (study / "results").rglob("*") if path.is_file() and ".snakemake" not in path.parts)
    return {path.relative_to(study): (path.stat().st_mtime_ns, path.read_bytes()) for path in made}


def test_a_record_that_is_measured_again_to_the_same_bytes_runs_nothing_after_the_profile(study):
    before = files(study)
    record(study).unlink()
    foreseen = snakemake(study, dry=True).stdout.splitlines()[-1]
    jobs = int(re.match(r"Of these (\d+) jobs 2 are sure to run\. ", foreseen)[1])
    assert jobs > 50 and foreseen.endswith("again after aggregate, and run only if that gives other bytes.")
    assert "\n2 of 2 jobs in " in snakemake(study).stdout
    after = files(study)
    assert {path: content for path, (_, content) in before.items()} == {
        path: content for path, (_, content) in after.items()
    }
    again = {str(path.relative_to(FOLDER)) for path in after if after[path][0] != before[path][0]}
    assert again == {"measurements/kernel/forward_gelu/1470-9251/r0.json", "profile.parquet", "published.parquet"}
    assert planned(study) == {}


def test_a_record_that_is_measured_again_to_other_bytes_runs_all_that_rests_on_it(study):
    before = files(study)
    content = json.loads(record(study).read_text())
    for field in ("energy_mj", "power_mw"):
        content["summary"][field] *= 1.01
    for window in content["windows"]:
        window["energy_mj"] *= 1.01
    del content["sha256"]  # it stands for one that was measured, not edited
    record(study).write_text(json.dumps(content) + "\n")
    snakemake(study, "profile")
    # the profile has other bytes, so all is looked at again
    jobs = planned(study)
    figures = {name for name in jobs if name.startswith("figures/")}
    assert jobs["choose_schedule"] == 18 + 4 and len(figures) == 6
    assert {"validate", "tables/strategies", "tables/claims", "report_page", "comparison_page"} <= set(jobs)
    assert not (MEASURING - {"measure_again", "validate", "carry_over"}) & set(jobs)
    snakemake(study, str(FOLDER / "tables/strategies.csv"))
    after = files(study)
    changed = {
        str(path.relative_to(FOLDER)) for path in after if after[path][1] != before[path][1] and FOLDER in path.parents
    }
    schedule = "schedules/published/kernel-global-waste-slack0.json"
    assert {"profile.parquet", "published.parquet", schedule, "tables/strategies.csv"} <= changed
    left = planned(study)
    assert "tables/strategies" not in left and left["report_page"] == 1, "a page rests on all tables (test_pages.py)"
    assert not [path for path in changed if path.startswith(("variants", "measurements/pass"))]


def test_a_truncated_record_stops_the_study_by_name_and_is_measured_again_once_deleted(study):
    whole = record(study).read_bytes()
    record(study).write_bytes(whole[:100])
    said = snakemake(study, "profile", check=False, options=["--forcerun", "aggregate"])
    assert said.returncode != 0
    assert "forward_gelu/1470-9251/r0.json: truncated" in said.stdout
    record(study).unlink()
    snakemake(study, "profile")
    assert record(study).read_bytes() == whole


def test_a_measurement_setting_measures_again(finished):
    """Which settings do: tests/plan/test_study.py."""
    assert planned(finished, config=["window_s=10"])["measure"] == RECORDS


def test_a_finer_grid_measures_only_the_new_pairs(finished):
    finer = "grid={core_mhz: [1050, 1260, 1470, 2100], mem_mhz: [9251], auto: false}"
    assert planned(finished, config=[finer])["measure"] == 48 * 2


@pytest.mark.nightly
def test_a_new_caption_is_on_the_page_and_in_the_report_and_only_its_figure_is_drawn_again(study):
    module = study / "workflow/kernel_dvfs/report/figures.py"
    text = module.read_text()
    caption = "One launch of each kernel at auto clocks, or a table's reference; area: its share of an iteration."
    assert caption in text
    module.write_text(text.replace(caption, "A caption like no other."))
    assert planned(study) == {"figures/fig5_kernels": 1, "report_page": 1, "comparison_page": 1}
    snakemake(study)
    assert "A caption like no other" in (study / FOLDER / "report.html").read_text()
    snakemake(study, options=["--report", "report.html"])
    assert "A caption like no other" in (study / "report.html").read_text()


@pytest.mark.parametrize("weights", ["equal-time"])
def test_table_2_compares_the_weights_that_are_asked_for(study, weights):
    path = FOLDER / "tables/strategies.csv"
    snakemake(study, str(path), config=[f"weights={weights}"])
    table = (study / path).read_text()
    assert f",{weights}," in table and ",counts," not in table


def test_no_verdict_rests_on_a_file_that_an_earlier_configuration_left(study):
    def verdicts() -> dict:
        with open(study / FOLDER / "tables/claims.csv", newline="") as file:
            return {int(row["number"]): row["verdict"] for row in csv.DictReader(file)}

    carried = (22, 23, 25)  # 24 needs more degrees than this study has
    assert "not testable" not in {verdicts()[number] for number in carried}
    snakemake(study, config=["data_parallel_batches=[]", "tensor_parallel_degrees=[]"])
    assert (study / FOLDER / "tables/data_parallelism.csv").is_file(), "it still lies there"
    assert {verdicts()[number] for number in carried} == {"not testable"}
    assert "Figure 7" not in (study / FOLDER / "report.html").read_text()


def test_llmc_rows_differ_between_degrees_and_carry_over_all_the_same(tmp_path):
    directory = clone(tmp_path / "clone")
    config = ["bias_split=llmc", "data_parallel_batches=[]", "auto_repeats=1"]
    jobs = planned(directory, "report", config=config)
    assert jobs["carry_over"] == 1, "degree 2"
    added = "measurements/tp-2/backward_qkv_bias_reduce.json"
    folder = FOLDER.with_name(f"{FOLDER.name}-bias-split-llmc")
    assert planned(directory, str(folder / added), config=config)["carry_over"] == 1, "a row that degree 1 has not"


# more than a moment's work, also where what is under way is ended first
SWEEP = ("grid={core_mhz: [1050, 1260, 1470, 1680, 1890, 2100], mem_mhz: [9251, 5001], auto: false}",)
SWEPT = 48 * 13


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]
)
def test_an_interrupted_run_is_completed_by_the_same_command(tmp_path, how):
    directory = clone(tmp_path / "clone")
    log = tmp_path / "log"
    running = begun(directory, command("profile", config=SWEEP), log)
    folder = directory / FOLDER / "measurements"
    deadline = time.monotonic() + 300  # long enough for a busy machine
    while len(list(folder.glob("*/*/*/r0.json"))) < 40:
        assert running.exitcode is None and time.monotonic() < deadline, f"should be measuring: {log.read_text()}"
        time.sleep(0.01)
    if how == signal.SIGKILL:
        os.killpg(running.pid, how)
    else:
        os.kill(running.pid, how)
    running.join(300)
    assert running.exitcode
    assert not (directory / FOLDER / "profile.parquet").exists(), log.read_text()
    # whole, although some are measured again: those of the batch that was under way
    done = {path: path.read_bytes() for path in folder.glob("*/*/*/r0.json")}
    assert 40 <= len(done) < SWEPT, "it went on although it was stopped"
    snakemake(directory, "profile", config=SWEEP)
    assert {path: path.read_bytes() for path in done} == done
    assert len(list(folder.glob("*/*/*/r0.json"))) == SWEPT
    if how == signal.SIGKILL:  # which leaves marks of what was under way
        assert planned(directory, "profile", config=SWEEP) == {}


def test_ctrl_c_waits_for_no_table_that_has_not_begun(study):
    tables = study / FOLDER / "tables"
    shutil.rmtree(tables)
    running = begun(study, command())
    deadline = time.monotonic() + 300
    while not list(tables.glob("*.csv")):
        assert running.exitcode is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    running.join(300)
    assert running.exitcode == 1
    # those under way have ended; all had been given to Snakemake's threads at once
    left = [job for job in planned(study) if job.startswith("tables/")]
    assert len(list(tables.glob("*.csv"))) < 6 <= len(left)


def test_two_runs_in_one_folder_do_not_disturb_each_other(study):
    record(study).unlink()
    code = f"from kernel_dvfs import lock; lock.hold('{study}/.snakemake/kernel-dvfs.lock'); print('held'); input()"
    holder = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env={"PYTHONPATH": str(ROOT / "workflow")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline().strip() == "held"
        said = snakemake(study, check=False)
        assert said.returncode != 0 and f"error: another run (process {holder.pid})" in said.stdout
        assert "Traceback" not in said.stdout and 'File "' not in said.stdout
    finally:
        holder.communicate("\n", timeout=10)
    assert snakemake(study).returncode == 0
