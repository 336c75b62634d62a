"""A job of Slurm that nobody waits for any more, or that does not end: taken over, cancelled or named."""

import json
import os
import signal
import subprocess
import sys

import pytest

from kernel_dvfs import slurm
from kernel_dvfs.measurement.real import allocation, client
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.errors import InputError

SETUP = Setup("0" * 12, {"uuid": "GPU-1", "slug": "g"}, {}, {}, {"clocks": "lock"})
POINT = {"target": "kernel/x"}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A made-up Slurm: `cluster.states` are what it answers one after the other, the last for ever."""
    monkeypatch.chdir(tmp_path)
    os.mkdir(allocation.FOLDER)

    class Cluster:
        def __init__(self):
            self.states, self.cancelled = ["RUNNING"], []

        def status(self, job):
            return {"JobState": self.states.pop(0) if len(self.states) > 1 else self.states[0]}

    made = Cluster()
    monkeypatch.setattr(slurm, "status", made.status)
    monkeypatch.setattr(slurm, "cancel", made.cancelled.append)
    monkeypatch.setattr(allocation, "_LOOK_EVERY_S", 0.01)
    return made


def knows(job, clocks=""):
    with open(allocation._file("GPU-1"), "w") as file:
        json.dump({"job": job, "clocks": clocks}, file)


def says(text):
    with open(allocation._ready_path(SETUP), "w") as file:
        file.write(text)


def test_a_job_that_was_left_waiting_by_a_killed_run_is_taken_over(cluster, monkeypatch):
    knows("7")
    cluster.states = ["PENDING", "PENDING", "PENDING", "RUNNING"]
    asked = []

    def listening(job):
        if len(cluster.states) == 1:
            with open(allocation._ready_path(SETUP), "w") as file:
                file.write("ok\n")
        return cluster.status(job)

    monkeypatch.setattr(slurm, "status", listening)
    answer = subprocess.CompletedProcess([], 0, '{"device": {}}', "")
    monkeypatch.setattr(slurm, "inside", lambda job, *_: asked.append(job) or answer)
    assert allocation.ask(SETUP, "p", [POINT], ("auto", "auto")) == [{"device": {}}]
    assert asked == ["7"] and not cluster.cancelled


def test_comparisons_are_asked_for_in_one_step_and_after_a_process_that_ends_only_the_others_again(
    cluster, monkeypatch
):
    knows("7")
    says("ok\n")
    monkeypatch.setattr(client, "slurm_gpu", lambda: "--gpus=1")
    ends = iter([2, 0, 9])  # answers until the process ends
    steps = []

    def inside(job, command, text):
        asked = [json.loads(line) for line in text.splitlines()]
        steps.append([(each["target"], each["clocks"], each["repeat"]) for each in asked])
        said = [
            json.dumps({"device": {"step": len(steps)}, "comparison": [each["target"], each["repeat"]]})
            for each in asked[: next(ends)]
        ]
        stale = ['{"stale": true}'] * (len(said) < len(asked))
        return subprocess.CompletedProcess([], 0, "\n".join(said + stale), "")

    monkeypatch.setattr(slurm, "inside", inside)
    pairs = {MeasurementTarget("kernel", "x"): ("auto", "auto"), MeasurementTarget("kernel", "y"): (1500, "auto")}
    device, found = client.compare(SETUP, "p", pairs, [3, 4], "")
    every = [(f"kernel/{name}", f"{core},auto", n) for name, core in (("x", "auto"), ("y", 1500)) for n in (3, 4)]
    assert steps == [every, every[2:], every[2:]]
    assert (device, found) == ({"step": 3}, [[target, repeat] for target, _, repeat in every])


@pytest.mark.parametrize("said", ["", '{"device": {}}', '{"device": {}}\n{"dev'], ids=["none", "one", "half"])
def test_a_step_that_dies_before_it_has_told_all_is_an_error(cluster, monkeypatch, said):
    knows("7")
    says("ok\n")
    monkeypatch.setattr(slurm, "inside", lambda *_: subprocess.CompletedProcess([], 1, said, ""))
    lost = "y" if said else "x"
    with pytest.raises(InputError, match=rf"Slurm job 7 \(RUNNING\) was lost during kernel/{lost}"):
        allocation.ask(SETUP, "p", [POINT, POINT | {"target": "kernel/y"}], ("auto", "auto"))


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"])
def test_a_job_that_is_being_cleaned_up_is_waited_for_and_another_takes_its_place(cluster, state):
    knows("7")
    cluster.states = ["COMPLETING", "COMPLETING", state]
    assert allocation.ask(SETUP, "p", [POINT], ("auto", "auto")) == []
    assert cluster.states == [state]


def test_a_job_that_is_cleaned_up_for_ever_is_named(cluster, monkeypatch):
    monkeypatch.setattr(slurm, "ENDING_S", 0.05)
    knows("7")
    cluster.states = ["COMPLETING"]
    with pytest.raises(InputError, match=r"Slurm job 7 is still COMPLETING .* its node may be stuck"):
        allocation.ask(SETUP, "p", [POINT], ("auto", "auto"))


@pytest.mark.parametrize("answer", ["null", ""], ids=["its process has gone", "it is killed meanwhile"])
def test_a_job_that_somebody_cancels_during_a_point_has_no_successor(cluster, monkeypatch, answer):
    knows("7")
    says("ok\n")
    cluster.states = ["RUNNING", "COMPLETING", "CANCELLED"]
    monkeypatch.setattr(slurm, "inside", lambda *_: subprocess.CompletedProcess([], 0, answer, ""))
    monkeypatch.setattr(slurm, "submit", lambda *_: pytest.fail("submits another"))
    bench = client.RemoteBench(SETUP, "p", MeasurementTarget("kernel", "x"))
    monkeypatch.setattr(client, "slurm_gpu", lambda: "--gpus=1")
    for _ in range(3):  # a retry asks once more
        with pytest.raises(InputError, match=r"job 7, which holds the GPU, was cancelled.* no other in its place"):
            bench.point(("auto", "auto"), "sweep", 0)


def test_a_job_that_somebody_cancels_between_two_points_has_no_successor_in_this_run_but_in_the_next(cluster):
    knows("7")
    cluster.states = ["CANCELLED"]
    for _ in range(3):
        with pytest.raises(InputError, match="was cancelled"):
            allocation.ask(SETUP, "p", [POINT], ("auto", "auto"))
    allocation.begin("GPU-1")
    assert allocation.ask(SETUP, "p", [POINT], ("auto", "auto")) == []


def test_a_cancelled_job_whose_node_is_still_being_cleaned_up_does_not_end_the_next_run(cluster):
    knows("7")
    cluster.states = ["COMPLETING", "COMPLETING", "CANCELLED"]
    allocation.begin("GPU-1")
    assert allocation.ask(SETUP, "p", [POINT], ("auto", "auto")) == []


def test_a_job_that_runs_on_is_kept_when_the_next_run_begins(cluster):
    knows("7")
    allocation.begin("GPU-1")
    assert allocation._known("GPU-1") == {"job": "7", "clocks": ""}


def test_a_job_that_a_client_has_cancelled_itself_is_forgotten(cluster, monkeypatch):
    knows("7")

    def ended(job, tell):
        raise SystemExit(143)

    monkeypatch.setattr(allocation, "wait", ended)
    cluster.states = ["PENDING"]
    with pytest.raises(SystemExit):
        allocation.ask(SETUP, "p", [POINT], ("auto", "auto"))
    assert cluster.cancelled == ["7"] and allocation._known("GPU-1") is None


def test_a_job_that_ends_without_a_word_is_not_waited_for_while_its_node_is_cleaned_up(cluster):
    cluster.states = ["PENDING", "COMPLETING"]
    (said,) = allocation.wait("7", "nothing")
    assert "Slurm job 7 ended (COMPLETING)" in said


def test_a_job_that_does_not_leave_its_node_is_named_after_a_while(cluster, monkeypatch):
    monkeypatch.setattr(slurm, "ENDING_S", 0.05)
    cluster.states = ["COMPLETING"]
    with pytest.raises(InputError, match=r"Slurm job 7 is still COMPLETING .* after it was to end"):
        allocation._end(SETUP, "7")
    assert cluster.cancelled == ["7"]


def test_a_file_of_a_job_that_is_damaged_is_no_job(cluster):
    for text in ("", "[]", '{"job": "7"}', "7"):
        with open(allocation._file("GPU-1"), "w") as file:
            file.write(text)
        assert allocation.ask(SETUP, "p", [POINT], ("auto", "auto")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_is_ended_while_waiting_for_a_job_cancels_it(tmp_path, number):
    (tmp_path / "scancel").write_text(f"#!/bin/sh\necho $1 > {tmp_path}/cancelled\n")
    (tmp_path / "scancel").chmod(0o755)
    code = "import time\nfrom kernel_dvfs import slurm\n"
    code += "with slurm.cancelled_on_failure('7'): print('waits', flush=True); time.sleep(60)"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0 and (tmp_path / "cancelled").read_text() == "7\n"


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(each) for each in file.read().split()]


def test_the_process_on_which_a_job_hangs_ends_after_the_restoring_of_what_was_killed(lab):
    """Slurm kills what is left of a step when the process that it started has ended."""
    made = lab()
    done, _ = made.measure()  # writes the setup
    assert done.returncode == 0, done.stderr
    setup = made.setup()
    made.stop()
    assert made.restored()
    words = [sys.executable, "-m", "kernel_dvfs", "measure", "serve", "--gpu", setup, "--tell", "said"]
    environment = made.environment(SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="0")
    with subprocess.Popen(words, env=environment, cwd=made.folder, stderr=subprocess.DEVNULL) as job:
        try:
            said = made.folder / "said"
            assert made.comes_to(lambda: said.exists() and said.read_text())
            assert said.read_text() == "ok\n"
            done, _ = made.measure(pair="1395,2201")
            assert done.returncode == 0, done.stderr
            (measuring,) = children(job.pid)
            (holder,) = children(measuring)
            os.kill(holder, signal.SIGSTOP)
            os.kill(measuring, signal.SIGKILL)
            try:
                with pytest.raises(subprocess.TimeoutExpired):
                    job.wait(timeout=2)
            finally:
                os.kill(holder, signal.SIGCONT)
            assert job.wait(timeout=60) == 128 + signal.SIGKILL
            assert made.boards.locks == ("none", "none") and not made.lease.exists()
        finally:
            job.terminate()
