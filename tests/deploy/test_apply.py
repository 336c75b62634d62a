"""`kernel-dvfs apply`: the command runs at its clocks, and whatever happens they are given back."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from whole_schedule import whole_schedule

WHILE = "import time; time.sleep(0.8)"
PASSES = """
import sys, time
from kernel_dvfs_deploy import mark
for step in range(2):
    for name in {names}:
        assert mark(name, wait=True)
        time.sleep(0.3)
"""


def apply(made, *words, code=WHILE, **environment):
    return made.command("apply", *words, "--", sys.executable, "-c", code, **environment)


def start(made, *words, code=WHILE):
    return subprocess.Popen(
        [sys.executable, "-m", "kernel_dvfs", "apply", *words, "--", sys.executable, "-c", code],
        env=made.environment(),
        cwd=made.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(holds):
    """Wait until something holds; a minute means that it never will."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def schedule(made, targets, **changed):
    slug = f"simulated-h200-on-a-fake-nvml-{made.boards.uuid.removeprefix('GPU-')[:8]}"
    gpu = {"kind": "nvml", "name": "Simulated H200 on a fake NVML", "slug": slug}
    content = whole_schedule(gpu=gpu, granularity="pass", targets=targets)
    path = made.folder / "s.json"
    path.write_text(json.dumps(content | changed))
    return path


PAIRS = {"forward": {"core_mhz": 1500, "mem_mhz": "auto"}, "backward": {"core_mhz": "auto", "mem_mhz": 2201}}


def test_the_command_runs_at_its_clocks_and_they_are_given_back(lab):
    made = lab()
    process = start(made, "--pair", "1500,2201")
    until(lambda: made.boards.locks == ("345-1500", "2201-2201"))
    assert made.lease.exists()
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    took_s = float(re.search(r"1500-2201: (\S+) s", said)[1])
    assert took_s >= 0.8 and "core 1500 MHz, memory 2201 MHz" in said
    assert made.restored()


def test_stdout_and_the_exit_code_are_the_commands(lab):
    done = apply(lab(), "--pair", "1500,auto", code="print('step 1'); raise SystemExit(7)")
    assert done.returncode == 7 and done.stdout == "step 1\n"


def test_the_baseline_runs_at_auto_and_is_compared(lab):
    made = lab()
    done = apply(made, "--pair", "900,2201", "--baseline", "--report", "r.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((made.folder / "r.json").read_text())
    auto, chosen = report["runs"]["auto"], report["runs"]["900-2201"]
    # the board's own power: 75 W + 20 W/GHz of memory + 250 W/GHz V(f)^2 f at half use
    watt = {name: own["energy_j"] / own["counted_s"] for name, own in report["runs"].items()}
    assert watt["auto"] == pytest.approx(75 + 64 + 125 * (1 + 0.35 * 0.93) ** 2 * 1.98, rel=0.03)
    assert watt["900-2201"] == pytest.approx(75 + 44 + 125 * 0.9, rel=0.12), "clocks settle in the first tenth"
    assert auto["core_mhz"][2] == 1980 and chosen["core_mhz"][1] == 900
    assert report["energy_change_percent"] == pytest.approx(100 * (chosen["energy_j"] / auto["energy_j"] - 1))
    assert "against auto: time" in done.stderr and made.restored()


def test_a_command_that_fails_at_auto_is_not_run_again(lab):
    made = lab()
    done = apply(made, "--pair", "900,2201", "--baseline", code="open('runs', 'a').write('x'); raise SystemExit(3)")
    assert done.returncode == 3 and (made.folder / "runs").read_text() == "x" and made.restored()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 1)])
def test_signals_reach_the_command_and_the_clocks_come_back(lab, name, code):
    made = lab()
    process = start(made, "--pair", "1500,2201", code="import time; time.sleep(60)")
    until(lambda: made.boards.locks == ("345-1500", "2201-2201"))
    time.sleep(0.5)  # the interpreter has begun
    process.send_signal(getattr(signal, name))
    said = process.communicate(timeout=30)[1]
    # Python ends by KeyboardInterrupt with a code of its own or by the signal, as it likes
    assert process.returncode in (code, 130), said
    assert "1500-2201: " in said and made.restored()


# says of each signal that it has come, also while it says so of another; goes on for a while after the last
SAVES = """
import os, signal, time
numbers, seen, end = {numbers}, [], time.monotonic() + 30
for number in numbers:
    signal.signal(number, lambda number, _: (seen.append(number), os.write(1, b"%d\\n" % number)))
open("ready", "w").close()
while len(seen) < len(numbers) and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.5)
"""


@pytest.mark.parametrize("level", ["run", "pass"])
def test_a_signal_that_says_save_reaches_the_command_which_goes_on_watched(lab, level):
    numbers = [*map(int, (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGALRM, signal.SIGRTMIN))]
    made = lab()
    words = ["--pair", "1500,2201"] if level == "run" else ["--schedule", str(schedule(made, PAIRS)), "--pass-level"]
    process = start(made, *words, code=SAVES.format(numbers=numbers))
    until((made.folder / "ready").exists)
    for number in numbers:
        process.send_signal(number)
        assert process.stdout.readline() == f"{number}\n", process.stderr.read()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert made.restored()


def test_a_command_that_handles_a_signal_decides_itself_when_it_ends(lab):
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('saved', flush=True))\n"
    code += "open('ready', 'w').close(); time.sleep(1)"
    made = lab()
    process = start(made, "--pair", "1500,2201", code=code)
    until((made.folder / "ready").exists)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and out == "saved\n" and made.restored()


def test_killed_outright_it_leaves_no_clock_locked_although_the_command_runs_on(lab):
    made = lab()
    process = start(made, "--pair", "1500,2201", code="import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    pid = int(process.stdout.readline())
    until(lambda: made.boards.locks == ("345-1500", "2201-2201"))
    process.kill()
    try:
        assert made.restored()
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=30)


def test_passes_that_the_command_marks_get_their_clocks(lab):
    made = lab()
    path = schedule(made, PAIRS)
    sets = int(made.boards.get("sets"))
    words = ("--schedule", str(path), "--pass-level", "--report", "r.json")
    process = start(made, *words, code=PASSES.format(names=list(PAIRS)))
    until(lambda: made.boards.locks == ("345-1500", "none"))
    until(lambda: made.boards.locks == ("none", "2201-2201"))
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    assert "forward 2 times at 1500-auto, backward 2 times at auto-2201" in said
    assert json.loads((made.folder / "r.json").read_text())["marks"] == {"forward": 2, "backward": 2}
    assert made.restored() and int(made.boards.get("sets")) - sets >= 8


def test_pairs_of_passes_may_be_given_by_themselves(lab):
    made = lab()
    words = ("--pair", "forward=1500,auto", "--pair", "backward=auto,2201")
    process = start(made, *words, code=PASSES.format(names=list(PAIRS)))
    until(lambda: made.boards.locks == ("345-1500", "none"))
    until(lambda: made.boards.locks == ("none", "2201-2201"))
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said
    assert "forward 2 times at 1500-auto, backward 2 times at auto-2201" in said and made.restored()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["1500,auto", "1200,auto"], "given twice for the whole run"),
        (["forward=1500,auto", "forward=1200,auto"], "given twice for pass forward"),
        (["forward=1500,auto", "1200,auto"], "name the pass of each pair"),
        (["forward=fast"], "clocks 'fast'"),
    ],
)
def test_pairs_that_contradict_each_other_are_refused(lab, words, says):
    made = lab()
    done = apply(made, *[word for each in words for word in ("--pair", each)])
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("error: ") == 1
    assert made.boards.get("sets") == "0"


def test_a_mark_that_the_schedule_does_not_know_sends_the_clocks_to_auto_for_good(lab):
    made = lab()
    code = PASSES.format(names=["forward", "optimizer", "backward"])
    done = apply(made, "--schedule", schedule(made, PAIRS), "--pass-level", "--report", "r.json", code=code)
    assert done.returncode == 0, done.stderr
    report = json.loads((made.folder / "r.json").read_text())
    assert "marked 'optimizer'" in report["surprise"] and report["marks"] == {"forward": 1, "backward": 0}
    assert "clocks went back to auto" in done.stderr and made.restored()


def test_a_driver_that_refuses_in_the_middle_sends_the_clocks_to_auto_and_the_command_runs_on(lab):
    made = lab(fail="nvmlDeviceSetMemoryLockedClocks:999:1")  # the probe is let through
    done = apply(
        made, "--schedule", schedule(made, PAIRS), "--pass-level", code=PASSES.format(names=["forward", "backward"])
    )
    made.boards.set(fail="")
    assert "clocks went back to auto" in done.stderr, done.stderr
    assert made.restored()


def test_a_command_that_marks_nothing_is_told_so(lab):
    made = lab()
    done = apply(made, "--schedule", schedule(made, PAIRS), "--pass-level")
    assert done.returncode == 0 and "marked no pass" in done.stderr and made.restored()


def test_a_mark_without_a_listener_costs_nothing_and_says_so(monkeypatch):
    from kernel_dvfs_deploy import mark

    monkeypatch.delenv("KERNEL_DVFS_MARKS", raising=False)
    assert mark("forward") is False


def test_a_mark_that_a_listener_does_not_take_is_an_error_and_the_next_ones_are_heard(monkeypatch):
    from kernel_dvfs_clocks.errors import InputError
    from kernel_dvfs_deploy import mark
    from kernel_dvfs_deploy.marks import MarkListener

    marks = MarkListener()
    for name, value in marks.environment.items():
        monkeypatch.setenv(name, value)
    assert mark("forward")
    with pytest.raises(InputError, match="does not take it"):
        mark("x" * 300_000)
    assert mark("backward")
    assert [marks.receive()[0] for _ in range(2)] == ["forward", "backward"]
    marks.close()


def test_processes_whose_sockets_have_no_address_are_told_apart():
    from kernel_dvfs_deploy.marks import MarkListener

    marks = MarkListener()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.connect(marks.path)
        own.send(b"step")
        if not (child := os.fork()):
            own.send(b"step")
            os._exit(0)
        os.waitpid(child, 0)
        own.send(b"step")
        first, second, third = [marks.receive()[1] for _ in range(3)]
    assert first == third != second
    marks.close()


def test_a_dry_run_sets_nothing_even_without_rights(lab):
    made = lab(deny=1)
    done = apply(made, "--pair", "1500,2201", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "nothing is set" in done.stderr and made.boards.get("sets") == "0" and not made.lease.exists()


def test_without_rights_the_command_is_not_started(lab):
    made = lab(deny=1)
    done = apply(made, "--pair", "1500,2201", code="open('ran', 'w')")
    assert done.returncode == 2 and "no permission" in done.stderr
    assert not (made.folder / "ran").exists() and made.boards.get("sets") == "0" and not made.lease.exists()


@pytest.mark.parametrize(
    ("targets", "changed", "words", "named"),
    [
        (
            PAIRS,
            {"gpu": {"kind": "simulated", "name": "RTX 3080 Ti", "slug": "sim-rtx-3080-ti"}},
            ["--pass-level"],
            "gpu.slug is sim-rtx-3080-ti, of simulated RTX 3080 Ti, this GPU is",
        ),
        (PAIRS, {"gpu": None}, ["--pass-level"], "gpu is None, expected a group of fields"),
        (PAIRS, {"granularity": "kernel"}, ["--pass-level"], "granularity is 'kernel'; --pass-level"),
        (PAIRS, {"schema": "kernel-dvfs/iteration-schedule/1"}, ["--pass-level"], "kernel_dvfs_deploy.player"),
        (PAIRS, {"schema": "other"}, ["--pass-level"], "schema is 'other', expected one of kernel-dvfs/schedule/1, "),
        (PAIRS, {"status": "infeasible"}, ["--pass-level"], "status is 'infeasible', there is nothing to play"),
        (PAIRS, {}, [], "2 different pairs"),
        ({"forward": {"core_mhz": 1501, "mem_mhz": "auto"}}, {}, ["--pass-level"], "no core clock 1501 MHz"),
        ({"forward": {"core_mhz": 1500, "mem_mhz": 5001}}, {}, ["--pass-level"], "no memory clock 5001 MHz"),
        (
            {"forward": {"core_mhz": "fast", "mem_mhz": "auto"}},
            {},
            ["--pass-level"],
            "core_mhz is 'fast', expected a",
        ),
        ({"forward": 1500}, {}, ["--pass-level"], "targets.forward is 1500, expected a group of fields"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused_and_nothing_is_run_or_set(lab, targets, changed, words, named):
    made = lab()
    path = schedule(made, targets, **changed)
    done = apply(made, "--schedule", path, *words, code="open('ran', 'w')")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and named in errors[0] and "Traceback" not in done.stderr
    assert not (made.folder / "ran").exists() and made.boards.get("sets") == "0" and not made.lease.exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--pair", "1501,auto"], "no core clock 1501 MHz"),
        (["--pair", "１５００,auto"], "clock '１５００': expected a positive whole number of MHz or 'auto'"),
        (["--pair", "1500,1e308"], "clock '1e308': expected a positive whole number of MHz or 'auto'"),
        (["--pair", "1500,auto", "--power-limit", "1e308"], "a number of W from 1 to 10000, not '1e308'"),
        (["--schedule", "missing.json"], "schedule missing.json: missing; make it with kernel-dvfs choose"),
        (["--pair", "1500,auto", "--gpu", "7"], "no such GPU"),
        (["--pair", "1500,auto", "--report", "/dev/null/r.json"], "/dev/null"),
        (["--pair", "1500,auto", "--report", "."], ".: is a folder; name a file"),
    ],
)
def test_impossible_wishes_are_refused(lab, words, named):
    made = lab()
    done = apply(made, *words, code="open('ran', 'w')")
    assert done.returncode == 2 and named in done.stderr and done.stderr.count("error: ") == 1
    assert not (made.folder / "ran").exists() and made.boards.get("sets") == "0"


def test_a_command_that_does_not_exist_is_refused_and_the_clocks_come_back(lab):
    made = lab()
    done = made.command("apply", "--pair", "1500,2201", "--", "no-such-command")
    assert done.returncode == 2 and "no-such-command: No such file" in done.stderr and made.restored()


def test_a_gpu_that_somebody_holds_is_left_alone(lab):
    made = lab()
    first = start(made, "--pair", "1500,2201", code="import time; time.sleep(8)")
    until(lambda: made.boards.locks == ("345-1500", "2201-2201"))
    done = apply(made, "--pair", "900,2201")
    assert done.returncode == 2 and "is held by process" in done.stderr
    assert made.boards.locks == ("345-1500", "2201-2201")
    first.terminate()
    first.communicate(timeout=30)
    assert made.restored()


TELLS = """
import time
from kernel_dvfs_deploy.marks import tell_step
time.sleep(0.5)  # loading, which is no step
for step in range(41, 121):
    time.sleep(0.03)
    assert tell_step(step)
"""


def test_a_step_that_is_told_is_timed_and_its_energy_counted_without_what_comes_before(lab):
    made = lab()
    done = apply(made, "--pair", "900,2201", "--baseline", "--report", "r.json", code=TELLS)
    assert done.returncode == 0, done.stderr
    report = json.loads((made.folder / "r.json").read_text())
    auto, chosen = report["runs"]["auto"], report["runs"]["900-2201"]
    for own, power_w in ((auto, 75 + 64 + 125 * (1 + 0.35 * 0.93) ** 2 * 1.98), (chosen, 75 + 44 + 125 * 0.9)):
        assert 35 < own["steps"] < 80 and own["step_s"] >= 0.03
        assert own["step_j"] == pytest.approx(power_w * own["step_s"], rel=0.02 + own["within_percent"] / 100)
    assert report["step_energy_change_percent"] == pytest.approx(100 * (chosen["step_j"] / auto["step_j"] - 1))
    assert "auto: a step takes 0.03" in done.stderr and "; a step: time " in done.stderr and made.restored()


def test_steps_do_not_disturb_clocks_that_follow_passes(lab):
    made = lab()
    code = PASSES.format(names=list(PAIRS)).replace("time.sleep(0.3)", "tell_step(step); time.sleep(0.3)")
    code = f"from kernel_dvfs_deploy.marks import tell_step\n{code}"
    done = apply(made, "--schedule", str(schedule(made, PAIRS)), "--pass-level", code=code)
    assert done.returncode == 0 and "went back to auto" not in done.stderr, done.stderr
    assert "forward 2 times at 1500-auto" in done.stderr and made.restored()


def test_energy_of_a_step_is_from_step_to_step_and_nothing_where_it_would_be_a_guess():
    from kernel_dvfs_clocks.nvml.library import NvmlError
    from kernel_dvfs_deploy.step_energy import StepEnergy

    at = {"s": 0.0, "mj": 1000}
    steps = StepEnergy(lambda: at["mj"], 0.1, lambda: at["s"])

    def told(number, s, mj):
        at.update(s=s, mj=mj)
        steps.step(number)

    told(100, 10.0, 5_000)
    assert steps.stepped is None
    told(103, 11.5, 5_600)
    assert steps.stepped is None, "15 moves of the counter"
    told(104, 11.9, 5_700)  # too soon after the last to be read
    told(107, 13.0, 6_350)
    found = steps.stepped
    assert found.steps == 7 and found.step_s == pytest.approx(3 / 7) and found.step_j == pytest.approx(1.35 / 7)
    assert found.within_percent == pytest.approx(10 / 3)
    refuses = {"energy": True}

    def energy_mj():
        if refuses["energy"]:
            raise NvmlError("lost", 15, "c")
        return at["mj"]

    steps = StepEnergy(energy_mj, 0.1, lambda: at["s"])
    told(100, 10.0, 0)
    told(105, 12.0, 0)
    refuses["energy"] = False
    told(111, 14.0, 7_000)
    told(120, 17.0, 8_800)
    refuses["energy"] = True
    told(140, 20.0, 0)
    found = steps.stepped
    assert (found.steps, found.step_s, found.step_j) == (9, pytest.approx(1 / 3), pytest.approx(0.2))
