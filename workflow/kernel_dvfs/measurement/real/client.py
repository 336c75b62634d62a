"""The side of a measurement job: asks the measuring process of its GPU for a point, and starts one where there is none.

The measuring process (`server`) listens at a socket: one for each user, GPU and working directory. This module knows
where, and imports nothing of NVML; `allocation`, which does, is imported where Slurm gives the GPU.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_dvfs.lock import passing
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs.measurement.window import is_measured
from kernel_dvfs_clocks.clocks import BASELINE, Pair, label
from kernel_dvfs_clocks.environment import slurm_gpu
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.files import compact_json, parse_json
from kernel_dvfs_clocks.nvml.lease import folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernel_dvfs.measurement.consistency import Comparison
    from kernel_dvfs.measurement.point import Point
    from kernel_dvfs.measurement.visit import Visit, VisitMeasurement
    from kernel_dvfs.measurement.window import RecordDevice

_TRIES = 5
_HOLDER_S = 70.0  # as long as a holder may take to restore, with a driver that hangs
_LOG = "logs/kernel-dvfs-server.log"
# the longest path that an address of a socket can hold, bytes (unix(7))
_LONGEST = 107


def socket_path(uuid: str) -> str:
    """Return where the measuring process of the GPU `uuid` listens, as long as this working directory is the
    process's."""
    name = hashlib.blake2b(os.fsencode(f"{uuid}|{os.getcwd()}"), digest_size=6).hexdigest()
    return os.path.join(folder(), f"kernel-dvfs-{os.getuid()}-{name}.sock")


@contextmanager
def address(path: str) -> Iterator[str]:
    """Return a context that gives a name of the socket at `path` that an address can hold, however long the name of its
    folder is.

    Raises OSError where there is no such folder.
    """
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    opened = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{os.path.basename(path)}"
    finally:
        os.close(opened)


class RemoteBench:
    """A bench (measurement.campaign) whose GPU is in another process. session: its name, see campaign.open_bench.
    device, run, kernel: of the last point."""

    def __init__(self, setup: Setup, path: str, target: MeasurementTarget, session: str = "") -> None:
        self._setup, self._path, self._session = setup, os.path.abspath(path), session
        self._target = target
        self.device: RecordDevice  # nothing before the first point
        self.run: dict[str, Any] = {}
        self.kernel: dict[str, Any] = {}

    def point(self, pair: Pair, campaign: str, repeat: int) -> Point:
        """Have one point measured: see point.measure."""
        request = {"do": "point", "campaign": campaign} | _what(self._path, self._target, pair, repeat, self._session)
        (answer,) = _measured(self._setup, self._path, [request], pair)
        self.device, self.run, self.kernel = answer["device"], answer["run"], answer["kernel"]
        return answer["point"]


class RemoteVisitor:
    """A visitor (measurement.visit) whose GPU is in another process. session: as of RemoteBench. device, run: of the
    last visit."""

    def __init__(self, setup: Setup, path: str, session: str = "") -> None:
        self._setup, self._path, self._session = setup, os.path.abspath(path), session
        self.device: RecordDevice  # nothing before the first visit
        self.run: dict[str, Any] = {}

    def visit(self, visit: Visit) -> VisitMeasurement:
        """Have a visit made: see visit.Visitor."""
        request = {
            "do": "visit",
            "setup": self._path,
            "target": f"visit {visit.session}/{visit.place}",
            "clocks": label(visit.pair).replace("-", ","),
            "number": [visit.session, visit.place],
            "pass_s": visit.pass_s,
            "window_s": visit.window_s,
            "metered": [list(names) for names in visit.metered],
            "session": self._session,
        }
        (answer,) = _measured(self._setup, self._path, [request], visit.pair)
        self.device, self.run = answer["device"], answer["run"]
        visited: VisitMeasurement = answer["visited"]
        return visited


def compare(
    setup: Setup, path: str, pairs: Mapping[MeasurementTarget, Pair], repeats: Sequence[int], session: str
) -> tuple[RecordDevice, list[Comparison]]:
    """Have the clocks of each target compared with auto: see campaign.compare."""
    requests = [
        {"do": "compare"} | _what(os.path.abspath(path), target, pair, repeat, session)
        for target, pair in pairs.items()
        for repeat in repeats
    ]
    answers = _measured(setup, os.path.abspath(path), requests, BASELINE)
    return answers[-1]["device"], [answer["comparison"] for answer in answers]


def _what(path: str, target: MeasurementTarget, pair: Pair, repeat: int, session: str) -> dict[str, Any]:
    return {
        "setup": path,
        "target": f"{target.study}/{target.name}",
        "clocks": label(pair).replace("-", ","),
        "repeat": repeat,
        "session": session,
    }


def _measured(setup: Setup, path: str, requests: list[dict[str, Any]], pair: Pair) -> list[dict[str, Any]]:
    """Return the answer to each request, all of them at the clocks that a batch system sets for `pair`, if one sets
    them."""
    answers: list[dict[str, Any]] = []
    tries = 0
    while len(answers) < len(requests):
        if tries == _TRIES:
            raise InputError(f"the measuring process of GPU {setup.gpu['uuid']} does not stay; see {_LOG}")
        tries += 1
        for answer in _answers(setup, path, requests[len(answers) :], pair):
            _heed(answer)
            if is_measured(answer):
                answers.append(answer)
                tries = 0
    return answers


def _answers(setup: Setup, path: str, requests: list[dict[str, Any]], pair: Pair) -> list[dict[str, Any]]:
    """Return the answers of the measuring process to the first requests or all, or of its start where there was
    none."""
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        return allocation.ask(setup, path, requests, pair) or [allocation.start(setup, path, pair)]
    return [ask(setup.gpu["uuid"], requests[0]) or _start(setup, path)]


def begin(uuid: str) -> None:
    """Note that a run begins which will measure a GPU."""
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        allocation.begin(uuid)


def renew(path: str) -> None:
    """Have what follows measured by another measuring process than the one that may run; raises as `stop`."""
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        _heed(allocation.tell(path, "renew"))
    else:
        stop(path)


def move(path: str) -> None:
    """Have what follows measured with tensors elsewhere in memory, by the measuring process that runs, if one does."""
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        _heed(allocation.tell(path, "move"))
    else:
        _heed(ask(read(path).gpu["uuid"], {"do": "move"}))


def stop(path: str) -> None:
    """End the measuring process of a setup's GPU, if there is one; returns when its clocks are restored.

    Raises InputError where they could not be restored, now or by a process that ended before.
    """
    if slurm_gpu():
        from kernel_dvfs.measurement.real import allocation

        allocation.stop(path)
        return
    # half of what a measurement job would import
    from kernel_dvfs_clocks.setters.broker import left_at

    setup = read(path)
    uuid = setup.gpu["uuid"]
    answer = ask(uuid, {"do": "stop"})
    _heed(answer)
    # clocks that a batch system sets are not restored by us
    left = left_at(uuid, _HOLDER_S) if setup.measurement["clocks"] != "external" else None
    if left:
        raise InputError(
            f"GPU {uuid}: its clocks may still be locked, since {left.owner} ended without restoring them; reset them: "
            f"kernel-dvfs reset --uuid {uuid} (see {_LOG})"
        )


def _heed(answer: dict[str, Any] | None) -> None:
    """Tell the user what the measuring process has to tell. Raises InputError where that is that something went
    wrong."""
    for notice in (answer or {}).get("notices", ()):
        print(notice, file=sys.stderr)
    if answer and "errors" in answer:
        raise InputError("; ".join(answer["errors"]))


def ask(uuid: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of the measuring process of the GPU `uuid`; None where there is no such process.

    Raises InputError where it died while it dealt with the request. A process that was told to stop and died of it has
    no answer either; its lease tells what it left.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            path = socket_path(uuid)
            _check_owner(path)
            with address(path) as short:
                connection.connect(short)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        try:
            connection.sendall(compact_json(request).encode() + b"\n")
            data = _heard(connection)
        except ConnectionError:
            data = b""
    if request["do"] in ("stop", "renew") and not data:
        return None
    try:
        return parse_json(data.decode())
    except ValueError:
        raise InputError(
            f"the measuring process of GPU {uuid} died during {request.get('target', 'its end')}; another process "
            f"restores its clocks; {_LOG} says why, if the driver or a kernel hung; run snakemake again"
        ) from None


def _heard(connection: socket.socket) -> bytes:
    """Return the answer; tell the user at once the lines that come before it."""
    answer = b""
    with connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b'{"say": '):
                print(parse_json(line.decode())["say"], file=sys.stderr, flush=True)
            else:
                answer += line
    return answer


def _check_owner(path: str) -> None:
    """Raise InputError where another user has put a socket at `path`: what listens there could be anything."""
    if os.lstat(path).st_uid != os.getuid():  # a link of his could lead to another program of ours
        raise InputError(f"{path}: is another user's; delete it, or set KERNEL_DVFS_LOCK_DIR")


def _start(setup: Setup, path: str) -> dict[str, Any]:
    """Start the measuring process, unless another job is just doing so; returns once it listens or has failed.

    The answer is empty, or has "errors".
    """
    at = socket_path(setup.gpu["uuid"])
    with passing(f"{at}.lock", "name another folder, on a local disk, that all users share in KERNEL_DVFS_LOCK_DIR"):
        if os.path.exists(at) and _listens(at):
            return {}
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            _become_server(path, write_end)
        os.close(write_end)
        output = b""
        while part := os.read(read_end, 1 << 16):
            output += part
        os.close(read_end)
        os.waitpid(child, 0)
    answer = output.decode().strip()
    if answer == "ok":
        return {}
    return {"errors": answer.splitlines() or [f"the measuring process died at its start; see {_LOG}"]}


def _listens(at: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with address(at) as short:
                connection.connect(short)
        except OSError:
            return False
    return True


def _become_server(path: str, ready: int) -> NoReturn:
    """Turn a forked child into the measuring process, which outlives this job. Does not return."""
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
        words = [sys.executable, "-m", "kernel_dvfs", "measure", "serve", "--gpu", path, "--ready", str(ready)]
        os.execv(sys.executable, words)
    finally:
        os._exit(1)
