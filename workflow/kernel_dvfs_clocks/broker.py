"""A daemon that root runs: where it runs, it alone says whose a GPU is, and sets clocks for named users.

One process waits at the socket and at all connections that have no GPU, which cost nothing but a descriptor each. It
never has NVML open, and never opens a file that users can write. What could make it wait is done by its children:
looking at what a client hands over, closing it, and serving the one client that has a GPU: a holder, to which the
client's connection is handed, with a lease that no user can reach, in a folder of root's.

Who a client is, the kernel says (SO_PEERCRED, unix(7)). That it may use a GPU, it shows: it hands over an open
descriptor of the GPU's device node (SCM_RIGHTS), which a job of a batch system or a container can open for its own GPUs
alone. The clocks come back when the connection ends, or the process that opened it is gone, also where a batch system
or a container runtime has killed everything that the client had started.

NVML cannot tell which clocks were locked before. So what to leave behind is said once, by who starts the broker
(`after`); and what is about to be changed is on disk before it is, so that a broker which was killed itself restores
it when it starts again. The client's side is setters.broker.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import selectors
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

from kernel_dvfs_clocks.broker_unit import check_loaded, check_owned_by_root
from kernel_dvfs_clocks.clocks import check_after
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_clocks.guard import start_holder
from kernel_dvfs_clocks.holder import MOST_FILES, Client, Lines, close, drop, log
from kernel_dvfs_clocks.nvml import lease
from kernel_dvfs_clocks.nvml.board import Board, by_index
from kernel_dvfs_clocks.nvml.facts import facts
from kernel_dvfs_clocks.nvml.library import INVALID, NO_PERMISSION, Library, NvmlError
from kernel_dvfs_clocks.setters.broker import device_node, socket_path
from kernel_dvfs_clocks.setters.setter import may_set_clocks

After = Mapping[str, "list[int] | None"]
_LOOK_EVERY_S = 1.0
_LONGEST = 1 << 12  # bytes of what shows a GPU's device
_FIRST_S = 10.0  # for a client to get a GPU, or to go again
_MORE = 4  # connections without a GPU that a user may have, beside one for each board
_MODES = ("lock", "auto-only", "external", "dry-run")  # of guard.Guard


class BrokerServer:
    """The process that waits. allow: user ids. after: clocks to leave behind instead of none, see
    setter.leave_as_configured. longest_s: for which a client may have a GPU. power: ids of those among the users who
    may set a power limit, too."""

    def __init__(self, allow: frozenset[int], after: After, longest_s: float, power: frozenset[int]) -> None:
        self._allow, self._after, self._longest_s, self._power = allow, after, longest_s, power
        self._nodes: dict[str, tuple[str, int]] = {}  # by UUID, the name of its device node and the device's number
        self._waiting: set[_Waiting] = set()  # clients that have no GPU
        self._holders: dict[str, _Lessee] = {}  # by UUID, who has one
        self._left: set[str] = set()  # UUIDs of those to restore, for which no process was to be had yet
        self._selector = selectors.DefaultSelector()
        # to the process that closes what clients hand over, and its end: whichever process that is now
        self._closing, self._to_close = socket.socketpair()
        self._closing.setblocking(False)
        self._closer = 0  # its id; 0 while there is none
        self._folder = ""  # of leases, where users cannot write

    def serve(self) -> NoReturn:
        """Set clocks until a signal ends this process; then all clocks are restored. Raises InputError where it cannot
        listen, or where root runs what others can change."""
        if os.geteuid() == 0:
            check_owned_by_root()
        at = socket_path()
        self._folder = os.path.dirname(at)
        listener = _listening(at)
        _when_told_to_end(_leave)
        signal.signal(signal.SIGALRM, lambda *_: None)  # of not_for_long
        try:
            self._nodes = _boards(self._after, listener)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(at)
            raise
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        self._start_closing()
        for uuid in lease.left_behind(self._folder):
            if uuid in self._nodes:
                self._restore(uuid)
        may, why = may_set_clocks()
        if not may:
            log(f"warning: {why}, so the driver will refuse")
        _tell_systemd()
        log(f"listens at {at} for users {', '.join(map(str, sorted(self._allow)))}")
        try:
            while True:
                come = [key.data for key, _ in self._selector.select(_LOOK_EVERY_S)]
                for task in [*self._due(), *come]:
                    try:
                        task()
                    except OSError as error:
                        # no file or process is to be had, or a client is gone: one client's loss, not everybody's
                        log(f"error: a client was not served, or what one left not restored yet: {error.strerror}")
                        time.sleep(_LOOK_EVERY_S)
                for client in [waiting for waiting in self._waiting if time.monotonic() > waiting.until_s]:
                    self._let_go(client)
        finally:
            _when_told_to_end(signal.SIG_IGN)  # nothing comes before the clocks, nor between
            signal.setitimer(signal.ITIMER_REAL, 0)  # the end may have come as not_for_long began
            pids = [lessee.pid for lessee in self._holders.values()]
            for pid in pids:
                os.kill(pid, signal.SIGTERM)  # not waited for yet, so it is there
            for pid in pids:
                os.waitpid(pid, 0)
            with contextlib.suppress(OSError):  # someone may have deleted it
                os.unlink(at)

    # --- clients without a GPU ----------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        client = _Waiting(listener.accept()[0], self._drop)
        # strangers get no further, and nobody can hold descriptors without end
        if client.uid not in self._allow:
            client.refuse(f"user {client.user} is not among those whom it sets clocks for")
        elif sum(other.uid == client.uid for other in self._waiting) >= len(self._nodes) + _MORE:
            client.refuse(f"user {client.user} has {len(self._nodes) + _MORE} connections without a GPU already")
        else:
            self._waiting.add(client)
            self._selector.register(client.connection, selectors.EVENT_READ, lambda: self._hear(client))
            return
        self._let_go(client)

    def _let_go(self, client: _Waiting) -> None:
        """A client that waits no more."""
        if client.prover:
            os.kill(client.prover, signal.SIGKILL)  # what it was handed may never answer
            return  # its end ends the client
        self._waiting.discard(client)
        with contextlib.suppress(KeyError):
            self._selector.unregister(client.connection)
        with contextlib.suppress(OSError):
            client.connection.shutdown(socket.SHUT_RDWR)  # it learns of it now, whenever that is closed
        self._drop(client.connection.detach())

    def _hear(self, client: _Waiting) -> None:
        if client.wants:
            # what it hands over is looked at elsewhere: a file of a file system of the user's own may never answer
            self._selector.unregister(client.connection)
            device = self._nodes[client.wants["uuid"]][1]
            proves = partial(_prove, client.connection, device)
            client.prover = self._started(proves, client, partial(self._proved, client))
            return
        request = client.request()
        if request is None:
            return  # not whole yet
        do, uuid = request.get("do"), str(request.get("uuid"))
        takes = do == "take" and request.get("mode") in _MODES and isinstance(request.get("own"), bool)
        if do == "hello":
            client.tell(allowed=client.user)
        elif do == "list":
            client.tell(boards=list(map(self._entry, self._nodes)))
        elif do != "evict" and not takes:
            self._let_go(client)
        elif do == "evict" and client.uid not in (0, os.geteuid()):
            client.refuse("only root takes a GPU from whom it is given to")
        elif uuid not in self._nodes:
            client.refuse("there is no such GPU here, or it has no device node", INVALID)
        elif self._is_possible(client, request):
            # also of root, who may be that of a container, and takes no GPU but its own
            client.wants = request
            client.tell(node=self._nodes[uuid][0])

    def _is_possible(self, client: _Waiting, request: dict[str, Any]) -> bool:
        """Return whether the GPU is free for who takes it, or in the hands from which it is to be taken; else the
        client is told. Asked again once it has shown its device: others may have come meanwhile."""
        holder = self._holders.get(request["uuid"])
        if request["do"] == "take" and holder:
            client.tell(error=holder.who, code=NO_PERMISSION, held=True, lease=holder.lease)
        elif request["do"] == "evict" and not holder:
            client.refuse("nobody has it", INVALID)
        elif request["do"] == "evict" and holder and holder.lease != request.get("lease"):
            client.refuse(f"that lease is over; {holder.who} has it now", INVALID)
        else:
            return True
        return False

    def _proved(self, client: _Waiting, code: int) -> None:
        """A client has shown that it may use the GPU that it wants, or has not."""
        client.prover, request = 0, client.wants
        client.wants = {}
        uuid = request["uuid"]
        if code or client not in self._waiting or time.monotonic() > client.until_s:
            client.refuse("what you handed over is no open descriptor of this GPU's device node")
            self._let_go(client)
        elif not self._is_possible(client, request):
            self._selector.register(client.connection, selectors.EVENT_READ, lambda: self._hear(client))
        elif request["do"] == "evict":
            holder = self._holders[uuid]
            log(f"GPU {uuid}: taken from {holder.who} by {client.who}")
            os.kill(holder.pid, signal.SIGTERM)
            client.tell(evicted=holder.who)
            self._let_go(client)
        else:
            self._waiting.discard(client)
            try:
                self._serve(client, request)
            finally:
                close(client.connection.detach())

    # --- GPUs ---------------------------------------------------------------------------------------------------------

    def _serve(self, client: _Waiting, request: dict[str, Any]) -> None:
        """Hand a client to a holder, which serves it until it is gone."""
        served = Client(client.who, client.uid in self._power, self._longest_s)
        # a process of a container whose ids are not known here is watched by its connection alone
        owner = 0 if request["own"] else client.pid
        self._hold(request["uuid"], client.connection, served, mode=request["mode"], owner=owner)

    def _restore(self, uuid: str) -> None:
        """Have a holder restore what a process that was killed has left, and go."""
        self._left.add(uuid)
        ours, nobodys = socket.socketpair()
        ours.close()
        with nobodys:
            self._hold(uuid, nobodys, None)

    def _hold(self, uuid: str, connection: socket.socket, client: Client | None, **how: Any) -> None:
        files = [connection.fileno(), self._closing.fileno()]
        arguments = {"uuid": uuid, "after": self._after, "at": self._folder, "client": client, "files": files}
        # no end of the broker comes between a holder and its being known; the holder inherits this (holder.main)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            holder = start_holder(arguments | how, files, "broker")
            self._watch(holder.pid, lambda: self._over(uuid, holder, client is not None))
            who = client.who if client else "what a process that was killed has left is being restored"
            since_utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._holders[uuid] = _Lessee(who, holder.pid, secrets.token_hex(4), since_utc)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        self._left.discard(uuid)  # whoever has it restores it, or at the latest it is his end that does

    def _over(self, uuid: str, holder: subprocess.Popen[bytes], had_client: bool) -> None:
        """Nobody has a GPU any more. Its lease is left where who served the client was killed, where nobody restores
        it."""
        holder.wait()
        del self._holders[uuid]
        if had_client and os.path.lexists(lease.path_of(uuid, self._folder)):
            self._restore(uuid)

    def _entry(self, uuid: str) -> dict[str, str | None]:
        holder = self._holders.get(uuid)
        who, _, name, since_utc = holder or (None, 0, None, None)
        left = None if holder else lease.requested(uuid, self._folder)
        return {"uuid": uuid, "holder": who, "lease": name, "since_utc": since_utc, "left": left}

    # --- children -----------------------------------------------------------------------------------------------------

    def _due(self) -> list[Callable[[], None]]:
        """Return what starts the processes that there must be and are not."""
        closing = [] if self._closer else [self._start_closing]
        return [*closing, *(partial(self._restore, uuid) for uuid in self._left)]

    def _start_closing(self) -> None:
        def life() -> None:
            self._closing.close()
            _close_what_comes(self._to_close)

        def over(_: int) -> None:
            self._closer = 0  # and the next look starts another, or tries to

        self._closer = self._started(life, None, over)

    def _drop(self, *files: int) -> None:
        drop(self._closing, *files)

    def _started(self, life: Callable[[], None], of_client: _Waiting | None, then: Callable[[int], object]) -> int:
        """Start a child process that does `life` and ends, upon which `then` is called with its exit code, and return
        its id. Of what is open here it keeps its client alone."""
        pid = os.fork()
        if not pid:
            with _ended_by():
                for key in list(self._selector.get_map().values()):
                    if of_client is None or key.fileobj is not of_client.connection:
                        close(key.fd)
                self._selector.close()
                for other in self._waiting - {of_client}:
                    close(other.connection.fileno())  # of one that is being looked at
                life()
        self._watch(pid, lambda: then(os.waitpid(pid, 0)[1]))
        return pid

    def _watch(self, pid: int, then: Callable[[], object]) -> None:
        """Have `then` called, to wait for a child process, once it has ended."""
        try:
            watched = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # of whose end nobody would hear
            os.waitpid(pid, 0)
            raise

        def ended() -> None:
            self._selector.unregister(watched)
            os.close(watched)
            then()

        self._selector.register(watched, selectors.EVENT_READ, ended)


class _Lessee(NamedTuple):
    """Who has a GPU."""

    who: str  # in words
    pid: int  # of the process that serves him
    lease: str  # its name, which no other has
    since_utc: str


class _Waiting(Lines):
    """A client that has no GPU. drop: see Lines."""

    def __init__(self, connection: socket.socket, drop: Callable[..., None]) -> None:
        super().__init__(connection, drop)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid, self.uid, _ = struct.unpack("3i", credentials)
        self.user = lease.user_name(self.uid)
        self.who = f"process {self.pid} of {self.user}"
        self.until_s = time.monotonic() + _FIRST_S
        self.wants: dict[str, Any] = {}  # its request for a GPU, while it has to show that it may use it
        self.prover = 0  # the process that looks at what it shows

    def refuse(self, why: str, code: int = NO_PERMISSION) -> None:
        """Say no."""
        self.tell(error=why, code=code)


def _boards(after: After, listener: socket.socket) -> dict[str, tuple[str, int]]:
    """Return {UUID: (name of its device node, number of its device)} of each GPU that has a node. Raises SystemExit
    where a GPU here cannot be left as `after` says; the child has said why.

    In a process of its own: a driver that hangs ends the process.
    """
    nvml = Library()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        with _ended_by():
            listener.close()
            nodes = {}
            with nvml:
                if os.geteuid() == 0:
                    check_loaded()
                for index, uuid in by_index(nvml).items():
                    try:
                        if isinstance(uuid, NvmlError):
                            raise uuid
                        board = Board(nvml, uuid)
                        if any(after.values()):
                            check_after(facts(nvml, board)["clocks"], dict(after), "--after")
                        node = f"nvidia{board.minor()}"
                        status = os.stat(device_node(node))
                    except FileNotFoundError:
                        status = None
                    except NvmlError as error:  # one that is lost keeps nobody from the others
                        log(f"warning: GPU {index} does not answer, so nobody gets it: {error}")
                        continue
                    if status and stat.S_ISCHR(status.st_mode):
                        nodes[uuid] = node, status.st_rdev
                    else:
                        log(f"warning: GPU {uuid} has no device node {device_node(node)}, so nobody gets it")
            os.write(write_end, json.dumps(nodes).encode())
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        answer = file.read()
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(2)
    return {uuid: (node, device) for uuid, (node, device) in json.loads(answer).items()}


def _listening(at: str) -> socket.socket:
    folder = os.path.dirname(at)
    try:
        os.makedirs(folder, 0o755, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise InputError(f"{folder}: must be a folder that only user {os.geteuid()} can write to")
        if os.path.lexists(at):
            with contextlib.suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as other:
                other.connect(at)
                raise InputError(f"{at}: another broker listens there")
            os.unlink(at)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(at)
        os.chmod(at, 0o666)  # whoever connects is known by the kernel
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        raise InputError(f"broker: {at}: {error.strerror}; it must run as root") from None
    return listener


def _tell_systemd() -> None:
    """Say that clients are served from now on (sd_notify(3)): whoever has it start this, waits for that."""
    if at := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier, contextlib.suppress(OSError):
            notifier.sendto(b"READY=1", at.replace("@", "\0", 1) if at.startswith("@") else at)


def _when_told_to_end(then: Callable[..., object] | signal.Handlers) -> None:
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, then)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


@contextlib.contextmanager
def _ended_by() -> Iterator[None]:
    """End the process with this context, which is a child's life; exit code 0 for a good end."""
    code = 1
    try:
        yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except (InputError, ExceptionGroup) as error:
        for line in lines(error):
            log(f"error: {line}")
    except Exception as error:
        log(f"error: {type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _close_what_comes(end: socket.socket) -> None:
    """Close all files that are handed over, until nobody is left who might hand over more."""
    _when_told_to_end(signal.SIG_IGN)  # as by systemd, which tells all processes: others restore clocks meanwhile
    while True:
        part, files, _, _ = socket.recv_fds(end, 1, MOST_FILES)
        for file in files:
            close(file)
        if not part:
            return


def _prove(connection: socket.socket, device: int) -> None:
    """Exit code 0 where a client hands over an open descriptor of a device."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, _LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
    status = os.fstat(files[0]) if files else None
    # a descriptor that was only found, not opened (O_PATH), shows nothing
    may = status and stat.S_ISCHR(status.st_mode) and status.st_rdev == device
    if may and fcntl.fcntl(files[0], fcntl.F_GETFL) & (os.O_PATH | os.O_ACCMODE) == os.O_RDWR:
        return
    os._exit(1)
