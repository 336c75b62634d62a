"""The whole workflow on a real GPU, as far as a fake NVML goes: Snakemake, nvidia-ml-py, a reduced grid."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from reduced_study import ROOT, clone, planned, snakemake

pytestmark = pytest.mark.workflow

# a captured step of five kernels in three sections, and the step as a whole: their number proves nothing
STEP = "workload={step: hand_made.json, code: train.py:make_step}"
REAL = (
    "gpu=nvml:0",
    STEP,
    "grid={core_mhz: [1500], mem_mhz: [2201], auto: true}",
    "auto_repeats=2",
    "sessions=2",
    "limits_percent=[0, 1]",
    "data_parallel_batches=[]",
    "tensor_parallel_degrees=[]",
    *("window_s=2", "windows=2", "max_windows=2", "energy_ci_percent=20", "warmup_s=0.1"),
)
TARGETS = 5 + 4
POINTS = 5 * TARGETS
SLUG = "simulated-h200-on-a-fake-nvml-fa4e0000"
FOLDER = f"results/{SLUG}/step-hand-made"
RECORD = f"{FOLDER}/measurements/kernel/gelu_forward/1500-2201/r0.json"
# what only a model has: claims of the paper, and a forward and a backward pass
MODEL, MODEL_TARGETS, MODEL_FOLDER = "workload=model", 48, f"results/{SLUG}/gpt3-xl-b40-tp1"


@pytest.fixture(scope="module")
def finished_real(fake_library, tmp_path_factory):
    """(a clone in which the study of a board is complete, the boards). Not to be changed: use `real`."""
    real = Real.unmeasured(tmp_path_factory.mktemp("real"), fake_library)
    real.run("all")
    return real


@pytest.fixture(scope="module")
def finished_model(fake_library, tmp_path_factory):
    """(a clone in which a model is measured at two clock pairs, as far as its claims ask for; the boards)."""
    real = Real.unmeasured(tmp_path_factory.mktemp("model"), fake_library)
    tables = (f"{MODEL_FOLDER}/tables/{name}.csv" for name in ("claims", "locking", "passes"))
    two_pairs = ("grid={core_mhz: [1500], mem_mhz: [2201], auto: false}", "auto_repeats=1", "limits_percent=[0]")
    real.run(*tables, config=[MODEL, *two_pairs])
    return real


@pytest.fixture
def real(finished_real, tmp_path):
    """A copy of it with boards of its own, to change."""
    shutil.copytree(finished_real.directory, tmp_path / "clone", symlinks=True)
    return Real.beside_boards(tmp_path, finished_real.boards.library)


@pytest.fixture
def fresh(fake_library, tmp_path):
    """A clone beside boards in which nothing is measured."""
    return Real.unmeasured(tmp_path, fake_library)


class Real:
    """A clone beside fake boards."""

    @classmethod
    def unmeasured(cls, folder, library):
        """A new clone in a folder, beside boards of its own."""
        directory = clone(folder / "clone")
        # copies: one stands for the native library, which a test changes
        for path in ("tests/fakenvml/simulated_load.py", "tests/workload/steps/hand_made.json"):
            shutil.copy2(ROOT / path, directory)
        (directory / "train.py").write_text("def make_step():\n    return None\n")  # the fake has kernels of its own
        made = cls.beside_boards(folder, library)
        made.build("first sources")
        return made

    @classmethod
    def beside_boards(cls, folder, library):
        """The clone in a folder, beside two new boards on virtual time."""
        import fake

        boards = fake.Boards(library, folder / "boards.state", "h200,h200", time="virtual")
        boards.set(board=1, time="virtual")
        return cls(folder / "clone", boards)

    def __init__(self, directory, boards):
        self.directory, self.boards = directory, boards
        self.locks = boards.path.parent / "locks"
        self.locks.mkdir(exist_ok=True)

    def environment(self, **more) -> dict:
        return self.boards.environment(
            KERNEL_DVFS_LOCK_DIR=str(self.locks),
            # as seen from the clone, as the native library is: Snakemake compares names of inputs
            KERNEL_DVFS_TEST_LOAD="simulated_load.json",
            **more,
        )

    def build(self, sources: str) -> None:
        """The record of a build: of these sources, it gave the library that lies there."""
        import fake

        library = self.directory / "simulated_load.py"
        path = fake.build_record(self.directory, library, source_sha256=sources)
        record = json.loads(path.read_text())
        record["library"]["file"] = library.name  # the folder is copied
        path.write_text(json.dumps(record))

    def run(self, *targets, config=(), environment=None, **more):
        config = (*REAL, *config)
        return snakemake(self.directory, *targets, config=config, env=environment or self.environment(), **more)

    def planned(self, *targets, config=(), environment=None) -> dict:
        config = (*REAL, *config)
        jobs = planned(self.directory, *targets, config=config, env=environment or self.environment())
        measured = [count for rule, count in jobs.items() if rule.startswith("measure_")]
        return {rule: count for rule, count in jobs.items() if not rule.startswith("measure_")} | (
            {"measure": sum(measured)} if measured else {}
        )

    def records(self, slug=SLUG) -> list:
        found = self.directory.glob(f"results/{slug}/*/measurements/*/*/*/r*.json")
        records = [json.loads(path.read_text()) for path in found]
        began = {}  # of each measuring process, its first point
        for run in (record["run"] for record in records):
            began[run["run_id"]] = min(run["started_utc"], began.get(run["run_id"], run["started_utc"]))
        return sorted(records, key=lambda record: (began[record["run"]["run_id"]], record["run"]["order"]))

    def is_restored(self) -> bool:
        return self.boards.locks == ("none", "none") and not list(self.locks.glob("*.json"))


def test_a_study_is_measured_chosen_validated_and_reported_and_the_clocks_come_back(finished_real):
    assert finished_real.is_restored()
    records = finished_real.records()
    assert len(records) == POINTS
    assert {record["verdict"] for record in records} <= {"ok", "throttled", "not_reached"}
    folder = finished_real.directory / FOLDER
    chosen = json.loads((folder / "schedules/kernel-global-waste-slack0.json").read_text())
    assert chosen["status"] == "optimal" and chosen["energy_change_percent"] < 0
    for name in ("baseline", "kernel_clocks", "strategies", "validation"):
        assert "fake NVML" in (folder / f"tables/{name}.csv").read_text(), "numbers from a fake say so"
    assert (folder / "figures/fig6_relaxed_waste.pdf").is_file()


def test_a_model_s_claims_say_that_their_numbers_are_a_fake_s(finished_model):
    assert finished_model.is_restored() and len(finished_model.records()) == 2 * MODEL_TARGETS
    assert "fake NVML" in (finished_model.directory / MODEL_FOLDER / "tables/claims.csv").read_text()


def test_each_validation_repeat_is_a_session_of_its_own_and_the_interval_is_over_them(finished_real):
    folder = finished_real.directory / FOLDER
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
            return list(csv.DictReader(file))

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


def test_one_clock_pair_follows_the_other_with_auto_first_and_last_in_two_sessions(finished_real):
    stretches, sessions = [], {}
    for record in finished_real.records():
        request, run = record["request"], record["run"]
        here = (request["core_mhz"], request["mem_mhz"], run["repeat"])
        if not stretches or stretches[-1] != here:
            stretches.append(here)
        sessions.setdefault(run["run_id"], set()).add(here)
    assert len(stretches) == 5 and len(set(stretches)) == 5, "no pair is come back to"
    assert (stretches[0], stretches[-1]) == (("auto", "auto", 0), ("auto", "auto", 1))
    first, second = sessions.values()
    assert (("auto", "auto", 0) in first, ("auto", "auto", 1) in second, first & second) == (True, True, set())


def test_a_finished_study_has_nothing_to_do_not_even_away_from_the_gpu(real, tmp_path):
    assert real.planned() == {}
    away = real.environment(LD_LIBRARY_PATH=str(tmp_path))
    assert real.planned(config=[f"gpu=nvml:{real.boards.uuid}"], environment=away) == {}


def test_one_deleted_record_is_measured_again_alone(real):
    (real.directory / RECORD).unlink()
    assert real.planned()["measure"] == 1
    real.run(RECORD)
    assert len(real.records()) == POINTS and real.is_restored()


def test_another_driver_or_other_kernels_measure_anew(real):
    real.boards.set(driver="581.00 (fake NVML)")
    assert real.planned()["measure"] == POINTS
    real.boards.set(driver="580.00 (fake NVML)")
    assert real.planned() == {}
    with open(real.directory / "simulated_load.py", "a") as file:
        file.write("# other kernels\n")
    real.build("other sources")
    before = (real.directory / RECORD).stat().st_mtime_ns
    real.run(RECORD)
    assert (real.directory / RECORD).stat().st_mtime_ns > before
    assert real.planned()["measure"] == POINTS - 1


def test_clocks_above_the_power_cap_can_be_left_out_of_a_study_and_are_listed(fresh):
    grid = "grid={core_mhz: [1500, 1650, 1980], mem_mhz: [3201], auto: false}"
    config = [grid, "skip_capped=true", "auto_repeats=1"]
    table, schedule = (
        f"{FOLDER}/{name}" for name in ("tables/omitted_pairs.csv", "schedules/kernel-global-waste-slack0.json")
    )
    fresh.run(table, schedule, config=config)
    with open(fresh.directory / table, newline="") as file:
        left_out = list(csv.DictReader(file))
    assert left_out and all("linear" in row["target"] and row["core_mhz"] != "1500" for row in left_out)
    assert all(row["reason"].startswith("the power cap held 1") for row in left_out)
    assert json.loads((fresh.directory / schedule).read_text())["status"] == "optimal"
    assert fresh.planned(table, schedule, config=config) == {}


def test_a_build_that_gives_the_same_bytes_measures_nothing_anew(real):
    before = {path: path.stat().st_mtime_ns for path in real.directory.glob(f"{FOLDER}/measurements/*/*/*/*.json")}
    real.build("sources with another remark")
    real.run("all")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert real.planned() == {}


def test_another_gpu_has_its_own_folder_and_the_first_one_s_results_stay(real):
    jobs = real.planned(config=["gpu=nvml:1"])
    assert jobs["measure"] == POINTS
    assert len(real.records()) == POINTS and real.planned(config=["gpu=nvml:0"]) == {}


def test_without_the_right_nothing_starts_and_one_error_says_what_to_do(fresh):
    fresh.boards.set(deny=1)
    done = fresh.run("profile", check=False)
    assert done.returncode != 0
    # beside the line that names the rule
    errors = {line for line in done.stdout.splitlines() if line.startswith("error: ") and ": rule " not in line}
    assert len(errors) == 1 and "no permission" in errors.pop()
    assert not fresh.records() and fresh.boards.get("sets") == "0"


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


def test_external_clocks_that_nobody_set_are_reported_as_not_reached_to_the_end(fresh):
    fresh.boards.set(deny=1)
    two_points = ("grid={core_mhz: [1500], mem_mhz: [2201], auto: false}", "auto_repeats=1")
    external = ["clocks=external", *two_points]
    done = fresh.run(f"{FOLDER}/tables/strategies.csv", config=external)
    assert "trusts the batch system to have set its clocks" in done.stdout
    verdicts = {(record["request"]["mem_mhz"], record["verdict"]) for record in fresh.records()}
    assert (2201, "not_reached") in verdicts and (2201, "ok") not in verdicts
    left = fresh.planned(config=external)
    assert left["report_page"] == 1 and not {"validate", "tables/validation"} & set(left)
    assert fresh.boards.get("sets") == "0"


def test_a_stopped_run_restores_the_clocks_and_goes_on_where_it_was(fresh):
    words = [sys.executable, "-m", "snakemake", "--cores", "1", "--config", *REAL, "--", "profile"]
    running = subprocess.Popen(
        words, cwd=fresh.directory, env=fresh.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    records = f"{FOLDER}/measurements/*/*/*/r*.json"
    end = time.monotonic() + 90
    while len(list(fresh.directory.glob(records))) < 10:
        assert running.poll() is None and time.monotonic() < end, "the run should be measuring"
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    running.wait(timeout=60)
    end = time.monotonic() + 10
    while not fresh.is_restored():
        assert time.monotonic() < end, "the measuring process is told to end with the run"
        time.sleep(0.1)
    done = {path: path.stat().st_mtime_ns for path in fresh.directory.glob(records)}
    assert 10 <= len(done) < POINTS
    fresh.run("profile")
    assert len(fresh.records()) == POINTS
    assert sum(path.stat().st_mtime_ns != written for path, written in done.items()) <= 1


def test_two_gpus_are_measured_side_by_side_in_one_folder_without_mixing(fresh):
    names = [SLUG, SLUG.replace("fa4e0000", "fa4e0001")]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "1", "--config", *REAL[1:], f"gpu=nvml:{index}", "--"]
            + [
                f"results/{name}/step-hand-made/measurements/kernel/{kernel}/1500-2201/r0.json"
                for kernel in ("gelu_forward", "gelu_backward", "nvjet_linear_forward")
            ],
            cwd=fresh.directory,
            env=fresh.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, name in enumerate(names)
    ]
    for run in runs:
        said, _ = run.communicate(timeout=120)
        assert run.returncode == 0, said[-3000:]
    for index, name in enumerate(names):
        records = fresh.records(name)
        assert len(records) == 3
        assert {record["device"]["uuid"] for record in records} == {fresh.boards.get("uuid", index)}
    assert fresh.is_restored() and fresh.boards.get("core_lock", 1) == "none"


def test_a_walk_measures_again_pair_by_pair_with_the_clocks_restored_between_and_after(fresh):
    # three blocks, whatever is left
    on = ["refine={windows: 100, hours: null, over_percent: 10}"]
    fresh.run("profile", config=on)
    again = [record for record in fresh.records() if record["run"]["campaign"].startswith("remeasure")]
    assert len(again) > 3 * TARGETS and len(fresh.records()) >= POINTS + len(again)
    sessions = {}
    for record in again:
        here = (record["request"]["core_mhz"], record["request"]["mem_mhz"])
        stretches = sessions.setdefault(record["run"]["run_id"], [])
        if not stretches or stretches[-1] != here:
            stretches.append(here)
    [search] = fresh.directory.glob("results/*/*/search.json")
    rounds = json.loads(search.read_text())["rounds"]
    processes = {name.partition(".")[0] for name in sessions}
    assert len(processes) == len(rounds) - 1 >= 3, "a process for each block"
    assert len(sessions) == 4 * len(processes), "in which each session has its tensors elsewhere"
    for stretches in sessions.values():
        assert len(stretches) == len(set(stretches)), "no pair is come back to within a session"
    assert fresh.planned("profile", config=on) == {} and fresh.is_restored()
    # a search that fails leaves what the last one found, and the next run searches again
    found = search.read_bytes()
    paths = search.parent.glob("measurements/*/*/*/*.json")
    next(path for path in paths if '"remeasure' in path.read_text()).unlink()
    fresh.boards.set(fail="nvmlDeviceSetGpuLockedClocks:999")
    done = fresh.run("profile", config=on, check=False)
    assert done.returncode and "nvmlDeviceSetGpuLockedClocks" in done.stdout
    assert search.read_bytes() == found and fresh.planned("profile", config=on)["search"] == 1


def test_a_run_whose_clocks_could_not_be_restored_fails_although_every_job_went_well(real):
    # one record is measured again, and then the driver refuses to give its core clock back
    record = next(real.directory.glob(f"{FOLDER}/measurements/*/*/1500-2201/r*.json"), None)
    assert record, "a record at locked clocks"
    record.unlink()

    def refuse_when_it_is_there():
        while not record.is_file():
            time.sleep(0.02)
        real.boards.set(fail="nvmlDeviceResetGpuLockedClocks:999")

    threading.Thread(target=refuse_when_it_is_there, daemon=True).start()
    done = real.run("profile", check=False)
    assert done.returncode != 0 and "nvmlDeviceResetGpuLockedClocks" in done.stdout
    assert "error: " in done.stdout and re.search(r"^(\d+) of \1 jobs in ", done.stdout, re.M), "the jobs went well"
