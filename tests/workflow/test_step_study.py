"""A captured step through the whole workflow: on a fake NVML as a real GPU, on a simulated GPU as a forecast.

The step is a record made by hand; its kernels run as a simulation on the fake board. Where a job captures, capturing is
replaced by reading what the user's file returns: that needs torch and a GPU otherwise.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from real_study import FOLDER, HAND_MADE, KERNELS, PASSES, POINTS, TRAIN
from reduced_study import ROOT, clone, planned, snakemake

from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.workload import step as steps

pytestmark = pytest.mark.workflow

PACED = 2  # at auto-only: hot kernels measured with rests as well
FORECAST = (
    "gpu=h200_sxm",
    "workload=step:step.json",
    "grid={core_mhz: [1500], mem_mhz: [2201], auto: true}",
    "auto_repeats=2",
)
FORECAST_FOLDER = "results/sim-h200-sxm/step-step"


def test_a_step_is_captured_measured_chosen_validated_and_shown_in_one_go(finished_step):
    assert finished_step.is_restored() and len(finished_step.records()) == POINTS
    folder = finished_step.directory / FOLDER
    chosen = json.loads((folder / "schedules/kernel-global-waste-slack0.json").read_text())
    assert chosen["status"] == "optimal" and len(chosen["targets"]) == KERNELS
    assert chosen["workload"]["step"]["checksum"] == json.loads(HAND_MADE.read_text())["checksum"]
    by_section = json.loads((folder / "schedules/pass-global-waste-slack0.json").read_text())["targets"]
    assert set(by_section) == {"forward", "backward", "optimiser"}, "the whole step is no part of a choice"
    played = json.loads((folder / "schedules/iteration-10ms.json").read_text())
    names = [played["kernels"][kernel] for kernel, _, _ in played["launches"]]
    assert names[:2] == ["nvjet_linear_forward", "gelu_forward"] and len(names) == 11, "the step's own order"
    assert {row["schedule"] for row in finished_step.table("headline")} == {
        "kernel-global-waste-slack0",
        "kernel-global-waste-slack1",
        "pass-global-waste-slack0",
    }


def test_the_costliest_kernel_comes_first_with_its_module_and_the_joules_of_a_step(finished_step):
    kernels = finished_step.table("step_kernels")
    joules = [float(row["energy_per_step_j"]) for row in kernels]
    assert len(kernels) == KERNELS and joules == sorted(joules, reverse=True)
    assert kernels[0]["module"] == "GPT.Block.Linear" and float(kernels[-1]["energy_so_far_percent"]) > 99.99
    for row in kernels:
        of_launches_j = 1e-3 * int(row["launches"]) * float(row["energy_mj"])
        assert float(row["energy_per_step_j"]) == pytest.approx(of_launches_j, rel=1e-6)
        assert "fake NVML" in row["gpu"]
    whole, alone = finished_step.table("step_totals")
    assert (whole["step"], alone["step"]) == ("as a whole", "sum of its kernels")
    assert float(alone["energy_j"]) == pytest.approx(sum(joules), rel=1e-6)
    power_w = 1e3 * float(whole["energy_j"]) / float(whole["time_ms"])
    assert float(whole["power_w"]) == pytest.approx(power_w, rel=1e-6)
    saving = finished_step.table("step_saving")
    changes = [float(row["energy_change_j"]) for row in saving]
    assert changes == sorted(changes) and len(saving) == KERNELS


def test_a_lock_that_was_measured_is_told_from_the_step_s_own_points(finished_step):
    rows = {row["what"]: row for row in finished_step.table("step_limits")}
    assert {row["known"] for row in rows.values()} <= {"measured", "between measured points"}
    profile = read_profile(finished_step.directory / FOLDER / "profile.parquet").table.to_pylist()
    step = {(row["core_mhz"], row["mem_mhz"]): row for row in profile if row["target"] == "step"}
    # of the memory clock that auto runs: the other one says nothing of a lock of the core alone
    locked, auto = step[1500, None], step[None, None]
    for quantity in ("time_s", "energy_j"):
        change = 100 * (locked[quantity] / auto[quantity] - 1)
        shown = rows["core locked at 1500 MHz"][f"{quantity.partition('_')[0]}_change_percent"]
        assert float(shown) == pytest.approx(change, rel=1e-6)
    assert finished_step.table("step_boards")[0]["known"] == "measured"


def test_sections_and_the_whole_step_are_checked_against_their_kernels(finished_step):
    check = finished_step.table("step_check")
    assert [row["section"] for row in check] == ["forward", "backward", "optimiser", "step"]
    for row in check:
        difference = 100 * (float(row["time_ms"]) / float(row["sum_time_ms"]) - 1)
        assert float(row["time_difference_percent"]) == pytest.approx(difference, abs=1e-6)
        within = abs(difference) <= 3 and abs(float(row["energy_difference_percent"])) <= 5
        assert row["adds_up"] == str(within)
        within_ms = float(row["within_step_ms"])
        difference = 100 * (float(row["time_ms"]) / within_ms - 1)
        assert float(row["within_step_difference_percent"]) == pytest.approx(difference, abs=1e-6)
    for column in ("launches", "within_step_ms"):
        assert sum(float(row[column]) for row in check[:3]) == pytest.approx(float(check[3][column]), rel=1e-6)


def test_a_section_that_overwrites_what_it_reads_is_measured_as_a_difference(finished_step):
    backward = next(row for row in finished_step.table("step_check") if row["section"] == "backward")
    # at the power cap it is slower than within the step, where forward, cooler, leaves it more of the cap
    assert -1 < float(backward["time_difference_percent"]) < 4 and abs(float(backward["energy_difference_percent"])) < 5
    records = [record for record in finished_step.records() if record["kernel"]["study"] == "pass"]
    assert {record["kernel"]["name"] for record in records if "beginning" in record["windows"][0]} == {"backward"}
    page = (finished_step.directory / FOLDER / "report.html").read_text()
    assert "Section backward is the difference of two measurements" in page


def test_the_page_has_the_step_first_and_nothing_that_only_models_have(finished_step):
    folder = finished_step.directory / FOLDER
    page = (folder / "report.html").read_text()
    assert "Energy of one step" in page and "GPT.Block.Linear" in page and "80 % of the energy" in page
    assert page.index("Energy of one step") < page.index("Best clocks of each kernel")
    assert "kernel_dvfs_deploy.play" in page and "schedules/iteration-" in page and "What is missing" not in page
    made = {path.stem for path in (folder / "tables").iterdir()}
    assert not {"claims", "tensor_energy", "data_parallelism", "tensor_parallelism"} & made
    figures = {path.stem for path in (folder / "figures").iterdir()}
    assert "step_plane" in figures and not {"fig3_fig4_passes", "fig7_data_parallelism"} & figures


def test_an_edited_comment_captures_again_and_measures_nothing(stepped):
    assert stepped.planned() == {}
    before = stepped.times()
    (stepped.directory / "train.py").write_text(TRAIN.replace("a remark", "another remark"))
    stepped.run("all")
    after = stepped.times()
    changed = {path.relative_to(stepped.directory / FOLDER) for path in after if after[path] != before.get(path)}
    assert {str(path) for path in changed} <= {"step.json", "step.json.ended"}, "the same kernels are the same workload"
    assert stepped.planned() == {}


def test_a_capture_that_fails_leaves_the_last_record_and_is_tried_again_by_the_next_run(stepped):
    record = stepped.directory / FOLDER / "step.json"
    whole = record.read_bytes()
    (stepped.directory / "train.py").write_text(TRAIN.replace("captured", "absent"))
    done = stepped.run("all", check=False)
    assert done.returncode and "absent.json" in done.stdout
    assert record.read_bytes() == whole
    # the record is put back with today's date, and the source is older: that alone would pass for done
    assert stepped.planned()["capture"] == 1
    shutil.copy2(HAND_MADE, stepped.directory / "absent.json")
    stepped.run("all")
    assert record.read_bytes() == whole and stepped.planned() == {}


def test_other_kernels_are_another_workload_which_is_measured(stepped):
    content = json.loads(HAND_MADE.read_text())
    content["checksum"] = "0123456789ab"
    for target in content["targets"]:
        target["byte"] = 2 * (target["byte"] or 0) or None
    (stepped.directory / "captured.json").write_text(json.dumps(content))
    (stepped.directory / "train.py").write_text(TRAIN.replace("a remark", "another batch size"))
    before = {record["run"]["setup"] for record in stepped.records()}
    stepped.run(f"{FOLDER}/measurements/kernel/gelu_forward/1500-2201/r0.json")
    assert json.loads((stepped.directory / FOLDER / "step.json").read_text())["checksum"] == "0123456789ab"
    after = {record["run"]["setup"] for record in stepped.records()}
    assert len(before) == 1 and len(after - before) == 1, "it is of another setup"
    jobs = stepped.planned()
    assert jobs["measure"] == POINTS - 1 and "tables/step_kernels" in jobs, "all others are to be measured again"


def test_one_record_asked_for_by_name_leaves_all_others_to_be_measured_with_the_new_kernels(stepped):
    with open(stepped.directory / "simulated_load.py", "a") as file:
        file.write("# other kernels\n")
    stepped.build("other sources")
    stepped.run(f"{FOLDER}/measurements/kernel/gelu_forward/1500-2201/r0.json")
    assert stepped.planned("measurements") == {"measure": POINTS - 1, "measurements": 1}
    jobs = stepped.planned("all")
    assert jobs["measure"] == POINTS - 1 and jobs["validate"] and jobs["aggregate"] == 1


def test_auto_only_gives_the_energy_profile_of_the_step_without_any_right(stepped, tmp_path, capsys):
    shutil.rmtree(stepped.directory / "results")
    # as on Hopper boards, whose power reading is behind where a load is followed by its rests alone
    stepped.boards.set(deny=1, power_mean_ms=1000)
    said = stepped.run("all", config=["clocks=auto-only"]).stdout
    assert "need the right to lock clocks (docs/real-gpus.md)" in said
    folder = stepped.directory / FOLDER
    assert {path.stem for path in (folder / "tables").iterdir()} == {
        *("baseline", "passes", "step_boards", "step_check", "step_kernels", "step_limits", "step_totals")
    }
    page = (folder / "report.html").read_text()
    assert "only auto clocks were measured" in page and "Mean power" in page and "What is missing" not in page
    assert "one iteration takes" not in page, "the cards say it of the step as a whole"
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().err == "", "the folder itself tells what such a study has"
    assert stepped.boards.get("sets") == "0" and len(stepped.records()) == 2 * (KERNELS + PASSES + PACED)
    assert all(float(row["power_w"] or 0) <= 700 for row in stepped.table("step_totals"))
    limits, (own, *others) = stepped.table("step_limits"), stepped.table("step_boards")
    assert {row["known"] for row in limits + others} == {"forecast"} and own["known"] == "measured"
    # the fake board is the simulated one that the forecast is made on
    assert abs(float(limits[0]["time_change_percent"])) < 3 and abs(float(limits[0]["energy_change_percent"])) < 3
    assert "What a power limit or a lock would do" in page and "This board against others" in page
    check, kernels = stepped.table("step_check"), stepped.table("step_kernels")
    assert len(check) == PASSES
    _, _, optimiser, whole = check
    assert float(optimiser["paced_share"]) == 0 and 0.5 < float(whole["paced_share"]) < 1
    for row in check:
        paced, alone = (
            [float(row[f"{name}{what}_difference_percent"]) for what in ("time", "energy")] for name in ("paced_", "")
        )
        if row is not optimiser:
            # at the power limit alone: with rests they are faster, at a higher clock, and take more energy
            assert paced[0] > alone[0] + 0.5 and paced[1] < alone[1] - 0.5, row["section"]
        assert row["adds_up"] == str(abs(paced[0]) <= 3 and abs(paced[1]) <= 5)
    hot = [row for row in kernels if row["run"] == "paced"]
    assert {row["id"] for row in hot} == {"nvjet_linear_forward", "nvjet_linear_backward"}
    captured = {target["id"]: target for target in json.loads(HAND_MADE.read_text())["targets"]}
    for row in kernels:
        target = captured[row["id"]]
        assert (float(row["step_time_us"]), float(row["step_core_mhz"])) == (target["time_us"], target["core_mhz"])
    passes = {row["pass"]: row for row in stepped.table("passes")}
    for row in hot:
        paced = passes[f"paced_{row['id']}"]
        assert float(row["energy_mj"]) == pytest.approx(1e3 * float(paced["energy_j"]))
        assert float(paced["energy_difference_percent"]) > 0 > float(paced["time_difference_percent"])
    records = [record for record in stepped.records() if record["kernel"]["name"].startswith("paced_")]
    for window in (window for record in records for window in record["windows"]):
        parts = [window[part]["time_us"] for part in ("with_beginning", "beginning")]
        assert window["time_us"] == pytest.approx(parts[0] - parts[1])


def test_a_step_captured_once_is_studied_later_from_its_record(stepped):
    record = f"{FOLDER}/step.json"
    named = f"workload={{step: {record}, code: train.py:make_step}}"
    assert stepped.planned("all", config=[named]) == {}, "the same folder, the same setup"


def test_a_study_leaves_a_record_that_a_forecast_is_held_to(stepped):
    measured = stepped.directory / FOLDER / "step-measured.json"
    kernels = {row["id"]: row for row in stepped.table("step_kernels")}
    for target in json.loads(measured.read_text())["targets"]:
        if target["repeatable"] == "no":
            continue  # left at auto, so in no study
        assert target["auto_time_us"] == pytest.approx(float(kernels[target["id"]]["time_us"]), rel=1e-9)
    shutil.copy2(measured, stepped.directory / "step.json")
    table = f"{FORECAST_FOLDER}/tables/step_kernels.csv"
    snakemake(stepped.directory, table, config=FORECAST, env=stepped.environment())
    with open(stepped.directory / table, newline="") as file:
        for row in csv.DictReader(file):
            # held to it, but for the model's noise and where its governor ends under the cap, which a hot kernel alone
            # is held by more than within the step
            assert float(row["time_us"]) == pytest.approx(float(kernels[row["id"]]["time_us"]), rel=0.06)
            # what the cap does not hold has its own highest clock in a forecast, and the iteration's in passes
            is_hot = row["id"].startswith("nvjet")
            measured_w = float(kernels[row["id"]]["power_w"])
            assert float(row["power_w"]) == pytest.approx(measured_w, rel=0.1 if is_hot else 0.2)
            assert "power_is" not in row


def test_a_forecast_says_so_everywhere(tmp_path):
    directory = clone(tmp_path / "clone")
    shutil.copy2(HAND_MADE, directory / "step.json")
    said = snakemake(directory, "all", config=FORECAST)
    assert "forecast on a simulated H200 SXM" in said.stdout, "the last line on the terminal"
    folder = directory / FORECAST_FOLDER
    for path in (folder / "tables").iterdir():
        is_empty = not json.loads(path.with_suffix(".json").read_text())["rows"]
        if path.suffix == ".json" or not is_empty:
            assert is_empty or "forecast on a simulated H200 SXM, power not measured" in path.read_text(), path.name
    with open(folder / "tables/step_limits.csv", newline="") as file:
        limits = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert limits and {row["known"] for row in limits} == {"forecast"}
    for path in (folder / "figures").glob("*.png"):
        assert b"forecast on a simulated H200 SXM" in path.read_bytes(), path.name
    for path in (folder / "schedules").glob("kernel-*.json"):
        assert json.loads(path.read_text())["gpu"]["forecast"] is True
    page = (folder / "report.html").read_text()
    # nobody has measured this step's power: that stands where its joules stand
    assert "its power is the model&#39;s, and anything from" in page and "3.6 J measured on an H200" in page
    with open(folder / "tables/step_totals.csv", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            assert float(row["energy_least_j"]) < float(row["energy_j"]) < float(row["energy_most_j"])
    assert "Forecast." in page and ">forecast</span>" in page and "What is missing" not in page
    assert planned(directory, config=FORECAST) == {}


def test_the_study_s_own_schedule_is_played_on_the_step_and_a_kill_leaves_nothing_locked(stepped, fake_library):
    import fake

    # the same board, in real time: what is played is a stream of kernels a hundred times as slow
    slower = 100.0
    boards = fake.Boards(
        *(fake_library, stepped.boards.path.parent / "played.state", "h200"),
        **{"time": "real", "utilisation": 0, "limit_mw": 990000, "core_lag_ms": 3, "mem_lag_ms": 3},
    )
    folder = stepped.directory / FOLDER
    step = steps.read(folder / "step.json")
    targets = tuple(replace(each, time_us=slower * (each.time_us or 1.0)) for each in step.targets)
    step = replace(step, device=step.device | {"uuid": boards.uuid}, targets=targets)
    steps.write(folder / "step.json", step)
    # strict, a choice among so few clocks may be auto: slower sections are allowed
    schedule = folder / "played.json"
    chosen = subprocess.run(
        [
            *(sys.executable, "-m", "kernel_dvfs", "choose", str(folder / "profile.parquet"), "-o", str(schedule)),
            *("--granularity", "pass", "--scope", "global", "--objective", "waste", "--slack", "60"),
        ],
        env=os.environ | {"PYTHONPATH": str(stepped.directory / "workflow")},
        capture_output=True,
        text=True,
    )
    assert chosen.returncode == 0, chosen.stderr
    wanted = json.loads(schedule.read_text())["targets"]
    assert any(clock != "auto" for pair in wanted.values() for clock in pair.values()), "or nothing would be locked"
    (setup,) = (path for path in (folder / "setup").iterdir() if json.loads(path.read_text())["targets"].get("kernel"))
    told = {"step": str(folder / "step.json"), "schedule": str(schedule), "setup": str(setup), "slower": slower}
    locks = stepped.locks
    environment = boards.environment(
        KERNEL_DVFS_LOCK_DIR=str(locks),
        KERNEL_DVFS_TEST_LOAD=str(stepped.directory / "simulated_load.json"),
        PYTHONPATH=os.pathsep.join(map(str, (stepped.directory / "workflow", ROOT / "tests/fakenvml"))),
    )

    def play(**more):
        words = [sys.executable, str(ROOT / "tests/deploy/play_step.py"), json.dumps(told | more)]
        return subprocess.run(
            words, env=environment, cwd=stepped.directory, capture_output=True, text=True, timeout=120
        )

    def is_restored():
        end_s = time.monotonic() + 30
        while boards.locks != ("none", "none") or list(locks.glob("*.json")):
            if time.monotonic() > end_s:
                return False
            time.sleep(0.02)
        return True

    settings = {"repeats": 2, "block_s": 0.3, "latency_s": 0.3}
    done = play(settings=settings, steps=4)
    came = json.loads(done.stdout or "null")
    assert came and came["certificate"]["same_bits"] is True and came["log"][1:] == [None, True], done.stderr
    assert came["restored"] and int(boards.get("sets")) > 4 and is_restored()
    killed = play(settings=settings | {"repeats": 0}, steps=20, die=1)
    assert killed.returncode == -9 and is_restored()
