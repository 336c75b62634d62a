"""The client's side of our own broker, a daemon that root runs; `kernel_dvfs_clocks.broker` is the other.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml import lease
from kernel_dvfs_clocks.nvml.lease import Held, Lease, Stale
from kernel_dvfs_clocks.nvml.library import NO_PERMISSION, TIMEOUT, UNKNOWN, NvmlError, failure, patience_s, refused
from kernel_dvfs_clocks.setters.setter import Capabilities, Domain, NotRestored, Setter

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board

FOLDER = "/run/kernel-dvfs"
# names another folder of the socket: a container mounts the host's somewhere
VARIABLE = "KERNEL_DVFS_BROKER_DIR"
# names another folder of the GPUs' device nodes than /dev
DEVICES = "KERNEL_DVFS_DEVICES_DIR"
_LONGEST = 1 << 16  # bytes that are read at once
_LOG = "its log has more (journalctl -u kernel-dvfs-broker)"
_REMEDY = (
    "is the broker running (systemctl status kernel-dvfs-broker)? In a container, mount its folder; where there is no "
    "broker any more, root deletes the socket"
)
_OVER = "it was evicted, held the GPU too long, or the broker ended"  # of a lease
_LOOK_EVERY_S = 0.1
# who is at the other end: what its end is called, and the remedy
_GONE = {
    "broker": (f"the broker has closed the connection: {_OVER}", _LOG),
    "holder": (
        "the process that sets its clocks is gone",
        "nothing more is locked; run it again",
    ),
}


def socket_path() -> str:
    """Return where the broker listens."""
    return os.path.join(os.environ.get(VARIABLE) or FOLDER, "broker.sock")


def rules_here() -> bool:
    """Return whether leases are the broker's: also while it is down, so that nobody slips in meanwhile."""
    return os.path.lexists(socket_path())


def device_node(name: str) -> str:
    """Return the path of a GPU's device node."""
    return os.path.join(os.environ.get(DEVICES) or "/dev", name)


class Connection:
    """The client's end of what sets the clocks of a GPU and gives them back when this ends: the broker's process for
    it, or one of its own (holder). A request and its answer are a line of JSON each.

    mode: of guard.Guard. elsewhere: at the broker, that another process than its own sets the clocks, which may still
    restore them when whoever connected has died: it looks at the connection alone. existing: one that is there already,
    with a holder. say: called with each line for the user.
    """

    def __init__(
        self,
        uuid: str,
        mode: str = "lock",
        elsewhere: bool = True,
        existing: socket.socket | None = None,
        say: Callable[[str], object] = print,
    ) -> None:
        self.uuid, self._mode, self._elsewhere, self._say = uuid, mode, elsewhere, say
        self.stale: Stale | None = None  # what the broker found and has restored
        self._socket, self._other = existing, "holder" if existing else "broker"
        self.is_broken = False  # a request was left without its answer, which is not to be taken for the next one's

    def take(self, patience_s: float = 0.0) -> None:
        """Hold the GPU at the broker. Raises Held naming the owner while another has it, NvmlError where the broker
        does not let us."""
        end_s = time.monotonic() + patience_s
        self._socket, self.is_broken = _connected(self.uuid, patience_s), False
        try:
            while not self._taken(time.monotonic() >= end_s):
                time.sleep(_LOOK_EVERY_S)
        except BaseException:
            self.close()
            raise

    def _taken(self, is_last: bool) -> bool:
        """Return whether it is ours, after one try."""
        # what is elsewhere to the broker is the client's own
        request = {"do": "take", "uuid": self.uuid, "mode": self._mode, "own": self._elsewhere}
        answer = _proved(request, self._exchange)
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

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; to none, what a holder says as it begins. Raises what it refuses with:
        InputError, NotRestored; and NvmlError where none comes, upon which nothing more is asked."""
        answer = self._exchange(request)
        _check(answer, self.uuid, request, self._other)
        return answer

    def end(self) -> bool:
        """Have the clocks restored, and wait for that. Returns whether the other end has told so; raises NotRestored
        where it has told that it could not."""
        try:
            self.ask({"do": "leave"})
            return True
        except NvmlError:  # it is gone, or an answer was missed before
            with suppress(OSError):
                while self._socket and self._socket.recv(_LONGEST):
                    pass
            return False
        finally:
            self.close()

    def _exchange(self, request: dict[str, Any], files: list[int] | None = None) -> dict[str, Any]:
        if self._socket is None or self.is_broken:
            why = "an earlier request was left without its answer, upon which the connection was ended"
            raise refused(
                _call(request, self._other),
                self.uuid,
                why,
                "nothing more is locked; run it again",
            )
        try:
            answer = _answer(self._socket, self.uuid, request, files, self._other)
            for line in answer.pop("say", ()):
                self._say(line)
            return answer
        except BaseException:
            self.is_broken = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)  # the other end restores the clocks now
            raise

    def write(self, requested: str) -> None:
        """As Lease.write, but nothing is written: the broker knows whom it serves. Raises as `check`."""
        self.check()

    def check(self) -> None:
        """Raise NvmlError where the broker has ended this lease."""
        if self._socket is None or _is_readable(self._socket):
            raise refused("broker: lease", self.uuid, f"the broker has ended this run's lease: {_OVER}", _LOG)

    def note(self, requested: str) -> None:
        """As Lease.note: there is nothing to note."""

    def release(self) -> None:
        """End the connection, upon which the other end frees the clocks."""
        self.close()

    def close(self) -> None:
        """End the connection, upon which the other end frees the clocks."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def fileno(self) -> int:
        """Return its file: a process that has inherited it holds the GPU too."""
        assert self._socket
        return self._socket.fileno()


class Broker(Setter):
    """The GPU of `board` through `held`, its lease at the broker."""

    name = "broker"
    capabilities = Capabilities(needs="the broker (kernel-dvfs broker), which names you", survives=True, power=True)

    def __init__(self, board: Board, held: Connection) -> None:
        super().__init__(board)
        self._held = held

    def _lock(self, domain: Domain, lowest_mhz: int, highest_mhz: int) -> None:
        self._held.ask({"do": "lock", "domain": domain, "mhz": [lowest_mhz, highest_mhz]})

    def _reset(self, domain: Domain) -> None:
        self._held.ask({"do": "reset", "domain": domain})


def lease_of(uuid: str, elsewhere: bool = True) -> Lease | Connection:
    """Return the lease of a GPU where leases are taken here: at the broker where there is one, else a file. elsewhere:
    see Connection; False: through the broker."""
    return Connection(uuid, elsewhere=elsewhere) if rules_here() or not elsewhere else Lease(uuid)


def left_at(uuid: str, patience_s: float = 0.0) -> Stale | None:
    """Return what was left locked at a GPU; see nvml.lease.left_at. Raises NvmlError where the broker does not
    answer."""
    if not rules_here():
        return lease.left_at(uuid, patience_s)
    return next((Stale(gpu["left"], False, "") for gpu in listed() if gpu["uuid"] == uuid and gpu["left"]), None)


def left_behind() -> list[str]:
    """Return the UUIDs of the GPUs at which something may have been left locked."""
    return [gpu["uuid"] for gpu in listed() if gpu["left"]] if rules_here() else lease.left_behind()


def check_after(after: Mapping[str, list[int] | None]) -> None:
    """Raise InputError for clocks to leave behind: whoever runs the broker says what is left locked."""
    if any(after.values()):
        raise InputError(
            "after: through broker, whoever runs it says what is left locked (kernel-dvfs broker --after ...); leave "
            "`after` empty"
        )


def obstacle() -> str:
    """Return why it would not set clocks here; "" where nothing speaks against it."""
    if not rules_here():
        return f"no broker listens at {socket_path()}"
    try:
        hello()
    except NvmlError as error:
        return str(error)
    return ""


def hello() -> str:
    """Return whom the broker lets set clocks, in words. Raises NvmlError where there is none, or it does not let this
    user."""
    return str(_asked({"do": "hello"})["allowed"])


def listed() -> list[dict[str, Any]]:
    """Return the broker's GPUs: uuid, holder (in words; null: none), lease (the name of his), since_utc, left (what
    could not be restored, or null)."""
    return list(_asked({"do": "list"})["boards"])


def evict(uuid: str, lease: str | None = None) -> str:
    """Have the broker take a GPU back, for root, from whom has it as `lease`; None: from whom has it now. Back when its
    clocks are free. Returns whose it was, in words. Raises NvmlError where that lease is over: the next one is not
    ended in its place."""
    lease = lease or next((gpu["lease"] for gpu in listed() if gpu["uuid"] == uuid), None)
    request = {"do": "evict", "uuid": uuid, "lease": lease}
    with _connected(uuid) as connection:
        answer = _proved(request, partial(_answer, connection, uuid))
    _check(answer, uuid, request)
    who = str(answer["evicted"])
    end_s = time.monotonic() + patience_s()
    while any(gpu["lease"] == lease for gpu in listed()):
        if time.monotonic() > end_s:
            raise refused("broker: evict", uuid, f"{who} still has it after {patience_s():g} s", _LOG, TIMEOUT)
        time.sleep(_LOOK_EVERY_S)
    return who


def _proved(request: dict[str, Any], ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the broker's answer to a request for a GPU, once it was shown that its device can be opened here: who can
    may use it, and a job of a batch system, or a container, has its own alone. ask: with files to hand over."""
    answer = ask(request)
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
        return ask({"do": "prove"}, [opened])
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


def _call(request: dict[str, Any], other: str = "broker") -> str:
    return f"{other}: {request.get('do', 'start')} {request.get('domain', '')}".strip()


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()  # select(2) knows no file beyond the 1024th
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _answer(
    connection: socket.socket,
    uuid: str,
    request: dict[str, Any],
    files: list[int] | None = None,
    other: str = "broker",
) -> dict[str, Any]:
    """Return the answer of who is at the other end, a refusal too; no request: what it says unasked. Raises NvmlError
    where none comes, or none that is understood."""
    call = _call(request, other)
    data = b""
    try:
        with suppress(BrokenPipeError):  # one that has been refused at once has its answer to read
            line = json.dumps(request).encode() + b"\n" if request else b""
            if files:
                socket.send_fds(connection, [line], files)
            else:
                connection.sendall(line)
        while not data.endswith(b"\n"):
            part = connection.recv(_LONGEST)
            if not part:
                raise ConnectionResetError
            data += part
        answer = json.loads(data)
    except ConnectionError:
        raise refused(call, uuid, *_GONE[other]) from None
    except TimeoutError:
        raise refused(call, uuid, f"no answer in {patience_s():g} s", _REMEDY, TIMEOUT) from None
    except OSError as error:
        raise refused(call, uuid, error.strerror or str(error), _REMEDY) from None
    except ValueError:
        raise refused(call, uuid, "an answer that is not understood", _REMEDY) from None
    if not isinstance(answer, dict):
        raise refused(call, uuid, "an answer that is not understood", _REMEDY)
    return answer


def _check(answer: dict[str, Any], uuid: str, request: dict[str, Any], other: str = "broker") -> None:
    """Raise NvmlError for an answer that refuses, InputError for what a holder refuses for another reason, NotRestored
    for clocks that could not be given back."""
    if "failed" in answer:
        raise NotRestored(f"clocks of {uuid} not restored", [_failure(*parts) for parts in answer["failed"]])
    if "error" in answer and other == "holder":
        raise _failure(answer["error"], answer["code"], answer["call"])
    if "error" in answer:
        raise refused(_call(request), uuid, str(answer["error"]), _LOG, int(answer["code"]))


def _failure(message: str, code: int, call: str) -> InputError:
    return failure(message, code, call) if call else InputError(message)
