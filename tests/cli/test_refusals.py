"""Input that a command cannot use is refused with one line, exit code 2 and no output file.

refusals.txt is the table: what is typed, and the line that answers it; `...` stands for any text. It is typed in
a folder with a good file of each kind that commands read, and with bad ones whose names say what is wrong with them.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.cli import main as program
from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import record
from kernel_dvfs.plan.config import load
from kernel_dvfs.plan.study import plan
from kernel_dvfs.profile.store import COLUMNS, write_profile
from kernel_dvfs_step import interpreter

TABLE = (Path(__file__).parent / "refusals.txt").read_text("utf-8")
REFUSALS = re.findall(r"^\$ kernel-dvfs ?(.*)\n(error: .*)$", TABLE, re.M)
CLOCKS = {"core_mhz": 1470, "mem_mhz": "auto"}
SCHEDULE = whole_schedule(targets={"forward_gelu": CLOCKS})
SCHEDULES = {
    "schedule": SCHEDULE,
    "of-passes": SCHEDULE | {"granularity": "pass"},
    "infeasible": SCHEDULE | {"status": "infeasible", "targets": {}},
    "of-nothing": SCHEDULE | {"targets": {}},
    "of-another": SCHEDULE | {"targets": {"forward": CLOCKS}},
    "list-of-targets": SCHEDULE | {"targets": []},
    "null-pair": SCHEDULE | {"targets": {"forward_gelu": None}},
    "no-memory": SCHEDULE | {"targets": {"forward_gelu": {"core_mhz": 1470}}},
    "null-core": SCHEDULE | {"targets": {"forward_gelu": CLOCKS | {"core_mhz": None}}},
    "capped": SCHEDULE | {"targets": {"forward_gelu": CLOCKS | {"power_cap_w": 300}}},
    "core-1471": SCHEDULE | {"targets": {"forward_gelu": CLOCKS | {"core_mhz": 1471}}},
    "null": None,
    "list": [],
    "empty": {},
}
WALKED = {"schedules": 9, "passed": 1, "pairs": {"a": [1470, "auto"]}, "over_percent": 10}
WALKED |= {"time_percent": [9.5, 10.5], "energy_percent": -20, "energy_se_percent": 1, "another_minute": 0.0025}
STUDY = {"schema": "kernel-dvfs/by-clock/1", "setup": "0123456789ab", "options": {}, "rows": {}, "about": {}}
STUDY |= {"records": {"visit/s0/0-auto-auto.json": "0" * 64}, "token": ""}


def whole(study):
    """The file of a study by clock as it is written."""
    return json.dumps(study | {"sha256": hashlib.sha256(json.dumps(study).encode()).hexdigest()})


STUDIES = {
    "walked": {"kernel-slack0": WALKED, "kernel-slack20": WALKED},
    "walked-elsewhere": {"kernel-slack0": WALKED | {"pairs": {"b": [1470, "auto"]}}},
    "walked-by-others": {"kernel-slack0": WALKED | {"pairs": {"a": [1410, "auto"]}}},
    "walked-core": {"kernel-slack0": WALKED | {"pairs": {"a": [1470]}}},
    "walked-once": {"kernel-slack0": WALKED | {"time_percent": [9.5]}},
    "over-60": {"kernel-slack0": WALKED | {"over_percent": 60}},
    "never-walked": {},
}
STAGES = "stage,instruction,core_mhz,mem_mhz,time_s,energy_j\n"
STAGE = "{0},forward,1400,,0.05,60\n{0},forward,700,,0.08,15\n{0},backward,1400,,0.1,40\n{0},backward,700,,0.16,30\n"
_PLAN = (
    "keep_percent: 99, kept_on: first half, router: least requests, clock: '1600', rest: '345', step_tokens: 512, "
    "answer_tokens: 200.5"
)
SERVING_PLANS = {
    "empty": "",
    "no-plans": "plans: []",
    "five-plans": "plans: 5",
    "no-servers": f"plans: [{{{_PLAN}, tp: 4}}]",
    "fast": f"plans: [{{{_PLAN}, servers: many, tp: 4}}]",
    "half-a-server": f"plans: [{{{_PLAN}, servers: 1, tp: 3}}]",
    "month-13": "at: 2026-13-45",
    "deep": "plans: " + "[" * 100_000,
}


@pytest.fixture(scope="module")
def desk(root, tmp_path_factory):
    """(The folder, the path of its setup in it, its files). Not to be changed."""
    folder = tmp_path_factory.mktemp("desk")
    config = (root / "config.yaml").read_text("utf-8")
    configurations = {
        "config": config,
        "many-batches": config.replace("\nbatch: 40", "\nbatch: many"),
        "no-batch": config.replace("\nbatch: 40", "\n"),
        "bach": config.replace("\nbatch: 40", "\nbach: 40\nbatch: 40"),
        "batch-alone": "batch: 40\n",
    }
    texts = {
        **{f"{name}.yaml": text for name, text in configurations.items()},
        **{f"{name}.json": json.dumps(content) for name, content in SCHEDULES.items()},
        **{f"{name}.study.json": whole(STUDY | {"walks": walks}) for name, walks in STUDIES.items()},
        "older.study.json": json.dumps(STUDY | {"schema": "kernel-dvfs/by-clock/0"}),
        **{
            f"{name}.plan.yaml": "schema: kernel-dvfs/serving-static/3\ncells: 1\nslo_scale: 1\ngaps: mean\n" + text
            for name, text in SERVING_PLANS.items()
        },
        "stages.csv": STAGES + "".join(map(STAGE.format, range(4))),
        "nan.csv": STAGES + "0,forward,1100,,nan,1\n",
        "file": "",
        "folder/comparison/gpus.json": json.dumps({"schema": "kernel-dvfs/table/1", "rows": [{"gpu": "Toy"}]}),
        "broken/comparison/gpus.json": "a,b\n1\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_small_profile(folder / "profile.parquet")
    quick = {"data_parallel_batches": [], "tensor_parallel_degrees": [], "tensor_energy_pj": []}
    with chdir(folder):
        setup = plan(load("config.yaml") | quick, "results").setup.write()
    return folder, setup, files(folder)


def write_small_profile(path) -> None:
    """A profile of one kernel; half the clock takes longer and saves energy."""
    rows = [
        dict.fromkeys(COLUMNS)
        | {"study": "kernel", "target": "a", "launches_per_iteration": 1, "n": 1, "verdict": "ok"}
        | {"core_mhz": core, "is_baseline": core is None, "time_s": time, "energy_j": energy}
        for core, time, energy in ((None, 1.0, 100.0), (1470.0, 1.1, 80.0))
    ]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    gpu = {"kind": "simulated", "name": "G", "slug": "g"}
    write_profile(path, columns, gpu, {"name": "w"}, ["core_mhz", "mem_mhz"])


def files(folder) -> dict:
    """{path: when it was written}."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("typed", "line"), REFUSALS, ids=[typed for typed, _ in REFUSALS])
def test_what_cannot_be_done_is_said_in_this_line_and_nothing_is_written(desk, monkeypatch, capsys, typed, line):
    folder, setup, before = desk
    monkeypatch.chdir(folder)
    monkeypatch.setattr(interpreter, "lacks", lambda: "has no torch")  # wherever this is run
    assert main(shlex.split(typed.replace("SETUP", setup))) == 2
    said = capsys.readouterr().err.replace(str(folder), "FOLDER")
    expected = ".*".join(map(re.escape, line.split("...")))
    assert re.fullmatch(f"{expected}\n", said), said
    assert files(folder) == before


def test_every_line_of_the_table_is_tried():
    assert len(REFUSALS) == TABLE.count("$ ") == TABLE.count("error: ") > 100
    assert len({typed for typed, _ in REFUSALS}) == len(REFUSALS), "nothing twice"


# --- what is nearly refused ---


def test_a_kernel_that_the_schedule_does_not_know_stays_at_auto(desk, tmp_path):
    folder, setup, _ = desk
    words = ["measure", "compare", "--gpu", folder / setup, "--schedule", folder / "schedule.json"]
    words += ["-o", tmp_path / "c.json", "--target", "forward_fc_gemm", "--last", "1"]
    assert main([str(word) for word in words]) == 0
    _, comparisons = record.read_comparison(str(tmp_path / "c.json"))
    assert [each["repeat"] for each in comparisons] == [0, 1]
    assert {point["request"]["core_mhz"] for each in comparisons for point in each["points"]} == {"auto"}


def test_a_walk_is_found_by_its_limit_and_chooses_its_own_pair_whatever_the_profile_says(desk, tmp_path):
    path, walked = tmp_path / "s.json", str(desk[0] / "walked.study.json")
    words = ["choose", str(desk[0] / "profile.parquet"), "--scope", "global", "--objective", "waste", "-o", str(path)]
    for slack in (0, 20):
        assert main([*words, "--walk", walked, "--slack", str(slack)]) == 0
        content = json.loads(path.read_text())
        assert content["targets"] == {"a": CLOCKS} and content["walk"]["passed"] == 1
        # 1.1 s at 1470 MHz and 1 s at auto
        assert content["walk"]["reserve_percent"] == pytest.approx(max(0, slack - 10))


def test_the_limit_is_strict_unless_slack_is_given(desk, tmp_path):
    chosen, path = [], tmp_path / "s.json"
    words = ["choose", str(desk[0] / "profile.parquet"), "--scope", "global", "--objective", "waste", "-o", str(path)]
    for slack in ((), ("--slack", "20")):
        assert main([*words, *slack]) == 0
        content = json.loads(path.read_text())
        chosen.append((content["slack_percent"], content["targets"]["a"]["core_mhz"]))
    assert chosen == [(0, "auto"), (20.0, 1470)]


# --- a reader that has enough ---


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lines", [1, 100_000], ids=["at the end", "in the middle"])
def test_a_pipe_that_nobody_reads_any_more_ends_a_command_without_a_word(lines, unbuffered):
    code = (
        "from kernel_dvfs.cli import main; import argparse, sys\n"
        f"run = lambda _: [print('line') for _ in range({lines})] and None\n"
        "main.parsed = lambda _: (run, argparse.Namespace(log=''))\n"
        "sys.exit(main.main([]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=60
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


def test_another_pipe_that_breaks_is_still_a_fault(monkeypatch):
    def run(_):
        raise BrokenPipeError

    monkeypatch.setattr(program, "parsed", lambda _: (run, argparse.Namespace(log="")))
    with open("/dev/null", "w") as output, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", output)
        with pytest.raises(BrokenPipeError):
            main([])


# --- names of others ---


def test_a_name_from_a_table_is_shown_and_not_obeyed_by_the_terminal(tmp_path, capsys):
    rows = "".join(f"k\x1b[2J,{core},5000,{150000 / core},{core}\n" for core in (900, 1500))
    (tmp_path / "t.csv").write_text("kernel,core_mhz,mem_mhz,time_us,energy_uj\n" + rows)
    words = ["import", tmp_path / "t.csv", "--name", "a\x1b]0;b\x07", "--reference", "1500,5000", "-o", tmp_path / "p"]
    main([str(word) for word in words])
    said = capsys.readouterr().err
    assert said and all(line.isprintable() for line in said.splitlines())
