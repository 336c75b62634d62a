"""What goes wrong with a board while a command runs on it: the command runs to its end, its clocks come back, and the
numbers say how far they can be believed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_tune import COUNT, ENDS, ended, start, training, until_said

HOOKS = str(Path(__file__).resolve().parents[1] / "fakenvml")
# a command that turns knobs of its board a while after it has begun
TURNS = """
import sys, time
from pathlib import Path
sys.path.insert(0, {hooks!r})
time.sleep(1.1)
from fake import Boards
Boards(Path({library!r}), Path({state!r}), "").set(**{knobs!r})
time.sleep(2.6)
print("done")
"""
FALLS = r"counter; energy counter: fell from \d+ to \d+ mJ"
FAR = r"counter; energy counter: \d+(\.\d+)? W on average, the power reading \d+(\.\d+)? W"
# {what happens: (knobs before it, knobs meanwhile, what is said, whether joules are)}
FAULTS = {
    "nothing": ({}, {}, r"ok", True),
    "the counter begins anew": ({}, {"counter": "reset@0"}, FALLS, False),
    "the counter falls": ({}, {"counter": "jump@0:-600000"}, FALLS, False),
    "the driver is unloaded": ({}, {"unload": 1}, FALLS, False),
    "the counter leaps": ({}, {"counter": "jump@0:9000000"}, FAR, True),
    "the counter counts double": ({"counter_factor": 2}, {}, FAR, True),
    "the counter counts in another unit": ({"counter_factor": 0.001}, {}, FAR, True),
    "the counter stands": ({}, {"counter": "freeze@0"}, r"counter; the energy counter has not moved for 2 s", False),
    "power is read as a mean": ({"power_mean_ms": 1000}, {}, r"ok", True),
    "the core clock is not obeyed": (
        {"ignore": "core"},
        {},
        r"not_reached; core clock: asked 900 MHz, reached 1980 MHz",
        True,
    ),
    "the memory clock is not obeyed": (
        {"ignore": "mem"},
        {},
        r"not_reached; mem clock: asked 2201 MHz, reached 3201 MHz",
        True,
    ),
    "it is not obeyed, and the power cap holds the board": (
        {"ignore": "core", "limit_mw": 400000},
        {},
        r"not_reached; core clock: asked 900 MHz, reached 1[0-9]{3} MHz; power cap active",
        True,
    ),
    "the power cap holds it": (
        {"core_lock_limit_mw": 150000},
        {},
        r"throttled; core clock: asked 900 MHz, .*; power cap active",
        True,
    ),
    "somebody else comes": ({}, {"foreign_compute": 1}, r"disturbed; 1 other process\(es\) computed on the GPU", True),
    "another power limit": (
        {},
        {"limit_mw": 650000},
        r"disturbed; the power limit changed from 700000 to 650000 mW",
        True,
    ),
    "MIG is turned on": ({}, {"mig": 1}, r"disturbed; MIG was turned on", True),
    "it has nothing to do": ({"utilisation": 0}, {}, r"unstable; the GPU had nothing to do in any look", True),
    "a call fails": ({}, {"fail": "nvmlDeviceGetClockInfo:999"}, r"counter; nvmlDeviceGetClockInfo on GPU", False),
}


# said as another one is
BY_NIGHT = (
    "the counter begins anew",
    "the driver is unloaded",
    "the counter counts in another unit",
    "it is not obeyed, and the power cap holds the board",
)


@pytest.fixture(scope="module")
def applied(fake_library, tmp_path_factory, config, request):
    """{what happens: (laboratory, exit code, stdout, stderr, report)} for the tests that run; all at once, since each
    mostly waits."""
    from fake import Boards
    from laboratory import Lab

    running = {}
    tests = [each for each in request.session.items if "applied" in getattr(each, "fixturenames", ())]
    for name in dict.fromkeys(each.callspec.params["fault"] for each in tests):
        before, meanwhile, _, _ = FAULTS[name]
        folder = tmp_path_factory.mktemp("watched")
        boards = Boards(fake_library, folder / "boards.state", "h200", **{"time": "real", "utilisation": 0.5} | before)
        made = Lab(boards, folder / "work", config())
        told = {"hooks": HOOKS, "library": str(fake_library), "state": str(boards.path), "knobs": meanwhile}
        words = ("apply", "--pair", "900,2201", "--report", "r.json", "--", sys.executable, "-c", TURNS.format(**told))
        process = subprocess.Popen(
            [sys.executable, "-m", "kernel_dvfs", *words],
            **{"env": made.environment(), "cwd": made.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
            text=True,
        )
        running[name] = made, process
    found = {}
    for name, (made, process) in running.items():
        said = process.communicate(timeout=120)
        report = made.folder / "r.json"
        found[name] = made, process.returncode, *said, json.loads(report.read_text()) if report.exists() else said
    return found


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.nightly if name in BY_NIGHT else ()) for name in FAULTS]
)
def test_the_numbers_of_a_command_say_how_far_they_can_be_believed(applied, fault):
    _, _, verdict, has_joules = FAULTS[fault]
    made, code, out, said, report = applied[fault]
    assert (code, out) == (0, "done\n"), "a training is never stopped by what watches it"
    assert re.search(rf"900-2201: .*: {verdict}", said), said
    ran = report["runs"]["900-2201"]
    assert (" J (" in said) == has_joules == (ran["energy_j"] is not None)
    assert "; ".join([ran["verdict"], *ran["reasons"]]) in said
    assert made.boards.locks == ("none", "none") and not made.lease.exists()


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"ignore": "core,mem"}, "not compared with auto: nothing can be concluded from that run (not_reached)"),
        pytest.param(
            {"ignore": "core,mem", "limit_mw": 400000},
            "not compared with auto: nothing can be concluded from that run (not_reached)",
            marks=pytest.mark.nightly,
        ),
        ({"counter_factor": 3}, "nothing can be compared with the run at auto (counter); not run again"),
    ],
)
def test_no_change_is_printed_that_nothing_shows(lab, knobs, said):
    made = lab(**knobs)
    words = ("apply", "--pair", "900,2201", "--baseline")
    done = made.command(*words, "--", "sleep", "1.2")
    assert said in done.stderr and "against auto" not in done.stderr and made.restored(), done.stderr


def test_a_lost_gpu_ends_no_command_and_says_what_is_left(lab):
    made = lab()
    told = {"hooks": HOOKS, "library": str(made.boards.library), "state": str(made.boards.path), "knobs": {"lost": 1}}
    done = made.command("apply", "--pair", "900,2201", "--", sys.executable, "-c", TURNS.format(**told))
    assert done.stdout == "done\n" and "the GPU is lost" in done.stderr and "J (" not in done.stderr
    assert done.returncode == 2 and made.lease.exists(), "its clocks could not be given back"
    made.boards.set(lost=0)
    assert made.command("reset", "--stale").returncode == 0 and made.restored()


def test_tune_gives_up_after_a_round_that_shows_nothing_and_the_training_goes_on(lab):
    running = {}
    for name, knobs, said in (
        ("ignored", {"ignore": "core,mem"}, "its clocks are not reached: not_reached; "),
        ("scaled", {"counter_factor": 0.5}, "energy counter: "),
    ):
        made = lab(name=name, **knobs)
        running[name] = made, start(made, training(made, 90, ENDS), *COUNT, "--report", "r.json"), said
    for name, (made, process, words) in running.items():
        said = until_said(process, "the training goes on")
        assert words in said, said
        _, last = ended(made, process)
        report = json.loads((made.folder / "r.json").read_text())
        assert (process.returncode == 0 and "auto is kept" in last + said) or "no steps" in last, last
        if name == "ignored":
            assert "J a step at auto: ok; " in last, "what is said of the pair is not of auto's joules"
        assert report["pair"] == "auto-auto" and report["why"] and "next time" not in last, name
        assert made.restored()
