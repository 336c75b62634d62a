"""`kernel-dvfs tune`: beside a running training on a fake board; whatever happens, the clocks are given back.

The training's steps take the time that a board bound by its core takes at the clock that the fake board runs, so the
whole chain is tried: steps counted, clocks tried, a pair kept. Blocks are short here, and so is the tuning.
"""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from kernel_dvfs.deploy.tune import Ended, Paused, Steps

# a step: 2 ms that no clock changes, and 30 ms at 1980 MHz that the core clock does
TRAINING = """
import sys, time
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.library import Library
with Library() as nvml:
    board = Board(nvml, "{uuid}")
    due = time.monotonic()
    end = due + {seconds}
    step = 0
    while due < end:
        # by the time that it is due, as work on a board is: what holds this process up makes no step longer
        due += 0.002 + 0.030 * {share} * 1980 / board.sm_mhz() + 0.030 * (1 - {share})
        time.sleep(max(0.0, due - time.monotonic()))
        step += 1
        {tell}
print("done")
raise SystemExit({code})
"""
PRINTS = 'print(f"iter {step}/1000 loss 2.5", flush=True)'
MARKS = 'import kernel_dvfs.deploy; kernel_dvfs.deploy.mark("step")'
COUNT = ["--progress", r"iter (\d+)"]


def training(made, seconds, tell=PRINTS, code=0, share=1.0):
    return TRAINING.format(uuid=made.boards.uuid, seconds=seconds, tell=tell, code=code, share=share)


def start(made, code, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "kernel_dvfs", "tune", "--block", "1", *words, "--", sys.executable, "-c", code],
        env=made.environment(),
        cwd=made.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_locked(made):
    end = time.monotonic() + 60
    while made.boards.locks == ("none", "none"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_pair_is_kept_and_given_back_and_the_output_is_the_trainings(lab):
    made = lab()
    # a tenth of the step follows the core, so the lowest clock that is tried, half of auto's, is far within 40 %
    process = start(made, training(made, 58, share=0.1), *COUNT, "--slack", "40", "--minutes", "0.5", "--report", "r")
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert re.fullmatch(r"(iter \d+/1000 loss 2\.5\n)+done\n", out)
    report = json.loads((made.folder / "r").read_text())
    assert "a step takes 0.03" in said and report["pair"] != "auto-auto", said
    core, mem = report["pair"].split("-")
    # what the pair does to a step is known: a tenth of 30 of 32 ms follows the core clock
    slower = 100 * 3 / 32 * (1980 / int(core) - 1)
    assert report["time_change_percent"] == pytest.approx(slower, abs=3)
    assert report["energy_change_percent"] < -2 and report["time_change_at_most_percent"] <= 40
    low, likely, high = report["auto_would_have_taken_j"]
    assert report["kept_energy_j"] < low < likely < high
    assert f"next time: kernel-dvfs apply --pair {core},{mem} -- COMMAND" in said
    assert made.restored()


def test_a_dry_run_sets_nothing(lab):
    made = lab()
    process = start(made, training(made, 14), *COUNT, "--dry-run")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and "dry run: " in said and "nothing is set" in said, said
    assert made.boards.get("sets") == "0" and made.restored()


def test_steps_may_be_marked(lab):
    made = lab()
    process = start(made, training(made, 14, MARKS), "--dry-run")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and "a step takes 0.03" in said, said


def test_where_no_step_is_told_nothing_is_set_and_the_training_runs_on(lab):
    made = lab()
    process = start(made, training(made, 3), "--progress", r"epoch (\d+)")
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("done\n") and "no steps were told" in said and made.restored()


def test_the_trainings_own_crash_restores(lab):
    made = lab()
    process = start(made, training(made, 18, code=9), *COUNT)
    until_locked(made)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 9, said
    assert made.restored()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_reach_the_training_and_the_clocks_come_back(lab, name):
    made = lab()
    process = start(made, training(made, 60), *COUNT)
    until_locked(made)
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=30)
    assert process.returncode in (1, 128 + getattr(signal, name), 130) and made.restored()


def test_killed_outright_it_leaves_no_clock_locked(lab):
    made = lab()
    process = start(made, training(made, 40), *COUNT)
    until_locked(made)
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while made.boards.locks != ("none", "none") and time.monotonic() < end:
        time.sleep(0.05)
    assert made.restored()
    process.communicate(timeout=60)


def test_a_loop_of_python_is_tuned_in_its_own_process(lab):
    made = lab()
    code = """
import time, kernel_dvfs
with kernel_dvfs.tune(slack_percent=3, minutes=1) as tuner:
    end = time.monotonic() + 15
    while time.monotonic() < end:
        time.sleep(0.03)
        tuner.step()
"""
    done = made.python(code)
    assert done.returncode == 0 and "a step takes 0.03" in done.stdout, done.stderr + done.stdout
    assert made.boards.get("sets") != "0" and made.restored()


def test_steps_of_a_block_span_what_is_asked_for():
    steps = Steps()
    for count in (3, 2, 5, 1):
        steps.step(count)
    found = steps.since(0.0, 7, 0.0, 1.0)
    assert [count for count, _ in found] == [3, 5, 10, 11]
    with pytest.raises(Paused):
        steps.since(time.monotonic(), 1, 0.0, 0.01)
    steps.end()
    with pytest.raises(Ended):
        steps.since(time.monotonic(), 1, 0.0, 1.0)
