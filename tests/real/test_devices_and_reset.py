"""What `devices` tells and `reset` does: both for people, and for a batch system's epilog."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import fields
from types import SimpleNamespace

import pytest
from test_guard import kill_owner_and_holder, script

from kernel_dvfs.cli import reset as command
from kernel_dvfs_clocks.nvml import board, library
from kernel_dvfs_clocks.setters import broker


def test_devices_lists_what_each_gpu_can_do_and_what_a_study_would_take(lab, root):
    made = lab("h200,rtx_3080_ti", time="real")
    (made.folder / "config.yaml").write_text((root / "config.yaml").read_text())
    done = made.command("devices")
    assert done.returncode == 0 and not done.stderr
    for said in (
        f"0: Simulated H200 on a fake NVML  gpu: nvml:{made.boards.uuid}",
        "core clocks: 345 to 1980 MHz (110), listed",
        "memory clocks: 2201, 3201 MHz, listed; only trying shows whether the driver locks them (kernel-dvfs latency)",
        "power limit 700 W, ECC on",
        "energy counter: moves every ",
        "permission to lock clocks: ",
        "config.yaml with clocks: ",
        "48 targets x 30 clock pairs, where they can be locked, at least 40.3 h (by clock 30 min, measuring again 23 "
        "min, sweep 23 min, locking 14 min, measuring again, as published 3.9 h, other sizes 35.0 h), until",
        "config.yaml with clocks: auto-only: 48 targets x 1 clock pair, at least 10 min (sweep 10 min)",
        "1: Simulated RTX 3080 Ti on a fake NVML",
        "simulated GPUs, no hardware needed: gpu: a100_pcie, gpu: a100_sxm",
    ):
        assert said in done.stdout, done.stdout
    assert made.boards.get("sets") == "0" and not made.lease.exists(), "nothing was changed"


def test_devices_tells_other_programs_all_that_it_tells_people(lab, root):
    made = lab("h200,rtx_3080_ti", time="real", foreign_compute=1)
    (made.folder / "config.yaml").write_text((root / "config.yaml").read_text())
    done = made.command("devices", "--json")
    assert done.returncode == 0 and not done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "kernel-dvfs/devices/1" and told["problem"] is None
    first, second = told["gpus"]
    assert (first["index"], second["index"], first["gpu"]) == (0, 1, f"nvml:{made.boards.uuid}")
    assert (first["power_limit_w"], first["ecc"], first["mem_mhz"]) == (700, True, [2201, 3201])
    assert (first["core_mhz"][0], first["core_mhz"][-1], len(first["core_mhz"])) == (345, 1980, 110)
    assert first["counter_period_ms"] > first["counter_read_ms"] > 0 and first["counter_problem"] is None
    studies = [(each["clocks"], each["targets"], each["pairs"]) for each in first["estimates"]]
    assert studies[0] == ("auto-only", 48, 1), "minutes before days"
    assert 9.5 * 60 < sum(first["estimates"][0]["least_s"].values()) < 10.5 * 60, "10 min in the text"
    # each text that people read, but for what both round or word differently
    said = made.command("devices").stdout
    assert first["notes"] == [first["obstacle"]] and second["obstacle"] is None, "another process computes on it"
    for gpu in told["gpus"]:
        for text in [gpu["name"], gpu["driver"], gpu["pci_bus_id"], *gpu["notes"], *gpu["missing"]]:
            assert text in said, text
    for way in told["locking"]["ways"]:
        assert way["name"] in said and (way["obstacle"] or "yes") in said
    for request in told["locking"]["requests"]:
        assert request["what"] in said and all(line in said for line in request["lines"])
    assert told["leases"] in said and told["locking"]["slurm"] in said
    assert all(f"gpu: {name}" in said for name in told["simulated"])


def test_devices_estimates_a_captured_step(lab, root):
    made = lab("h200", time="real")
    step = str(root / "tests/workload/steps/hand_made.json")
    (told,) = json.loads(made.command("devices", "--json", "--step", step).stdout)["gpus"]
    (model,) = json.loads(made.command("devices", "--json").stdout)["gpus"]
    assert [each["problem"] for each in told["estimates"]] == [None] * len(told["estimates"])
    for own, whole in zip(told["estimates"], model["estimates"], strict=True):
        assert own["clocks"] == whole["clocks"] and own["pairs"] == whole["pairs"]
        assert 0 < own["targets"] < whole["targets"] and "other sizes" not in own["least_s"]
    # as many records of 3.4 s as there are kernels and passes, and 40 s to open the step; two kernels at their clock of
    # the step, and a section that is a difference, take another record and a second each; 10 s to read clocks, 2.5 s to
    # find a rest
    config = (root / "config.yaml").read_text().replace("minutes: null", "minutes: 10")
    (made.folder / "short.yaml").write_text(config)
    (told,) = json.loads(made.command("devices", "--json", "--step", step, "--config", "short.yaml").stdout)["gpus"]
    first, *others = told["estimates"]
    assert first["least_s"] == {"sweep": pytest.approx(40 + 3.4 * (first["targets"] + 3) + 3 + 10 + 2 * 2.5)}
    assert [each["problem"] for each in others] == [None] * len(others), "locked, every kernel is measured"
    refused = made.command("devices", "--step", "none.json")
    assert refused.returncode == 2 and refused.stderr.startswith("error: ") and refused.stderr.count("\n") == 1


def test_devices_tells_other_programs_of_a_machine_without_a_driver(lab):
    made = lab(time="real")
    done = made.command("devices", "--json", LD_LIBRARY_PATH="/nowhere")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["gpus"] == [] and told["locking"] is None
    assert "no NVIDIA driver" in told["problem"] and "h200_sxm" in told["simulated"]


def test_the_docs_name_each_field_that_devices_tells(root):
    from kernel_dvfs.measurement.real.inventory import Estimate, Inventory, MachineGpu
    from kernel_dvfs_clocks.setters.advice import AdminRequest, Advice, Way

    section = (root / "docs/python.md").read_text().partition("**`devices --json`**")[2]
    named = set(re.findall(r"`(\w+)`", section))
    assert {
        field.name for kind in (Inventory, MachineGpu, Estimate, Advice, Way, AdminRequest) for field in fields(kind)
    } <= named


def test_devices_says_what_is_in_the_way(lab):
    made = lab(time="real", foreign_compute=1)
    said = made.command("devices").stdout
    assert "1 other process(es) compute on it" in said
    assert "config.yaml with clocks: " in said, "the one that comes with the package"
    assert "no mine.yaml here" in made.command("devices", "--config", "mine.yaml").stdout
    made.boards.set(fail="nvmlDeviceGetTotalEnergyConsumption:3")
    said = made.command("devices").stdout
    assert "energy counter: no:" in said and "with clocks: " not in said, "no length of what cannot be measured"


def test_devices_tells_of_a_lease_that_is_held_or_left_behind(lab):
    made = lab(time="real")
    kill_owner_and_holder(made)
    assert "left behind by process" in made.command("devices").stdout
    assert made.lease.exists() and made.boards.locks != ("none", "none"), "only told"
    made.command("reset", "--all")
    process = script(made, "sys.stdin.readline()")
    process.stdout.readline()
    assert f"is held by process {process.pid}" in made.command("devices").stdout
    process.communicate("\n", timeout=30)


def test_reset_gives_clocks_back_and_says_what_it_found(lab):
    made = lab("h200,h200", time="real", mem_lag_ms=0)
    lock = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    lock += "nvml = Library().__enter__()\nfrom kernel_dvfs_clocks.nvml.board import uuids\n"
    lock += "for uuid in uuids(nvml): Board(nvml, uuid).lock_mem(2201, 2201)"
    assert made.python(lock).returncode == 0
    done = made.command("reset", "--uuid", made.boards.uuid)
    assert done.returncode == 0 and "both locks reset" in done.stdout and "memory 2201 -> 3201 MHz" in done.stdout
    assert (made.boards.get("mem_lock"), made.boards.get("mem_lock", 1)) == ("none", "2201-2201")
    assert made.command("reset", "--all").stdout.count("both locks reset") == 2
    assert made.boards.get("mem_lock", 1) == "none" and not list(made.locks.glob("*.json"))


def test_reset_refuses_a_held_gpu_without_force(lab):
    made = lab(time="real")
    process = script(made, "sys.stdin.readline(); os._exit(0)")
    process.stdout.readline()
    done = made.command("reset", "--uuid", made.boards.uuid)
    assert done.returncode == 2 and f"is held by process {process.pid}" in done.stderr and "--force" in done.stderr
    assert made.boards.locks == ("345-900", "2201-2201")
    done = made.command("reset", "--all", "--stale")
    assert done.returncode == 0 and "left alone" in done.stdout
    done = made.command("reset", "--uuid", made.boards.uuid, "--force")
    assert done.returncode == 0 and made.boards.locks == ("none", "none")
    process.communicate("\n", timeout=30)


def test_reset_of_one_gpu_goes_on_where_another_fails(lab):
    made = lab("h200,h200", time="real", fail="nvmlDeviceResetGpuLockedClocks:999")
    done = made.command("reset", "--all")
    assert done.returncode == 2 and done.stderr.count("error: ") == 1
    assert "nvmlDeviceResetGpuLockedClocks" in done.stderr and done.stdout.count("both locks reset") == 1


def test_reset_stale_removes_what_a_killed_run_left_and_nothing_else(lab):
    made = lab(time="real")
    assert "nothing to reset" in made.command("reset", "--all", "--stale").stdout
    kill_owner_and_holder(made)
    done = made.command("reset", "--stale")
    assert done.returncode == 0 and "removed the lease that process" in done.stdout
    assert made.restored(0.1)
    assert "which GPU?" in made.command("reset").stderr


def test_an_epilog_survives_whatever_users_leave_in_the_folder_of_leases(lab):
    made = lab(time="real")
    (made.locks / "kernel-dvfs-GPU-0000.json").touch()  # of no GPU
    (made.locks / f"kernel-dvfs-{made.boards.uuid}.json").symlink_to("/etc/passwd")
    done = made.command("reset", "--all", "--stale")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "GPU-0000: no such GPU here: left alone" in done.stdout
    assert made.boards.uuid in done.stdout and done.stdout.count("left alone") == 2
    # by hand a GPU is reset although its lease cannot be used
    lock = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    lock += f"with Library() as nvml: Board(nvml, {made.boards.uuid!r}).lock_core(345, 900)"
    assert made.python(lock).returncode == 0
    done = made.command("reset", "--uuid", made.boards.uuid)
    assert done.returncode == 0 and "although who holds it is not known" in done.stdout
    assert made.boards.locks == ("none", "none")
    # what is no lease at all, or nobody's
    made.lease.unlink()
    made.lease.mkdir()
    assert "left alone" in made.command("reset", "--stale").stdout
    made.lease.rmdir()
    made.lease.touch()
    done = made.command("reset", "--stale")
    assert done.returncode == 0 and "is not stale: left alone" in done.stdout


LOCK_ALL = """
from kernel_dvfs_clocks.nvml.board import Board, uuids
from kernel_dvfs_clocks.nvml.library import Library
with Library() as nvml:
    for uuid in uuids(nvml): Board(nvml, uuid).lock_core(345, 900)
"""


@pytest.mark.parametrize("left", ["nothing", "emptied", "replaced", "a fifo", "a folder", "a link", "held"])
def test_after_a_job_its_gpus_are_reset_whatever_it_has_left_in_the_place_of_its_lease(lab, left):
    made = lab(time="real")
    assert made.python(LOCK_ALL).returncode == 0 and made.boards.locks[0] == "345-900"
    held = None
    if left == "emptied":
        made.lease.touch()
    elif left == "replaced":
        made.lease.write_text("{}")
    elif left == "a fifo":
        os.mkfifo(made.lease)
    elif left == "a folder":
        made.lease.mkdir()
    elif left == "a link":
        made.lease.symlink_to("/etc/passwd")
    elif left == "held":
        held = made.lease.open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
    done = made.command("reset", "--all", "--after-job")
    assert done.returncode == 0 and not done.stderr and "both locks reset" in done.stdout, done.stderr
    assert made.boards.locks == ("none", "none")
    if held:
        held.close()


def test_after_a_job_of_slurm_the_gpus_of_others_are_left_alone(lab):
    made = lab("h200,h200,h200", time="real")
    assert made.python(LOCK_ALL).returncode == 0

    def locked():
        return [made.boards.get("core_lock", number) != "none" for number in range(3)]

    reset = ("reset", "--all", "--after-job")
    for gpus, still in (({}, [True] * 3), ({"SLURM_JOB_GPUS": "2,0"}, [False, True, False])):
        done = made.command(*reset, SLURM_JOB_ID="7", **gpus)
        assert done.returncode == 0 and locked() == still, done.stderr
    for gpus in ("3", "-1", "1,x", "1" * 30):
        done = made.command(*reset, SLURM_JOB_ID="7", SLURM_JOB_GPUS=gpus)
        assert done.returncode == 2 and "SLURM_JOB_GPUS names" in done.stderr and len(done.stderr.splitlines()) == 1
        assert locked() == [False, True, False], "all or none"
    for words in (("reset", "--after-job"), (*reset, "--stale")):
        done = made.command(*words)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_reset_and_apply_leave_the_clocks_of_the_site(lab):
    made = lab(time="real", core_lag_ms=0, mem_lag_ms=0)
    done = made.command("reset", "--uuid", made.boards.uuid, "--after", "core=345-1700")
    assert done.returncode == 0 and "then core locked to 345 to 1700 MHz" in done.stdout, done.stderr
    assert made.boards.locks == ("345-1700", "none")
    words = ["apply", "--pair", "900,2201", "--after", "core=345-1700,mem=2201-3201", "--", "sleep", "0.2"]
    done = made.command(*words)
    assert done.returncode == 0 and made.boards.locks == ("345-1700", "2201-3201"), done.stderr
    for wrong, said in (("core=9-8", "is not possible"), ("cpu=1-2", "expected core=LOWEST-HIGHEST")):
        done = made.command("reset", "--uuid", made.boards.uuid, "--after", wrong)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_devices_says_where_leases_lie(lab):
    made = lab(time="real")
    assert f"leases of GPUs lie in {made.locks} (KERNEL_DVFS_LOCK_DIR names it)" in made.command("devices").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--after", "core=345"), "after 'core=345': expected core=LOWEST-HIGHEST"),
        (("--after", "core=1700-345"), "core [1700, 345] MHz is not possible"),
        (("--after", "core=5000-6000"), "holds no clock of this GPU"),
        (("--through", "nvlm"), "through: 'nvlm' is no way to set clocks"),
        (("--through", "dcgm", "--after", "core=900-900"), "locks both clocks or none"),
        (("--through", "dcgm", "--after", "core=345-900,mem=2201-2201"), "locks each clock to one value"),
    ],
)
@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_reset_refuses_what_it_could_never_do_although_nothing_is_left_behind_yet(lab, words, said, watch):
    made = lab(time="real")
    done = made.command("reset", "--all", "--stale", *watch, *words)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_watch_tells_each_lease_that_it_cannot_use_once(lab):
    made = lab("h200,h200", time="real")
    uuids = [made.boards.get("uuid", board) for board in (0, 1)]
    for uuid in uuids:
        (made.locks / f"kernel-dvfs-{uuid}.json").mkdir()
    words = [sys.executable, "-m", "kernel_dvfs", "reset", "--all", "--stale", "--watch"]
    log = made.folder / "watch.log"
    with log.open("w") as file:
        watch = subprocess.Popen(words, env=made.environment(), cwd=made.folder, stdout=file, stderr=file)
    try:
        assert made.comes_to(lambda: all(uuid in log.read_text() for uuid in uuids))
        time.sleep(1.5)  # it looks every second
    finally:
        watch.kill()
        watch.wait()
    said = log.read_text().splitlines()
    assert len(said) == 2 and all(any(uuid in line for line in said) for uuid in uuids)


@pytest.mark.parametrize(
    "junk", ["half a lease", pytest.param("no text", marks=pytest.mark.nightly), "a fifo", "a second name"]
)
def test_a_watch_is_kept_from_no_gpu_by_junk_in_the_place_of_its_lease(lab, junk):
    """What is left in a lease's file is reset, whatever it says; what is no such file is told once, and the next GPU is
    reset all the same."""
    made = lab("h200,h200", time="real")
    assert made.python(LOCK_ALL).returncode == 0
    paths = [made.locks / f"kernel-dvfs-{made.boards.get('uuid', board)}.json" for board in (0, 1)]
    paths[1].write_bytes(b"\x1b[2J\nGPU x: all is well\n\xff" + bytes(1 << 20))
    if junk == "half a lease":
        paths[0].write_text('{"schema": "kernel-dvfs/lease/1", "uuid": ')
    elif junk == "no text":
        paths[0].write_bytes(bytes(range(256)))
    elif junk == "a fifo":
        os.mkfifo(paths[0])
    else:
        paths[0].hardlink_to(made.boards.path)
    before = made.boards.path.stat().st_ino
    words = [sys.executable, "-m", "kernel_dvfs", "reset", "--all", "--stale", "--watch"]
    log = made.folder / "watch.log"
    with log.open("w") as file:
        watch = subprocess.Popen(words, env=made.environment(), cwd=made.folder, stdout=file, stderr=file)
    is_file = junk in ("half a lease", "no text")
    try:
        assert made.comes_to(lambda: made.boards.get("core_lock", 1) == "none" and not paths[1].exists())
        assert not is_file or made.comes_to(lambda: made.boards.get("core_lock", 0) == "none" and not paths[0].exists())
        time.sleep(1.5)  # it looks every second
    finally:
        watch.kill()
        watch.wait()
    said = log.read_text().splitlines()
    assert len(said) == 2 and all(line.isprintable() for line in said), said
    if is_file:
        assert all("both locks reset" in line and "a run whose lease cannot be read" in line for line in said)
    else:
        assert f"{paths[0]}: not a file of this name alone" in said[0] and made.boards.get("core_lock", 0) != "none"
        assert made.boards.path.stat().st_ino == before and made.boards.path.stat().st_size


def test_a_watch_is_not_kept_by_leases_of_gpus_that_there_are_not(monkeypatch):
    """Which any user can leave: NVML is not opened for each of them, again and again."""
    opened, reset, looks = [], [], iter([None, None])
    monkeypatch.setattr(library, "Library", lambda: opened.append(1) or nullcontext())
    monkeypatch.setattr(board, "by_index", lambda nvml: {0: "GPU-1"})
    left = [*map(str, range(300)), "GPU-1", "GPU-2"]
    monkeypatch.setattr(broker, "left_behind", lambda: left)
    monkeypatch.setattr(broker, "left_at", lambda uuid: uuid)
    monkeypatch.setattr(command, "_reset", lambda nvml, uuid, options: reset.append(uuid))
    monkeypatch.setattr(time, "sleep", lambda _: next(looks))
    with pytest.raises(StopIteration):
        command._watch(SimpleNamespace(uuid=None))
    assert reset == 3 * ["GPU-1"] and len(opened) == 4


def test_counter_tells_in_one_line_whether_it_and_the_power_reading_agree_and_sets_nothing(lab):
    made = lab("h200", time="real")
    done = made.command("counter", "--seconds", "1")
    assert done.returncode == 0 and not done.stderr and done.stdout.count("\n") == 1
    assert re.fullmatch(
        r"Simulated H200 on a fake NVML: counter [\d.]+ J, power integrated [\d.]+ J over [\d.]+ s \(.* readings\), "
        r"counter [+-]\d\.\d %: agree\n",
        done.stdout,
    )
    assert made.boards.get("sets") == "0" and not made.lease.exists()


@pytest.mark.parametrize(
    ("words", "knobs", "said"),
    [
        (("--gpu", "7"), {}, "no such GPU here"),
        (("--seconds", "0"), {}, "expected a number of seconds from 1"),
        ((), {"counter": "freeze"}, "stood at"),
        ((), {"fail": "nvmlDeviceGetPowerUsage:3"}, "has no power reading"),
    ],
)
def test_counter_refuses_in_one_line(lab, words, knobs, said):
    done = lab("h200", time="real", **knobs).command("counter", *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
