"""A Slurm of one node for as long as a test needs it: its own munged, slurmctld and slurmd in a folder of their own.

No systemd, no cgroups, no accounting; the GPUs are device files that exist everywhere. Found through SLURM_CONF, so
that whatever Slurm the machine itself belongs to is left alone.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
# a job that waited for the node may have it at once
_UP = ("idle", "mixed", "allocated")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MinJobAge=300
KillWait=5
SlurmdTimeout=10
ReturnToService=2
GresTypes=gpu
{more}
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} Gres=gpu:fake:2
PartitionName=gpu Nodes={host} MaxTime=INFINITE
PartitionName=cpu Nodes={host} MaxTime=INFINITE
"""
_GPUS = """\
AutoDetect=off
NodeName={host} Name=gpu Type=fake File=/dev/null
NodeName={host} Name=gpu Type=fake File=/dev/zero
"""


def missing() -> str:
    """Why no cluster can be started here; nothing where one can."""
    if os.geteuid():
        return "Slurm's daemons need root"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=_PATH)]
    return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge)" if absent else ""


class Cluster:
    """Started by `start`, gone after `stop`. more: further lines of slurm.conf."""

    def __init__(self, folder: Path, more: str = ""):
        self.folder = folder
        self._host = socket.gethostname().partition(".")[0]
        self._munged = self._slurmctld = self._slurmd = None
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        with open("/proc/meminfo", encoding="ascii") as file:
            memory_mb = int(file.readline().split()[1]) // 1100
        # jobs of a node with one core would wait for each other
        values = {"host": self._host, "folder": folder, "ports": _free_ports(2), "cpus": os.cpu_count()}
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values, memory_mb=memory_mb, more=more))
        (folder / "gres.conf").write_text(_GPUS.format(**values))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)

    def environment(self, **more) -> dict:
        """The environment of a user of this cluster."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
        return clean | {"SLURM_CONF": str(self.folder / "slurm.conf")} | more

    def start(self) -> None:
        words = ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket"]
        words += [f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munge.pid"]
        words += [f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed"]
        self._munged = self._daemon(*words)
        _until(lambda: (self.folder / "munge.socket").exists(), "munged", self.folder)
        self._slurmctld = self._daemon("slurmctld", "-D", "-c")
        self.start_node()

    def start_node(self) -> None:
        self._slurmd = self._daemon("slurmd", "-D", "-c")
        _until(lambda: self.ask("sinfo", "-h", "-p", "gpu", "-o", "%T") in _UP, "the node", self.folder)

    def kill_node(self, told: bool = True) -> None:
        """As if it lost power: the daemon and all that its jobs have started, with SIGKILL. told: the controller, which
        else takes a missing node for down after SlurmdTimeout."""
        killed = []
        for pid in [self._slurmd.pid, *_step_daemons(self.folder)]:
            killed += [pid, *_descendants(pid)]
        # halted first, so that none sees another's end and mends what it left
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
        self._slurmd.wait()
        if told:
            self.ask("scontrol", "update", f"NodeName={self._host}", "State=DOWN", "Reason=lost")

    def ask(self, *words) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(words, env=self.environment(PATH=_PATH), capture_output=True, text=True)
        return done.stdout.strip()

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        end = time.monotonic() + 10
        while self.ask("squeue", "-h") and time.monotonic() < end:
            time.sleep(0.1)
        if self._slurmd and self._slurmd.poll() is None:
            self.kill_node()
        for daemon in (self._slurmctld, self._munged):
            if daemon and daemon.poll() is None:
                daemon.terminate()
                daemon.wait(timeout=20)

    def _daemon(self, *words) -> subprocess.Popen:
        with open(self.folder / "daemons.log", "ab") as log:
            # a session of its own: Ctrl-C is for the test
            return subprocess.Popen(
                words, env=self.environment(PATH=_PATH), stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )


def _until(true, what: str, folder: Path) -> None:
    end = time.monotonic() + 30
    while not true():
        logs = "".join(path.read_text(errors="replace")[-1000:] for path in folder.glob("*.log"))
        assert time.monotonic() < end, f"{what} does not start: {logs}"
        time.sleep(0.05)


def _free_ports(count: int) -> list:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _processes():
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
            yield int(name), text[text.index("(") + 1 : text.rindex(")")], int(text.rpartition(")")[2].split()[1])


def _descendants(pid: int) -> list:
    children = {}
    for each, _, parent in _processes():
        children.setdefault(parent, []).append(each)
    found, look = [], [pid]
    while look:
        new = children.get(look.pop(), [])
        found += new
        look += new
    return found


def _step_daemons(folder: Path) -> list:
    """The slurmstepd of this cluster: they belong to nobody."""
    found = []
    for pid, name, _ in _processes():
        if name != "slurmstepd":
            continue
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if str(folder / "slurm.conf").encode() in file.read():
                found.append(pid)
    return found
