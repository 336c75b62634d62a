"""The whole workflow on a real GPU, as far as a fake NVML goes: Snakemake, nvidia-ml-py, a reduced grid."""

import csv
import json
import os
import re
import signal
import threading
import time

import pytest
from real_study import FOLDER, POINTS, REAL, SLUG, TARGETS, Real
from reduced_study import begun, command

pytestmark = pytest.mark.workflow

HAND_MADE_FOLDER = f"results/{SLUG}/step-hand-made"
RECORD = f"{FOLDER}/measurements/kernel/gelu_forward/1500-2201/r0.json"
# what only a model has: claims of the paper, and a forward and a backward pass
MODEL, MODEL_TARGETS, MODEL_FOLDER = "workload=model", 48, f"results/{SLUG}/gpt3-xl-b40-tp1"
# auto and one other
TWO_PAIRS = ("grid={core_mhz: [1500], mem_mhz: [2201], auto: false}", "auto_repeats=1")
MODEL_AT_TWO = (MODEL, *TWO_PAIRS, "limits_percent=[0]", "sessions=1")


@pytest.fixture(scope="module")
def finished_model(fake_library, tmp_path_factory):
    """A clone in which a model is measured at two clock pairs, as far as two tables ask for, and its boards."""
    real = Real.unmeasured(tmp_path_factory.mktemp("model"), fake_library)
    real.run(*(f"{MODEL_FOLDER}/tables/{name}.csv" for name in ("locking", "passes")), config=MODEL_AT_TWO)
    return real


def test_a_study_is_measured_chosen_validated_and_reported_and_the_clocks_come_back(finished_step):
    assert finished_step.is_restored()
    records = finished_step.records()
    assert len(records) == POINTS
    assert {record["verdict"] for record in records} <= {"ok", "throttled", "not_reached"}
    folder = finished_step.directory / FOLDER
    chosen = json.loads((folder / "schedules/kernel-global-waste-slack0.json").read_text())
    assert chosen["status"] == "optimal" and chosen["energy_change_percent"] < 0
    for name in ("baseline", "kernel_clocks", "strategies", "validation"):
        assert "fake NVML" in (folder / f"tables/{name}.csv").read_text(), "numbers from a fake say so"
    assert (folder / "figures/fig6_relaxed_waste.pdf").is_file()


# by day the other tables of a model and of a step show that they say it
@pytest.mark.nightly
def test_a_model_s_claims_say_that_their_numbers_are_a_fake_s(finished_model):
    claims = f"{MODEL_FOLDER}/tables/claims.csv"
    finished_model.run(claims, config=MODEL_AT_TWO)
    assert finished_model.is_restored() and "fake NVML" in (finished_model.directory / claims).read_text()


def test_each_validation_repeat_is_a_session_of_its_own_and_the_interval_is_over_them(finished_step):
    folder = finished_step.directory / FOLDER
    sessions = [
        {each["session"] for each in json.loads(path.read_text())["comparisons"]}
        for path in sorted((folder / "measurements/validation").glob("repeat-*.json"))
    ]
    repeats = len(sessions)
    assert repeats >= 2 and all(len(each) == 1 for each in sessions)
    assert len(set.union(*sessions)) == repeats
    with open(folder / "tables/validation.csv", newline="") as file:
        assert {row["interval"] for row in csv.DictReader(file)} == {f"over {repeats} sessions"}


def test_auto_is_compared_with_the_highest_clocks_and_passes_with_the_sums_of_their_kernels(finished_model):
    def table(name):
        with open(finished_model.directory / MODEL_FOLDER / f"tables/{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert all("fake NVML" in row["gpu"] for row in rows)
        return rows

    assert finished_model.is_restored() and len(finished_model.records()) == 2 * MODEL_TARGETS
    locking = table("locking")
    assert [row["id"] for row in locking] == 3 * ["loss_dwte_gemm", "loss_softmax", "forward_attention_residual"]
    ways = [("core alone", "1980-auto"), ("memory alone", "auto-3201"), ("both", "1980-3201")]
    assert [(row["way"], row["locked"]) for row in locking] == [way for way in ways for _ in range(3)]
    for row in locking:
        assert row["repeats"] == "3" and row["verdict"] == "as auto"
        # on this board a lock at the highest clocks changes nothing
        assert abs(float(row["energy_change_percent"])) < 1 and row["auto_core_mhz"] == row["locked_core_mhz"]
    passes = table("passes")
    assert [(row["pass"], row["chosen_by"]) for row in passes] == [
        (name, how) for name in ("forward", "backward") for how in ("auto", "pass-global-waste-slack0")
    ]
    for row in passes:
        # under the cap, which acts on the mean over all kernels of a pass, hot ones run faster than alone
        assert -6 < float(row["time_difference_percent"]) < 0.5 and float(row["sum_energy_j"]) > 0


def test_one_clock_pair_follows_the_other_with_auto_first_and_last_in_two_sessions(finished_step):
    stretches, sessions = [], {}
    for record in finished_step.records():
        request, run = record["request"], record["run"]
        here = (request["core_mhz"], request["mem_mhz"], run["repeat"])
        if not stretches or stretches[-1] != here:
            stretches.append(here)
        sessions.setdefault(run["run_id"], set()).add(here)
    assert len(stretches) == 5 and len(set(stretches)) == 5, "no pair is come back to"
    assert (stretches[0], stretches[-1]) == (("auto", "auto", 0), ("auto", "auto", 1))
    first, second = sessions.values()
    assert (("auto", "auto", 0) in first, ("auto", "auto", 1) in second, first & second) == (True, True, set())


def test_a_finished_study_has_nothing_to_do_not_even_away_from_the_gpu(stepped, tmp_path):
    assert stepped.planned() == {}
    away = stepped.environment(LD_LIBRARY_PATH=str(tmp_path))
    assert stepped.planned(config=[f"gpu=nvml:{stepped.boards.uuid}"], environment=away) == {}


def test_one_deleted_record_is_measured_again_alone(stepped):
    before = {path: path.stat().st_mtime_ns for path in (stepped.directory / FOLDER).glob("measurements/*/*/*/*.json")}
    (stepped.directory / RECORD).unlink()
    assert stepped.planned()["measure"] == 1
    stepped.run("profile")
    after = {path: path.stat().st_mtime_ns for path in before}
    assert [path for path in before if after[path] != before[path]] == [stepped.directory / RECORD]
    assert len(stepped.records()) == POINTS and stepped.is_restored() and stepped.planned("profile") == {}


def test_another_driver_or_other_kernels_measure_anew(fresh):
    records = [
        f"{HAND_MADE_FOLDER}/measurements/kernel/{name}_forward/1500-2201/r0.json" for name in ("gelu", "nvjet_linear")
    ]
    fresh.run(*records)
    fresh.boards.set(driver="581.00 (fake NVML)")
    assert fresh.planned(*records)["measure"] == 2
    fresh.boards.set(driver="580.00 (fake NVML)")
    assert fresh.planned(*records) == {}
    with open(fresh.directory / "simulated_load.py", "a") as file:
        file.write("# other kernels\n")
    fresh.build("other sources")
    before = (fresh.directory / records[0]).stat().st_mtime_ns
    fresh.run(records[0])
    assert (fresh.directory / records[0]).stat().st_mtime_ns > before
    assert fresh.planned(*records)["measure"] == 1


# whichever of the two that look at a build ends first
SLOW = {"kernels": ("native", "{RUN} measure kernels"), "capture": ("measure", "CUDA_VISIBLE_DEVICES={params.uuid:q}")}


@pytest.mark.parametrize("slow", SLOW)
def test_a_build_that_gives_the_same_bytes_measures_nothing_anew(stepped, slow):
    file, command = SLOW[slow]
    rules = stepped.directory / f"workflow/rules/{file}.smk"
    assert rules.read_text().count(command) == 1
    rules.write_text(rules.read_text().replace(command, f"sleep 2; {command}"))
    before = {path: path.stat().st_mtime_ns for path in stepped.directory.glob(f"{FOLDER}/measurements/*/*/*/*.json")}
    stepped.build("sources with another remark")
    stepped.run("all")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert stepped.planned() == {}


def test_such_a_build_makes_no_table_anew_of_a_step_whose_record_is_there(fresh):
    table = f"{HAND_MADE_FOLDER}/tables/baseline.csv"
    fresh.run(table, config=TWO_PAIRS)
    fresh.build("sources with another remark")
    fresh.run(table, config=TWO_PAIRS)
    assert fresh.planned(table, config=TWO_PAIRS) == {}


def test_another_gpu_has_its_own_folder_and_the_first_one_s_results_stay(stepped):
    # of the same step as a record: before a job captures it there, nobody knows what is to be measured
    assert stepped.planned(config=["gpu=nvml:1", Real.workload])["measure"] == POINTS
    assert len(stepped.records()) == POINTS and stepped.planned() == {}


def test_without_the_right_nothing_starts_and_one_error_says_what_to_do(fresh):
    fresh.boards.set(deny=1)
    done = fresh.run("profile", check=False)
    assert done.returncode != 0
    # beside the line that names the rule
    errors = {line for line in done.stdout.splitlines() if line.startswith("error: ") and ": rule " not in line}
    assert len(errors) == 1 and "no permission" in errors.pop()
    # what is measured at auto needs no right
    assert {record["request"]["policy"] for record in fresh.records()} <= {"auto"} and fresh.boards.get("sets") == "0"


# by day test_step_study.py shows this of a step, and tests/report/test_registry.py which tables and figures a model has
@pytest.mark.nightly
def test_auto_only_gives_figure_5_and_the_baseline_and_says_what_is_missing(fresh):
    fresh.boards.set(deny=1)
    done = fresh.run("all", config=[MODEL, "clocks=auto-only", "auto_repeats=1"])
    assert "need the right to lock clocks (docs/real-gpus.md)" in done.stdout
    folder = fresh.directory / MODEL_FOLDER
    assert {path.stem for path in (folder / "tables").iterdir()} == {"baseline", "passes"}
    assert {path.stem for path in (folder / "figures").iterdir()} == {"fig5_kernels"}
    page = (folder / "report.html").read_text()
    assert "only auto clocks were measured" in page and "What is missing" not in page
    assert len(fresh.records()) == MODEL_TARGETS and fresh.boards.get("sets") == "0"


def test_external_clocks_are_asked_of_the_batch_system(fresh):
    options = ["--quiet", "host", "--forceall"]
    said = fresh.run("profile", config=["clocks=external"], dry=True, options=options).stdout
    assert "slurm_extra=--gpu-freq=1500,memory=2201" in said and "slurm_extra=--gpu-freq=memory=2201" in said
    assert "rule validate" not in said, "comparisons switch clocks within a job"


@pytest.mark.nightly
def test_external_clocks_that_nobody_set_are_reported_as_not_reached_to_the_end(fresh):
    fresh.boards.set(deny=1)
    external = ["clocks=external", *TWO_PAIRS]
    done = fresh.run(f"{HAND_MADE_FOLDER}/tables/strategies.csv", config=external)
    assert "trusts the batch system to have set its clocks" in done.stdout
    verdicts = {(record["request"]["mem_mhz"], record["verdict"]) for record in fresh.records()}
    assert (2201, "not_reached") in verdicts and (2201, "ok") not in verdicts
    left = fresh.planned(config=external)
    assert left["report_page"] == 1 and not {"validate", "tables/validation"} & set(left)
    assert fresh.boards.get("sets") == "0"


def test_a_stopped_run_restores_the_clocks_and_goes_on_where_it_was(fresh):
    words = command("profile", config=(*REAL, Real.workload, *TWO_PAIRS))
    running = begun(fresh.directory, words, env=fresh.environment())
    records = f"{HAND_MADE_FOLDER}/measurements/*/*/*/r*.json"
    end = time.monotonic() + 90
    while len(list(fresh.directory.glob(records))) < 5:
        assert running.exitcode is None and time.monotonic() < end, "the run should be measuring"
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    running.join(60)
    assert running.exitcode
    end = time.monotonic() + 10
    while not fresh.is_restored():
        assert time.monotonic() < end, "the measuring process is told to end with the run"
        time.sleep(0.1)
    done = {path: path.stat().st_mtime_ns for path in fresh.directory.glob(records)}
    assert 5 <= len(done) < 2 * TARGETS
    fresh.run("profile", config=TWO_PAIRS)
    assert len(fresh.records()) == 2 * TARGETS
    assert sum(path.stat().st_mtime_ns != written for path, written in done.items()) <= 1


def test_two_gpus_are_measured_side_by_side_in_one_folder_without_mixing(fresh):
    names = [SLUG, SLUG.replace("fa4e0000", "fa4e0001")]
    runs = [
        begun(
            fresh.directory,
            command(
                *(
                    f"results/{name}/step-hand-made/measurements/kernel/{kernel}/1500-2201/r0.json"
                    for kernel in ("gelu_forward", "gelu_backward", "nvjet_linear_forward")
                ),
                config=(*REAL, Real.workload, f"gpu=nvml:{index}"),
            ),
            fresh.directory / f"said-{index}",
            fresh.environment(),
        )
        for index, name in enumerate(names)
    ]
    for index, run in enumerate(runs):
        run.join(120)
        assert run.exitcode == 0, (fresh.directory / f"said-{index}").read_text()[-3000:]
    for index, name in enumerate(names):
        records = fresh.records(name)
        assert len(records) == 3
        assert {record["device"]["uuid"] for record in records} == {fresh.boards.get("uuid", index)}
    assert fresh.is_restored() and fresh.boards.get("core_lock", 1) == "none"


def test_a_study_by_clock_has_a_process_a_session_and_one_that_fails_leaves_the_last(stepped):
    on = ["by_clock={minutes: 15, worth_percent: 0.02, over_percent: 10}"]
    stepped.run("profile", config=on)
    folder = stepped.directory / FOLDER
    visits = [json.loads(path.read_text()) for path in folder.glob("measurements/visit/*/*.json")]
    found = json.loads((folder / "by_clock.json").read_text())
    assert found["about"]["visits"] == len(found["records"]) == len(visits) > 6
    processes: dict = {}
    for visit in visits:
        processes.setdefault(visit["request"]["session"], set()).add(visit["run"]["run_id"])
    assert all(len(own) == 1 for own in processes.values())
    assert len(set.union(*processes.values())) == len(processes) >= 4, "a process for each session"
    assert stepped.planned("profile", config=on) == {} and stepped.is_restored()
    # one that fails leaves what the last one found, and the next run goes on
    whole, gone = (folder / "by_clock.json").read_bytes(), sorted(folder.glob("measurements/visit/s*/*-1500-*.json"))[0]
    gone.unlink()
    stepped.boards.set(fail="nvmlDeviceSetGpuLockedClocks:999")
    done = stepped.run("profile", config=on, check=False)
    assert done.returncode and "nvmlDeviceSetGpuLockedClocks" in done.stdout
    assert (folder / "by_clock.json").read_bytes() == whole and stepped.planned("profile", config=on)["by_clock"] == 1
    stepped.boards.set(fail="")
    stepped.run("profile", config=on)
    assert gone.is_file() and stepped.planned("profile", config=on) == {} and stepped.is_restored()


def test_a_record_of_a_sweep_at_auto_sets_nothing(fresh):
    record = f"{HAND_MADE_FOLDER}/measurements/kernel/gelu_forward/auto-auto/r0.json"
    fresh.boards.set(deny=1)
    fresh.run(record)
    assert json.loads((fresh.directory / record).read_text())["verdict"] == "ok"
    assert fresh.boards.get("sets") == "0" and fresh.is_restored()


def test_a_run_whose_clocks_could_not_be_restored_fails_although_every_job_went_well(stepped):
    # one record is measured again, and then the driver refuses to give its core clock back
    record = next(stepped.directory.glob(f"{FOLDER}/measurements/*/*/1500-2201/r*.json"), None)
    assert record, "a record at locked clocks"
    record.unlink()

    def refuse_when_it_is_there():
        while not record.is_file():
            time.sleep(0.02)
        stepped.boards.set(fail="nvmlDeviceResetGpuLockedClocks:999")

    threading.Thread(target=refuse_when_it_is_there, daemon=True).start()
    done = stepped.run("profile", check=False)
    assert done.returncode != 0 and "nvmlDeviceResetGpuLockedClocks" in done.stdout
    assert "error: " in done.stdout and re.search(r"^(\d+) of \1 jobs in ", done.stdout, re.M), "the jobs went well"
