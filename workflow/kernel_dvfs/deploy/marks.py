"""How a running command says which pass begins: it sends a datagram with the pass's name to a socket.

The name of the socket is in the command's environment. Both ends are here. A training script imports this module, so it
imports nothing but the standard library and the project's errors.

The protocol, for programs that are not Python: send the name in UTF-8 as one datagram to the UNIX socket in
KERNEL_DVFS_MARKS. Of several processes `tune` follows the first until it ends, or is silent for ten seconds. A datagram
that ends with a line feed is answered by one datagram once the clocks were asked for, if the sender's socket has an
address.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress

from kernel_dvfs.errors import InputError

VARIABLE = "KERNEL_DVFS_MARKS"
_ANSWER_S = 10.0  # how long a mark waits for its answer
_LONGEST = 200  # bytes of a pass's name
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
    here = path, os.getpid()
    try:
        if _sender is None or _sender[0] != here:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            made.settimeout(_ANSWER_S)
            made.bind("")  # an address of the system's choice: it takes the answers, and may have to tell who marks
            made.connect(path)
            _sender = here, made
        own = _sender[1]
        if own is None:
            raise ConnectionRefusedError("it has ended")
        own.send(name.encode() + (b"\n" if wait else b""))
        if wait:
            own.recv(16)
    except (ConnectionError, FileNotFoundError) as error:
        # a training does not end because whoever tuned it did
        _sender = here, None
        if wait:
            raise InputError(f"mark {name!r}: nobody listens at {path} any more ({error})") from None
        return False
    except OSError as error:
        raise InputError(f"mark {name!r}: {path} does not take it ({error})") from None
    return True


# a process's id; where it cannot be seen from here, as from another container, the address of its socket, if it has one
Sender = int | bytes | str | None


def is_gone(sender: Sender) -> bool:
    """Whether the process has ended; who cannot be seen from here counts as alive."""
    try:
        if isinstance(sender, int):
            os.kill(sender, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        pass
    return False


class Marks:
    """The listening end: a socket in a folder of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="kernel-dvfs-")  # only its maker may enter it
        self.path = os.path.join(self._folder, "marks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self.path)

    @property
    def environment(self) -> dict[str, str]:
        """What the command needs in its environment to find the socket."""
        return {VARIABLE: self.path}

    def receive(self) -> tuple[str, Sender, Callable[[], None]] | None:
        """Wait for the next mark: (name, its sender, answer), answer() to be called once it is dealt with. None after
        `stop`."""
        space = socket.CMSG_SPACE(struct.calcsize(_CREDENTIALS))
        data, about, _, sender = self._socket.recvmsg(_LONGEST + 1, space)
        if not data:
            return None

        def answer() -> None:
            if data.endswith(b"\n") and sender:
                with suppress(OSError):  # the sender may have stopped waiting
                    self._socket.sendto(b"ok", socket.MSG_DONTWAIT, sender)

        pid = struct.unpack(_CREDENTIALS, about[0][2])[0]
        return data.decode("utf-8", "replace").strip()[:_LONGEST], pid or sender, answer

    def stop(self) -> None:
        """Make `receive` return None."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"", self.path)

    def close(self) -> None:
        """Remove the socket and its folder."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)
