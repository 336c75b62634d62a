"""A study by clock on a real GPU: a session is a measuring process, clocks change once a visit, and it goes on where it
was stopped. Measuring again has a session of its own for each repeat."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml
from whole_schedule import whole_schedule

from kernel_dvfs.measurement import record
from kernel_dvfs.measurement import setup as setups

KERNELS = ("forward_fc_gemm", "forward_gelu", "forward_attproj_residual")
CODE = (
    "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
    "print(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup.write())"
)
OPTIONS = {
    "pairs": "auto-auto,1800-3201,1500-3201,1200-3201,1500-2201",
    "limits_percent": [0, 3],
    "minutes": 5,
    "worth_percent": 0.05,
    "over_percent": 10,
    "ties": "tied",
    "seed": 2,
}


def small_setup(made) -> tuple[str, list[str]]:
    """(path of a setup of a few kernels, their names)."""
    (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    done = made.python(CODE)
    assert done.returncode == 0, done.stderr
    whole = setups.read(str(made.folder / done.stdout.strip()))
    known = [name for name in KERNELS if name in whole.targets["kernel"]]
    targets = {"kernel": {name: whole.targets["kernel"][name] for name in known}, "pass": {}}
    return setups.store(str(made.folder / "s"), whole.gpu, whole.workload, targets, whole.measurement), known


def files(made) -> dict:
    """{path below the records: content} in the order of the visits."""
    found = {}
    for path in (made.folder / "m").glob("visit/s*/*.json"):
        found[str(path.relative_to(made.folder / "m"))] = json.loads(path.read_text())
    place = {name: (own["request"]["session"], own["request"]["place"]) for name, own in found.items()}
    return dict(sorted(found.items(), key=lambda each: place[each[0]]))


@pytest.fixture
def begun(lab):
    """A lab with the setup of a few kernels, and the words of a study by clock there."""
    made = lab()
    path, known = small_setup(made)
    words = ["measure", "by-clock", "--gpu", path, "--records", "m", "--options", json.dumps(OPTIONS), "-o", "b.json"]
    return made, path, known, words


def test_each_session_is_a_process_each_visit_one_pair_and_what_is_there_is_not_measured_again(begun):
    made, _, known, words = begun
    done = made.command(*words)
    assert done.returncode == 0, done.stderr
    found, text = files(made), (made.folder / "b.json").read_bytes()
    study = json.loads(text)
    assert list(study["records"]) == list(found) and study["about"]["visits"] == len(found)
    sessions: dict[int, set] = {}
    for own in found.values():
        sessions.setdefault(own["request"]["session"], set()).add(own["run"]["run_id"].partition(".")[0])
        assert set(own["passes"]["time_us"]) == set(known) and own["device"]["kind"] == "nvml"
        assert own["verdict"] in ("ok", "throttled"), own["reasons"]  # an iteration of these is at the power cap
        core = own["request"]["core_mhz"]
        assert (own["request"]["policy"] == "auto") == (core == "auto")
        is_held = core == "auto" or own["verdict"] == "throttled"
        assert is_held or own["reached"]["core_mhz"] == pytest.approx(core, abs=16)
    processes = [name for own in sessions.values() for name in own]
    assert len(processes) == len(set(processes)) == len(sessions) >= 6, "one process a session, another each"
    made.stop()
    assert made.restored()

    before = {path: path.stat().st_mtime_ns for path in (made.folder / "m").rglob("*.json")}
    done = made.command(*words)
    assert done.returncode == 0 and (made.folder / "b.json").read_bytes() == text
    assert {path: path.stat().st_mtime_ns for path in before} == before
    gone = sorted(before)[len(before) // 2]
    gone.unlink()
    done = made.command(*words)
    assert done.returncode == 0, done.stderr
    after = {path: path.stat().st_mtime_ns for path in (made.folder / "m").rglob("*.json")}
    assert gone in after and {path for path in before if after[path] != before[path]} == {gone}
    made.stop()
    assert made.restored()


def test_a_visit_of_another_build_is_measured_again_where_one_is_named(begun):
    made, _, _, words = begun
    assert made.command(*words).returncode == 0
    library = {own["device"]["library_sha256"] for own in files(made).values()}
    assert len(library) == 1
    (made.folder / "kernels").write_text(library.pop() + "\n")
    before = {path: path.stat().st_mtime_ns for path in (made.folder / "m").rglob("*.json")}
    assert made.command(*words, "--kernels", "kernels").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (made.folder / "kernels").write_text("0" * 64 + "\n")
    assert made.command(*words, "--kernels", "kernels").returncode == 0
    assert all(path.stat().st_mtime_ns != before[path] for path in (made.folder / "m/visit/s0").glob("*.json"))
    made.stop()


# more of them by hand, at other moments: KERNEL_DVFS_INTERRUPTS=100 KERNEL_DVFS_INTERRUPT_SEED=7
KILLS = int(os.environ.get("KERNEL_DVFS_INTERRUPTS", "3"))
SEED = int(os.environ.get("KERNEL_DVFS_INTERRUPT_SEED", "48"))


def kill(made, words, after_s, whom) -> bool:
    """Begin a study and kill it so much later, with SIGKILL: the command, the measuring process, or both. Return
    whether the measuring process was killed: it may have held no GPU yet."""
    command = [sys.executable, "-m", "kernel_dvfs", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    client = subprocess.Popen(command, env=made.environment(), cwd=made.folder, start_new_session=True, **quiet)
    time.sleep(after_s)
    killed = False
    if whom != "command":
        with contextlib.suppress(OSError, ValueError):
            os.kill(json.loads(made.lease.read_text())["pid"], signal.SIGKILL)
            killed = True
    if whom != "measuring process":
        client.kill()
    client.wait()
    return killed


@pytest.mark.parametrize("kills", [KILLS, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_study_that_is_killed_at_any_moment_goes_on_and_rests_on_what_it_had(begun, kills):
    # Fake boards draw noise anew at each moment of their clock, and records hold times and processes, so no two studies
    # have the same bytes here (tests/workflow/test_by_clock_study.py asks that of simulated ones). From the same
    # records, whoever measured them, comes the same file, and what is shown is the same but for noise.
    made, _, _, words = begun
    began_s = time.monotonic()
    assert made.command(*words).returncode == 0
    whole_s = time.monotonic() - began_s
    made.stop()
    undisturbed = json.loads((made.folder / "b.json").read_text())
    (made.folder / "b.json").unlink()
    (made.folder / "m").rename(made.folder / "undisturbed")

    draw = random.Random(SEED)
    for number in range(kills):
        kept = {path: path.read_bytes() for path in (made.folder / "m").rglob("*.json")}
        whom = ("both", "measuring process", "command")[number % 3]
        if not kill(made, words, draw.uniform(0.2, 1.5) * whole_s / kills, whom):
            made.stop()  # it ends by itself only when it has been idle for a minute
        # one that dies while it opens, before it has set anything, may leave an empty lease
        assert made.comes_to(lambda: made.boards.locks == ("none", "none")), f"kill {number}"
        assert {path: path.read_bytes() for path in kept} == kept, "what was measured stays"
        (made.folder / "b.json").unlink(missing_ok=True)  # it may have been through already
    kept = {path: path.read_bytes() for path in (made.folder / "m").rglob("*.json")}
    done = made.command(*words)
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in kept} == kept
    study = json.loads((made.folder / "b.json").read_text())
    assert {f"m/{name}" for name in study["records"]} >= {str(path.relative_to(made.folder)) for path in kept}
    assert study["walks"].keys() == undisturbed["walks"].keys()
    for name, walked in study["walks"].items():
        assert walked["energy_percent"] == pytest.approx(undisturbed["walks"][name]["energy_percent"], abs=1.5), name

    text = (made.folder / "b.json").read_bytes()
    (made.folder / "b.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in (made.folder / "m").rglob("*.json")}
    assert made.command(*words).returncode == 0
    assert (made.folder / "b.json").read_bytes() == text, "as if nobody had killed it"
    assert {path: path.stat().st_mtime_ns for path in (made.folder / "m").rglob("*.json")} == before
    made.stop()
    assert made.restored()


def test_a_repeat_of_measuring_again_is_a_session_of_its_own_that_its_record_names(begun):
    made, path, known, _ = begun
    targets = {name: {"core_mhz": 1200, "mem_mhz": 2201} for name in known}
    other = targets | {known[0]: {"core_mhz": "auto", "mem_mhz": "auto"}}
    for name, own in (("one.json", targets), ("other.json", other)):
        (made.folder / name).write_text(json.dumps(whole_schedule(targets=own)))
    sessions = set()
    for repeat in (0, 1):
        output = [made.folder / f"{name}-{repeat}.json" for name in ("one", "other")]
        words = ["measure", "again", "--gpu", path, "--repeat", repeat, "--schedules", "one.json", "other.json"]
        done = made.command(*words, "-o", *output)
        assert done.returncode == 0, done.stderr
        both = [record.read_comparison(str(each))[1] for each in output]
        own = {each["session"] for comparisons in both for each in comparisons}
        assert len(own) == 1, "both schedules in one"
        sessions |= own
        assert [each["target"] for each in both[0]] == known
        assert both[1][0]["points"][0] == both[1][0]["points"][1], "it stays at auto"
        for each in both[0]:
            auto, chosen = each["points"]
            assert auto["request"]["core_mhz"] == "auto" and chosen["request"]["core_mhz"] == 1200
            assert chosen["summary"]["time_us"] > auto["summary"]["time_us"] > 0
    assert len(sessions) == 2, "another process"
    made.stop()
    assert made.restored()
