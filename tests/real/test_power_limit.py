"""A power limit that a run sets: whatever kills it, the limit that was there comes back, an administrator's lower one
too; where nothing could bring it back, the next run or `reset` does; and who may not set one is told so in one line."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from laboratory import each_death
from test_broker import kill_all_of

from kernel_dvfs_clocks.guard import start_holder

HOOKS = str(Path(__file__).resolve().parents[1] / "fakenvml")
ADMINS_MW = 537_000  # lower than the board's own 700 W
SETS = """
import os, signal, sys, time
sys.path.insert(0, {hooks!r})
from kernel_dvfs_clocks.guard import Guard
os.setsid()
from simulated_load import DEATHS
control = Guard({uuid!r}, through={through!r}).__enter__()
control.lock_core(345, 900)
control.limit_power(423_000)
print(control.holder and control.holder.pid, flush=True)
{then}
"""


@pytest.fixture
def limited(lab):
    """A lab whose board an administrator has limited: limited(way, *words of the stand-in)."""

    def make(way="nvml", *words, **knobs):
        made = lab(time="real", limit_mw=ADMINS_MW, **knobs)
        if way != "nvml":
            made.offer(way, *words)
        return made

    return make


def limit_mw(made):
    return int(made.boards.get("limit_mw"))


def is_as_before(made):
    return made.restored() and made.comes_to(lambda: limit_mw(made) == ADMINS_MW and not record(made).exists())


def record(made):
    return made.lease.with_suffix(".power")


def started(made, then, through="nvml"):
    process = subprocess.Popen(
        [sys.executable, "-c", SETS.format(hooks=HOOKS, uuid=made.boards.uuid, through=through, then=then)],
        env=made.environment(),
        cwd=made.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    holder = process.stdout.readline().strip()
    assert holder, process.stderr.read()
    return process, holder


@pytest.mark.parametrize(
    ("way", "death"),
    [
        *(pytest.param("nvml", *each.values, marks=each.marks) for each in each_death()),
        *(pytest.param("broker", *each.values, marks=each.marks) for each in each_death(("SIGKILL to the group",))),
    ],
)
def test_whatever_a_run_dies_of_the_limit_that_was_there_comes_back(limited, way, death):
    made = limited(way, "--allow-power", str(os.getuid())) if way == "broker" else limited()
    os.mkfifo(made.folder / "go")  # it dies once the limit is seen in force
    process, _ = started(made, f"open('go').read(); DEATHS[{death!r}]()", way)
    assert limit_mw(made) == 423_000 and made.boards.locks[0] == "345-900"
    (made.folder / "go").write_text("")
    process.communicate(timeout=60)
    assert process.returncode and is_as_before(made)


@pytest.mark.parametrize("next_", ["a run", "reset", "reset --stale"])
def test_where_the_holder_was_killed_too_the_next_one_brings_it_back(limited, next_):
    made = limited()
    process, holder = started(made, "time.sleep(60)")
    os.kill(int(holder), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=30)
    assert limit_mw(made) == 423_000 and json.loads(record(made).read_text())["limit_mw"] == ADMINS_MW
    if next_ == "a run":
        done = made.python(f"from kernel_dvfs_clocks.guard import Guard\nwith Guard({made.boards.uuid!r}): pass")
    else:
        done = made.command(*next_.split(), "--uuid", made.boards.uuid)
    assert done.returncode == 0 and "537 W again" in done.stdout + done.stderr, done.stderr
    assert is_as_before(made)


def test_one_who_may_not_give_it_back_is_told_whose_it_is_to_do(limited):
    made = limited()
    process, holder = started(made, "time.sleep(60)")
    os.kill(int(holder), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=30)
    made.boards.set(fail="nvmlDeviceSetPowerManagementLimit:4:0:1")
    done = made.command("apply", "--pair", "1500,auto", "--share", "--", "echo", "ran")
    assert done.returncode == 2 and not done.stdout, done.stderr
    assert "left its power limit at 423 W, it was 537 W; kernel-dvfs reset" in done.stderr
    assert made.restored(), "clocks come back all the same"
    assert made.command("reset", "--uuid", made.boards.uuid).returncode == 0 and is_as_before(made)


@pytest.mark.parametrize(
    ("boot_id", "mode"),
    [(None, 0o666), ("another", 0o644)],  # anybody could have written the one, the other is from before a boot
)
def test_a_record_that_cannot_be_relied_on_sets_nothing(limited, boot_id, mode):
    made = limited()
    content = {"schema": "kernel-dvfs/power-limit/1", "limit_mw": 111_000}
    content["boot_id"] = boot_id or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record(made).write_text(json.dumps(content))
    record(made).chmod(mode)
    done = made.python(f"from kernel_dvfs_clocks.guard import Guard\nwith Guard({made.boards.uuid!r}): pass")
    assert done.returncode == 0 and limit_mw(made) == ADMINS_MW, done.stderr
    # and it is no obstacle to a run's own
    process, _ = started(made, "control.__exit__(None, None, None)")
    process.communicate(timeout=60)
    assert process.returncode == 0 and is_as_before(made)


def test_a_record_of_what_no_board_can_be_set_to_is_refused_and_not_cut_to_what_it_can(limited):
    """NVML would take 2^32 + 300,000 mW for 300 W."""
    made = limited()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    content = {"schema": "kernel-dvfs/power-limit/1", "limit_mw": 2**32 + 300_000, "boot_id": boot_id}
    record(made).write_text(json.dumps(content))
    record(made).chmod(0o644)
    done = made.command("reset", "--uuid", made.boards.uuid)
    assert done.returncode == 2 and "limit_mw is 4295267296, expected a power limit in mW" in done.stderr, done.stderr
    assert limit_mw(made) == ADMINS_MW


def test_a_command_runs_under_a_limit_and_leaves_the_one_that_was_there(limited):
    made = limited()
    look = "from kernel_dvfs_clocks.nvml.library import Library\nfrom kernel_dvfs_clocks.nvml.board import Board\n"
    look += f"with Library() as n: print(Board(n, {made.boards.uuid!r}).power_limit_mw())"
    done = made.command(
        *("apply", "--pair", "1500,auto", "--power-limit", 423.5, "--share", "--report", "r.json"),
        *("--", sys.executable, "-c", look),
    )
    assert done.returncode == 0 and done.stdout == "423500\n", done.stderr
    assert json.loads((made.folder / "r.json").read_text())["power_limit_w"] == 423.5
    assert is_as_before(made)


@pytest.mark.parametrize(
    ("way", "watts", "said"),
    [
        ("nvml", 99, "99 W is not possible; allowed: 100 to 700 W"),
        ("nvml", 701, "701 W is not possible; allowed: 100 to 700 W"),
        ("broker", 99, "99 W is not possible; allowed: 100 to 700 W"),
        ("zeusd", 400, "zeusd sets clocks only"),
        ("sudo", 400, "sudo sets clocks only"),
    ],
)
def test_a_limit_that_cannot_be_set_is_refused_in_one_line_before_the_command_runs(limited, way, watts, said):
    made = limited(way)
    words = ("apply", "--pair", "1500,auto", "--power-limit", watts, "--share", "--through", way, "--", "echo", "ran")
    done = made.command(*words)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("error: ") == 1 and said in done.stderr
    assert is_as_before(made)


def test_a_driver_that_only_says_that_it_has_set_one_is_not_believed(limited):
    made = limited(ignore="power")
    done = made.command("apply", "--pair", "auto,auto", "--power-limit", "423", "--", "echo", "ran")
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1, done.stderr
    assert "took 423 W without an error, and shows 537 W" in done.stderr and is_as_before(made)


def test_a_limit_that_is_not_given_back_stays_known_and_is_told(limited):
    made = limited()
    os.mkfifo(made.folder / "go")
    process, _ = started(made, "open('go').read(); control.__exit__(None, None, None)")
    made.boards.set(ignore="power")
    (made.folder / "go").write_text("")
    said = process.communicate(timeout=60)[1]
    assert process.returncode and "took 537 W without an error, and shows 423 W" in said
    assert json.loads(record(made).read_text())["limit_mw"] == ADMINS_MW
    made.boards.set(ignore="")
    done = made.command("reset", "--uuid", made.boards.uuid)
    assert done.returncode == 0 and "537 W again" in done.stdout and is_as_before(made), done.stderr


def test_what_a_killed_writer_has_left_beside_the_record_goes_with_it(limited):
    made = limited()
    process, _ = started(made, "time.sleep(60)")
    beside = record(made).with_name(f"{record(made).name}.12345")
    beside.write_text("{")
    process.kill()
    process.communicate(timeout=30)
    assert is_as_before(made) and made.comes_to(lambda: not beside.exists())


def test_without_the_right_nothing_is_left_behind(limited):
    made = limited(deny=1)
    code = f"from kernel_dvfs_clocks.guard import Guard\nwith Guard({made.boards.uuid!r}, through='nvml') as guard:\n"
    done = made.python(f"{code}    guard.limit_power(400_000)")
    assert "no permission" in done.stderr and is_as_before(made), done.stderr


def test_the_broker_limits_power_for_those_alone_whom_allow_power_names_and_within_the_boards_limits(
    limited, monkeypatch, tmp_path
):
    made = limited()
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)

    def answers(may_limit, *requests):
        """Of a holder that the broker has started for a client, whom it may let limit power."""
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        client = ("process 7 of alice", may_limit, 60.0)
        files = [theirs.fileno()]
        about = {"uuid": made.boards.uuid, "after": {}, "at": str(tmp_path), "client": client, "files": files}
        holder = start_holder(about, files)
        theirs.close()
        with ours, ours.makefile() as lines:
            found = [json.loads(lines.readline())]
            for each in requests:
                ours.sendall(json.dumps(each).encode() + b"\n")
                found.append(json.loads(lines.readline()))
        assert holder.wait(60) == 0 and is_as_before(made)
        return found

    limit = {"do": "limit", "domain": "power", "mw": 400_000}
    began, *refused = answers(False, limit, {"do": "reset", "domain": "power"})
    assert began == {} and all(each["code"] == 4 and "--allow-power" in each["error"] for each in refused)
    sets = int(made.boards.get("sets"))
    others = (True, "400000", None, 0, 99_000, 701_000, 10**400)
    began, *found = answers(True, limit, *(limit | {"mw": mw} for mw in others))
    assert began == found[0] == {} and [each["code"] for each in found[1:]] == len(others) * [2]
    assert int(made.boards.get("sets")) > sets


def test_a_broker_killed_with_its_children_brings_it_back_when_it_starts_again(limited):
    made = limited("broker", "--allow-power", str(os.getuid()))
    process, _ = started(made, "time.sleep(60)", "broker")
    kill_all_of(made, made.daemons[0])
    process.kill()
    process.communicate(timeout=30)
    assert limit_mw(made) == 423_000
    made.offer("broker")
    assert made.comes_to(lambda: limit_mw(made) == ADMINS_MW and made.boards.locks == ("none", "none"))
