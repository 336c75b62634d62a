"""Clocks through sudo itself, by a user of nothing but the lines that this project prints for sudoers.

User, sudoers and nvidia-smi are there in a mount namespace alone: the machine's own files stay as they are, however
this ends. nvidia-smi is a stand-in on the fake NVML (setters.py). Needs root.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import setters

USER, NUMBER = "kernel-dvfs-test", 64_999
# tmpfs over /opt holds what is ours; then process "sleep" keeps the namespace
MADE = f"""
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /opt
for each in passwd group shadow; do cp -p /etc/$each /opt; done
echo '{USER}:x:{NUMBER}:{NUMBER}::/nonexistent:/bin/sh' >> /opt/passwd
echo '{USER}:x:{NUMBER}:' >> /opt/group
echo '{USER}:*:19000:0:99999:7:::' >> /opt/shadow
for each in passwd group shadow; do mount --bind /opt/$each /etc/$each; done
mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d
mkdir /opt/bin
echo ready
exec sleep 600
"""
# sudo hands on nothing of the environment
TOOL = """#!/bin/sh
export {settings}
{first}
exec {tool} "$@"
"""


def missing() -> str:
    """Why sudo itself cannot be asked here; "" where it can."""
    if os.getuid() != 0:
        return "needs root"
    absent = [name for name in ("sudo", "visudo", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    return f"{', '.join(absent)} not installed" if absent else ""


@pytest.fixture
def by_sudo(lab):
    """A lab whose commands run as a user whom sudoers names."""
    if why := missing():
        pytest.skip(f"sudo itself: {why}")
    with named_by_sudoers(lab(time="real")) as made:
        yield made


@contextmanager
def named_by_sudoers(made):
    """The lab, whose commands run as a user whom sudoers names, as long as the context lasts."""
    started = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", MADE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = started.stdout.readline()
        if said != "ready\n":
            pytest.skip(f"sudo itself: no mount namespace for it here: {said}")
        made.inside = ["nsenter", "-t", str(started.pid), "-m", "sh", "-c", 'cd "$0" && exec "$@"', made.folder]
        made.boards.set(deny=1)
        state, locks = made.boards.path, made.locks
        for path, mode in ((state, 0o666), (locks, 0o1777), (made.folder, 0o777)):
            path.chmod(mode)
        given(made)
        made.more |= {"PATH": f"/opt/bin{os.pathsep}{os.environ['PATH']}", "HOME": str(made.folder), "USER": USER}
        made.more["KERNEL_DVFS_BROKER_DIR"] = str(made.folder / "none")
        # as root has them: what a user of this machine would see
        code = f"from kernel_dvfs_clocks.setters.tools import sudoers\nprint(sudoers({USER!r}, [{made.boards.uuid!r}]))"
        made.under = made.inside
        lines = made.python(code).stdout
        written(made, "/etc/sudoers.d/kernel-dvfs", lines, 0o440)
        checked = subprocess.run([*made.inside, "visudo", "-c"], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0 and "/etc/sudoers.d/kernel-dvfs: parsed OK" in checked.stdout, checked
        # it may read this Python, wherever root has it, and nothing more
        made.under = [*made.inside, "setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups"]
        made.under += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        yield made
        made.stop()
    finally:
        started.kill()
        started.communicate(timeout=30)


def written(made, path, text, mode):
    """A file of root's, there."""
    words = [*made.inside, "sh", "-c", 'cat > "$0" && chmod "$1" "$0"', path, f"{mode:o}"]
    subprocess.run(words, input=text, text=True, check=True, timeout=60)


def given(made, first=""):
    """nvidia-smi, which does something else first."""
    own = {"LD_LIBRARY_PATH": made.boards.folder, "FAKENVML_STATE": made.boards.path, "FAKENVML_ROOT": "1"}
    settings = shlex.join(f"{name}={value}" for name, value in own.items())
    text = TOOL.format(settings=settings, first=first, tool=shlex.join(setters.program("nvidia-smi")))
    written(made, "/opt/bin/nvidia-smi", text, 0o755)


def test_devices_finds_the_way_and_a_measurement_sets_and_gives_back(by_sudo):
    said = by_sudo.command("devices").stdout
    assert (
        "   permission to lock clocks: by its rights, through sudo; " in said
        and "   through: auto takes sudo\n" in said
    )
    done, record = by_sudo.measure(through="sudo")
    assert done.returncode == 0 and record["verdict"] == "ok", done.stderr
    assert record["request"]["through"] == "sudo" and record["reached"]["core_mhz"] == 1500
    assert by_sudo.boards.locks == ("345-1500", "2201-2201")
    by_sudo.stop()
    assert by_sudo.restored()


def test_it_is_what_auto_takes_where_nothing_else_works(by_sudo):
    done = by_sudo.command("apply", "--pair", "900,2201", "--", "echo", "ran")
    assert done.returncode == 0 and done.stdout == "ran\n", done.stderr
    assert by_sudo.restored() and int(by_sudo.boards.get("sets")) >= 4


@pytest.mark.parametrize("death", ["SIGTERM", "SIGKILL to the group"])
def test_whatever_kills_a_run_its_clocks_come_back(by_sudo, death):
    done, record = by_sudo.measure(through="sudo", environment={"FAKE_DEATH": f"{death}@1.5"})
    assert done.returncode == 2 and record is None and "error: " in done.stderr
    assert int(by_sudo.boards.get("sets")) >= 4 and by_sudo.restored()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_call_under_way_when_its_run_ends_does_not_land_after_the_restoring(by_sudo, end):
    """sudo stands between: what it started may outlive it, too."""
    begun = by_sudo.folder / "begun"
    given(by_sudo, f'case "$*" in *-lgc*) touch {shlex.quote(str(begun))}; sleep 2;; esac')
    code = "import os\nos.setsid()\nfrom kernel_dvfs_clocks.guard import Guard\n"
    code += f"with Guard({by_sudo.boards.uuid!r}, through='sudo') as guard: guard.lock((345, 900), None)"
    words = [*by_sudo.under, sys.executable, "-c", code]
    run = subprocess.Popen(words, env=by_sudo.environment(), stderr=subprocess.DEVNULL)
    assert by_sudo.comes_to(begun.exists)
    os.killpg(run.pid, end) if end == signal.SIGKILL else os.kill(run.pid, end)
    assert run.wait(timeout=60)
    assert by_sudo.comes_to(lambda: not by_sudo.lease.exists(), 30)
    assert by_sudo.boards.locks == ("none", "none")
    time.sleep(2.5)  # what was under way would have landed by now
    assert by_sudo.boards.locks == ("none", "none")


def test_sudo_lets_the_user_do_four_things_to_one_gpu_and_nothing_wider(by_sudo):
    uuid = by_sudo.boards.uuid

    def code(*words):
        done = subprocess.run([*by_sudo.under, "sudo", "-k", "-n", *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or "password is required" in done.stderr or "sorry" in done.stderr.lower(), done
        return done.returncode

    tool = ["/opt/bin/nvidia-smi", "-i"]
    for words in (["-lgc", "345,1500"], ["-lmc", "2201,2201"], ["-rgc"], ["-rmc"]):
        assert code(*tool, uuid, *words) == 0
    assert by_sudo.boards.get("sets") == "4" and by_sudo.boards.locks == ("none", "none")
    for words in (
        *([uuid, "-pl", "300"], [uuid, "-lgc", "345,1500", "-pl", "300"], ["0", "-rgc"], [f"{uuid},0", "-rgc"]),
        *([uuid, "-lgc", "345"], [uuid, "-rgc", "-rmc"], [uuid, "-lgc", "1,2\n-pl 3"], [uuid, "-ac", "2201,1500"]),
        *([uuid, ""], [uuid]),
    ):
        assert code(*tool, *words) == 1, words
    # sudo compares the words as one text, so these match; nvidia-smi knows no such option, and no such GPU
    for words in ([uuid, "-lgc 345,1500"], [f"{uuid} -rgc"], [uuid, "-lmc 1,2"]):
        done = subprocess.run(
            [*by_sudo.under, "sudo", "-k", "-n", *tool, *words], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and "Invalid combination of input arguments" in done.stdout, done
    for words in (["/bin/sh"], ["nvidia-smi"], ["-u", "#1", *tool, uuid, "-rgc"], ["-s"], ["-e", "/etc/passwd"]):
        assert code(*words) == 1, words
    assert by_sudo.boards.get("sets") == "4"


def test_this_machine_is_as_it_was(by_sudo):
    assert USER not in Path("/etc/passwd").read_text() and not Path("/etc/sudoers.d/kernel-dvfs").exists()
    done = subprocess.run([*by_sudo.under, "id", "-un"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{USER}\n"
