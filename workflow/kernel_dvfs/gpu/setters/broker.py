"""The client's side of our own broker, a daemon that root runs; `gpu.broker` is the other.

Where its socket is, it alone says whose a GPU is: every run takes its lease there, whatever sets its clocks. The
connection is the lease. When it ends, however the client died, the broker frees the GPU's clocks. A request and its
answer are a line of JSON each.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.nvml import lease
from kernel_dvfs.gpu.nvml.lease import Held, Lease, Stale
from kernel_dvfs.gpu.nvml.library import NO_PERMISSION, TIMEOUT, UNKNOWN, patience_s, refused
from kernel_dvfs.gpu.setters.setter import PRIVATE, Capabilities, Domain, Setter

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board

FOLDER = "/run/kernel-dvfs"
# names another folder of the socket: a container mounts the host's somewhere
VARIABLE = "KERNEL_DVFS_BROKER_DIR"
# names another folder of the GPUs' device nodes than /dev
DEVICES = "KERNEL_DVFS_DEVICES_DIR"
_CLOSED = -1  # no connection
_LOG = "its log has more (journalctl -u kernel-dvfs-broker)"
_REMEDY = (
    "is the broker running (systemctl status kernel-dvfs-broker)? In a container, mount its folder; where there is no "
    "broker any more, root deletes the socket"
)
_LOOK_EVERY_S = 0.1
# by UUID, the lease that this process holds: what sets clocks asks there
_TAKEN: dict[str, Connection] = {}


def socket_path() -> str:
    """Where the broker listens."""
    return os.path.join(os.environ.get(VARIABLE) or FOLDER, "broker.sock")


def rules_here() -> bool:
    """Whether leases are the broker's: also while it is down, so that nobody slips in meanwhile."""
    return os.path.lexists(socket_path())


def device_node(name: str) -> str:
    """The path of a GPU's device node."""
    return os.path.join(os.environ.get(DEVICES) or "/dev", name)


class Connection:
    """The lease of one GPU at the broker, as nvml.lease.Lease is one without it.

    mode: of gpu.guard.Guard. own: the clocks are set by this process or by another service, so that its janitor may
    still be at work when it has died: the broker looks at the connection alone.
    """

    def __init__(self, uuid: str, mode: str = "lock", own: bool = True) -> None:
        self.uuid, self._mode, self._own = uuid, mode, own
        self.stale: Stale | None = None  # what the broker found and has restored
        self._connection = _CLOSED

    def take(self, patience_s: float = 0.0) -> None:
        """Hold it. Raises Held naming the owner while another has it, NvmlError where the broker does not let us."""
        end_s = time.monotonic() + patience_s
        # a bare descriptor, since a forked child must close it, and an object would close it there once more
        self._connection = _connected(self.uuid, patience_s).detach()
        PRIVATE.add(self._connection)
        try:
            while not self._taken(time.monotonic() >= end_s):
                time.sleep(_LOOK_EVERY_S)
        except BaseException:
            self.close()
            raise
        _TAKEN[self.uuid] = self

    def _taken(self, is_last: bool) -> bool:
        """Whether it is ours, after one try."""
        answer = _proved({"do": "take", "uuid": self.uuid, "mode": self._mode, "own": self._own}, self._said)
        if answer.get("held") and not is_last:
            return False
        if answer.get("held"):
            raise Held(
                f"GPU {self.uuid} is held by {answer['error']}; wait for it or stop it", str(answer.get("lease"))
            )
        _check(answer, self.uuid, {"do": "take"})
        if left := answer.get("left"):
            self.stale = Stale(str(left), False, "")
        return True

    def ask(self, request: dict[str, Any]) -> None:
        """Have the broker do something. Raises NvmlError."""
        if self._connection not in PRIVATE:
            if request["do"] != "reset":
                why = "an earlier request was left without its answer, upon which the connection was ended"
                raise refused(_call(request), self.uuid, why, _LOG)
            try:
                self.take()  # waits until the broker has restored what the ended connection had locked
            except Held:
                return  # it was restored before the next client got it
        _check(self._said(request), self.uuid, request)

    def _said(self, request: dict[str, Any], files: list[int] | None = None) -> dict[str, Any]:
        connection = socket.socket(fileno=self._connection)
        try:
            connection.settimeout(patience_s())
            answer = _answer(connection, self.uuid, request, files)
        except BaseException:
            # an answer that comes later would be taken for that of the next request
            connection.detach()
            self.close()
            raise
        connection.detach()
        return answer

    def write(self, requested: str) -> None:
        """As Lease.write, but nothing is written: the broker knows whom it serves. Raises as `check`."""
        self.check()

    def check(self) -> None:
        """Raise NvmlError where the broker has ended this lease."""
        if self._connection == _CLOSED or select.select([self._connection], [], [], 0)[0]:
            why = "the broker has ended this run's lease: it was evicted, held the GPU too long, or the broker ended"
            raise refused("broker: lease", self.uuid, why, _LOG)

    def note(self, requested: str) -> None:
        """As Lease.note: there is nothing to note."""

    def release(self) -> None:
        """End the connection, upon which the broker frees the clocks."""
        self.close()

    def close(self) -> None:
        """End the connection, upon which the broker frees the clocks."""
        if self._connection != _CLOSED:
            PRIVATE.discard(self._connection)
            os.close(self._connection)
            self._connection = _CLOSED
        if _TAKEN.get(self.uuid) is self:
            del _TAKEN[self.uuid]

    @property
    def file_descriptors(self) -> tuple[int, ...]:
        """What holds it: a process that has inherited it holds it too."""
        return () if self._connection == _CLOSED else (self._connection,)


class Broker(Setter):
    """The GPU of `board` through the lease at the broker, which this process holds."""

    name = "broker"
    capabilities = Capabilities(
        needs="the broker (kernel-dvfs broker), which names you", survives=True, power=True, heeds_after=False
    )

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        if self.uuid not in _TAKEN:
            raise refused("broker: take", self.uuid, "nothing sets clocks through the broker without its lease", _LOG)
        self._lease = _TAKEN[self.uuid]

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._lease.ask({"do": "lock", "domain": domain, "mhz": [lowest_mhz, highest_mhz]})

    def _reset(self, domain: Domain) -> None:
        self._lease.ask({"do": "reset", "domain": domain})

    def limit_power(self, limit_mw: int | None) -> None:
        """Have a power limit in force; None: the one that was there before, which the broker keeps."""
        request = {"do": "reset"} if limit_mw is None else {"do": "limit", "mw": limit_mw}
        self._lease.ask(request | {"domain": "power"})


def lease_of(uuid: str, mode: str = "lock", own: bool = True, at: str = "") -> Lease | Connection:
    """The lease of a GPU where leases are taken here: at the broker where there is one, else a file. mode, own: see
    Connection; not own: through the broker. at: the folder of such files, for the broker itself."""
    return Connection(uuid, mode, own) if not at and (rules_here() or not own) else Lease(uuid, at)


def left_at(uuid: str, patience_s: float = 0.0) -> Stale | None:
    """What was left locked at a GPU; see nvml.lease.left_at. Raises NvmlError where the broker does not answer."""
    if not rules_here():
        return lease.left_at(uuid, patience_s)
    return next((Stale(each["left"], False, "") for each in listed() if each["uuid"] == uuid and each["left"]), None)


def left_behind() -> list[str]:
    """UUIDs of the GPUs at which something may have been left locked."""
    return [each["uuid"] for each in listed() if each["left"]] if rules_here() else lease.left_behind()


def hello() -> str:
    """Whom the broker lets set clocks, in words. Raises NvmlError where there is none, or it does not let this user."""
    return str(_asked({"do": "hello"})["allowed"])


def listed() -> list[dict[str, Any]]:
    """The broker's GPUs: uuid, holder (in words; null: none), lease (the name of his), since_utc, left (what could not
    be restored, or null)."""
    return list(_asked({"do": "list"})["boards"])


def evict(uuid: str, lease: str | None = None) -> str:
    """Have the broker take a GPU back, for root, from whom has it as `lease`; None: from whom has it now. Back when its
    clocks are free. Returns whose it was, in words. Raises NvmlError where that lease is over: the next one is not
    ended in its place."""
    lease = lease or next((each["lease"] for each in listed() if each["uuid"] == uuid), None)
    request = {"do": "evict", "uuid": uuid, "lease": lease}
    with _connected(uuid) as connection:
        answer = _proved(request, partial(_answer, connection, uuid))
    _check(answer, uuid, request)
    who = str(answer["evicted"])
    end_s = time.monotonic() + patience_s()
    while any(each["lease"] == lease for each in listed()):
        if time.monotonic() > end_s:
            raise refused("broker: evict", uuid, f"{who} still has it after {patience_s():g} s", _LOG, TIMEOUT)
        time.sleep(_LOOK_EVERY_S)
    return who


def _proved(request: dict[str, Any], said: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The broker's answer to a request for a GPU, once it was shown that its device can be opened here: who can may use
    it, and a job of a batch system, or a container, has its own alone. said: asks, with files to hand over."""
    answer = said(request)
    if "node" not in answer:
        return answer
    call, uuid, node = _call(request), request["uuid"], str(answer["node"])
    if not re.fullmatch(r"nvidia\d{1,4}", node):
        raise refused(call, uuid, "an answer that is not understood", _REMEDY)
    try:
        opened = os.open(device_node(node), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        why = f"{device_node(node)}: {error.strerror}, and who cannot open a GPU's device cannot set its clocks"
        raise refused(call, uuid, why, "ask for that GPU", NO_PERMISSION) from None
    try:
        return said({"do": "prove"}, [opened])
    finally:
        os.close(opened)


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    uuid = str(request.get("uuid", "this machine"))
    with _connected(uuid) as connection:
        answer = _answer(connection, uuid, request)
    _check(answer, uuid, request)
    return answer


def _connected(uuid: str, retry_s: float = 0.0) -> socket.socket:
    at = socket_path()
    end_s = time.monotonic() + retry_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(patience_s())
        try:
            connection.connect(at)
            return connection
        except OSError as error:
            connection.close()
            # systemd may just be starting it again
            if isinstance(error, ConnectionRefusedError) and time.monotonic() < end_s:
                time.sleep(_LOOK_EVERY_S)
                continue
            code = NO_PERMISSION if isinstance(error, PermissionError) else UNKNOWN
            raise refused(f"broker at {at}", uuid, error.strerror or str(error), _REMEDY, code) from None


def _call(request: dict[str, Any]) -> str:
    return f"broker: {request['do']} {request.get('domain', '')}".strip()


def _answer(
    connection: socket.socket, uuid: str, request: dict[str, Any], files: list[int] | None = None
) -> dict[str, Any]:
    """The broker's answer, a refusal too. Raises NvmlError where none comes, or none that is understood."""
    call = _call(request)
    data = b""
    try:
        with suppress(BrokenPipeError):  # one that has been refused at once has its answer to read
            line = json.dumps(request).encode() + b"\n"
            if files:
                socket.send_fds(connection, [line], files)
            else:
                connection.sendall(line)
        while not data.endswith(b"\n"):
            part = connection.recv(1 << 16)
            if not part:
                raise refused(call, uuid, "the broker has closed the connection", _REMEDY)
            data += part
        answer = json.loads(data)
    except TimeoutError:
        raise refused(call, uuid, f"no answer in {patience_s():g} s", _REMEDY, TIMEOUT) from None
    except OSError as error:
        raise refused(call, uuid, error.strerror or str(error), _REMEDY) from None
    except ValueError:
        raise refused(call, uuid, "an answer that is not understood", _REMEDY) from None
    if not isinstance(answer, dict):
        raise refused(call, uuid, "an answer that is not understood", _REMEDY)
    return answer


def _check(answer: dict[str, Any], uuid: str, request: dict[str, Any]) -> None:
    """Raise NvmlError for an answer that refuses."""
    if "error" in answer:
        raise refused(_call(request), uuid, str(answer["error"]), _LOG, int(answer["code"]))
