"""`kernel-dvfs tune`: beside a running training on a fake board; whatever happens, the clocks are given back.

The training's steps take the time that a board bound by its core takes at the clock that the fake board runs, so the
whole chain is tried: steps counted, clocks tried, a pair kept. Blocks are short here, and so is the tuning; programs
that wait for the same run at once.
"""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from laboratory import DEATHS_BY_DAY
from simulated_load import DEATHS

from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.marks import MarkListener, hand_on, is_gone
from kernel_dvfs_deploy.progress import Counter, pattern_of
from kernel_dvfs_deploy.tune import Ended, Paused, Silent, Steps, TuningSession

HOOKS = str(Path(__file__).resolve().parents[1] / "fakenvml")

# a step: 2 ms that no clock changes, and 30 ms at 1980 MHz that the core clock does
TRAINING = """
import sys, time
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.nvml.library import Library
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
# a training that goes on until it is told to end, however long the rest takes on a busy machine
ENDS = f"{PRINTS}; import os; os.path.exists('end') and (print('done', flush=True), os._exit(0))"
MARKS = 'import kernel_dvfs_deploy; kernel_dvfs_deploy.mark("step")'
COUNT = ["--progress", r"iter (\d+)"]
TUNE = [sys.executable, "-m", "kernel_dvfs", "tune", "--block", "1"]


def training(made, seconds, tell=PRINTS, code=0, share=1.0):
    return TRAINING.format(uuid=made.boards.uuid, seconds=seconds, tell=tell, code=code, share=share)


def start(made, code, *words):
    return made.start(*TUNE, *words, "--", sys.executable, "-c", code)


def until_said(process, words):
    """What it says up to the line that has these words. What it prints meanwhile has to fit a pipe: a minute's."""
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def ended(made, process):
    """What a training that is told to end has printed, and what was said of it since."""
    (made.folder / "end").touch()
    return process.communicate(timeout=120)


def until_locked(made, process):
    """Past the probe, which comes before the training begins: it prints, or is known to take steps."""
    assert process.stdout.readline(), process.stderr.read()
    end = time.monotonic() + 60
    while made.boards.locks == ("none", "none"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_pair_is_kept_and_given_back_and_the_output_is_the_trainings(lab):
    made = lab()
    # a tenth of the step follows the core, so the lowest clock that is tried, half of auto's, is far within 40 %
    words = [*COUNT, "--slack", "40", "--minutes", "0.5", "--report", "r", "--page", "p.html", "--samples", "64"]
    process = start(made, training(made, 80, ENDS, share=0.1), *words)
    said = until_said(process, "next time: ")
    out, last = ended(made, process)
    said += last
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
    assert report["energy_j"] < low < likely < high
    assert f"next time: kernel-dvfs apply --pair {core},{mem} -- COMMAND" in said
    assert report["sample_j"] == pytest.approx(report["step_j"] / 64) and "J a sample" in said
    page = (made.folder / "p.html").read_text()
    assert f"kernel-dvfs apply --pair {core},{mem} -- COMMAND" in page and page.count("<tr>") == 1 + len(
        report["tried"]
    )
    assert made.restored()


def test_a_dry_run_sets_nothing(lab):
    made = lab()
    process = start(made, training(made, 80, ENDS), *COUNT, "--dry-run")
    said = until_said(process, "dry run: ")
    ended(made, process)
    assert process.returncode == 0 and "nothing is set" in said, said
    assert made.boards.get("sets") == "0" and made.restored()


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_steps_may_be_marked_and_ranks_that_mark_the_same_ones_are_one_training(lab, ranks):
    made = lab()
    code = f"import os\n{'os.fork()' * (ranks - 1)}\n{training(made, 80, f'{MARKS}; {ENDS}')}"
    process = start(made, code, "--dry-run", "--report", "r.json")
    said = until_said(process, "dry run: ")
    out, _ = ended(made, process)
    steps, printed = json.loads((made.folder / "r.json").read_text())["steps"], out.count("iter ") / ranks
    assert process.returncode == 0 and "a step takes 0.03" in said and 20 < steps < 1.2 * printed, (said, steps)


def test_where_no_step_is_told_nothing_is_set_and_the_training_runs_on(lab):
    made = lab()
    process = start(made, training(made, 1), "--progress", r"epoch (\d+)")
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0 and out.endswith("done\n") and "no steps were told" in said and made.restored()


# what dies: the training in its command, or the process that tunes itself
IN_PYTHON = """
import time, kernel_dvfs
with kernel_dvfs.tune(slack_percent=3, block_s=1) as tuner:
    while True:
        time.sleep(0.03)
        tuner.step()
        {tell}
"""
DYING = ("around a command", "in Python")
DIES = (
    "import os, sys; sys.path.insert(0, {hooks!r}); "
    "os.path.exists('die') and __import__('simulated_load').DEATHS[{death!r}]()"
)


# around a command it is another process that dies, of itself or with this one
@pytest.mark.parametrize(
    ("way", "deaths"),
    [
        pytest.param("around a command", ("os._exit", "SIGKILL to the group"), id="around a command"),
        pytest.param("in Python", DEATHS_BY_DAY, id="in Python"),
        *(pytest.param(way, tuple(DEATHS), id=f"all {way}", marks=pytest.mark.nightly) for way in DYING),
    ],
)
def test_whatever_the_training_dies_of_the_clocks_come_back(lab, way, deaths):
    running = {}
    for death in deaths:
        made, dies = lab(name=death), DIES.format(hooks=HOOKS, death=death)
        if way == "in Python":
            running[death] = made, made.start(sys.executable, "-c", IN_PYTHON.format(tell=dies))
        else:
            running[death] = made, start(made, training(made, 300, f"{PRINTS}; {dies}"), *COUNT)
    for death, (made, process) in running.items():
        until_locked(made, process)
        (made.folder / "die").touch()
        said = process.communicate(timeout=120)[1]
        assert process.returncode, (death, said)
        if way != "in Python" and death == "os._exit":
            assert process.returncode == 3, "the training's own exit code"
        assert made.restored(), death


def test_what_was_found_is_said_where_the_training_in_python_ends_by_an_error(lab):
    made = lab()
    process = made.start(sys.executable, "-c", IN_PYTHON.format(tell="1 / 0"))
    out, said = process.communicate(timeout=60)
    assert process.returncode == 1 and "ZeroDivisionError" in said
    assert out.endswith("kernel-dvfs: no steps were told: nothing was measured and nothing set\n") and made.restored()


def test_signals_reach_the_training_and_the_clocks_come_back(lab):
    running = []
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        made = lab(name=sent.name)
        running.append((sent, made, start(made, training(made, 300), *COUNT)))
    for sent, made, process in running:
        until_locked(made, process)
        process.send_signal(sent)
        process.communicate(timeout=120)
        assert process.returncode in (1, 128 + sent, 130) and made.restored(), sent


@pytest.mark.parametrize("sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_training_that_saves_itself_when_its_batch_job_ends_says_how_it_ended(lab, sent):
    """A batch system and a terminal signal every process of the job."""
    made = lab()
    saves = f"import signal; signal.signal({sent}, lambda *_: (print('saved', flush=True), os._exit(7)))"
    process = start(made, f"import os\n{saves}\n{training(made, 300)}", *COUNT)
    until_locked(made, process)
    os.killpg(process.pid, sent)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 7 and "saved" in out and "next time" not in said
    assert made.restored()


def test_killed_outright_it_leaves_no_clock_locked_and_the_training_goes_on(lab):
    running = []
    for told, words, tell in (("printed", COUNT, ENDS), ("marked", [], f"{MARKS}; {ENDS}")):
        made = lab(name=told)
        running.append((made, start(made, training(made, 300, tell), *words)))
    for made, process in running:
        until_locked(made, process)
        process.kill()
        process.wait()
        assert made.restored()
        assert ended(made, process)[0].endswith("done\n"), "it prints to who read it before"


def test_where_the_process_that_holds_the_clocks_is_killed_the_training_goes_on_at_auto(lab):
    made = lab()
    process = start(made, training(made, 300, ENDS), *COUNT)
    until_locked(made, process)
    # by its parent: boards of tests beside this one have the same UUID
    words = ["pgrep", "-P", str(process.pid), "-f", "kernel_dvfs_clocks.holder"]
    holder = subprocess.run(words, capture_output=True, text=True)
    os.kill(int(holder.stdout.split()[0]), signal.SIGKILL)
    assert made.restored()
    assert made.comes_to(lambda: "the training goes on" in process.stderr.readline())
    out, said = ended(made, process)
    assert process.returncode == 0 and out.endswith("done\n")
    assert "auto is kept" in said and "is gone" in said, said


@pytest.mark.parametrize(
    "way", ["broker", *(pytest.param(way, marks=pytest.mark.nightly) for way in ("zeusd", "sudo"))]
)
def test_clocks_are_set_and_given_back_by_any_way(lab, way):
    made = lab()
    made.offer(way)
    process = start(made, training(made, 300), *COUNT, "--through", way)
    until_locked(made, process)
    process.terminate()
    process.communicate(timeout=120)
    assert made.restored()


def test_a_way_that_cannot_lock_one_clock_alone_is_refused_before_the_command_runs(lab):
    made = lab()
    made.offer("dcgm")
    process = start(made, training(made, 300), *COUNT, "--through", "dcgm")
    out, said = process.communicate(timeout=120)
    assert process.returncode == 2 and not out and said.count("error: ") == 1 and "dcgm" in said


def test_a_gpu_that_is_named_twice_is_refused_as_that(lab):
    made = lab()
    process = start(made, training(made, 300), *COUNT, "--gpu", f"0,{made.boards.uuid}")
    out, said = process.communicate(timeout=120)
    assert process.returncode == 2 and not out and "named twice" in said and said.count("error: ") == 1, said


def test_one_rank_is_followed_until_it_is_silent_and_each_is_answered():
    heard = [("a", b"rank 0", 0.0), ("a", b"rank 1", 0.1), ("b", b"rank 1", 5.0), ("b", b"rank 0", 5.1)]
    heard += [("a", b"rank 1", 14.0), ("b", b"rank 1", 15.2), ("b", b"rank 0", 15.3)]  # rank 0 began again
    passed, answered, clock = [], [], iter(heard)

    class Heard:
        def receive(self):
            name, sender, self.at_s = next(clock, (None, None, 0.0))
            return name and (name, sender, lambda: answered.append(name))

    marks = Heard()
    hand_on(marks, lambda name: passed.append((name, marks.at_s)), passed.append, now_s=lambda: marks.at_s)
    assert passed == [("a", 0.0), ("b", 5.1), ("b", 15.2)] and len(answered) == len(heard)


def test_a_step_that_is_told_is_its_number_and_no_pass_and_of_one_rank_alone():
    heard = [("step=41", 1, 0.0), ("forward", 1, 0.1), ("step=41", 2, 0.2), ("step=x", 1, 0.3), ("step=42", 1, 0.4)]
    heard += [("backward", 2, 0.5), (f"step={'9' * 16}", 1, 0.6), ("step=", 1, 0.7), ("step=43", 2, 11.0)]
    for each, passes in ((False, ["forward", "step=x", f"step={'9' * 16}", "step="]), (True, ["forward", "backward"])):
        clock, steps, passed = iter(heard), [], []

        class Heard:
            def receive(self):
                name, sender, self.at_s = next(clock, (None, None, 0.0))  # noqa: B023
                return name and (name, str(sender), lambda: None)

        marks = Heard()
        hand_on(marks, passed.append, steps.append, each, lambda: marks.at_s)  # noqa: B023
        assert steps == [41, 42, 43] and set(passes) <= set(passed) and ("backward" in passed) == each


def test_a_process_for_each_mark_is_followed_at_once_and_one_that_cannot_be_seen_is_not_taken_for_gone():
    marks, passed = MarkListener(), []
    sends = "import sys; from socket import *; socket(AF_UNIX, SOCK_DGRAM).sendto(sys.argv[2].encode(), sys.argv[1])"
    names = [f"step {number}" for number in range(5)]
    with marks.followed(passed.append, passed.append):
        for name in names:
            subprocess.run([sys.executable, "-c", sends, marks.path, name], check=True)
    assert passed == names
    assert not any(map(is_gone, (os.getpid(), 1, b"an address", None)))


# as nobody: what tells whether this process has the right is the kernel, which a fake driver cannot ask
WITHOUT_RIGHT = """
import sys
from kernel_dvfs_clocks.setters import choice
choice.may_set_clocks = lambda: (False, "user 1000 lacks CAP_SYS_ADMIN")
from kernel_dvfs.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("dry_run", [False, True])
def test_where_only_slurm_sets_clocks_it_says_that_none_change_within_a_job_step(lab, dry_run):
    made = lab()
    made.offer("slurm")
    made.more |= {"SLURM_JOB_ID": "42"}
    words = ["tune", "--block", "1", *COUNT, *(["--dry-run"] if dry_run else []), "--"]
    process = made.start(sys.executable, "-c", WITHOUT_RIGHT, *words, sys.executable, "-c", training(made, 1))
    out, said = process.communicate(timeout=120)
    if dry_run:
        assert process.returncode == 0 and out.endswith("done\n"), said
        return
    assert process.returncode == 2 and not out and said.count("error: ") == 1, said
    assert "srun --gpu-freq=CORE,memory=MEM" in said and "not within one" in said and "--dry-run" in said
    assert made.boards.get("sets") == "0" and made.restored()


def test_all_gpus_of_a_node_run_at_one_pair_and_the_step_is_the_slowest_ranks(lab):
    made = lab("h200,h200")
    made.boards.set(board=1, time="real", utilisation=0.5)
    both = [made.boards.get("uuid", board) for board in (0, 1)]
    process = start(made, training(made, 300), *COUNT, "--gpu", ",".join(both))
    until_locked(made, process)

    def locked(domain):
        return [made.boards.get(f"{domain}_lock", board) for board in (0, 1)]

    # one board after the other: for a moment they differ
    assert made.comes_to(lambda: locked("core")[0] == locked("core")[1] != "none")
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert made.comes_to(lambda: locked("core") + locked("mem") == ["none"] * 4)
    joules = float(re.search(r"% scatter, ([\d.]+) J", said)[1])
    one = start(made, training(made, 300), *COUNT, "--gpu", both[0], "--dry-run")
    assert made.comes_to(lambda: "dry run" in one.stderr.readline())
    one.terminate()
    alone = float(re.search(r"([\d.]+) J a step", one.communicate(timeout=120)[1])[1])
    assert joules == pytest.approx(2 * alone, rel=0.2)


def test_a_training_on_a_terminal_stays_on_one(lab):
    """What it prints comes as it was printed, piece by piece: colours, a bar drawn again, no line feed made of two."""
    made = lab()
    code = """
import os, sys, time
print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).columns, input())
for step in range(40):
    sys.stdout.write(f"\\r\\x1b[32mstep {step}/40\\x1b[0m")
    sys.stdout.flush()
    time.sleep(0.02)
sys.stderr.write("\\nno line ends here")
raise SystemExit(4)
"""
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 77, 0, 0))
    words = ["tune", "--block", "1", "--dry-run", "--progress", r"step (\d+)/", "--report", "r.json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_dvfs", *words, "--", sys.executable, "-c", code],
        env=made.environment(),
        cwd=made.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(own, b"typed\n")
    shown = b""
    with suppress(OSError):  # how a terminal ends
        while piece := os.read(own, 4096):
            shown += piece
    os.close(own)
    assert process.wait(timeout=120) == 4, shown
    assert b"True True True 77 typed\r\n" in shown
    assert b"".join(b"\r\x1b[32mstep %d/40\x1b[0m" % step for step in range(20, 25)) in shown
    assert b"\r\nno line ends here" in shown
    assert json.loads((made.folder / "r.json").read_text())["steps"] == 39


def test_an_interrupt_typed_at_the_terminal_reaches_the_training_once_and_the_result_is_said(lab):
    made = lab()
    saves = "import signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(time.monotonic()))\n"
    ends = (
        f"{PRINTS}; seen and time.monotonic() > seen[0] + 1 and "
        "(print('interrupted', len(seen), 'times', flush=True), sys.exit(5))"
    )
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TUNE, *COUNT, "--", sys.executable, "-c", saves + training(made, 300, ends)],
        env=made.environment(),
        cwd=made.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):
        while piece := os.read(own, 4096):
            shown += piece
            if b" J: ok\r\n" in shown and made.boards.locks != ("none", "none"):
                os.write(own, b"\x03")
                break
        while piece := os.read(own, 4096):
            shown += piece
    os.close(own)
    assert process.wait(timeout=60) == 5, shown
    assert b"interrupted 1 times" in shown and b"J a step" in shown and made.restored()


def test_where_nobody_reads_what_is_printed_the_training_learns_it_as_ever(lab):
    made = lab()
    process = start(made, training(made, 60), *COUNT, "--dry-run")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 1, "BrokenPipeError, as without tune"


TENS = range(10, 501, 10)


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        ([0, 1, 2, 3], 3),
        ([500, 510, 520], 20),  # a line each ten steps, from a checkpoint on
        ([7, 8, 7, 8, 9, 8, 9, 10], 3),  # ranks that print one after the other
        ([98, 99, 100, 1, 2, 3], 5),  # another epoch
        ([1, 2, 10**15, int("9" * 4000), 3], 2),  # what no step has as its number is none
        ([*range(90, 101), *range(80, 110)], 30),  # back to a checkpoint: 10, and from 90 on 1 and 19
        ([*range(90, 101), 80, 99, 81, 101, 80, 99, 81, 102], 12),  # late lines, in whatever order
        ([*range(90, 101), *[80] * 15, 101], 11),  # a line that is printed again and again
        ([*range(90, 101), *range(60, 80), 101, 102, *range(60, 80), 103], 13 + 2 * 10),  # evaluations of 20 s
        ([*range(90, 101), *range(1, 20), 101, 102, *range(1, 20), 103], 13 + 2 * 19),  # also where it begins anew
        ([*range(90, 101), *range(1, 4), 101, *range(1, 30)], 11 + 3 + 29),  # and then another epoch
        ([*range(90, 101), 1, 100, *range(2, 8)], 10 + 1 + 6),  # a late line after an epoch's first
        ([*range(90, 101), 1, 98, *range(2, 8)], 10 + 1 + 6),
        ([*range(90, 101), *range(1, 20), 99, 101], 10 + 19 + 1),
        ([*range(90, 101), 80, *(each for n in range(81, 96) for each in (n, n - 1))], 10 + 10),  # ranks that go back
        ([*TENS, *(each for each in TENS if each != 490), *TENS, *TENS], 490 + 3 * 491),  # a line is missing
        (4 * [*range(1, 251), *range(1, 201), *range(251, 501)], 4 * 700 - 1),  # an evaluation in each epoch
        (4 * [*range(1, 201), *range(1, 61), *range(201, 401), *range(1, 61), *range(401, 501)], 4 * 620 - 1),
        ([*range(1, 201)] + 3 * [1, 200, *(each for n in range(2, 201) for each in (n, n - 1))], 199 + 606),  # ranks
    ],
)
def test_numbers_that_are_printed_become_steps(told, counted):
    steps, lines = [], []
    counter = Counter(pattern_of(r"iter (\d+)"), steps.append, lambda: len(lines))
    for number in told:
        lines.append(number)
        counter.line(b"12:00 iter %d loss 2" % number)
        counter.line(b"something else 99")
    assert sum(steps) == counted and 0 not in steps


def test_lines_that_a_program_writes_many_at_once_are_counted_to_the_last_and_told_together(tmp_path):
    first, last = 1_000_001, 1_040_001
    printed = "".join(f"{step}/2000000\n" for step in range(first, last + 1)).encode()
    (from_command, command), (heard, tells) = os.pipe(), os.pipe()
    relay = relayed(tmp_path / "out", r"(\d+)/", from_command, tells)
    with os.fdopen(command, "wb") as stream:
        stream.write(printed)
    assert relay.communicate(timeout=60)[1] == b"" and (tmp_path / "out").read_bytes() == printed
    with os.fdopen(heard) as told:
        steps = list(map(int, told))
    assert sum(steps) == last - first and len(steps) < 1000


def relayed(out, pattern, from_command, tells):
    """The process that passes on what a command prints, to the file `out`; its ends of the pipes are its alone."""
    told = json.dumps({"progress": pattern, "channels": [[from_command, 1]], "tells": tells})
    words = [sys.executable, "-m", "kernel_dvfs_deploy.progress", told]
    with open(out, "wb") as stdout:
        process = subprocess.Popen(words, pass_fds=[from_command, tells], stdout=stdout, stderr=subprocess.PIPE)
    os.close(from_command)
    os.close(tells)
    return process


def test_no_regular_expression_keeps_what_a_command_prints(tmp_path):
    """A search that would take hours is given up, of a few lines; what is printed is passed on all the same."""
    hopeless = b"step 7 " + b"a" * 60_000 + b"\n"
    (from_command, command), (heard, tells) = os.pipe(), os.pipe()
    relay = relayed(tmp_path / "out", r"step (\d+) (?:a+)+loss", from_command, tells)
    printed = b"step 1 aloss\nstep 3 aloss\n" + 200 * hopeless + b"step 9 aloss\n"
    with os.fdopen(command, "wb") as stream:
        stream.write(printed)
    said = relay.communicate(timeout=60)[1]
    assert (tmp_path / "out").read_bytes() == printed
    assert said.count(b"\n") == 1 and b"no more steps are counted" in said
    with os.fdopen(heard) as told:
        assert sum(map(int, told)) == 2


@pytest.mark.parametrize(
    ("pattern", "lines", "counted"),
    [
        (r"iter (\d+)", [b"iter 998", b"iter 1,003", b"iter 1,207/2,000,000"], 209),
        (r"iter ([\d,]+)", [b"iter 999,998", b"iter 1,000,003,"], 5),
        (r"step (\d+)", [b"step 1'998", b"step 2_003", b"step 2004,1234"], 6),
        (r"it (\d+)", [b"it \x1b[1;32m17\x1b[0m", b"\x1b[2Kit\x1b[0m 2\x1b[33m3\x1b[0m"], 6),
        (r"step.*?(\d+).*loss", [b"step 4 loss", b"x" * 4000 + b"step 9 loss", b"step 6 loss" + b"y" * 90_000], 2),
    ],
)
def test_numbers_are_read_as_people_print_them(pattern, lines, counted):
    steps = []
    counter = Counter(pattern_of(pattern), steps.append)
    for line in lines:
        counter.line(line)
    assert sum(steps) == counted


def test_bytes_that_are_no_text_are_looked_for_as_they_are():
    steps = []
    counter = Counter(pattern_of(os.fsdecode(b"\xe9tape (\\d+)")), steps.append)
    for line in (b"\xe9tape 1", b"tape 5", b"\xe9tape 3", b"\xe9tape " + b"7" * 5000):
        counter.line(line)
    assert steps == [2]


@pytest.mark.parametrize("progress", ["iter (", r"iter \d+"])
def test_what_finds_no_number_is_refused(progress):
    with pytest.raises(InputError, match="--progress"):
        pattern_of(progress)


def kept_objects(does, times):
    """How many more objects there are after so many calls than after a tenth of them."""
    for number in range(times // 10):
        does(number)
    before = sys.getallocatedblocks()
    for number in range(times // 10, times):
        does(number)
    return sys.getallocatedblocks() - before


class _Counter:
    """A GPU whose counter is gone, or moves once and no more."""

    reads_only, pair, about = False, BASELINE, {"name": "a GPU"}

    def __init__(self):
        self.board = self

    def watch(self, now_s):
        raise InputError("the GPU is lost")

    def energy_mj(self):
        raise InputError("the GPU is lost")

    def to_auto(self):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("state", ["asleep", "given up"])
def test_steps_and_marks_of_days_leave_nothing_in_memory(state):
    steps, said = Steps(), []
    session = TuningSession([_Counter()], steps, 1.0, 30, said.append)
    thread = threading.Thread(target=session.run if state == "given up" else lambda: _asleep(steps), daemon=True)
    thread.start()
    while state == "given up" and thread.is_alive():
        steps.step()
        time.sleep(0.01)
    assert state == "asleep" or "the GPU is lost" in said[0]

    def one(number):
        steps.step()
        session.clocks.mark(("forward", "backward", f"step {number}")[number % 3])

    told, times = steps.count, 100_000
    assert kept_objects(one, times) < 1000
    assert steps.count == told + times
    steps.end()
    thread.join()


def _asleep(steps):
    with suppress(Ended):
        steps.sleep(3600)


def test_who_waits_for_steps_is_woken_when_they_are_enough_and_not_by_each():
    looks = []

    class Watched(Steps):
        def now_s(self):
            looks.append(threading.current_thread().name)
            return super().now_s()

    steps, found = Watched(), []
    steps.step()
    waiter = threading.Thread(target=lambda: found.extend(steps.since(0.0, 5000, 0.0, 60.0)), name="waiter")
    waiter.start()
    for number in range(10_000):
        steps.step()
        if number % 100 == 0:
            time.sleep(0.001)  # who is woken runs now
    waiter.join()
    assert found[-1][0] - found[0][0] >= 5000 and looks.count("waiter") < 10


def test_steps_of_a_block_span_what_is_asked_for():
    steps = Steps()
    with pytest.raises(Silent):
        steps.since(time.monotonic(), 1, 0.0, 0.01)
    for count in (3, 2, 5, 1):
        steps.step(count)
    found = steps.since(0.0, 7, 0.0, 1.0)
    assert [count for count, _ in found] == [3, 5, 10, 11]
    with pytest.raises(Paused):
        steps.since(time.monotonic(), 1, 0.0, 0.01)
    steps.end()
    with pytest.raises(Ended):
        steps.since(time.monotonic(), 1, 0.0, 1.0)
    few = Steps()
    for count in (3, 2, 5, 1):
        few.step(count)
    with pytest.raises(Paused):  # from the 3rd to the 11th there are 8
        few.since(0.0, 9, 0.0, 0.0)
