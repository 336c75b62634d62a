"""The measuring process of one GPU: takes requests one at a time from a socket, as long as there are any.

It holds the session, so that CUDA's context and the board's temperature last from point to point. Without requests it
first unlocks the clocks, then ends. A point whose client goes away is given up.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from kernel_dvfs.measurement import target
from kernel_dvfs.measurement.real.client import address, socket_path
from kernel_dvfs.measurement.real.gpu import Unwanted
from kernel_dvfs.measurement.real.session import Session, identity
from kernel_dvfs.measurement.setup import Setup, read
from kernel_dvfs.measurement.visit import Visit
from kernel_dvfs_clocks.clocks import parse
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_clocks.files import parse_json
from kernel_dvfs_clocks.shape import FILLED, Count, Is, NotNegative, Positive, Text, fault

REST_AFTER_S = 3.0
END_AFTER_S = 60.0
_LOOK_EVERY_S = 0.1


class MeasuringServer:
    """The measuring process of the GPU of the setup in a file.

    ready: file descriptor to which `ok` or what is wrong is written once it listens or has failed, then closed; None
    where nobody waits for that. end_after_s: it ends when nobody has asked for so long. listener: a socket to listen
    at, bound or not, that outlives it, so that whoever asks meanwhile waits for the process of the next session.
    """

    def __init__(
        self,
        setup: str,
        ready: int | None,
        end_after_s: float = END_AFTER_S,
        listener: socket.socket | None = None,
    ) -> None:
        self._setup = read(setup)
        self._ready, self._end_after_s = ready, end_after_s
        self._path = socket_path(self._setup.gpu["uuid"])
        self._inherited = listener
        self._has_successor = False
        self._client: socket.socket | None = None
        self._looked_s = 0.0
        self._name = ""  # of the session, as the first client that has one calls it
        self._notices: list[str] = []
        self._telling = threading.Lock()  # held while who waits for the start is told, or looked at

    def serve(self) -> bool:
        """Answer requests until it is told to stop, or nobody asks any more, or a point ends in an error. Returns
        whether a process of another session shall go on at the same socket: not after an error."""
        listener = None
        if self._ready is not None:
            threading.Thread(target=self._end_without_client, daemon=True).start()
        try:
            with Session(self._setup, self._say, self._is_wanted) as session:
                listener = self._listen()
                self._tell_ready("ok")
                self._answer_all(session, listener)
            # only now is the GPU free for the process that takes over
            self._reply({"stale": True})
            if not self._has_successor:
                self._tell_waiting(listener, {"stale": True})
        except Exception as error:
            # whoever waits is told only after everything has been restored; the log is told in any case, since an error
            # while nobody asks has nobody else to be told to
            for line in lines(error):
                print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} error: {line}", file=sys.stderr, flush=True)
            self._tell_ready(*lines(error))
            self._reply({"errors": lines(error)})
            waits_for_next = listener is None or self._has_successor
            self._has_successor = False  # a GPU that may not be sound is for nobody to go on with
            if waits_for_next and self._inherited and self._inherited.getsockname():
                self._tell_waiting(self._inherited, {"errors": lines(error)})
            if not isinstance(error, InputError | ExceptionGroup):
                raise
        finally:
            if listener:
                listener.close()
        return self._has_successor

    def _tell_waiting(self, listener: socket.socket, answer: dict[str, Any]) -> None:
        while select.select([listener], [], [], 0)[0]:
            self._client, _ = listener.accept()
            self._reply(answer)

    def _say(self, line: str) -> None:
        """Tell the client that waits at once; where there is none, the next one with its answer."""
        if self._client is None:
            self._notices.append(line)
            return
        with suppress(OSError):  # it may have gone; that is noticed elsewhere
            self._client.sendall(json.dumps({"say": line}).encode() + b"\n")

    def _listen(self) -> socket.socket:
        listener = self._inherited or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if listener.getsockname():
            return listener  # a process before this one listened there
        # nobody else listens there: the client that started this process holds a lock meanwhile
        if os.path.lexists(self._path):
            os.unlink(self._path)
        before = os.umask(0o177)
        try:
            with address(self._path) as short:
                listener.bind(short)
        finally:
            os.umask(before)
        listener.listen(16)
        return listener

    def _answer_all(self, session: Session, listener: socket.socket) -> None:
        try:
            last_s, resting = time.monotonic(), False
            while time.monotonic() - last_s < self._end_after_s:
                if not select.select([listener], [], [], REST_AFTER_S)[0]:
                    if not resting:
                        session.rest()
                        resting = True
                    continue
                self._client, _ = listener.accept()
                if not self._answer(session):
                    return
                last_s, resting = time.monotonic(), False
        finally:
            # removed before the lease is: a client that finds no socket starts the next process
            if not self._has_successor:
                os.unlink(self._path)

    def _answer(self, session: Session) -> bool:
        """Answer one client; returns whether to go on.

        Any error ends the session, so that the next one starts from a GPU that is known to be sound; the client is told
        after everything has been restored.
        """
        request = self._read()
        if request is None:
            return True
        if request["do"] in ("stop", "renew"):
            self._has_successor = request["do"] == "renew" and self._inherited is not None
            return False
        if request["do"] == "move":
            session.move()
            self._reply({})
            return True
        try:
            setup = read(request["setup"])
            name = request.get("session", "")
            if identity(setup) != session.identity:
                return False
            if name and self._name not in ("", name):
                self._has_successor = self._inherited is not None
                return False
            self._name = self._name or name
            answer = _measured(session, setup, request)
        except Unwanted:
            self._close()
            return True
        self._reply(answer)
        return True

    def _read(self) -> dict[str, Any] | None:
        """Return a request, one line of JSON; None where the client has gone."""
        assert self._client
        data = b""
        self._client.settimeout(10)
        try:
            while not data.endswith(b"\n"):
                part = self._client.recv(1 << 16)
                if not part:
                    raise ConnectionError
                data += part
            # from here on it is only looked at now and then, without waiting
            self._client.settimeout(None)
            request = parse_json(data.decode())
        except (OSError, ValueError):
            self._close()
            return None
        if wrong := fault(request, _Request):
            self._reply({"errors": [f"the measuring process was asked what it does not understand: {wrong}"]})
            return None
        checked: dict[str, Any] = request
        return checked

    def _is_wanted(self) -> bool:
        """Return whether the client still waits; looked up at most every _LOOK_EVERY_S."""
        now_s = time.monotonic()
        if self._client is None or now_s - self._looked_s < _LOOK_EVERY_S:
            return True
        self._looked_s = now_s
        try:
            return self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _reply(self, answer: dict[str, Any]) -> None:
        if self._client is None:
            return
        notices, self._notices[:] = list(self._notices), []
        with suppress(OSError):  # it may have gone
            self._client.settimeout(10)
            self._client.sendall(json.dumps({"notices": notices} | answer, allow_nan=False).encode() + b"\n")
        self._close()

    def _close(self) -> None:
        assert self._client
        self._client.close()
        self._client = None

    def _tell_ready(self, *messages: str) -> None:
        with self._telling:
            if self._ready is None:
                return
            with suppress(BrokenPipeError):
                os.write(self._ready, "\n".join(messages).encode() + b"\n")
            os.close(self._ready)
            self._ready = None

    def _end_without_client(self) -> None:
        """End this process where whoever started it goes away before it listens: opening a captured step takes a
        minute, in which it would hold the GPU for nobody. As after any death, the guard's holder restores what is
        locked."""
        poll = select.poll()
        while True:
            with self._telling:
                if self._ready is None:
                    return
                poll.register(self._ready, 0)  # an error is told all the same
                is_gone = any(event & select.POLLERR for _, event in poll.poll(0))
            if is_gone:
                print("whoever started this process has gone; it ends", file=sys.stderr, flush=True)
                os._exit(1)
            time.sleep(_LOOK_EVERY_S)


class _End(TypedDict):
    do: Literal["stop", "renew", "move"]


class _Ask(TypedDict):
    do: Literal["point", "compare"]
    setup: Text
    target: Text
    clocks: Text
    repeat: Count
    session: NotRequired[str]
    campaign: NotRequired[Text]  # of a point


class _AskVisit(TypedDict):
    do: Literal["visit"]
    setup: Text
    target: Text  # for messages
    clocks: Text
    number: Annotated[list[Count], Is("a session and a place in it", lambda value: len(value) == 2)]
    pass_s: Positive
    window_s: NotNegative
    metered: list[Annotated[list[Text], FILLED]]
    session: NotRequired[str]


_Request: TypeAlias = _End | _Ask | _AskVisit


def _measured(session: Session, setup: Setup, request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "visit":
        metered = tuple(map(tuple, request["metered"]))
        for names in metered:
            for name in names:
                target.parse(setup, f"kernel/{name}")
        pair, (number, place) = parse(request["clocks"]), request["number"]
        visit = Visit(number, place, pair, request["pass_s"], request["window_s"], metered)
        visited, run = session.visit(setup, visit)
        return {"visited": visited, "run": run, "device": session.device}
    what = target.parse(setup, request["target"])
    pair = parse(request["clocks"])
    if request["do"] == "compare":
        return {"comparison": session.compare(setup, what, pair, request["repeat"]), "device": session.device}
    point, run, kernel = session.point(setup, what, pair, request["campaign"], request["repeat"])
    return {"point": point, "run": run, "kernel": kernel, "device": session.device}
