"""A GPU that has fallen off the bus keeps nobody from its neighbours: each command names it, and goes on with them."""

import json
import subprocess
import sys

import pytest
from test_broker import connected, said
from test_guard import kill_owner_and_holder

HOW = {
    "lost": {"lost": 1},
    "no handle by its index": {"fail": "nvmlDeviceGetHandleByIndex_v2:999"},
    "no name of its own": {"fail": "nvmlDeviceGetUUID:15"},
}


@pytest.fixture(params=[pytest.param(how, marks=pytest.mark.nightly if how == "lost" else ()) for how in HOW])
def left(lab, request):
    """Two boards: the clocks of 0 were left locked by a run that was killed with its holder, and 1 is gone."""
    made = lab("h200,h200", time="real")
    kill_owner_and_holder(made)
    assert made.boards.locks != ("none", "none")
    made.boards.set(1, **HOW[request.param])
    return made


def names_the_other(text: str) -> bool:
    return "nvmlDeviceGet" in text and "on GPU 1:" in text


RESETS = {
    ("--all",): (2, True),
    ("--all", "--after-job"): (2, True),
    ("--all", "--stale"): (0, False),
    ("--uuid",): (0, False),
}


@pytest.mark.parametrize("words", RESETS, ids="".join)
def test_reset_in_every_form_frees_the_other_gpu(left, words):
    code, names = RESETS[words]
    done = left.command("reset", *words, *([left.boards.uuid] if words == ("--uuid",) else []))
    assert done.stdout.count("both locks reset") == 1 and left.restored(0.1), done.stderr
    assert done.returncode == code and names_the_other(done.stderr) == names and "Traceback" not in done.stderr


def test_an_epilog_of_slurm_frees_the_gpus_of_its_job_and_fails_only_for_one_of_these(left):
    reset = ("reset", "--all", "--after-job")
    done = left.command(*reset, SLURM_JOB_ID="7", SLURM_JOB_GPUS="1")
    assert done.returncode == 2 and names_the_other(done.stderr) and left.boards.locks != ("none", "none")
    done = left.command(*reset, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0")
    assert (done.returncode, done.stderr) == (0, "") and left.restored(0.1)


def test_a_stale_lease_of_the_lost_gpu_is_left_alone_and_says_why(left):
    (left.locks / "kernel-dvfs-GPU-fa4e0001-0000-4000-8000-00000000fa4e.json").write_text("{}")
    done = left.command("reset", "--stale")
    assert done.returncode == 0 and left.restored(0.1) and names_the_other(done.stdout), done.stderr
    assert "GPU-fa4e0001" in done.stdout and done.stdout.count("left alone") == 1


def test_a_watch_frees_the_other_gpu_and_names_the_lost_one_once(left):
    log = left.folder / "watch.log"
    with log.open("w") as file:
        watch = subprocess.Popen(
            [sys.executable, "-m", "kernel_dvfs", "reset", "--all", "--stale", "--watch"],
            **{"env": left.environment(), "cwd": left.folder, "stdout": file, "stderr": file},
        )
    try:
        assert left.restored()
    finally:
        watch.kill()
        watch.wait()
    assert names_the_other(log.read_text()) and log.read_text().count("error: ") == 1


@pytest.mark.parametrize("how", HOW)
def test_the_broker_serves_the_other_gpu_and_says_that_nobody_gets_the_lost_one(lab, how):
    made = lab("h200,h200", time="real", utilisation=0.5)
    made.boards.set(1, **HOW[how])
    made.offer("broker")
    with connected(made) as client:
        assert [each["uuid"] for each in said(client, {"do": "list"})["boards"]] == [made.boards.uuid]
    log = (made.boards.path.parent / "daemons.log").read_text()
    assert "GPU 1 does not answer, so nobody gets it" in log and names_the_other(log)
    done = made.command("apply", "--gpu", "0", "--pair", "900,2201", "--", "sleep", "0.1")
    assert done.returncode == 0 and made.boards.locks == ("none", "none"), done.stderr


def test_devices_tells_of_both(left):
    told = json.loads(left.command("devices", "--json").stdout)
    first, second = told["gpus"]
    assert told["problem"] is None and first["problem"] is None and first["uuid"] == left.boards.uuid
    assert first["counter_period_ms"] and first["left_behind_by"]
    assert (second["index"], second["uuid"], second["gpu"]) == (1, "", "") and names_the_other(second["problem"])
    assert "1: does not answer\n   cannot be measured: nvmlDeviceGet" in left.command("devices").stdout


def test_whoever_names_the_lost_gpu_learns_why_and_whoever_names_none_gets_the_other(left):
    for words in (("apply", "--pair", "900,2201"), ("tune",)):
        done = left.command(*words, "--gpu", "1", "--", "true")
        assert done.returncode == 2 and names_the_other(done.stderr) and done.stderr.count("\n") == 1
    done = left.command("counter", "--seconds", "1")
    assert done.returncode == 0 and done.stdout.endswith("agree\n"), done.stderr
    done = left.command("apply", "--gpu", "GPU-fa4e0001-0000-4000-8000-00000000fa4e", "--pair", "9,9", "--", "true")
    assert done.returncode == 2 and "no such GPU here" in done.stderr and "on GPU 1:" in done.stderr
