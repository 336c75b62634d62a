"""The broker under systemd itself: started by its own unit, confined by it, killed, and started again.

systemd runs as process 1 of namespaces of its own, with a few of its own units and none of the machine's. The GPU is
the fake NVML's. Needs root.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import fake
import pytest

SYSTEMD = next(filter(os.path.exists, ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")), "")
UNITS = "/usr/lib/systemd/system"
BROKER, JOB = "kernel-dvfs-broker", "job"
LAB = "/run/lab"  # there, the folder of this test
TARGETS = "basic exit final local-fs local-fs-pre paths shutdown slices sockets swap sysinit timers umount"
# a cgroup of its own, then namespaces; what the machine has to lose is read-only or hidden
BOOT = """
set -eu
mount --make-rprivate /
mkdir -p {folder}/cgroups
mount -t cgroup2 none {folder}/cgroups
mkdir {folder}/cgroups/{cgroup}
echo $$ > {folder}/cgroups/{cgroup}/cgroup.procs
umount {folder}/cgroups
exec unshare --cgroup --pid --uts --ipc --net --mount --fork --kill-child sh -c '
set -eu
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
mount -t sysfs -o ro sysfs /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system {lab}
mount --bind {folder} {lab}
cp -r {lab}/units/. /run/systemd/system
mkdir /run/units
for each in {targets}; do cp {units}/$each.target /run/units; done
mount --bind /run/units {units}
mount -t tmpfs -o mode=755 tmpfs /etc/systemd
mount -t tmpfs -o mode=755 tmpfs /dev
for each in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "nvidia7 1 3"; do
  set -- $each
  mknod -m 666 /dev/$1 c $2 $3
done
mkdir /dev/shm /dev/pts
exec env -i container=lab PATH=$PATH {systemd} --system --unit=basic.target --log-target=console --show-status=0
'
"""
REMOVE = """
mount --make-rprivate /
mount -t cgroup2 none {folder}/cgroups
find {folder}/cgroups/{cgroup} -depth -type d -delete
"""
TAKES = """
import sys, time
from kernel_dvfs_clocks.guard import Guard
guard = Guard(sys.argv[1], through="broker").__enter__()
guard.lock_mem(2201, 2201)
guard.lock_core(345, 900)
print("locked", flush=True)
time.sleep(1)
while True:
    time.sleep(0.1)
    try:
        guard.announce("more")
    except Exception as error:
        print(error, flush=True)
        time.sleep(600)
"""


class Machine:
    """A machine that systemd runs. `do(words)`: a command on it, as root."""

    def __init__(self, folder: Path, library: Path):
        self.folder, self._name = folder, {"folder": folder, "cgroup": f"kernel-dvfs-test-{os.getpid()}"}
        self.boards = fake.Boards(library, folder / "boards.state", time="real", deny=1)
        self.python = os.path.realpath(sys.executable)  # of no virtual environment: that may lie in /tmp
        shutil.copytree(library.parent, folder / "nvml")
        site = folder / "site"
        for package in (Path(__file__).parents[2] / "workflow").glob("kernel_dvfs*"):
            shutil.copytree(package, site / package.name)
        for file in metadata.files("nvidia-ml-py"):  # with its metadata, which says of which version it is
            if file.suffix != ".pyc" and ".." not in file.parts:
                (site / file).parent.mkdir(exist_ok=True)
                shutil.copy(file.locate(), site / file)
        (folder / "takes.py").write_text(TAKES)
        self._fake = {"LD_LIBRARY_PATH": f"{LAB}/nvml", "FAKENVML_STATE": f"{LAB}/boards.state"}
        settings = " ".join(f"{name}={value}" for name, value in self._fake.items())
        own = f"[Service]\nEnvironment={settings} FAKENVML_ROOT=1\nReadWritePaths={LAB}\n"
        for name, text in (
            (f"{BROKER}.service.d/lab.conf", f"{own}StandardError=append:{LAB}/broker.log\n"),
            (
                f"{JOB}.service",
                f"[Service]\nEnvironment={settings} PYTHONPATH={LAB}/site\nStandardOutput=truncate:{LAB}/job.log\n"
                f"ExecStart={self.python} -P {LAB}/takes.py {self.boards.uuid}\n",
            ),
        ):
            path = folder / "units" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._log = folder / "boot.log"
        text = BOOT.format(**self._name, lab=LAB, targets=TARGETS, units=UNITS, systemd=SYSTEMD)
        with open(self._log, "wb") as log:
            self._outer = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", text],
                **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True},
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0),  # PR_SET_PDEATHSIG
            )
        self._first = 0  # process 1, as it is known here

    def is_up(self) -> bool:
        with suppress(OSError):
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
            for self._first in map(int, children):
                if Path(f"/proc/{self._first}/comm").read_text() == "systemd\n":
                    return self.do("systemctl", "is-active", "basic.target").stdout == "active\n"
        return False

    def why_not(self) -> str:
        return self._log.read_text(errors="replace")[-300:]

    def do(self, *words, **environment) -> subprocess.CompletedProcess:
        words = [*("nsenter", "-t", str(self._first), "-m", "-p", "-n", "-i", "-u"), *words]
        return subprocess.run(
            words, env=self._environment() | environment, capture_output=True, text=True, timeout=60, cwd="/"
        )

    def _environment(self) -> dict:
        return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{LAB}/site"} | self._fake

    def broker(self, *words) -> str:
        done = self.do(self.python, "-P", "-m", "kernel_dvfs", "broker", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def systemctl(self, *words) -> str:
        done = self.do("systemctl", *words)
        assert done.returncode == 0, done.stderr + self.log("broker")
        return done.stdout.strip()

    def shows(self, unit: str, *names: str) -> list[str]:
        return [self.systemctl("show", "--value", "-p", name, unit) for name in names]

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def comes_to(self, holds, seconds=60.0) -> bool:
        end = time.monotonic() + seconds
        while not (held := holds()) and time.monotonic() < end:
            time.sleep(0.05)
        return bool(held)

    def end(self) -> None:
        self._outer.kill()  # and with it process 1 of its namespace, which takes all others along
        self._outer.wait(timeout=30)
        words = ["unshare", "--mount", "sh", "-c", REMOVE.format(**self._name)]
        self.comes_to(lambda: subprocess.run(words, capture_output=True, timeout=30).returncode == 0, 10)


@pytest.fixture(scope="module")
def machine(fake_library, tmp_path_factory):
    from kernel_dvfs_clocks.trust import is_roots_own

    python = os.path.realpath(sys.executable)
    for needed, why in (
        (os.getuid() == 0, "needs root"),
        (SYSTEMD, "no systemd is installed"),
        (all(map(shutil.which, ("unshare", "nsenter", "systemctl"))), "needs unshare, nsenter and systemctl"),
        (is_roots_own(python), f"{python} is not root's alone"),
        (not python.startswith(("/tmp/", "/var/tmp/")), f"{python}: a service with its own /tmp does not see it"),
    ):
        if not needed:
            pytest.skip(f"the broker under systemd: {why}")
    folder = tmp_path_factory.mktemp("machine")
    made = Machine(folder, fake_library)
    try:
        if not made.comes_to(made.is_up, 20):
            pytest.skip(f"the broker under systemd: systemd does not start in namespaces here: {made.why_not()}")
        (folder / "unit").write_text(made.broker("--allow", "0", "--unit"))
        made.do("cp", f"{LAB}/unit", f"/run/systemd/system/{BROKER}.service")
        made.systemctl("daemon-reload")
        yield made
    finally:
        made.end()


@pytest.fixture
def started(machine):
    """The machine with its broker, and a job that has locked both clocks."""
    machine.systemctl("start", BROKER)
    machine.systemctl("start", JOB)
    assert machine.comes_to(lambda: "locked" in machine.log(JOB)), machine.log("broker")
    assert machine.boards.locks == ("345-900", "2201-2201")
    yield machine
    machine.do("systemctl", "stop", JOB, BROKER)
    machine.do("systemctl", "reset-failed")
    assert freed(machine)
    for name in ("broker", JOB):  # the next test must not read what this one's wrote
        (machine.folder / f"{name}.log").unlink()


def freed(machine):
    return machine.comes_to(lambda: machine.boards.locks == ("none", "none"), 20)


def test_systemd_confines_it_and_finds_it_little_exposed(started):
    (pid,) = started.shows(BROKER, "MainPID")
    about = dict(
        line.split(":\t") for line in started.do("cat", f"/proc/{pid}/status").stdout.splitlines() if ":\t" in line
    )
    assert int(about["CapBnd"], 16) == int(about["CapEff"], 16) == 1 << 21, "CAP_SYS_ADMIN alone"
    assert (about["NoNewPrivs"], about["Seccomp"]) == ("1", "2")
    done = started.do("systemd-analyze", "security", "--no-pager", "--threshold=30", BROKER)  # of 100
    assert done.returncode == 0 and "Overall exposure level" in done.stdout, done.stdout + done.stderr
    assert f"process {started.shows(JOB, 'MainPID')[0]} of root" in started.broker("--list")


def test_killed_with_all_of_its_cgroup_it_is_started_again_and_restores(started):
    before = started.shows(BROKER, "MainPID", "NRestarts")
    started.systemctl("kill", "--signal=SIGKILL", "--kill-who=all", BROKER)
    assert freed(started), started.log("broker")
    assert started.comes_to(lambda: started.do("systemctl", "is-active", BROKER).stdout == "active\n")
    pid, restarts = started.shows(BROKER, "MainPID", "NRestarts")
    assert pid != before[0] and int(restarts) == int(before[1]) + 1
    said = "ended without restoring its clocks; reset"  # told once they are free
    assert started.comes_to(lambda: said in started.log("broker")), started.log("broker")
    assert started.comes_to(lambda: "the broker has ended this run's lease" in started.log(JOB)), started.log(JOB)


def test_a_restart_frees_the_clocks_and_the_next_job_gets_the_gpu(started):
    started.systemctl("restart", BROKER)
    assert started.boards.locks == ("none", "none"), "before the old one's end, for which systemd waits"
    started.systemctl("restart", JOB)
    assert started.comes_to(lambda: started.boards.locks == ("345-900", "2201-2201"))


def test_a_job_that_is_killed_with_all_of_its_cgroup_leaves_no_clock_locked(started):
    started.systemctl("kill", "--signal=SIGKILL", "--kill-who=all", JOB)
    assert freed(started)
    assert started.comes_to(lambda: ": free" in started.broker("--list"))


def test_root_evicts_a_job_and_stopping_it_leaves_nothing(started):
    assert "taken from process" in started.broker("--evict", started.boards.uuid)
    assert started.boards.locks == ("none", "none") and ": free" in started.broker("--list")
    (cgroup,) = started.shows(BROKER, "ControlGroup")
    started.systemctl("stop", BROKER)
    assert started.do("test", "-e", "/run/kernel-dvfs/broker.sock").returncode == 1
    assert started.do("cat", f"/sys/fs/cgroup{cgroup}/cgroup.procs").stdout == ""
    assert started.shows(BROKER, "Result") == ["success"]
