"""How a running command says which pass begins: a datagram with the pass's name to a socket that it finds named in its
environment. Both ends; knows no clocks.

The protocol, for programs that are not Python: send the name in UTF-8 as one datagram to the UNIX socket in
KERNEL_DVFS_MARKS. A datagram that ends with a line feed is answered by one datagram once the clocks were asked for, if
the sender's socket has an address.
"""

import os
import shutil
import socket
import tempfile
from contextlib import suppress

from kernel_dvfs.errors import InputError

VARIABLE = "KERNEL_DVFS_MARKS"
_ANSWER_S = 10.0
_LONGEST = 200

_sender = None


def mark(name: str, wait: bool = False) -> bool:
    """Say that the pass `name` begins; whether anyone listens. Costs a few microseconds, and nothing where nobody does.

    A GPU runs behind the host: the mark is made when the pass is launched, not when it begins on the device, so
    synchronise before it where launches run far ahead. wait: return once the clocks have been asked for.
    Raises InputError where the listener is gone or does not answer.
    """
    global _sender
    path = os.environ.get(VARIABLE)
    if not path:
        return False
    try:
        if _sender is None or _sender[0] != (path, os.getpid()):
            own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            own.settimeout(_ANSWER_S)
            own.bind("")  # an address of the system's choice, for answers
            own.connect(path)
            _sender = ((path, os.getpid()), own)
        own = _sender[1]
        own.send(name.encode() + (b"\n" if wait else b""))
        if wait:
            own.recv(16)
    except OSError as error:
        raise InputError(f"mark {name!r}: nobody listens at {path} any more ({error})") from None
    return True


class Marks:
    """The listening end: a socket in a folder of its own. environment: what the command needs to find it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="kernel-dvfs-")  # only its maker may enter it
        self.path = os.path.join(self._folder, "marks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)

    @property
    def environment(self) -> dict:
        return {VARIABLE: self.path}

    def receive(self) -> tuple:
        """(name, answer): waits for the next mark; answer is to be called once it is dealt with. (None, None) at the
        end that `stop` makes."""
        data, sender = self._socket.recvfrom(_LONGEST + 1)
        if not data:
            return None, None

        def answer() -> None:
            if data.endswith(b"\n") and sender:
                with suppress(OSError):  # it may not wait any more
                    self._socket.sendto(b"ok", socket.MSG_DONTWAIT, sender)

        return data.decode("utf-8", "replace").strip()[:_LONGEST], answer

    def stop(self) -> None:
        """End the one who waits in `receive`."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"", self.path)

    def close(self) -> None:
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)
