"""The side of a measurement job: asks the measuring process of its GPU for a point, and starts one where there is none.

Light, like every measurement job: the C halves of the standard library, nothing of NVML.
"""

import fcntl
import os
import sys
from _socket import AF_UNIX, SOCK_STREAM, socket

from kernel_dvfs.environment import slurm_gpu
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import compact_json, parse_json
from kernel_dvfs.gpu.clocks import label
from kernel_dvfs.measurement.real.address import socket_path
from kernel_dvfs.measurement.setup import read

_TRIES = 5
_LOG = "logs/kernel-dvfs-server.log"


class RemoteBench:
    """A bench (measurement.campaign) whose board is in another process. device, run, kernel: of the last point."""

    def __init__(self, setup, path: str, target):
        self._setup, self._path = setup, os.path.abspath(path)
        self._target = f"{target.study}/{target.name}"
        self.device, self.run, self.kernel = {}, {}, {}

    def point(self, pair, campaign: str, repeat: int) -> dict:
        answer = self._ask({"do": "point", "campaign": campaign} | self._what(pair, repeat), pair)
        self.device, self.run, self.kernel = answer["device"], answer["run"], answer["kernel"]
        return answer["point"]

    def compare(self, pair, repeat: int) -> dict:
        answer = self._ask({"do": "compare"} | self._what(pair, repeat), pair)
        self.device = answer["device"]
        return answer["comparison"]

    def _what(self, pair, repeat: int) -> dict:
        clocks = label(pair).replace("-", ",")
        return {"setup": self._path, "target": self._target, "clocks": clocks, "repeat": repeat}

    def _ask(self, request: dict, pair) -> dict:
        for _ in range(_TRIES):
            answer = self._answer(request, pair)
            for notice in answer.get("notices", ()):
                print(notice, file=sys.stderr)
            if "errors" in answer:
                raise InputError("; ".join(answer["errors"]))
            if "device" in answer:
                return answer
        raise InputError(f"the measuring process of GPU {self._setup.gpu['uuid']} does not stay; see {_LOG}")

    def _answer(self, request: dict, pair) -> dict:
        """Of the measuring process, or of its start where there was none."""
        if slurm_gpu():
            from kernel_dvfs.measurement.real import allocation

            known = allocation.ask(self._setup, self._path, request, pair)
            return known or allocation.start(self._setup, self._path, pair)
        return ask(self._setup.gpu["uuid"], request) or _start(self._setup, self._path)


def stop(path: str) -> None:
    """End the measuring process of a setup's GPU, if there is one; back when its clocks are restored."""
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        allocation.stop(path)
        return
    ask(read(path).gpu["uuid"], {"do": "stop"})


def ask(uuid: str, request: dict):
    """The answer of the GPU's measuring process; None where there is none. Raises InputError where it died over it."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        try:
            _check_owner(socket_path(uuid))
            connection.connect(socket_path(uuid))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        try:
            connection.sendall(compact_json(request).encode() + b"\n")
            data = b""
            while part := connection.recv(1 << 16):
                data += part
        except ConnectionError:
            data = b""
    finally:
        connection.close()
    if request["do"] == "stop":
        return {}
    try:
        return parse_json(data.decode())
    except ValueError:
        raise InputError(
            f"the measuring process of GPU {uuid} was killed during {request['target']}; its clocks are restored, "
            "run snakemake again"
        ) from None


def _check_owner(path: str) -> None:
    """A socket that another user has put there is not asked."""
    if os.stat(path).st_uid != os.getuid():
        raise InputError(f"{path}: is another user's; delete it, or set KERNEL_DVFS_LOCK_DIR")


def _start(setup, path: str) -> dict:
    """Start the measuring process unless somebody else just does; {} or {"errors"} once it listens or has failed."""
    at = socket_path(setup.gpu["uuid"])
    try:
        lock = os.open(f"{at}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"{at}.lock: {error.strerror}; make the folder writable, or name another that all users of this machine "
            "share in KERNEL_DVFS_LOCK_DIR"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(at) and _listens(at):
            return {}
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            _become_server(path, write_end)
        os.close(write_end)
        said = b""
        while part := os.read(read_end, 1 << 16):
            said += part
        os.close(read_end)
        os.waitpid(child, 0)
    finally:
        os.close(lock)
    answer = said.decode().strip()
    if answer == "ok":
        return {}
    return {"errors": answer.splitlines() or [f"the measuring process died at its start; see {_LOG}"]}


def _listens(at: str) -> bool:
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(at)
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _become_server(path: str, ready: int) -> None:
    """In a forked child: a process of its own, which nobody waits for; does not return."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.makedirs(os.path.dirname(_LOG), exist_ok=True)
        log = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(log, 2)
        os.set_inheritable(ready, True)
        words = [sys.executable, "-m", "kernel_dvfs", "serve", "--gpu", path, "--ready", str(ready)]
        os.execv(sys.executable, words)
    finally:
        os._exit(1)
