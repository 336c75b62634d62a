"""Steps counted in what a command prints, which is passed on as it comes: to a terminal through one of its own.

A command that printed to a terminal still does, so colours, bars that are drawn over and again, and lines that are not
ended yet look as ever; it reads its input itself. Where both its streams go to one place they go through one channel,
so that their order stays.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import termios
import threading
from collections.abc import Callable
from contextlib import suppress

from kernel_dvfs.errors import InputError

_LONGEST_LINE = 1 << 16  # bytes that are looked at where no line ends


def pattern_of(progress: str) -> re.Pattern[bytes]:
    """A regular expression whose first group is the number of a step. Raises InputError."""
    try:
        pattern = re.compile(progress.encode())
    except re.error as error:
        raise InputError(f"--progress '{progress}': {error}; it is a regular expression, as in 'iter (\\d+)'") from None
    if not pattern.groups:
        raise InputError(f"--progress '{progress}': put the step's number in parentheses, as in 'iter (\\d+)'")
    return pattern


class Counter:
    """Steps out of the numbers that are told; `step` is called with how many more are done.

    The first number only says where counting begins. One that falls to half or less begins another epoch, and counts as
    one step; one that falls by less comes late, from another rank.
    """

    def __init__(self, pattern: re.Pattern[bytes], step: Callable[[int], object]) -> None:
        self._pattern, self._step = pattern, step
        self._last: int | None = None
        self._lock = threading.Lock()

    def line(self, line: bytes) -> None:
        """A line has been printed."""
        found = self._pattern.search(line)
        if not found or not (found[1] or b"").isdigit():
            return
        number = int(found[1])
        with self._lock:
            last = number if self._last is None else self._last
            done = number - last if number >= last else 1 if 2 * number <= last else 0
            if done or number == last:
                self._last = number
        if done:
            self._step(done)


class Passing:
    """with Passing(counter) as passing: start a command with passing.outputs as its (stdout, stderr), then `begin`.

    environment: more variables for the command.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        places = [os.fstat(sink) for sink in (1, 2)]
        is_one = len({(place.st_dev, place.st_ino, place.st_rdev) for place in places}) == 1
        self._channels = [_Channel(sink) for sink in ((1,) if is_one else (1, 2))]
        self.outputs = self._channels[0].write_end, self._channels[-1].write_end
        # a program that prints to a pipe writes late, and would tell many steps at once
        self.environment = {} if any(each.is_terminal for each in self._channels) else _AT_ONCE
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Passing:
        return self

    def begin(self) -> None:
        """The command has been started."""
        for each in self._channels:
            each.close_write_end()
            self._threads.append(threading.Thread(target=self._pass_on, args=(each,), daemon=True))
            self._threads[-1].start()

    def look(self) -> None:
        """The window may have another size now."""
        for each in self._channels:
            each.resize()

    def __exit__(self, *_: object) -> None:
        for each in self._channels:
            each.close_write_end()
        for thread in self._threads:
            thread.join(_LEFT_OPEN_S)

    def _pass_on(self, channel: _Channel) -> None:
        rest = b""
        while data := channel.read():
            if not channel.write(data):
                return
            *whole, rest = re.split(rb"[\r\n]", (rest + data)[-_LONGEST_LINE:])
            for line in whole:
                self._counter.line(line)
        self._counter.line(rest)


_AT_ONCE = {} if "PYTHONUNBUFFERED" in os.environ else {"PYTHONUNBUFFERED": "1"}
_LEFT_OPEN_S = 10.0  # a process that the command leaves behind may hold its output open


class _Channel:
    """What a command prints, to where this process prints."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self.is_terminal = os.isatty(sink)
        self._read_end, self.write_end = pty.openpty() if self.is_terminal else os.pipe()
        self._size = b""
        if self.is_terminal:
            own = termios.tcgetattr(sink)
            own[1] &= ~termios.OPOST  # the real terminal makes of a line feed what it wants
            own[3] &= ~termios.ECHO
            termios.tcsetattr(self.write_end, termios.TCSANOW, own)
            self.resize()

    def resize(self) -> None:
        if self.is_terminal:
            with suppress(OSError):
                size = fcntl.ioctl(self._sink, termios.TIOCGWINSZ, bytes(8))
                if size != self._size:
                    fcntl.ioctl(self._read_end, termios.TIOCSWINSZ, size)
                    self._size = size

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def read(self) -> bytes:
        try:
            data = os.read(self._read_end, 1 << 16)
        except OSError:  # how a terminal ends
            data = b""
        if not data:
            self._close_read_end()
        return data

    def write(self, data: bytes) -> bool:
        """Whether it could be passed on; else whoever read it is gone, and the command is to learn that as ever."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._sink, view) :]
        except OSError:
            self._close_read_end()
            return False
        return True

    def _close_read_end(self) -> None:
        read_end, self._read_end = self._read_end, -1
        os.close(read_end)
