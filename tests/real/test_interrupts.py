"""Ctrl-C, or a kill, at any instant of opening, measuring and capturing: the same command goes on."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_dvfs.workload import step as steps

ROOT = Path(__file__).resolve().parents[2]
# more of them by hand, at other instants: KERNEL_DVFS_INTERRUPTS=100 KERNEL_DVFS_INTERRUPT_SEED=7
INTERRUPTS = int(os.environ.get("KERNEL_DVFS_INTERRUPTS", "2"))
BY_NIGHT = pytest.param(8, marks=pytest.mark.nightly)
SEED = int(os.environ.get("KERNEL_DVFS_INTERRUPT_SEED", "33"))

# `kernel-dvfs capture` itself; what runs in the child is the capture's own, from where it opens a GPU: a lock on a file
CAPTURE = """
import sys
from kernel_dvfs.cli.main import main
from kernel_dvfs_step import capturing

capturing.load = lambda *_: None
capturing.interpreter.lacks = lambda: ""
capturing.sys.executable = "./child"
sys.exit(main(["capture", "train.py:make_step", "-o", "step.json"]))
"""
CHILD = """
import fcntl, json, os, sys, time
from dataclasses import asdict
from types import SimpleNamespace
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import capturing
from kernel_dvfs_step.trial import Tried
from kernel_dvfs.workload import step as steps

gpu = open("gpu", "w")

def open_source(*_, **__):
    end_s = time.monotonic() + 10  # as beside.Beside waits for a capture that is just ending
    while True:
        try:
            fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise InputError("others compute on it") from None
            time.sleep(0.05)
    time.sleep(float(os.environ.get("OPENING_S", 0.3)))
    return SimpleNamespace(device={"uuid": "GPU-0"}, living=SimpleNamespace(checksum="0" * 12))

class Capturing:
    def __init__(self, opened, told, tell, beside):
        self.tell = tell

    def step(self):
        for number in range(10):
            time.sleep(0.02)
            self.tell(tried=number, result=asdict(Tried(1.0, 1, "yes", "", 0)))
        time.sleep(0.3)  # the clocks within the step: nothing is told meanwhile
        return asdict(steps.read("captured.json"))

capturing.load = lambda *_: None
capturing.Beside = lambda: SimpleNamespace(open=lambda *_: None)
capturing.framework.open_source = open_source
capturing.Capturing = Capturing
capturing.main(int(sys.argv[3]), json.load(sys.stdin))
"""


@pytest.mark.parametrize("interrupts", [INTERRUPTS, BY_NIGHT])
def test_the_same_command_goes_on_after_an_interrupt_at_any_instant(lab, interrupts):
    made, draw = lab(), random.Random(SEED)
    made.measure()
    made.stop()
    words = [sys.executable, "-m", "kernel_dvfs", "measure", "--gpu", "nvml", "--target", "forward_gelu"]
    words += ["--clocks", "1500,2201", "-o", "r0.json"]
    began_s = time.monotonic()
    subprocess.run(words, env=made.environment(), cwd=made.folder, check=True)
    whole_s = time.monotonic() - began_s
    for number in range(interrupts):
        if number % 2 == 0:
            made.stop()  # so that the next one is hit while it opens
        at_s = draw.uniform(0, 1.1 * whole_s)
        interrupt(words, made.environment(), made.folder, at_s, number)
        done, record = made.measure()
        assert done.returncode == 0 and record, f"interrupt {number}, at {at_s:.2f} of {whole_s:.2f} s: {done.stderr}"


RECORD = ROOT / "tests/workload/steps/hand_made.json"


@pytest.fixture
def capturing(tmp_path):
    """(the words of a capture in tmp_path, its environment)."""
    (tmp_path / "captured.json").write_bytes(RECORD.read_bytes())
    (tmp_path / "capture.py").write_text(CAPTURE)
    (tmp_path / "child").write_text(f"#!{sys.executable}\n{CHILD}")
    (tmp_path / "child").chmod(0o755)
    return [sys.executable, "capture.py"], os.environ | {"PYTHONPATH": str(ROOT / "workflow")}


def test_a_capture_whose_parent_is_killed_while_it_says_nothing_gives_the_gpu_back(capturing, tmp_path):
    words, environment = capturing

    def is_held():
        with open(tmp_path / "gpu", "a") as gpu:
            try:
                fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def comes_to(wanted):
        end_s = time.monotonic() + 60
        while is_held() != wanted and time.monotonic() < end_s:
            time.sleep(0.02)
        return is_held() == wanted

    parent = subprocess.Popen(words, env=environment | {"OPENING_S": "600"}, cwd=tmp_path)
    assert comes_to(True)
    parent.kill()
    parent.wait()
    assert comes_to(False)


@pytest.mark.slow
@pytest.mark.parametrize("interrupts", [INTERRUPTS, BY_NIGHT])
def test_a_capture_goes_on_after_an_interrupt_at_any_instant(capturing, tmp_path, interrupts):
    (words, environment), draw = capturing, random.Random(SEED)

    def capture():
        return subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    began_s = time.monotonic()
    done = capture()
    whole_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stderr
    for number in range(interrupts):
        (tmp_path / "step.json").unlink()
        at_s = draw.uniform(0, 1.1 * whole_s)
        interrupt(words, environment, tmp_path, at_s, number)
        done = capture()
        assert done.returncode == 0, f"interrupt {number}, at {at_s:.2f} of {whole_s:.2f} s: {done.stderr}"
        assert steps.read(tmp_path / "step.json") == steps.read(RECORD)


def interrupt(words, environment, folder, at_s, number):
    """Start a command and end it so much later: every third one by a kill of it alone, the others as Ctrl-C does."""
    client = subprocess.Popen(
        words,
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(at_s)
    if number % 3 == 0:
        client.kill()
    elif client.poll() is None:
        os.killpg(client.pid, signal.SIGINT)
    client.wait()
