"""The study by clock in a clone: its answer needs no sweep, measures nothing twice, and cannot outlive its visits."""

import csv
import json
import os
import shutil
import signal
import time

import pytest
from reduced_study import FOLDER, RECORDS, begun, clone, command, planned, snakemake

from kernel_dvfs.profile.store import read_profile
from kernel_dvfs_clocks.files import sealed_json

pytestmark = pytest.mark.workflow

ON = "by_clock={minutes: 25, worth_percent: 0.02, over_percent: 10}"
QUICK = ("data_parallel_batches=[]", "tensor_parallel_degrees=[1]", "tensor_energy_pj=[0.75]")
QUICK += ("limits_percent=[1.5]",)
BY_CLOCK = (*QUICK, ON)
FILE = FOLDER / "by_clock.json"


def visits(directory) -> dict:
    """{path below the records: (time, bytes)} of all visits."""
    folder = directory / FOLDER / "measurements"
    # what a killed process was writing lies beside them under a name that begins with a dot
    paths = sorted(path for path in folder.glob("visit/*/*.json") if not path.name.startswith("."))
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def times(directory) -> dict:
    return {path.relative_to(directory): path.stat().st_mtime_ns for path in (directory / FOLDER).rglob("*.*")}


def study_of(directory) -> dict:
    return json.loads((directory / FILE).read_text())


def same(one, other) -> bool:
    """Whether two studies are the same but for what they were asked for with."""
    ours = {"token", "sha256"}
    return {key: own for key, own in one.items() if key not in ours} == {
        key: own for key, own in other.items() if key not in ours
    }


@pytest.fixture(scope="module")
def finished_answer(tmp_path_factory):
    """A study by clock and what is relied on. Not to be changed: use `answered`."""
    directory = clone(tmp_path_factory.mktemp("by-clock") / "clone")
    snakemake(directory, "answer", config=BY_CLOCK)
    return directory


@pytest.fixture
def answered(finished_answer, tmp_path):
    directory = tmp_path / "clone"
    shutil.copytree(finished_answer, directory, symlinks=True)
    return directory


def test_the_answer_needs_no_sweep_and_lists_every_visit(finished_answer):
    found = study_of(finished_answer)
    assert not list((finished_answer / FOLDER / "measurements").glob("kernel/*"))
    assert sorted(found["records"]) == sorted(visits(finished_answer))
    assert found["about"]["visits"] == len(found["records"]) and found["about"]["minutes"] < 25
    assert set(zip(found["rows"]["core_mhz"], found["rows"]["mem_mhz"])) > {(None, None)}


def test_the_schedules_of_each_limit_are_those_that_the_walk_has_shown(finished_answer):
    walks = study_of(finished_answer)["walks"]
    assert list(walks) == ["kernel-slack0", "kernel-slack1.5", "pass-slack0", "pass-slack1.5"]
    for name, walked in walks.items():
        level, limit = name.split("-slack")
        path = finished_answer / FOLDER / f"schedules/{level}-global-waste-slack{limit}.json"
        schedule = json.loads(path.read_text())
        chosen = {name: [pair["core_mhz"], pair["mem_mhz"]] for name, pair in schedule["targets"].items()}
        assert chosen == walked["pairs"] and schedule["walk"]["passed"] == walked["passed"]
        assert schedule["walk"]["time_bound_percent"] <= float(limit) + 1e-9
        assert schedule["energy_change_percent"] == pytest.approx(walked["energy_percent"], abs=1e-9)
    assert walks["kernel-slack1.5"]["passed"] > walks["kernel-slack0"]["passed"] > 0, "so that it says something"
    for other in ("kernel-global-edp", "kernel-single-waste-slack0"):
        assert json.loads((finished_answer / FOLDER / f"schedules/{other}.json").read_text())["walk"] is None
    with open(finished_answer / FOLDER / "tables/headline.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["schedule"] for row in rows] == [
        "kernel-global-waste-slack0",
        "pass-global-waste-slack0",
        "kernel-global-waste-slack1.5",
    ]
    assert rows[0]["status"] == rows[2]["status"] == "shown by a walk" and rows[0]["fresh_time_change_percent"]
    assert [float(row["time_bound_percent"]) <= float(row["slack_percent"]) + 1e-9 for row in rows] == [True] * 3


def test_the_profile_is_that_of_the_visits(finished_answer):
    rows, found = (
        read_profile(finished_answer / FOLDER / "profile.parquet").table.to_pylist(),
        study_of(finished_answer),
    )
    assert [row["target"] for row in rows] == found["rows"]["target"]
    assert [row["energy_j"] for row in rows] == found["rows"]["energy_j"]
    assert {row["study"] for row in rows} == {"kernel", "pass"}


def test_each_repeat_measures_all_schedules_of_the_headline_in_one_session_again(finished_answer):
    folders = sorted((finished_answer / FOLDER / "measurements").glob("validation*"))
    assert len(folders) == 3 and all(len(list(folder.glob("repeat-*.json"))) == 2 for folder in folders)
    sessions = {
        (path.name, each["session"])
        for folder in folders
        for path in folder.glob("*.json")
        for each in json.loads(path.read_text())["comparisons"]
    }
    assert sessions == {("repeat-0.json", "fresh-0"), ("repeat-1.json", "fresh-1")}


def test_a_second_run_does_nothing(finished_answer):
    assert planned(finished_answer, "answer", config=BY_CLOCK) == {}


@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.nightly), -1])
def test_a_visit_that_is_gone_is_measured_again_alone_and_nothing_rests_on_less(answered, place):
    whole, before, found = visits(answered), times(answered), study_of(answered)
    name = list(found["records"])[place]
    (answered / FOLDER / "measurements" / name).unlink()
    assert planned(answered, "answer", config=BY_CLOCK)["by_clock"] == 1
    snakemake(answered, "answer", config=BY_CLOCK)
    after = visits(answered)
    assert {path: content for path, (_, content) in after.items()} == {
        path: content for path, (_, content) in whole.items()
    }
    assert [path for path in after if after[path][0] != whole[path][0]] == [name]
    assert same(study_of(answered), found)
    now = times(answered)
    again = {str(path.relative_to(FOLDER)) for path in now if now[path] != before[path]}
    assert again - {"by_clock.json.ended"} == {f"measurements/{name}", "by_clock.json", "profile.parquet"}, (
        "the same bytes run nothing"
    )
    assert planned(answered, "answer", config=BY_CLOCK) == {}


def test_a_visit_that_was_measured_otherwise_makes_it_choose_again(answered):
    before = study_of(answered)
    name = next(name for name in before["records"] if name.startswith("visit/s0/") and "auto" not in name)
    path = answered / FOLDER / "measurements" / name
    content = json.loads(path.read_text())
    del content["sha256"]
    content["passes"]["time_us"] = {name: 1.01 * each for name, each in content["passes"]["time_us"].items()}
    content["passes"]["iteration_us"] *= 1.01
    path.write_text(sealed_json(content) + "\n")  # it stands for one that was measured, not edited
    snakemake(answered, "answer", config=BY_CLOCK)
    after = study_of(answered)
    assert before["records"][name] != after["records"][name] and before["rows"] != after["rows"]
    assert planned(answered, "answer", config=BY_CLOCK) == {}


def test_a_visit_that_was_edited_stops_the_study_by_name_and_is_measured_again_once_deleted(answered):
    found = study_of(answered)
    path = answered / FOLDER / "measurements" / list(found["records"])[3]
    whole = path.read_text()
    path.write_text(whole.replace('"verdict"', '"Verdict"'))
    done = snakemake(answered, "answer", config=BY_CLOCK, check=False)
    assert done.returncode != 0 and f"{path.name}: " in done.stdout and "delete it" in done.stdout
    assert same(study_of(answered), found), "what follows from the last one still holds"
    assert planned(answered, "answer", config=BY_CLOCK)["by_clock"] == 1, "but does not pass for new"
    path.unlink()
    snakemake(answered, "answer", config=BY_CLOCK)
    assert path.read_text() == whole and same(study_of(answered), found)


@pytest.mark.parametrize(
    "damage", ["edited", *(pytest.param(damage, marks=pytest.mark.nightly) for damage in ("truncated", "emptied"))]
)
def test_a_study_by_clock_whose_file_was_changed_is_made_again_by_the_next_run(answered, damage):
    before, measured = study_of(answered), visits(answered)
    path = answered / FILE
    whole = path.read_text()
    path.write_text({"edited": whole.replace('"tied"', '"untied"', 1), "truncated": whole[:-9], "emptied": ""}[damage])
    assert planned(answered, "answer", config=BY_CLOCK)["by_clock"] == 1
    snakemake(answered, "answer", config=BY_CLOCK)
    assert same(study_of(answered), before) and visits(answered) == measured
    assert planned(answered, "answer", config=BY_CLOCK) == {}


def test_another_protocol_leaves_no_study_that_rests_on_the_old_one(answered):
    before = study_of(answered)
    snakemake(answered, str(FILE), config=(*BY_CLOCK, "seed=4"))
    after = study_of(answered)
    assert after["setup"] != before["setup"] and not set(after["records"].values()) & set(before["records"].values())


def test_off_it_is_the_best_of_one_sweep_and_on_again_nothing_is_measured(answered):
    off = planned(answered, "choose", config=QUICK)
    assert off["measure"] == RECORDS and off["aggregate"] == 1 and not {"by_clock", "pool_visits"} & set(off)
    assert planned(answered, "answer", config=BY_CLOCK) == {}


def test_a_record_of_the_sweep_that_is_measured_again_to_the_same_bytes_carries_nothing_over_again(answered):
    """What is chosen as published rests on the sweep, and not on the visits."""
    carried = str(FOLDER / "measurements/batch-20/forward_gelu.json")
    asked = (*BY_CLOCK, "data_parallel_batches=[40, 20]")
    snakemake(answered, carried, "measurements", config=asked)
    before = times(answered)
    (answered / FOLDER / "measurements/kernel/forward_gelu/1470-9251/r0.json").unlink()
    snakemake(answered, carried, "measurements", config=asked)
    after = times(answered)
    changed = {str(path.relative_to(FOLDER)) for path in after if after[path] != before[path]}
    assert changed == {"measurements/kernel/forward_gelu/1470-9251/r0.json", "published.parquet"}


@pytest.mark.nightly
def test_more_minutes_go_on_from_fewer(answered):
    before = visits(answered)
    more = "by_clock={minutes: 35, worth_percent: 0.0002, over_percent: 10}"
    snakemake(answered, str(FILE), config=(*QUICK, more))
    after = visits(answered)
    assert len(after) > len(before) and sum(before.get(path) == own for path, own in after.items()) > 10


@pytest.mark.parametrize("after", [3, pytest.param(40, marks=pytest.mark.nightly)])
def test_a_study_that_is_killed_goes_on_and_ends_with_the_same_bytes(finished_answer, tmp_path, after):
    directory, log = clone(tmp_path / "clone"), tmp_path / "log"
    running = begun(directory, command(str(FILE), config=BY_CLOCK), log)
    deadline = time.monotonic() + 300  # long enough for a busy machine
    while len(visits(directory)) < after:
        assert running.exitcode is None and time.monotonic() < deadline, f"should be measuring: {log.read_text()}"
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.join(300)
    assert running.exitcode and not (directory / FILE).exists(), log.read_text()
    left = visits(directory)
    snakemake(directory, str(FILE), config=BY_CLOCK)
    now = visits(directory)
    assert {path: now[path] for path in left} == left, "none of them again"
    assert {path: own for path, (_, own) in now.items()} == {
        path: own for path, (_, own) in visits(finished_answer).items()
    }
    assert (directory / FILE).read_bytes() == (finished_answer / FILE).read_bytes()
