"""A working directory beside fake boards, and the project's own commands run in it, each in a process of its own."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import fake
import forked
import pytest
import setters
from simulated_load import DEATHS

# one for each way to end: unwound, by a signal that is answered, at once, and with whatever stands beside it
DEATHS_BY_DAY = ("exception", "SIGTERM", "SIGKILL", "SIGKILL to the group")
ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1  # prctl(2)
_PRCTL = ctypes.CDLL(None).prctl


def _end_with_parent() -> None:
    """In a child: a run of tests that is killed leaves none behind."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _listens(path: Path) -> bool:
    """Whether somebody takes connections at a socket: it is there a moment before that."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def each_death(by_day=DEATHS_BY_DAY) -> list:
    """Deaths of simulated_load.py for a test: some by day, all by night."""
    return [pytest.param(name, marks=() if name in by_day else pytest.mark.nightly) for name in DEATHS]


class Lab:
    """command(words): a kernel-dvfs command; measure(...): (finished process, record or None)."""

    def __init__(self, boards, folder: Path, config: dict):
        self.boards, self.folder, self.config = boards, folder, config
        self.locks = boards.path.parent / "locks"
        self.locks.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        self.kernels = fake.build_record(boards.path.parent)
        self.more: dict = {}  # environment of every command
        self.daemons: list = []
        self.begun: list = []  # what a test has started, each in a group of its own
        self.under: list = []  # what every command is started by

    def environment(self, **more) -> dict:
        # no broker, until one is offered: this machine's own would answer
        places = {"KERNEL_DVFS_LOCK_DIR": str(self.locks), "KERNEL_DVFS_BROKER_DIR": str(self.locks / "no-broker")}
        own = places | {"KERNEL_DVFS_TEST_LOAD": str(self.kernels)} | self.more
        path = os.pathsep.join([*([more.pop("PYTHONPATH")] if "PYTHONPATH" in more else []), str(ROOT / "workflow")])
        return self.boards.environment(**(own | {"PYTHONPATH": path} | more))

    def python(self, code: str, **environment) -> subprocess.CompletedProcess:
        return self._run("-c", code, (), (), environment)

    def command(self, *words, under=(), **environment) -> subprocess.CompletedProcess:
        return self._run("-m", "kernel_dvfs", words, under, environment)

    def _run(self, how, what, words, under, environment):
        if not (under or self.under or "PYTHONPATH" in environment):
            return forked.run(how, what, words, self.folder, self.environment(**environment), True, 120)
        return subprocess.run(
            [*self.under, *under, sys.executable, how, what, *map(str, words)],
            env=self.environment(**environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def start(self, *words, stdin=None, stdout=subprocess.PIPE, **environment) -> subprocess.Popen:
        """Start a program in a group of its own, as a job is, and return it; `end` kills what a test has left of it."""
        process = subprocess.Popen(
            [str(word) for word in words],
            env=self.environment(**environment),
            cwd=self.folder,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def measure(self, pair="1500,2201", target="forward_gelu", gpu="nvml", environment=None, under=(), **config):
        import yaml

        (self.folder / "config.yaml").write_text(yaml.safe_dump(self.config | config))
        record = self.folder / "r0.json"
        record.unlink(missing_ok=True)
        words = ("measure", "--gpu", gpu, "--target", target, "--clocks", pair, "-o", record)
        done = self.command(*words, under=under, **(environment or {}))
        return done, json.loads(record.read_text()) if record.exists() else None

    def refused(self, *named, **how) -> str:
        """The one line that a measurement is refused with; it holds all of `named`."""
        done, record = self.measure(**how)
        assert done.returncode == 2 and record is None, done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
        assert all(word in errors[0] for word in named), errors[0]
        return errors[0]

    def setup(self) -> str:
        """The setup file of the study that was measured last."""
        code = "from kernel_dvfs.plan.config import load\nfrom kernel_dvfs.plan.study import plan\n"
        code += "print(plan(load('config.yaml') | {'gpu': 'nvml'}, 'r').setup.write())"
        done = self.python(code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def lease(self) -> Path:
        return self.locks / f"kernel-dvfs-{self.boards.uuid}.json"

    def comes_to(self, holds, seconds=60.0) -> bool:
        """Whether `holds()` is true within a while, long enough for a busy machine."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def restored(self, seconds=60.0) -> bool:
        """Whether both locks are reset and the lease is gone within a while."""
        return self.comes_to(lambda: self.boards.locks == ("none", "none") and not self.lease.exists(), seconds)

    def offer(self, way: str, *words: str) -> dict:
        """Have clocks set here by `way` alone, through a stand-in (setters.py): our own processes lack the right.

        words: further ones for the stand-in. Returns what a configuration needs for it.
        """
        self.boards.set(deny=int(way != "nvml"))
        folder = self.boards.path.parent / "offered"
        programs = {"sudo": ("sudo", "nvidia-smi"), "dcgm": ("dcgmi",), "slurm": ("slurmstepd",)}
        setters.install(folder, *programs.get(way, ()))
        self.more |= {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "ZEUSD_SOCK_PATH": str(folder / "zeusd.sock"),
            "KERNEL_DVFS_BROKER_DIR": str(folder / "broker"),
            "KERNEL_DVFS_DEVICES_DIR": str(fake.device_nodes(folder)),
            "KERNEL_DVFS_TEST_SUDOERS": str(folder / "sudoers"),
            "KERNEL_DVFS_TEST_DCGM": str(folder / "groups.json"),
        }
        if way == "sudo":
            if os.getuid() != 0:
                pytest.skip("what sudo runs must be root's own, which only root can make")
            code = "from kernel_dvfs_clocks.setters.tools import sudoers\n"
            (folder / "sudoers").write_text(self.python(f"{code}print(sudoers('root', [{self.boards.uuid!r}]))").stdout)
        if way == "zeusd":
            self.daemon(folder / "zeusd.sock", *setters.program("zeusd"), folder / "zeusd.sock", *words)
        if way == "broker":
            broker = (sys.executable, "-m", "kernel_dvfs", "broker", "--allow", str(os.getuid()), *words)
            self.daemon(folder / "broker/broker.sock", *broker)
        return {"slurm": {"clocks": "external"}, "dcgm": {"through": "dcgm", "lock": "exact"}}.get(
            way, {"through": way}
        )

    def daemon(self, makes: Path, *words) -> subprocess.Popen:
        """Start a process that has the right to set clocks; back when it listens at the socket `makes`."""
        with open(self.boards.path.parent / "daemons.log", "ab") as log:
            process = subprocess.Popen(
                [str(word) for word in words],
                env=self.environment(FAKENVML_ROOT="1"),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self.daemons.append(process)
        assert self.comes_to(lambda: _listens(makes)), (self.boards.path.parent / "daemons.log").read_text()
        return process

    def end(self) -> None:
        """End what a test that failed has left running, then the daemons."""
        for process in self.begun:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        self.end_daemons()

    def end_daemons(self) -> None:
        for process in self.daemons:
            process.terminate()
            process.wait(timeout=30)

    def stop(self) -> None:
        """End the measuring process of the first board."""
        self.stop_at(self.boards.uuid)

    def stop_at(self, uuid: str) -> None:
        """End that of a board."""
        code = "import os, sys\nfrom kernel_dvfs.measurement.real.client import ask\n"
        code += f"ask({uuid!r}, {{'do': 'stop'}})"
        self.python(code)
