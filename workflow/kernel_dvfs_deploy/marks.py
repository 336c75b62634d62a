"""How a running command says which pass begins: it sends a datagram with the pass's name to a socket.

The name of the socket is in the command's environment. Both ends are here. A training script imports this module, so it
imports nothing but the standard library and the project's errors.

The protocol, for programs that are not Python: send the name in UTF-8 as one datagram to the UNIX socket in
KERNEL_DVFS_MARKS. `step=120` says that 120 steps of the training are done, as its own log counts them; any other name
is a pass's. Of several processes `tune` and `apply` follow the first until it ends, or is silent for ten seconds. A
datagram that ends with a line feed is answered by one datagram once the clocks were asked for, if the sender's socket
has an address.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from kernel_dvfs_clocks.errors import InputError

VARIABLE = "KERNEL_DVFS_MARKS"
_ANSWER_S = 10.0  # how long a mark waits for its answer
_LONGEST = 200  # bytes of a pass's name
_MOST_DIGITS = 15  # of a step's number
_STEP = "step="  # begins what tells a step's number
_TAKES_OVER_S = 10.0  # ranks mark together: one that marks so long after another has taken its place
_CREDENTIALS = "3i"  # a sender's process, user and group (SCM_CREDENTIALS, unix(7))

# ((path of the socket, process), its connection) of the marks made so far; None: whoever listened there is gone
_sender: tuple[tuple[str, int], socket.socket | None] | None = None


def mark(name: str, wait: bool = False) -> bool:
    """Say that the pass `name` begins; returns whether anyone listens.

    A mark costs a few microseconds, and nothing where nobody listens, or nobody does any more. A GPU runs behind the
    host: the mark is made when the pass is launched, not when it begins on the device, so synchronise before it where
    launches run far ahead. wait: return only once the clocks have been asked for. Raises InputError where the listener
    takes no mark, and with wait also where it is gone.
    """
    global _sender
    path = os.environ.get(VARIABLE)
    if not path:
        return False
    key = path, os.getpid()
    try:
        if _sender is None or _sender[0] != key:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            opened.settimeout(_ANSWER_S)
            opened.bind("")  # an address of the system's choice: it takes the answers, and may have to tell who marks
            opened.connect(path)
            _sender = key, opened
        connection = _sender[1]
        if connection is None:
            raise ConnectionRefusedError("it has ended")
        connection.send(name.encode() + (b"\n" if wait else b""))
        if wait:
            connection.recv(16)
    except (ConnectionError, FileNotFoundError) as error:
        # a training does not end because whoever tuned it did
        _sender = key, None
        if wait:
            raise InputError(f"mark {name!r}: nobody listens at {path} any more ({error})") from None
        return False
    except OSError as error:
        raise InputError(f"mark {name!r}: {path} does not take it ({error})") from None
    return True


def tell_step(number: int) -> bool:
    """Say that so many steps of the training are done, as its own log counts them; returns whether anyone listens.
    What a mark costs, and raises, this does."""
    return mark(f"{_STEP}{number}")


# a process's id; where it cannot be seen from here, as from another container, the address of its socket, if it has one
Sender = int | bytes | str | None


def is_gone(sender: Sender) -> bool:
    """Return whether the process has ended; who cannot be seen from here counts as alive."""
    try:
        if isinstance(sender, int):
            os.kill(sender, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        pass
    return False


@contextmanager
def beside(run: Callable[[], object], name: str, end: Callable[[], object]) -> Iterator[None]:
    """Run this in a thread, until the context is left and `end` has told it so. Signals are the main thread's: one that
    it has blocked must not end the process here."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    try:
        yield
    finally:
        end()
        thread.join()


class MarkListener:
    """The listening end: a socket in a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="kernel-dvfs-")  # only its maker may enter it
        self.path = os.path.join(self._folder, "marks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self.path)

    @property
    def environment(self) -> dict[str, str]:
        """Return what the command needs in its environment to find the socket."""
        return {VARIABLE: self.path}

    def receive(self) -> tuple[str, Sender, Callable[[], None]] | None:
        """Wait for the next mark: (name, its sender, answer), answer() to be called once it is dealt with. None after
        `stop`."""
        space = socket.CMSG_SPACE(struct.calcsize(_CREDENTIALS))
        data, ancillary, _, sender = self._socket.recvmsg(_LONGEST + 1, space)
        if not data:
            return None

        def answer() -> None:
            if data.endswith(b"\n") and sender:
                with suppress(OSError):  # the sender may have stopped waiting
                    self._socket.sendto(b"ok", socket.MSG_DONTWAIT, sender)

        pid = struct.unpack(_CREDENTIALS, ancillary[0][2])[0]
        return data.decode("utf-8", "replace").strip()[:_LONGEST], pid or sender, answer

    @contextmanager
    def followed(
        self, obey: Callable[[str], object], step: Callable[[int], object], from_all: bool = False
    ) -> Iterator[None]:
        """Hand on what is heard (`hand_on`) in a thread until the context is left; then nothing listens any more."""
        try:
            with beside(partial(hand_on, self, obey, step, from_all), "marks", self.stop):
                yield
        finally:
            self.close()

    def stop(self) -> None:
        """Make `receive` return None."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self.path)

    def close(self) -> None:
        """Remove the socket and its folder."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def hand_on(
    marks: MarkListener,
    obey: Callable[[str], object],
    step: Callable[[int], object],
    from_all: bool = False,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """Call obey(name) for each pass that is marked and step(number) for each step that is told, until `stop`.

    One process is heard, and after its end the next: each rank of a training tells the same. from_all: passes are
    heard of all.
    """
    followed: Sender = None
    last_s = -math.inf
    while received := marks.receive():
        name, sender, answer = received
        number = name.removeprefix(_STEP)
        is_step = number != name and number.isdecimal() and len(number) <= _MOST_DIGITS
        if is_heard := sender == followed or now_s() - last_s > _TAKES_OVER_S or is_gone(followed):
            followed, last_s = sender, now_s()
        if is_step and is_heard:
            step(int(number))
        elif not is_step and (is_heard or from_all):
            obey(name)
        answer()
