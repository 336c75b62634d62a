"""A daemon that root runs and that sets GPU clocks for named users: the safe way on a machine that people share.

Each client is a process here of its own, which takes the GPU under a guard of its own (gpu.guard): with a lease
and a janitor that no user can reach, in a folder of root's. It looks at the client from outside of its job: the clocks
come back when the connection ends or the process that opened it is gone, also where a batch system or a container
runtime has killed everything that the client had started. Which clients are let in is decided by the credentials that
the kernel knows of them (SO_PEERCRED, unix(7)), not by anything that they say.

NVML cannot tell which clocks were locked before. So what to leave behind is said once, by who starts the broker
(`after`); and what is about to be changed is on disk before it is, so that a broker which was killed itself restores
it when it starts again. The client's side is gpu.setters.broker.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import select
import shlex
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from kernel_dvfs import package
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.files import is_roots_own
from kernel_dvfs.gpu.clocks import check_after
from kernel_dvfs.gpu.guard import Guard
from kernel_dvfs.gpu.nvml import lease
from kernel_dvfs.gpu.nvml.board import Board, uuids
from kernel_dvfs.gpu.nvml.facts import facts
from kernel_dvfs.gpu.nvml.library import LOST, NO_PERMISSION, UNKNOWN, Library, NvmlError
from kernel_dvfs.gpu.setters.broker import socket_path
from kernel_dvfs.gpu.setters.setter import NotRestored, leave_as_configured, may_set_clocks

After = Mapping[str, "list[int] | None"]
_LOOK_EVERY_S = 1.0
_LONGEST = 1 << 12  # bytes of a request
_PATIENCE_S = 3.0  # with who is just about to give a GPU back
_MOST = 64  # clients at a time
_FIRST_S = 10.0  # for a client to say what it wants: until then it costs a process and has no GPU
_INVALID = 2  # NVML's code for an argument that is not possible


def users(text: str) -> frozenset[int]:
    """The user ids of `alice,1001,%students`: names, numbers, and groups with all their members; root always.

    Raises InputError for one that this machine does not know.
    """
    found = {0}
    for word in filter(None, text.split(",")):
        try:
            if word.startswith("%"):
                group = grp.getgrnam(word[1:])
                found |= {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
                found |= {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group.gr_gid}
            else:
                found.add(int(word) if word.isdecimal() and len(word) <= 10 else pwd.getpwnam(word).pw_uid)
        except KeyError:
            raise InputError(f"--allow {word}: no such user or group here") from None
    return frozenset(found)


def unit(allow: str, after: str) -> str:
    """The systemd unit of a broker with these options, started by this Python from where this library lies now.

    Raises InputError where others than root could change that.
    """
    check_owned_by_root()
    # -P: nothing is run from the folder that it happens to start in
    words = [sys.executable, "-P", "-m", "kernel_dvfs", "broker", "--allow", allow]
    words += ["--after", after] if after else []
    named = os.environ.get(lease.VARIABLE)
    return "\n".join(
        [
            "[Unit]",
            "Description=kernel-dvfs broker: GPU clocks for named users",
            "After=nvidia-persistenced.service",
            "",
            "[Service]",
            f"Environment={_quoted('PYTHONPATH=' + package.FOLDER)}",
            *([f"Environment={_quoted(f'{lease.VARIABLE}={named}')}"] if named else []),
            f"ExecStart={shlex.join(words).replace('%', '%%')}",
            "RuntimeDirectory=kernel-dvfs",
            "RuntimeDirectoryPreserve=yes",
            "Restart=on-failure",
            "CapabilityBoundingSet=CAP_SYS_ADMIN",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            f"ReadWritePaths={_quoted('-' + lease.folder())}",
            "ProtectHome=read-only",
            "PrivateNetwork=yes",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
    )


def _quoted(word: str) -> str:
    """A word as systemd reads it: in quotes, with its own escapes (systemd.syntax(7), systemd.unit(5))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def check_owned_by_root() -> None:
    """Raise InputError where root would run code that other users can change."""
    for path in _run_by_root():
        if not is_roots_own(path):
            raise InputError(
                f"{path}: others than root can change it, and the broker runs as root; install kernel-dvfs where only "
                "root may write (sudo python3 -m venv /opt/kernel-dvfs, sudo /opt/kernel-dvfs/bin/pip install ...)"
            )


def _run_by_root() -> Iterator[str]:
    """Paths that decide what code this Python runs: its own, where it looks for modules, and each file of ours."""
    for path in (sys.executable, sys.prefix, sys.base_prefix, *sys.path):
        path = os.path.abspath(path)
        while not os.path.lexists(path):  # what is not there, who may make it?
            path = os.path.dirname(path)
        yield path
    for folder, _, names in os.walk(os.path.join(package.FOLDER, "kernel_dvfs")):
        yield folder
        yield from (os.path.join(folder, name) for name in names)


def serve(allow: frozenset[int], after: After) -> NoReturn:
    """Set clocks for the users in `allow` until a signal ends this process; then all clocks are restored.

    after: clocks to leave behind instead of none, see setter.leave_as_configured. Raises InputError where it cannot
    listen, or where root runs what others can change.
    """
    if os.geteuid() == 0:
        check_owned_by_root()
    at = socket_path()
    listener = _listening(at)
    # leases of the broker's own, where users cannot write; everybody's are taken too (_shared)
    leases = lease.folder()
    os.environ[lease.VARIABLE] = os.path.dirname(at)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, _leave)
    # in a process of its own: whoever has had NVML open must not fork a guard
    if os.waitpid(_forked(partial(_check_after, after), listener), 0)[1]:
        with contextlib.suppress(OSError):
            os.unlink(at)
        raise SystemExit(2)
    children: set[int] = set()
    children |= {_forked(partial(_sweep, uuid, after, leases), listener) for uuid in lease.left_behind()}
    may, why = may_set_clocks()
    if not may:
        _say(f"warning: {why}, so the driver will refuse")
    _say(f"listens at {at} for users {', '.join(map(str, sorted(allow)))}")
    try:
        while True:
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
            if not select.select([listener], [], [], _LOOK_EVERY_S)[0]:
                continue
            try:
                connection, _ = listener.accept()
                with connection:
                    client = _Client(connection, after, leases)
                    # strangers cost no process, and nobody can start them without end
                    if client.uid not in allow:
                        client.refuse(f"user {_name(client.uid)} is not among those whom it sets clocks for")
                    elif len(children) >= _MOST:
                        client.refuse(f"{_MOST} clients are connected already")
                    else:
                        children.add(_forked(client.serve, listener))
            except OSError as error:
                # no file or process is to be had, or the client is gone: one client's loss, not everybody's
                _say(f"error: a client was not served: {error.strerror}")
                time.sleep(_LOOK_EVERY_S)
    finally:
        # nothing comes before the clocks, nor between
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, signal.SIG_IGN)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # someone may have deleted it
            os.unlink(at)


def _check_after(after: After) -> None:
    """Raises InputError where a GPU here cannot be left like that."""
    with Library() as nvml:
        for uuid in uuids(nvml):
            check_after(facts(nvml, Board(nvml, uuid))["clocks"], dict(after), "--after")


def _listening(at: str) -> socket.socket:
    folder = os.path.dirname(at)
    try:
        os.makedirs(folder, 0o755, exist_ok=True)
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise InputError(f"{folder}: must be a folder that only user {os.geteuid()} can write to")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.lexists(at):
            with contextlib.suppress(ConnectionRefusedError):
                listener.connect(at)
                raise InputError(f"{at}: another broker listens there")
            os.unlink(at)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(at)
        os.chmod(at, 0o666)  # whoever connects is known by the kernel
        listener.listen(16)
    except OSError as error:
        raise InputError(f"broker: {at}: {error.strerror}; it must run as root") from None
    return listener


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def _forked(life: Callable[[], None], *inherited: socket.socket) -> int:
    """The id of a child process that does `life` and ends."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for each in inherited:
            each.close()
        life()
        code = 0
    except SystemExit:
        code = 0
    except (InputError, ExceptionGroup) as error:
        for line in lines(error):
            _say(f"error: {line}")
    except Exception as error:
        _say(f"error: {type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _sweep(uuid: str, after: After, leases: str) -> None:
    """Restore what a broker that was killed has left: at once, but not under a run without the broker that has begun
    since then, and has clocks of its own."""
    left = lease.left_at(uuid)
    client = left.requested.rpartition(", ")[2] if left else ""  # `process 123`, see _Client
    is_told = False
    while True:
        with contextlib.ExitStack() as stack:
            shared = None
            try:
                shared = stack.enter_context(_shared(uuid, leases, None))
            except lease.Held as held:
                if client != f"process {held.pid}":
                    if not is_told:
                        _say(f"what an earlier broker left locked is looked at later: {held}")
                    is_told = True
                    time.sleep(_LOOK_EVERY_S)
                    continue
            try:
                guard = stack.enter_context(Guard(uuid, after, say=_say, through="nvml"))
            except lease.Held:
                return  # by a client of this broker, which restored them first
            _restore_shared(guard, shared, after)
            return


def _restore_shared(guard: Guard, shared: lease.Lease | None, after: After) -> None:
    """Restore what a run without the broker has left, whose lease is held."""
    if shared and shared.stale:
        if not shared.stale.rebooted:
            leave_as_configured(guard.setter, after)
        shared.stale = None


@contextlib.contextmanager
def _shared(uuid: str, folder: str, of_client: object) -> Iterator[lease.Lease | None]:
    """Hold the lease in the folder where all who set clocks without the broker look; None where the client holds it.

    of_client: lease.identity of the client's own, as it says. Raises lease.Held where another process holds it.
    """
    held = lease.Lease(uuid, folder)
    is_clients = bool(of_client) and of_client == lease.identity(held.path)
    try:
        held.take(0.0 if is_clients else _PATIENCE_S)
    except lease.Held:
        if not is_clients:
            raise
        yield None
        return
    except InputError as error:
        # what users put in its place must not keep others from their GPU
        _say(f"warning: those who set clocks without the broker are not told: {error}")
        yield None
        return
    is_left = False
    try:
        yield held
    except NotRestored:
        is_left = True
        raise
    finally:
        if is_left or held.stale:
            held.close()
        else:
            held.release()


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket, after: After, leases: str) -> None:
        self._connection, self._after, self._leases = connection, after, leases
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self._pid, self.uid, _ = struct.unpack("3i", credentials)
        self._unread = b""
        self._watched = [connection.fileno()]

    def serve(self) -> None:
        """Answer until the client is gone."""
        # a process of a container whose ids are not known here is watched by its connection alone
        with contextlib.suppress(OSError, AttributeError):
            self._watched.append(os.pidfd_open(self._pid))
        who = f"{_name(self.uid)}, process {self._pid}"
        request = self._request(_FIRST_S)
        if request.get("do") == "hello":
            self._tell(allowed=_name(self.uid))
        if request.get("do") != "take":
            return
        uuid = str(request.get("uuid"))
        try:
            with contextlib.ExitStack() as stack:
                try:
                    shared = stack.enter_context(_shared(uuid, self._leases, request.get("lease")))
                except lease.Held as held:
                    self.refuse(str(held))
                    return
                guard = stack.enter_context(Guard(uuid, self._after, say=_say, through="nvml"))
                _restore_shared(guard, shared, self._after)
                guard.announce(f"clocks for {who}")
                if shared:
                    shared.note(f"clocks for {who}")
                _say(f"GPU {uuid}: taken by {who}")
                self._tell()
                while request := self._request():
                    self._do(guard, request)
            _say(f"GPU {uuid}: given back by {who}")
        except lease.Held:
            self.refuse(f"another client has it: {_requested(uuid)}")
        except InputError as error:
            self.refuse(str(error), getattr(error, "code", UNKNOWN))
            raise

    def _do(self, guard: Guard, request: dict[str, Any]) -> None:
        domain, mhz = request.get("domain"), request.get("mhz")
        try:
            if request.get("do") == "reset" and domain in ("core", "mem"):
                (guard.reset_core if domain == "core" else guard.reset_mem)()
            elif request.get("do") == "lock" and domain in ("core", "mem") and mhz is not None and _is_range(mhz):
                (guard.lock_core if domain == "core" else guard.lock_mem)(mhz[0], mhz[1])
            else:
                self.refuse("a request that is not understood", _INVALID)
                return
        except NvmlError as error:
            self.refuse(f"{error.call}: NVML code {error.code}", error.code)
            if error.code == LOST:
                raise
            return
        self._tell()

    def _request(self, patience_s: float | None = None) -> dict[str, Any]:
        """The next request; {} where the client is gone, says what is none, or has not ended it in `patience_s`."""
        end_s = None if patience_s is None else time.monotonic() + patience_s
        while b"\n" not in self._unread:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            ready = select.select(self._watched, [], [], left_s)[0]
            if not ready:
                return {}
            try:
                part = self._connection.recv(_LONGEST) if self._connection.fileno() in ready else b""
            except OSError:  # reset by a client that died with answers unread
                part = b""
            if not part or len(self._unread) > _LONGEST:
                return {}
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            request = json.loads(line)
            if isinstance(request, dict):
                return request
        return {}

    def _tell(self, **answer: object) -> None:
        with contextlib.suppress(OSError):  # it may have gone; the next look at it tells
            self._connection.sendall(json.dumps(answer).encode() + b"\n")

    def refuse(self, why: str, code: int = NO_PERMISSION) -> None:
        """Say no."""
        self._tell(error=why, code=code)


def _is_range(mhz: object) -> bool:
    return (
        isinstance(mhz, Sequence)
        and len(mhz) == 2
        and all(type(each) is int and 0 < each < 100_000 for each in mhz)
        and mhz[0] <= mhz[1]
    )


def _requested(uuid: str) -> str:
    try:
        with open(lease.path_of(uuid), encoding="utf-8") as file:
            return lease.parse(file.read())["requested"]
    except (OSError, ValueError, InputError):
        return "one that is just starting"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _say(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} broker: {line}", file=sys.stderr, flush=True)
