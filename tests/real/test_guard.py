"""Whatever kills a run, the clocks come back; where nothing could bring them back, the next run does and says so."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml

DEATHS = ("exception", "os._exit", "segfault", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGKILL to the group")
# a process that has locked both clocks and dies as told; guarded or not
LOCKED = """
import ctypes, os, signal, sys, time
sys.path.insert(0, {tests!r})
from kernel_dvfs.gpu.nvml.board import Board
from kernel_dvfs.gpu.nvml.guard import Guard
from kernel_dvfs.gpu.nvml.library import Library
os.setsid()
from simulated_load import _DEATHS
if {guarded}:
    control = Guard({uuid!r}).__enter__()
    board = control
else:
    board = Board(Library().__enter__(), {uuid!r})
board.lock_mem(2201, 2201)
board.lock_core(345, 900)
print("locked", flush=True)
{then}
"""


def script(lab, then, guarded=True, **environment):
    code = LOCKED.format(tests=str(HOOKS), uuid=lab.boards.uuid, guarded=guarded, then=then)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=lab.environment(**environment),
        cwd=lab.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOOKS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "fakenvml")


@pytest.mark.parametrize("death", DEATHS)
def test_a_run_that_dies_in_a_window_leaves_both_locks_reset_and_no_record(lab, death):
    made = lab()
    done, record = made.measure(environment={"FAKE_DEATH": f"{death}@1.5"})
    assert done.returncode == 2 and record is None and "error: " in done.stderr
    assert made.restored()
    # the probe sets and resets two domains, the point sets two: what comes after is the restoring
    assert int(made.boards.get("sets")) >= 8
    assert not [path for path in made.folder.rglob("*") if path.name.startswith(".") and path.is_file()]
    done, record = made.measure()
    assert done.returncode == 0 and record["verdict"] == "ok", "the point is made again"
    assert "reset" not in done.stderr, "nothing was left to sweep"


@pytest.mark.parametrize("death", DEATHS)
def test_without_the_guard_the_same_death_leaves_them_locked(lab, death):
    made = lab(time="real")
    # SIGINT and an exception end an unguarded process as any other would
    process = script(made, f"_DEATHS[{death!r}]()", guarded=False)
    process.communicate(timeout=30)
    assert process.returncode != 0 and made.boards.locks == ("345-900", "2201-2201")


@pytest.mark.parametrize("worker", ["forked", "executed"])
def test_a_worker_that_outlives_its_parent_does_not_delay_the_restoring(lab, worker):
    made = lab(time="real")
    start = {
        "forked": "pid = os.fork()\nif pid == 0: time.sleep(600); os._exit(0)",
        "executed": "import subprocess\npid = subprocess.Popen(['sleep', '600']).pid",
    }[worker]
    process = script(made, f"{start}\nprint(pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert process.stdout.readline() == "locked\n"
    pid = int(process.stdout.readline())
    try:
        assert process.wait(timeout=30) == -signal.SIGKILL
        assert made.restored()
        os.kill(pid, 0)  # it is still there
    finally:
        os.kill(pid, signal.SIGKILL)


def kill_owner_and_janitor(made):
    process = script(made, "print(control._janitor._pid, flush=True)\ntime.sleep(60)")
    assert process.stdout.readline() == "locked\n"
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.kill()
    process.wait(timeout=30)
    assert made.boards.locks == ("345-900", "2201-2201") and made.lease.exists()


@pytest.mark.parametrize("pid", ["gone", "in use again", "unreadable lease"])
def test_a_run_whose_janitor_was_killed_too_is_swept_by_the_next_which_says_so(lab, pid):
    made = lab()
    kill_owner_and_janitor(made)
    if pid == "in use again":
        content = json.loads(made.lease.read_text()) | {"pid": os.getpid()}
        made.lease.write_text(json.dumps(content))
    elif pid == "unreadable lease":
        made.lease.write_text('{"schema": "kernel-dvfs/le')
    done, record = made.measure("auto,auto")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert record["reached"]["mem_mhz"] == 3201, "nothing was left locked"
    assert "was killed and could not restore its clocks; reset" in done.stderr


def test_a_lease_from_before_the_last_boot_is_deleted_and_resets_nothing(lab):
    made = lab()
    kill_owner_and_janitor(made)
    content = json.loads(made.lease.read_text()) | {"boot_id": "another"}
    made.lease.write_text(json.dumps(content))
    sets = int(made.boards.get("sets"))
    code = f"from kernel_dvfs.gpu.nvml.guard import Guard\nwith Guard({made.boards.uuid!r}): pass"
    done = made.python(code)
    assert done.returncode == 0 and "before the last boot; removed" in done.stderr, done.stderr
    assert int(made.boards.get("sets")) == sets and not made.lease.exists()


def test_a_second_run_stops_names_the_owner_and_does_not_disturb_the_first(lab):
    first = lab()
    _, record = first.measure()
    second = lab(folder="other", reuse=first)
    line = second.refused(first.boards.uuid, "is held by process", "wait for it or stop it")
    owner = json.loads(first.lease.read_text())
    assert f"process {owner['pid']} of {owner['user']}" in line
    _, again = first.measure()
    assert again["verdict"] == "ok"
    assert again["run"]["run_id"] == record["run"]["run_id"] and again["run"]["order"] == 2


def test_one_bad_control_does_not_stop_the_other_from_being_restored(lab):
    made = lab(time="real")
    process = script(made, "sys.stdin.readline()\ncontrol.__exit__(None, None, None)")
    assert process.stdout.readline() == "locked\n"
    made.boards.set(fail="nvmlDeviceResetMemoryLockedClocks:999")
    _, said = process.communicate("\n", timeout=30)
    assert process.returncode == 1
    assert "NotRestored: clocks of" in said and "(1 sub-exception)" in said
    assert "nvmlDeviceResetMemoryLockedClocks" in said
    assert made.boards.locks == ("none", "2201-2201") and made.lease.exists()
    made.boards.set(fail="")
    done = made.command("reset", "--all", "--stale")
    assert done.returncode == 0 and "both locks reset" in done.stdout
    assert made.restored(0.1)


@pytest.mark.parametrize("when", ["a clock is set", "clocks are given back"])
def test_an_interrupt_at_the_worst_moment_leaves_nothing_locked(lab, when):
    """Ctrl-C between a call and the note that it was made, or in the middle of the restoring."""
    made = lab(time="real")
    at = {
        "a clock is set": """
set_it = control.board.lock_core
def interrupted(*clocks):
    set_it(*clocks)
    raise KeyboardInterrupt
control.board.lock_core, control._touched = interrupted, False
try: control.lock_core(345, 1200)
except KeyboardInterrupt: control.__exit__(None, None, None)
""",
        "clocks are given back": """
def interrupted(): raise KeyboardInterrupt
control.board.reset_mem = interrupted
control.__exit__(None, None, None)
""",
    }[when]
    process = script(made, at)
    process.communicate(timeout=30)
    assert made.restored()


def test_a_guard_that_sets_no_clocks_refuses_to(lab):
    made = lab(time="real")
    code = "from kernel_dvfs.gpu.nvml.guard import Guard\n"
    code += f"with Guard({made.boards.uuid!r}, mode='auto-only') as guard: guard.lock_core(345, 900)"
    done = made.python(code)
    assert "its clocks are not ours to set" in done.stderr
    assert made.boards.get("sets") == "0" and not made.lease.exists()


def test_a_killed_run_that_set_no_clocks_does_not_stop_the_next_one_without_rights(lab):
    made = lab(time="real", deny=1)
    code = "import os\nfrom kernel_dvfs.gpu.nvml.guard import Guard\n"
    enter = f"Guard({made.boards.uuid!r}, mode='auto-only').__enter__()"
    made.python(f"{code}guard = {enter}; os._exit(9)")
    assert made.lease.exists()
    done = made.python(f"{code}{enter}")
    assert done.returncode == 0 and not done.stderr


def test_external_clocks_are_not_reset_over_a_stale_lease_which_stays_for_the_next_who_may(lab):
    made = lab()
    kill_owner_and_janitor(made)
    sets = int(made.boards.get("sets"))
    done, record = made.measure("900,2201", clocks="external")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    said = [line for line in done.stderr.splitlines() if "was killed and may have left its clocks locked" in line]
    assert len(said) == 1 and "with clocks: external they are left as they are" in said[0]
    made.stop()
    assert int(made.boards.get("sets")) == sets and made.boards.locks == ("345-900", "2201-2201")
    done, record = made.measure("auto,auto", clocks="auto-only")
    assert "was killed and could not restore its clocks; reset" in done.stderr
    assert record["reached"]["mem_mhz"] == 3201
    made.stop()
    assert made.restored()


def test_a_gpu_that_rests_is_not_left_locked(lab):
    made = lab()
    made.measure()
    assert made.boards.locks == ("345-1500", "2201-2201"), "kept for the next point at the same pair"
    assert made.comes_to(lambda: made.boards.locks == ("none", "none"))
    assert made.lease.exists(), "but it is still ours"
    made.stop()
    assert made.restored()


def test_a_client_that_is_killed_stops_its_point_and_frees_the_clocks(lab):
    made = lab(time="real")
    made.measure("auto,auto", window_s=2)
    # a point that takes longer than the test waits
    (made.folder / "config.yaml").write_text(yaml.safe_dump(made.config | {"window_s": 600}))
    environment = made.environment()
    words = ["measure", "--gpu", "nvml", "--target", "forward_gelu", "--clocks", "900,2201", "-o", "r9.json"]
    process = subprocess.Popen([sys.executable, "-m", "kernel_dvfs", *words], env=environment, cwd=made.folder)
    assert made.comes_to(lambda: made.boards.locks == ("345-900", "2201-2201"))
    process.kill()
    process.wait()
    assert made.comes_to(lambda: made.boards.locks == ("none", "none"))
    assert not (made.folder / "r9.json").exists()


def test_clocks_of_the_site_are_left_behind_where_the_configuration_says_so(lab):
    made = lab()
    made.measure(after={"core": [345, 1700], "mem": None})
    made.stop()
    assert made.boards.locks == ("345-1700", "none") and not made.lease.exists()
