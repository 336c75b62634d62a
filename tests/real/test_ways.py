"""Every way of setting clocks: what is asked for is reached, and comes back whatever kills the run.

What sets the clocks are stand-ins made from the documented protocols (tests/fakenvml/setters.py), on the fake NVML.
"""

import os
import signal
import subprocess
import sys
import time

import pytest
from test_guard import script

from kernel_dvfs_clocks.setters import choice
from kernel_dvfs_clocks.setters.choice import obstacle

WAYS = ("nvml", "broker", "zeusd", "sudo", "dcgm", "slurm")
THROUGH = tuple(way for way in WAYS if way not in ("nvml", "slurm"))


def under(way, pair="1500,memory=2201"):
    """What a measurement is started by."""
    return ["slurmstepd", pair] if way == "slurm" else []


@pytest.mark.parametrize("way", WAYS)
def test_what_is_asked_for_is_reached_and_given_back(lab, way):
    made = lab()
    config = made.offer(way)
    done, record = made.measure(under=under(way), **config)
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert record["reached"] == {"core_mhz": 1500, "mem_mhz": 2201, "alias_of": None}
    assert record["request"].get("through") == (None if way == "slurm" else way)
    if way != "slurm":  # the batch system's own affair
        assert made.boards.locks == ("1500-1500" if way == "dcgm" else "345-1500", "2201-2201")
    made.stop()
    assert made.restored()


# test_guard.py tries deaths by nvml; here one that nothing outlives but what stands outside of its process group; by
# night one that the run itself answers
TWO_DEATHS = (pytest.param("SIGTERM", marks=pytest.mark.nightly), "SIGKILL to the group")


@pytest.mark.parametrize("way", THROUGH)
@pytest.mark.parametrize("death", TWO_DEATHS)
def test_whatever_kills_a_run_its_clocks_come_back_through_the_same_way(lab, way, death):
    made = lab()
    config = made.offer(way)
    done, record = made.measure(environment={"FAKE_DEATH": f"{death}@1.5"}, **config)
    assert done.returncode == 2 and record is None and "error: " in done.stderr
    assert made.restored()
    assert int(made.boards.get("sets")) >= 8, "set, and given back"


@pytest.mark.parametrize("death", TWO_DEATHS)
def test_slurm_gives_back_the_clocks_of_a_step_whatever_killed_it(lab, death):
    made = lab()
    config = made.offer("slurm")
    done, record = made.measure(environment={"FAKE_DEATH": f"{death}@1.5"}, under=under("slurm"), **config)
    assert done.returncode == 2 and record is None
    assert made.comes_to(lambda: made.boards.locks == ("none", "none")) and int(made.boards.get("sets")) == 4


def test_a_pair_that_slurm_set_otherwise_than_asked_is_seen(lab):
    """It takes the next higher clock that exists, and only logs what it could not set."""
    made = lab()
    config = made.offer("slurm")
    _, record = made.measure(under=under("slurm", "1591,memory=2201"), **config)
    assert record["verdict"] == "not_reached" and "core clock: asked 1500 MHz, reached 16" in record["reasons"][0]


def killed_with_its_holder(made, way):
    """Every process of a run is killed at once, as when its container or its batch job is."""
    then = "print(control.holder.pid if control.holder else 0, flush=True)\ntime.sleep(60)"
    process = script(made, then, through=way)
    assert process.stdout.readline() == "locked\n", process.stderr.read()
    holder = int(process.stdout.readline())
    assert made.boards.locks != ("none", "none") and bool(holder) == (way != "broker")
    if holder:
        os.kill(holder, signal.SIGKILL)
    process.kill()
    process.wait(timeout=120)


def test_a_broker_restores_the_clocks_of_a_job_of_which_nothing_is_left(lab):
    made = lab(time="real")
    made.offer("broker")
    killed_with_its_holder(made, "broker")
    assert made.comes_to(lambda: made.boards.locks == ("none", "none"))


@pytest.mark.parametrize("way", ["zeusd", pytest.param("sudo", marks=pytest.mark.nightly)])
def test_a_watchdog_outside_of_the_job_restores_what_nothing_else_is_left_to(lab, way):
    made = lab(time="real")
    made.offer(way)
    killed_with_its_holder(made, way)
    assert made.boards.locks == ("345-900", "2201-2201"), "nobody else does"
    words = [sys.executable, "-m", "kernel_dvfs", "reset", "--all", "--stale", "--watch", "--through", way]
    watchdog = subprocess.Popen(words, env=made.environment(), cwd=made.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert made.restored()
        assert "removed the lease that process" in watchdog.stdout.readline()
        killed_with_its_holder(made, way)
        assert made.restored(), "and goes on"
    finally:
        watchdog.kill()
        watchdog.wait()


@pytest.mark.parametrize(
    ("way", "end", "patience_s"),
    [
        ("sudo", signal.SIGKILL, 60),
        ("sudo", signal.SIGINT, 60),
        ("dcgm", signal.SIGKILL, 60),
        ("sudo", signal.SIGKILL, 1.5),  # less than it takes: restored at once, and again when it has landed
        ("sudo", None, 2.5),  # its own patience ends first
    ],
)
def test_a_call_under_way_when_its_run_ends_does_not_land_after_the_restoring(lab, way, end, patience_s):
    made = lab(time="real")
    made.offer(way)
    name, slow, pair = {
        "sudo": ("nvidia-smi", "*-lgc*", "(345, 900), None"),
        "dcgm": ("dcgmi", "*2201,900*", "(900, 900), (2201, 2201)"),
    }[way]
    tool = made.boards.path.parent / "offered" / name
    real = tool.rename(tool.with_name(f"{name}.real"))
    slow_s = (1 if patience_s == 60 else 2) if end else 3.5  # it is waited for as long again
    # the lock is slow, as where the driver has to come up; a reset is not
    tool.write_text(f'#!/bin/sh\ncase "$*" in {slow}) touch begun; sleep {slow_s};; esac\nexec {real} "$@"\n')
    tool.chmod(0o755)
    code = "from kernel_dvfs_clocks.guard import Guard\n"
    code += f"with Guard({made.boards.uuid!r}, through={way!r}) as guard: guard.lock({pair})"
    environment = made.environment(KERNEL_DVFS_NVML_PATIENCE_S=str(patience_s))
    run = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=made.folder, stderr=subprocess.DEVNULL)
    assert made.comes_to((made.folder / "begun").exists)
    landed_s = time.monotonic() + slow_s + 1
    if end:
        run.send_signal(end)
    assert run.wait(timeout=120)
    assert made.comes_to(lambda: not made.lease.exists())
    assert made.boards.locks == ("none", "none")
    time.sleep(max(0.0, landed_s - time.monotonic()))  # what was under way would have landed by then
    assert made.boards.locks == ("none", "none")


@pytest.mark.parametrize(
    ("end", "patience_s", "slow_s"),
    [
        pytest.param(signal.SIGKILL, 4, 1, marks=pytest.mark.nightly),
        (signal.SIGKILL, 4, 3),
        (signal.SIGINT, 60, 1),  # answered: nothing is waited for
        pytest.param(signal.SIGINT, 2.5, 3.5, marks=pytest.mark.nightly),
        (None, 2.5, 3.5),  # its own patience ends first
    ],
)
def test_a_request_without_an_answer_when_its_run_ends_does_not_outlast_the_restoring(lab, end, patience_s, slow_s):
    made = lab(time="real")
    made.more |= {
        "KERNEL_DVFS_TEST_ZEUSD_SLOW": str(made.folder / "begun"),
        "KERNEL_DVFS_TEST_ZEUSD_SLOW_S": str(slow_s),
        "KERNEL_DVFS_NVML_PATIENCE_S": str(patience_s),
    }
    made.offer("zeusd")
    code = "from kernel_dvfs_clocks.guard import Guard\n"
    code += f"with Guard({made.boards.uuid!r}, through='zeusd') as guard: guard.lock((345, 900), (2201, 2201))"
    run = subprocess.Popen(
        [sys.executable, "-c", code], env=made.environment(), cwd=made.folder, stderr=subprocess.DEVNULL
    )
    assert made.comes_to((made.folder / "begun").exists)
    landed_s = time.monotonic() + slow_s + 1
    if end:
        run.send_signal(end)
    assert run.wait(timeout=120)
    assert made.comes_to(lambda: not made.lease.exists())
    sets = int(made.boards.get("sets"))
    assert sets >= 4 and made.boards.locks == ("none", "none")
    time.sleep(max(0.0, landed_s - time.monotonic()))  # what was under way would have landed by then
    assert made.boards.locks == ("none", "none") and int(made.boards.get("sets")) == sets


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("nvml", "no permission"),
        ("broker", "is the broker running"),
        ("zeusd", "is it running, and may you write to its socket?"),
        ("sudo", "have the lines that kernel-dvfs devices prints put into /etc/sudoers.d"),
        ("dcgm", "dcgmi"),
    ],
)
def test_a_way_that_is_not_there_is_said_in_one_line_and_nothing_is_changed(lab, way, said):
    made = lab()
    made.offer("sudo" if way == "sudo" else "none")
    (made.boards.path.parent / "offered/sudoers").unlink(missing_ok=True)
    line = made.refused(through=way, **({"lock": "exact"} if way == "dcgm" else {}))
    assert said in line and made.boards.uuid in line
    assert made.boards.get("sets") == "0" and not made.lease.exists()


@pytest.mark.parametrize("way", ["zeusd", "sudo"])
def test_a_memory_clock_that_cannot_be_locked_is_told_from_a_missing_right(lab, way):
    made = lab(fail="nvmlDeviceSetMemoryLockedClocks:3")
    assert "memory clocks cannot be locked here" in made.refused(**made.offer(way))
    assert made.restored()


@pytest.mark.parametrize("way", THROUGH)
def test_a_restore_that_fails_is_said_whatever_the_way(lab, way):
    made = lab(time="real")
    made.offer(way)
    process = script(made, "sys.stdin.readline()\ncontrol.__exit__(None, None, None)", through=way)
    assert process.stdout.readline() == "locked\n"
    made.boards.set(fail="nvmlDeviceResetGpuLockedClocks:999")
    _, said = process.communicate("\n", timeout=120)
    assert process.returncode == 1 and "NotRestored: clocks of" in said
    assert made.boards.locks[0] != "none"
    if way == "broker":
        left = "; left: clocks that could not be restored: nvmlDeviceResetGpuLockedClocks failed"
        assert made.comes_to(lambda: left in made.command("broker", "--list").stdout)
    assert made.lease.exists() == (way != "broker")
    made.boards.set(fail="")
    done = made.command("reset", "--all", "--stale", "--through", way)
    assert done.returncode == 0 and "both locks reset" in done.stdout, done.stderr
    assert made.restored()


def test_a_daemon_that_does_not_answer_is_not_waited_for_without_end(lab, tmp_path):
    import socket

    made = lab()
    config = made.offer("none") | {"through": "zeusd"}
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(made.more["ZEUSD_SOCK_PATH"])
        deaf.listen(16)
        line = made.refused(environment={"KERNEL_DVFS_NVML_PATIENCE_S": "1"}, **config)
    assert "zeusd /discover" in line and "no answer in 1 s" in line


def test_a_tool_that_does_not_end_is_not_waited_for_without_end(lab):
    made = lab()
    config = made.offer("dcgm")
    tool = made.boards.path.parent / "offered/dcgmi"
    tool.write_text("#!/bin/sh\nexec sleep 20\n")
    line = made.refused(environment={"KERNEL_DVFS_NVML_PATIENCE_S": "1"}, **config)
    assert "dcgmi group -l" in line and "has not ended in 1 s" in line


# --- zeusd ------------------------------------------------------------------------------------------------------------


def pci_bus(made, gpus):
    """Code that has zeusd's client look at a machine of so many GPUs, and of more that are none."""
    devices = [("0x10de", "0x030200")] * gpus + [("0x10de", "0x068000"), ("0x1a03", "0x030000")]
    for number, (vendor, kind) in enumerate(devices):
        folder = made.folder / f"devices/0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    return (
        f"from kernel_dvfs_clocks.setters import choice, zeusd\nzeusd.PCI_DEVICES = {str(made.folder / 'devices')!r}\n"
    )


def locked_by_zeusd(made, gpus):
    """A lock on a machine of so many GPUs, at whose end another is left."""
    code = f"{pci_bus(made, gpus)}from kernel_dvfs_clocks.setters.setter import leave_as_configured\n"
    code += "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    code += f"print(choice.obstacle('zeusd', {made.boards.uuid!r}))\nwith Library() as nvml:\n"
    code += f"  setter = choice.opened('zeusd', Board(nvml, {made.boards.uuid!r}))\n"
    code += "  for lock in setter.locks((345, 900), None): lock()\n"
    code += "  print('locked'); leave_as_configured(setter, {'core': [345, 1500]})"
    return made.python(code)


def test_a_zeusd_from_before_0_4_is_understood_where_the_machine_has_one_gpu(lab):
    made = lab()
    made.offer("zeusd", "old")
    done = locked_by_zeusd(made, 1)
    assert done.stdout == "\nlocked\n", done.stderr
    assert made.boards.locks == ("345-1500", "none") and made.boards.get("sets") == "4" and not made.lease.exists()


@pytest.mark.parametrize("gpus", [0, 8])
def test_a_zeusd_that_cannot_say_which_gpu_is_which_is_not_asked_for_one_of_several(lab, gpus):
    """A container that is given the sixth GPU of eight calls it 0."""
    made = lab()
    made.offer("zeusd", "old")
    done = locked_by_zeusd(made, gpus)
    said = f"does not say which GPU is which; the PCI bus of this machine shows {gpus}"
    assert said in done.stdout and said in done.stderr and "locked" not in done.stdout
    assert made.boards.get("sets") == "0" and not made.lease.exists()


@pytest.mark.parametrize("said", ["{}", '{"gpu_ids": [0]}'])
def test_a_zeusd_since_0_4_that_gives_no_addresses_is_not_taken_for_an_old_one(lab, said):
    made = lab()
    made.offer("zeusd")
    code = f"{pci_bus(made, 8)}ask = zeusd._ask\n"
    code += f"zeusd._ask = lambda *how: (200, {said!r}) if how[2] == '/discover' else ask(*how)\n"
    code += "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    code += f"with Library() as nvml: zeusd.Zeusd(Board(nvml, {made.boards.uuid!r}))"
    done = made.python(code)
    assert "without addresses; 1 GPU(s) are visible here, and 8 on the PCI bus" in done.stderr, done.stderr


def test_a_zeusd_that_wants_a_token_gets_it(lab):
    made = lab()
    config = made.offer("zeusd", "secret")
    assert "ZEUSD_TOKEN" in made.refused(**config)
    done, record = made.measure(environment={"ZEUSD_TOKEN": "secret"}, **config)
    assert record["verdict"] == "ok", done.stderr


@pytest.mark.parametrize(
    ("through", "works", "said"),
    [
        ("auto", (), "nothing here may set the clocks of GPU GPU-7 (nvml may not)"),
        ("auto", ("sudo",), ""),
        ("zeusd", ("nvml",), "nothing here may set the clocks of GPU GPU-7 (zeusd may not)"),
        ("nvml", ("nvml",), ""),
    ],
)
def test_that_nothing_may_set_clocks_is_told_in_a_line_without_setting_any(monkeypatch, through, works, said):
    monkeypatch.setattr(choice, "obstacle", lambda way, *uuids: "" if way in works else f"{way} may not")
    line = choice.lacking(through, "GPU-7")
    assert line.startswith(said) and bool(line) == bool(said) and "\n" not in line


def test_zeusds_number_of_a_gpu_is_found_by_its_address(lab):
    """In a container that is given the second GPU, the first number means another board than the daemon's."""
    made = lab("h200,h200")
    second = made.boards.get("uuid", 1)
    made.offer("zeusd")
    made.boards.set(board=1, deny=1, time="virtual")
    code = "from kernel_dvfs_clocks.nvml.board import Board\nfrom kernel_dvfs_clocks.nvml.library import Library\n"
    code += "from kernel_dvfs_clocks.setters.zeusd import Zeusd\nwith Library() as nvml:\n"
    code += f" board = Board(nvml, {second!r}); board.index = lambda: 0\n"
    code += " for lock in Zeusd(board).locks((345, 900), None): lock()"
    done = made.python(code)
    assert done.returncode == 0, done.stderr
    assert (made.boards.locks[0], made.boards.get("core_lock", 1)) == ("none", "345-900")


# --- sudo -------------------------------------------------------------------------------------------------------------


def test_the_lines_for_sudoers_allow_four_options_of_one_gpu_and_nothing_wider(lab):
    import setters

    made = lab()
    made.offer("sudo")
    uuid, tool = made.boards.uuid, str(made.boards.path.parent / "offered/nvidia-smi")
    allowed = [f"-i {uuid} -lgc 345,1500", f"-i {uuid} -lmc 2201,2201", f"-i {uuid} -rgc", f"-i {uuid} -rmc"]
    wider = [
        *(f"-i {uuid} -pl 300", f"-i {uuid} -lgc 345,1500 -pl 300", "-i 0 -rgc", "-rgc", f"-i {uuid},0 -rgc", "-r"),
        *(f"-i {uuid} -lgc 345", f"-i {uuid} -rgc -rmc", f"-i {uuid} -lgc 1,2\n-pl 3", f"-i {uuid} -ac 2201,1500", ""),
    ]
    os.environ["KERNEL_DVFS_TEST_SUDOERS"] = made.more["KERNEL_DVFS_TEST_SUDOERS"]
    try:
        assert all(setters._allows(tool, words) for words in allowed)
        assert not any(setters._allows(tool, words) for words in wider)
        assert not setters._allows("/bin/sh", allowed[0])
    finally:
        del os.environ["KERNEL_DVFS_TEST_SUDOERS"]


def test_sudoers_names_no_tool_that_its_user_could_change(lab):
    """One's own nvidia-smi in front on PATH would be run by root."""
    if os.getuid() != 0:
        pytest.skip("only root can make files of root's")
    made = lab()
    made.offer("sudo")
    mine = made.folder / "bin"
    mine.mkdir()
    (mine / "nvidia-smi").write_text("#!/bin/sh\n")
    (mine / "nvidia-smi").chmod(0o777)
    code = "from kernel_dvfs_clocks.setters.tools import tool\nprint(tool())"
    said = made.python(code, PATH=f"{mine}:{made.more['PATH']}").stdout.strip()
    assert said == str(made.boards.path.parent / "offered/nvidia-smi")
    (mine / "nvidia-smi").chmod(0o755)
    mine.chmod(0o777)
    assert made.python(code, PATH=f"{mine}:{made.more['PATH']}").stdout.strip() == said


@pytest.mark.parametrize(
    "sudo", ["", "password", *(pytest.param(sudo, marks=pytest.mark.nightly) for sudo in ("old", "old password"))]
)
def test_sudo_that_would_ask_for_a_password_is_not_taken(lab, sudo):
    """One that was given a while ago is of no use when the clocks are to be given back."""
    made = lab(time="real")
    made.offer("sudo")
    code = "from kernel_dvfs_clocks.setters import choice\n"
    code += f"print(choice.obstacle('sudo', {made.boards.uuid!r}))"
    said = made.python(code, KERNEL_DVFS_TEST_SUDO=sudo).stdout
    # before 1.9.15 it cannot be asked
    assert said.endswith(" without a password\n") if sudo == "password" else said == "\n"
    words = ("apply", "--pair", "900,2201", "--through", "sudo", "--", "true")
    done = made.command(*words, KERNEL_DVFS_TEST_SUDO=sudo)
    assert done.returncode == (2 if "password" in sudo else 0), done.stderr
    assert ("a password is required" in done.stderr) == ("password" in sudo)
    assert made.restored()


def test_nothing_on_the_way_to_what_root_runs_may_be_a_users(tmp_path, monkeypatch):
    """A link, the folder it lies in, or a folder above: who owns one of them decides what is run."""
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    from kernel_dvfs_clocks.setters.tools import tool
    from kernel_dvfs_clocks.trust import is_roots_own

    own, users = tmp_path / "own", tmp_path / "users"
    for folder in (own, users, users / "within"):
        folder.mkdir(mode=0o755)
    for place in (own / "nvidia-smi", users / "nvidia-smi", users / "within/nvidia-smi"):
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    (own / "link").symlink_to(own / "nvidia-smi")
    (own / "by-users").symlink_to(users)
    (own / "given").symlink_to(own / "nvidia-smi")
    (users / "link").symlink_to(own / "nvidia-smi")
    os.chown(users, 12345, 12345)
    os.lchown(own / "given", 12345, 12345)
    assert is_roots_own(str(own / "nvidia-smi")) and is_roots_own(str(own / "link"))
    assert is_roots_own(str(own / "by-users/../own/nvidia-smi")) is False, "through a user's folder"
    for path in ("users/link", "own/given", "users/within/nvidia-smi", "users/within", "own/by-users/nvidia-smi"):
        assert not is_roots_own(str(tmp_path / path)), path
    assert not is_roots_own(str(tmp_path / "absent"))
    # a folder that all may write to, like /tmp: what is root's in it stays so, and it is not root's alone
    own.chmod(0o1777)
    assert is_roots_own(str(own / "nvidia-smi")) and not is_roots_own(str(own))
    own.chmod(0o777)
    assert not is_roots_own(str(own / "nvidia-smi"))
    own.chmod(0o755)
    (own / "link").rename(own / "bin")
    (own / "bin").unlink()
    (own / "bin").mkdir()
    (own / "bin/nvidia-smi").symlink_to(own / "nvidia-smi")
    monkeypatch.setenv("PATH", f"{users}:{own / 'bin'}")
    assert tool() == str(own / "nvidia-smi"), "without links"


@pytest.mark.parametrize("user", ["alice ALL", "bob,carol", "%wheel", "ALL\nroot", "", "a=b"])
def test_a_name_that_sudoers_would_read_as_more_is_refused(user):
    from kernel_dvfs_clocks.errors import InputError
    from kernel_dvfs_clocks.setters.tools import sudoers

    with pytest.raises(InputError, match="no plain user name"):
        sudoers(user, ["GPU-1"])


# --- DCGM -------------------------------------------------------------------------------------------------------------


def test_dcgm_locks_both_clocks_to_one_value_or_none(lab):
    made = lab()
    config = made.offer("dcgm")
    assert "configure lock: exact" in made.refused(**(config | {"lock": "range"}))
    assert "sets both clocks at once" in made.refused(pair="1500,auto", **config)
    assert made.restored()


def test_a_grid_for_dcgm_leaves_out_pairs_with_one_clock_at_auto(lab):
    made = lab()
    made.offer("dcgm")
    code = "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
    code += "asked = {'gpu': 'nvml', 'clocks': 'lock', 'through': 'dcgm', 'lock': 'exact'}\n"
    code += "study = plan(load('config.yaml') | asked, 'r')\n"
    code += "print([','.join(map(str, pair)) for pair in study.pairs], [why for _, why in study.omitted][-1])"
    made.measure("auto,auto", clocks="auto-only")
    done = made.python(code)
    assert done.stdout.startswith("['auto,auto', '345,2201'") and "dcgm locks both clocks or none" in done.stdout
    assert ",auto'" not in done.stdout.replace("'auto,auto'", "") and "'auto,2201'" not in done.stdout


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"core": [900, 900], "mem": None}, "locks both clocks or none"),
        ({"core": [345, 900], "mem": [2201, 2201]}, "locks each clock to one value"),
    ],
)
def test_clocks_to_leave_behind_that_dcgm_cannot_lock_are_refused_before_anything_is_set(lab, after, said):
    made = lab()
    assert said in made.refused(after=after, **made.offer("dcgm"))
    words = ["apply", "--pair", "900,2201", "--lock", "exact", "--through", "dcgm", "--after"]
    done = made.command(
        *words, ",".join(f"{name}={mhz[0]}-{mhz[1]}" for name, mhz in after.items() if mhz), "--", "true"
    )
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert made.boards.get("sets") == "0" and not made.lease.exists()


def test_clocks_to_leave_behind_that_dcgm_can_lock_are_left(lab):
    made = lab()
    made.offer("dcgm")
    done = made.command("reset", "--all", "--through", "dcgm", "--after", "core=900-900,mem=2201-2201")
    assert done.returncode == 0 and made.boards.locks == ("900-900", "2201-2201"), done.stderr


def test_a_host_engine_without_root_is_a_missing_right(lab):
    made = lab()
    config = made.offer("dcgm")
    line = made.refused(environment={"KERNEL_DVFS_TEST_DCGM_ROOT": "no"}, **config)
    assert "have nv-hostengine run as root" in line and not made.lease.exists()


def test_half_a_pair_that_dcgm_leaves_locked_is_freed(lab):
    made = lab(fail="nvmlDeviceSetGpuLockedClocks:3")
    assert "core clocks cannot be locked here" in made.refused(**made.offer("dcgm"))
    assert made.restored()


@pytest.mark.parametrize("token", ["secret\n", "secr\u00e9t", "sec\tret"])
def test_a_token_that_is_none_is_refused_without_being_shown(tmp_path, monkeypatch, token):
    (tmp_path / "zeusd.sock").touch()
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "zeusd.sock"))
    monkeypatch.setenv("ZEUSD_TOKEN", token)
    assert obstacle("zeusd") == "zeusd on this machine: ZEUSD_TOKEN is more than a line of ASCII; set ZEUSD_TOKEN anew"
