"""Whatever kills a run, the clocks come back; where nothing could bring them back, the next run does and says so."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from laboratory import each_death

from kernel_dvfs.measurement.real.gpu import RealGpu
from kernel_dvfs_clocks.errors import InputError

# a process that has locked both clocks and dies as told; guarded or not
LOCKED = """
import ctypes, os, signal, sys, time
sys.path.insert(0, {tests!r})
from kernel_dvfs_clocks.nvml.board import Board
from kernel_dvfs_clocks.guard import Guard
from kernel_dvfs_clocks.nvml.library import Library
os.setsid()
from simulated_load import DEATHS
if {guarded}:
    control = Guard({uuid!r}, through={through!r}).__enter__()
    board = control
else:
    board = Board(Library().__enter__(), {uuid!r})
{lock}
print("locked", flush=True)
{then}
"""


def script(lab, then, guarded=True, through="nvml", **environment):
    lock = "board.lock_mem(2201, 2201)\nboard.lock_core(345, 900)"
    if through == "dcgm":  # both at once, each to one value
        lock = "board.lock((900, 900), (2201, 2201))"
    code = LOCKED.format(tests=str(HOOKS), uuid=lab.boards.uuid, guarded=guarded, through=through, lock=lock, then=then)
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


@pytest.mark.parametrize("death", each_death())
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


@pytest.mark.parametrize("death", each_death(("exception", "SIGKILL")))
def test_without_the_guard_the_same_death_leaves_them_locked(lab, death):
    made = lab(time="real")
    # SIGINT and an exception end an unguarded process as any other would
    process = script(made, f"DEATHS[{death!r}]()", guarded=False)
    process.communicate(timeout=120)
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
        assert process.wait(timeout=120) == -signal.SIGKILL
        assert made.restored()
        os.kill(pid, 0)  # it is still there
    finally:
        os.kill(pid, signal.SIGKILL)


def kill_owner_and_holder(made):
    process = script(made, "print(control.holder.pid, flush=True)\ntime.sleep(60)")
    assert process.stdout.readline() == "locked\n"
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.kill()
    process.wait(timeout=120)
    assert made.boards.locks == ("345-900", "2201-2201") and made.lease.exists()


@pytest.mark.parametrize("pid", ["gone", "in use again", "unreadable lease"])
def test_a_run_whose_holder_was_killed_too_is_swept_by_the_next_which_says_so(lab, pid):
    made = lab()
    kill_owner_and_holder(made)
    if pid == "in use again":
        content = json.loads(made.lease.read_text()) | {"pid": os.getpid()}
        made.lease.write_text(json.dumps(content))
    elif pid == "unreadable lease":
        made.lease.write_text('{"schema": "kernel-dvfs/le')
    done, record = made.measure("auto,auto")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert record["reached"]["mem_mhz"] == 3201, "nothing was left locked"
    assert "ended without restoring its clocks; reset" in done.stderr


def test_a_lease_from_before_the_last_boot_is_deleted_and_resets_nothing(lab):
    made = lab()
    kill_owner_and_holder(made)
    content = json.loads(made.lease.read_text()) | {"boot_id": "another"}
    made.lease.write_text(json.dumps(content))
    sets = int(made.boards.get("sets"))
    code = f"from kernel_dvfs_clocks.guard import Guard\nwith Guard({made.boards.uuid!r}): pass"
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
    _, said = process.communicate("\n", timeout=120)
    assert process.returncode == 1
    assert "NotRestored: clocks of" in said and "(1 sub-exception)" in said
    assert "nvmlDeviceResetMemoryLockedClocks" in said
    assert made.boards.locks == ("none", "2201-2201") and made.lease.exists()
    made.boards.set(fail="")
    done = made.command("reset", "--all", "--stale")
    assert done.returncode == 0 and "both locks reset" in done.stdout
    assert made.restored(0.1)


WHILE_IT_WAITS = """
def interrupted(_, frame):
    if frame.f_code.co_name != "_answer":
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        return
    os.kill(control.holder.pid, signal.SIGCONT)
    raise KeyboardInterrupt
os.kill(control.holder.pid, signal.SIGSTOP)
signal.signal(signal.SIGALRM, interrupted)
signal.setitimer(signal.ITIMER_REAL, 0.1)
"""


@pytest.mark.parametrize("when", ["a clock is set", "clocks are given back"])
def test_an_interrupt_at_the_worst_moment_leaves_nothing_locked(lab, when):
    """Ctrl-C while a call is under way, and in the middle of the restoring."""
    made = lab(time="real")
    at = {
        "a clock is set": """
try: control.lock_core(345, 1200)
except KeyboardInterrupt: print("interrupted", flush=True)
try: control.lock_core(345, 1300)
except Exception as error: print(error, flush=True)
control.__exit__(None, None, None)
print("left", flush=True)
""",
        "clocks are given back": """
try: control.__exit__(None, None, None)
except KeyboardInterrupt: print("interrupted", flush=True)
time.sleep(60)
""",
    }[when]
    process = script(made, WHILE_IT_WAITS + at)
    assert [process.stdout.readline() for _ in range(2)] == ["locked\n", "interrupted\n"], process.stderr.read()
    if when == "a clock is set":
        said = process.stdout.read()
        process.communicate(timeout=120)
        assert "left without its answer" in said and said.endswith("left\n"), said
        assert made.boards.locks == ("none", "none") and not made.lease.exists(), "it has waited for that"
    else:
        assert made.restored()
        process.kill()
        process.communicate(timeout=120)


def test_a_guard_that_sets_no_clocks_refuses_to(lab):
    made = lab(time="real")
    code = "from kernel_dvfs_clocks.guard import Guard\n"
    code += f"with Guard({made.boards.uuid!r}, mode='auto-only') as guard: guard.lock_core(345, 900)"
    done = made.python(code)
    assert "its clocks are not ours to set" in done.stderr
    assert made.boards.get("sets") == "0" and not made.lease.exists()


def test_a_killed_run_that_set_no_clocks_does_not_stop_the_next_one_without_rights(lab):
    made = lab(time="real", deny=1)
    code = "import os\nfrom kernel_dvfs_clocks.guard import Guard\n"
    enter = f"Guard({made.boards.uuid!r}, mode='auto-only').__enter__()"
    made.python(f"{code}guard = {enter}; os._exit(9)")
    assert made.comes_to(lambda: not made.lease.exists())
    done = made.python(f"{code}{enter}")
    assert done.returncode == 0 and not done.stderr


def test_external_clocks_are_not_reset_over_a_stale_lease_which_stays_for_the_next_who_may(lab):
    made = lab()
    made.more["KERNEL_DVFS_BROKER_DIR"] = str(made.folder / "none")  # another test may have a broker on this machine
    kill_owner_and_holder(made)
    sets = int(made.boards.get("sets"))
    done, record = made.measure("900,2201", clocks="external")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    said = [line for line in done.stderr.splitlines() if "ended and may have left its clocks locked" in line]
    assert len(said) == 1 and "they are left as they are, since nothing is set here" in said[0]
    made.stop()
    assert int(made.boards.get("sets")) == sets and made.boards.locks == ("345-900", "2201-2201")
    done, record = made.measure("auto,auto", clocks="auto-only")
    assert "ended without restoring its clocks; reset" in done.stderr
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


@pytest.mark.parametrize("when", ["at the end", "while nobody asks"])
def test_a_restore_that_fails_is_said_in_the_log_by_stop_and_by_devices_until_it_is_mended(lab, when):
    made = lab()
    made.measure()
    made.boards.set(fail="nvmlDeviceResetGpuLockedClocks:999")
    if when == "while nobody asks":
        # the process gives the clocks back, fails, and ends
        assert made.comes_to(lambda: "could not be restored" in made.lease.read_text())
    done = made.command("measure", "serve", "--gpu", made.setup(), "--stop")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and made.boards.locks[0] == "345-1500"
    assert "nvmlDeviceResetGpuLockedClocks" in line and made.boards.uuid in line
    log = (made.folder / "logs/kernel-dvfs-server.log").read_text()
    assert "nvmlDeviceResetGpuLockedClocks" in log and "error: " in log
    # until it is mended, it is said, and stays an error
    assert "left behind by process" in made.command("devices").stdout
    done = made.command("measure", "serve", "--gpu", made.setup(), "--stop")
    assert done.returncode == 2 and f"kernel-dvfs reset --uuid {made.boards.uuid}" in done.stderr
    made.boards.set(fail="")
    assert made.command("reset", "--uuid", made.boards.uuid).returncode == 0 and made.restored(0.1)
    assert "left behind" not in made.command("devices").stdout
    assert made.command("measure", "serve", "--gpu", made.setup(), "--stop").returncode == 0


def test_clocks_of_the_site_that_are_refused_at_the_end_are_said(lab):
    made = lab()
    made.measure(after={"core": [345, 1700], "mem": None})
    made.boards.set(fail="nvmlDeviceSetGpuLockedClocks:2")
    done = made.command("measure", "serve", "--gpu", made.setup(), "--stop")
    assert done.returncode == 2 and "nvmlDeviceSetGpuLockedClocks" in done.stderr and made.lease.exists()


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"core": [1700, 345], "mem": None}, "after: core [1700, 345] MHz is not possible; allowed: [lowest, highest]"),
        (
            {"core": None, "mem": [1, 20]},
            "after: mem [1, 20] MHz holds no clock of this GPU; allowed: within 2201 to 3201",
        ),
    ],
)
def test_clocks_to_leave_behind_that_cannot_be_are_refused_before_anything_is_set(lab, after, said):
    made = lab()
    assert said in made.refused(after=after)
    assert made.boards.get("sets") == "0" and not made.lease.exists()


def test_a_sweep_of_a_killed_run_leaves_the_clocks_of_the_site(lab):
    made = lab()
    kill_owner_and_holder(made)
    done, record = made.measure("auto,auto", clocks="auto-only", after={"core": [345, 1900], "mem": None})
    assert record and record["verdict"] == "ok", done.stderr
    made.stop()
    assert made.boards.locks == ("345-1900", "none") and not made.lease.exists()


def test_a_hot_kernel_that_counts_fewer_cycles_than_the_clock_is_no_lock():
    gpu = RealGpu.__new__(RealGpu)
    gpu._clocks, gpu.probe = {"core_mhz": {"listed": {"3201": [345, 1980]}}}, None
    gpu._settings, gpu._board = {"after": {}}, SimpleNamespace(uuid="GPU-0")
    seen = {"mem_mhz": [3201, 3201, 3201], "cap_ns": 0, "thermal_delta": 0, "duration_s": 1.0, "reasons": {}}
    gpu.check_free([seen | {"core_mhz": [1541.0, 1541.0, 1980.0]}])
    with pytest.raises(InputError, match="its core clock stays at 1550 of 1980 MHz"):
        gpu.check_free([seen | {"core_mhz": [1541.0, 1541.0, 1550.0]}])


@pytest.mark.parametrize("clocks", ["lock", "auto-only", "external"])
def test_auto_that_runs_at_a_memory_lock_which_nobody_here_knows_of_is_refused(lab, clocks):
    made = lab()
    foreign = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    foreign += f"with Library() as nvml:\n board = Board(nvml, {made.boards.uuid!r})\n"
    foreign += " board.lock_mem(2201, 2201); board.lock_core(345, 900)"
    assert made.python(foreign).returncode == 0
    if clocks == "lock":  # taken off before auto is measured
        _, record = made.measure("auto,auto", clocks=clocks)
        assert record["verdict"] == "ok" and record["reached"]["mem_mhz"] == 3201
        assert record["reached"]["core_mhz"] > 1400, "as the power cap lets the iteration"
        return
    line = made.refused(f"kernel-dvfs reset --uuid {made.boards.uuid}", pair="auto,auto", clocks=clocks)
    assert "at auto its memory clock stays at 2201 of 3201 MHz" in line
    assert made.boards.locks == ("345-900", "2201-2201"), "not ours to take off"
    # a lock that the site wants is named, and then expected
    site = {"core": [345, 900], "mem": [2201, 2201]}
    done, record = made.measure("auto,auto", clocks=clocks, after=site)
    assert record["verdict"] == "ok", done.stderr


def test_a_holder_that_died_is_noticed_before_anything_more_is_locked(lab):
    made = lab(time="real")
    then = (
        "os.kill(control.holder.pid, signal.SIGKILL)\n"
        "while control.holder.poll() is None: time.sleep(0.01)\n"
        "try: control.lock_core(345, 1200)\n"
        "except Exception as error: print(error, flush=True)\n"
        "control.__exit__(None, None, None)"
    )
    process = script(made, then)
    said, _ = process.communicate(timeout=120)
    assert "the process that sets its clocks is gone; nothing more is locked" in said
    assert process.returncode == 0 and made.restored(0.1)


HANGS = {"KERNEL_DVFS_NVML_PATIENCE_S": "0.5"}


def test_a_call_that_hangs_ends_the_measurement_with_a_line_and_the_clocks_come_back(lab):
    made = lab()
    # in the first window, with both clocks locked
    made.boards.set(fail="nvmlDeviceGetCurrentClocksEventReasons:-1:2:1")
    done, record = made.measure(environment=HANGS)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and record is None and "logs/kernel-dvfs-server.log" in line
    log = (made.folder / "logs/kernel-dvfs-server.log").read_text()
    assert "nvmlDeviceGetCurrentClocksEventReasons" in log and "has not come back for 0.5 s: the driver hangs" in log
    assert made.restored()


def test_a_driver_that_hangs_for_the_holder_too_does_not_hold_the_gpu_for_ever(lab):
    made = lab(time="real")
    process = script(made, "sys.stdin.readline(); control.board.temperature_c()", **HANGS)
    assert process.stdout.readline() == "locked\n"
    for call in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", "nvmlDeviceResetMemoryLockedClocks"):
        made.boards.set(fail=f"{call}:-1")
    _, said = process.communicate("\n", timeout=120)
    assert process.returncode == 2 and "has not come back for 0.5 s" in said
    assert made.comes_to(lambda: "left behind by process" in made.command("devices", **HANGS).stdout)
    assert "was to restore for a process that had died" in made.lease.read_text()
    made.boards.set(fail="")
    assert made.command("reset", "--uuid", made.boards.uuid).returncode == 0 and made.restored(0.1)


def test_devices_ends_with_a_line_where_the_driver_hangs(lab):
    made = lab(time="real", fail="nvmlDeviceGetName:-1")
    done = made.command("devices", **HANGS)
    assert done.returncode == 2 and done.stderr.startswith("error: nvmlDeviceGetName") and "driver hangs" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = made.command("devices", KERNEL_DVFS_NVML_PATIENCE_S="never")
    assert "KERNEL_DVFS_NVML_PATIENCE_S=never is not possible" in done.stdout + done.stderr


def test_the_end_of_a_run_waits_for_a_holder_that_is_restoring_and_says_where_it_could_not(lab):
    made = lab()
    made.measure()
    made.boards.set(fail="nvmlDeviceResetGpuLockedClocks:999")
    server = json.loads(made.lease.read_text())["pid"]
    os.kill(server, signal.SIGKILL)
    done = made.command("measure", "serve", "--gpu", made.setup(), "--stop")
    assert done.returncode == 2 and f"kernel-dvfs reset --uuid {made.boards.uuid}" in done.stderr, done.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_a_thread_of_nvml_could_take_does_not_end_what_has_blocked_it(lab, stop):
    made = lab(time="real")
    then = (
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(stop)}}})\n"
        f"os.kill(os.getpid(), {int(stop)}); time.sleep(0.5)\n"
        "control.__exit__(None, None, None); os._exit(7)"
    )
    # blocked after NVML was opened, as kernel-dvfs apply does
    process = script(made, then)
    process.communicate(timeout=120)
    assert process.returncode == 7 and made.restored(0.1)


def test_a_killed_run_whose_holder_is_killed_too_and_that_set_no_clocks_does_not_stop_the_next_one(lab):
    made = lab(time="real", deny=1)
    code = "import os, signal\nfrom kernel_dvfs_clocks.guard import Guard\n"
    enter = f"Guard({made.boards.uuid!r}, mode='auto-only').__enter__()"
    made.python(f"{code}guard = {enter}; os.kill(guard.holder.pid, signal.SIGKILL); os._exit(9)")
    assert made.lease.exists()
    done = made.python(f"{code}{enter}")
    assert done.returncode == 0 and not done.stderr


def test_a_forked_child_that_leaves_the_guard_resets_nothing(lab):
    made = lab(time="real")
    then = """
pid = os.fork()
if pid == 0:
    try:
        control.lock_core(345, 500)
    except Exception as error:
        print(error, flush=True)
    control.__exit__(None, None, None)
    os._exit(0)
os.waitpid(pid, 0)
print("left", flush=True)
sys.stdin.readline()
control.__exit__(None, None, None)
"""
    process = script(made, then)
    assert process.stdout.readline() == "locked\n"
    assert "a forked process does not hold it" in process.stdout.readline()
    assert process.stdout.readline() == "left\n"
    assert made.boards.locks == ("345-900", "2201-2201") and made.lease.exists()
    _, said = process.communicate("\n", timeout=120)
    assert process.returncode == 0 and made.restored(), said


@pytest.mark.parametrize("through", ["apply", "latency", "a player's holder"])
def test_a_dry_run_leaves_what_a_killed_run_has_left_and_says_so(lab, through):
    made = lab(call_ms=0.1)  # a dry run of `latency` asks as often as it can
    kill_owner_and_holder(made)
    sets = int(made.boards.get("sets"))
    if through == "apply":
        done = made.command("apply", "--pair", "1500,2201", "--dry-run", "--", "true")
    elif through == "latency":
        done = made.command("latency", "--dry-run", "-o", "l.json")
    else:
        code = "import sys\nfrom kernel_dvfs_deploy.guarded_control import GuardedControl\n"
        code += f"with GuardedControl({made.boards.uuid!r}, True, lambda line: print(line, file=sys.stderr)): pass"
        done = made.python(code)
    assert done.returncode == 0, done.stderr
    assert "they are left as they are, since nothing is set here" in done.stderr
    assert int(made.boards.get("sets")) == sets and made.boards.locks == ("345-900", "2201-2201")
    assert made.lease.exists(), "for the next run, which resets them"


def test_the_lock_of_a_starting_process_is_gone_afterwards(lab):
    made = lab()
    done, record = made.measure()
    assert done.returncode == 0 and record, done.stderr
    assert not list(made.locks.glob("*.lock"))


def test_a_folder_whose_name_is_no_utf_8_can_be_measured_in(lab):
    made = lab(folder=os.fsdecode(b"caf\xe9"))
    done, record = made.measure()
    assert done.returncode == 0 and record, done.stderr
