"""Clocks through our own broker, a daemon that root runs: the client's side. `gpu.broker` is the other.

A request and its answer are a line of JSON each. The connection is the lease: when it ends, however the client died,
the broker frees the GPU's clocks.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kernel_dvfs.gpu.nvml import lease
from kernel_dvfs.gpu.nvml.library import NO_PERMISSION, TIMEOUT, UNKNOWN, patience_s, refused
from kernel_dvfs.gpu.setters.setter import PRIVATE, Capabilities, Domain, Setter

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board

FOLDER = "/run/kernel-dvfs"
# names another folder of the socket: a container mounts the host's somewhere
VARIABLE = "KERNEL_DVFS_BROKER_DIR"
_CLOSED = -1  # no connection
_LOG = "its log has more (journalctl -u kernel-dvfs-broker)"
_REMEDY = "is the broker running (systemctl status kernel-dvfs-broker)? In a container, mount its folder"


def socket_path(folder: str = "") -> str:
    """Where the broker listens."""
    return os.path.join(folder or os.environ.get(VARIABLE) or FOLDER, "broker.sock")


class Broker(Setter):
    """The GPU of `board` through the broker of this machine. Raises NvmlError: Denied where it does not let this user,
    and where another client has the GPU."""

    name = "broker"
    capabilities = Capabilities(
        needs="the broker (kernel-dvfs broker), which names you", survives=True, heeds_after=False
    )

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._connection = _CLOSED
        self._take()

    def _take(self) -> None:
        # a bare descriptor, since a forked child must close it, and an object would close it there once more
        self._connection = _connected(self.uuid).detach()
        PRIVATE.add(self._connection)
        try:
            self._ask({"do": "take", "uuid": self.uuid, "lease": lease.identity(lease.path_of(self.uuid))})
        except BaseException:
            self.close()
            raise

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._ask({"do": "lock", "domain": domain, "mhz": [lowest_mhz, highest_mhz]})

    def _reset(self, domain: Domain) -> None:
        self._ask({"do": "reset", "domain": domain})

    def _ask(self, request: dict[str, Any]) -> None:
        if self._connection not in PRIVATE:
            if request["do"] != "reset":
                why = "an earlier request was left without its answer, upon which the connection was ended"
                raise refused(_call(request), self.uuid, why, _LOG)
            self._take()  # waits until the broker has restored what the ended connection had locked
        connection = socket.socket(fileno=self._connection)
        try:
            connection.settimeout(patience_s())
            answer = _answer(connection, self.uuid, request)
        except BaseException:
            # an answer that comes later would be taken for that of the next request
            connection.detach()
            self.close()
            raise
        connection.detach()
        _check(answer, self.uuid, request)

    def close(self) -> None:
        """End the connection, upon which the broker frees the clocks."""
        if self._connection in PRIVATE:
            PRIVATE.discard(self._connection)
            os.close(self._connection)
            self._connection = _CLOSED


def hello(uuid: str = "this machine") -> str:
    """Whom the broker lets set clocks, in words. Raises NvmlError where there is none, or it does not let this user."""
    connection = _connected(uuid)
    with connection:
        request = {"do": "hello"}
        answer = _answer(connection, uuid, request)
    _check(answer, uuid, request)
    return str(answer["allowed"])


def _connected(uuid: str) -> socket.socket:
    at = socket_path()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(patience_s())
    try:
        connection.connect(at)
    except OSError as error:
        connection.close()
        code = NO_PERMISSION if isinstance(error, PermissionError) else UNKNOWN
        raise refused(f"broker at {at}", uuid, error.strerror or str(error), _REMEDY, code) from None
    return connection


def _call(request: dict[str, Any]) -> str:
    return f"broker: {request['do']} {request.get('domain', '')}".strip()


def _answer(connection: socket.socket, uuid: str, request: dict[str, Any]) -> dict[str, Any]:
    """The broker's answer, a refusal too. Raises NvmlError where none comes, or none that is understood."""
    call = _call(request)
    data = b""
    try:
        with suppress(BrokenPipeError):  # one that has been refused at once has its answer to read
            connection.sendall(json.dumps(request).encode() + b"\n")
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
