"""Steps counted in what a command prints, which is passed on as it comes: to a terminal through one of its own.

A command that printed to a terminal still does, so colours, bars that are drawn over and again, and lines that are not
ended yet look as ever; it reads its input itself. Where both its streams go to one place they go through one channel,
so that their order stays. A process of its own passes on, so that a command outlives whoever started it, and looks for
steps in what it has passed on, for so long only: a regular expression may take longer than a training.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import selectors
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, NoReturn

from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.errors import InputError

_LOOKED_AT = 2048  # bytes of a line, from its beginning
_LOOK_S = 0.1  # of a processor, for a line
_MOST_SLOW = 3  # lines that take longer; then nothing is looked for any more
_COLOURS = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")  # and what else a terminal obeys (ECMA-48)
_THOUSANDS = re.compile(rb"(?:[,_'][0-9]{3})+(?![0-9])")
_MOST_DIGITS = 15  # of a step's number
_BACK_S = 10.0  # ranks that print one after the other are never so far apart
_FEW = 3  # lines that may be missing, or late
_LEFT_OPEN_S = 10.0  # a process that the command leaves behind may hold its output open
_RESIZE_EVERY_S = 0.5
# a program that prints to a pipe writes late, and would tell many steps at once
_AT_ONCE = {} if "PYTHONUNBUFFERED" in os.environ else {"PYTHONUNBUFFERED": "1"}


def pattern_of(progress: str) -> re.Pattern[bytes]:
    """Return a regular expression whose first group is the number of a step. Raises InputError."""
    try:
        pattern = re.compile(os.fsencode(progress))
    except re.error as error:
        raise InputError(f"--progress '{progress}': {error}; it is a regular expression, as in 'iter (\\d+)'") from None
    if not pattern.groups:
        raise InputError(f"--progress '{progress}': put the step's number in parentheses, as in 'iter (\\d+)'")
    return pattern


class Counter:
    """Steps out of the numbers that are told; `step` is called with how many more are done. pattern: of lines.

    The first number only says where counting begins. One that falls to half or less begins another epoch, and counts as
    one step; one that falls by less comes late, from another rank, unless such numbers go on for _BACK_S, rise and do
    not come up to the last: the training has gone back to a checkpoint, and counting begins again there.

    Both may be an evaluation with a counter of its own, or an epoch's late line. Where the numbers then leap to where
    they were before, the leap is no steps. What was counted meanwhile stays, and the next one is counted again: whoever
    learns to wait for the end of evaluations waits for that of epochs, too, and may never count again.
    """

    def __init__(
        self,
        pattern: re.Pattern[bytes] | None,
        step: Callable[[int], object],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pattern, self._step, self._now_s = pattern, step, now_s
        self._last: int | None = None
        self._widest = 0  # of the steps that were done from one number to the next
        self._lower: tuple[int, float] | None = None  # the newest number below the last, and since when there are any
        self._before: int | None = None  # the last before the numbers fell for good

    def line(self, line: bytes) -> None:
        """A line has been printed, of which the beginning is looked at, without its colours. `1,234` is a number."""
        line = _COLOURS.sub(b"", line[:_LOOKED_AT])
        assert self._pattern
        match = self._pattern.search(line)
        digits = (match and match[1]) or b""
        if match and len(digits) <= 3 and (more := _THOUSANDS.match(line, match.end(1))):
            digits += more[0]
        digits = digits.translate(None, b",_'")
        if not digits.isdigit() or len(digits) > _MOST_DIGITS:
            return
        self.number(int(digits))

    def number(self, number: int) -> None:
        """A step's number is told."""
        last = number if self._last is None else self._last
        near = _FEW * self._widest
        if self._before is not None and last + near < number >= self._before - near:
            self._last = last = self._before
            self._before = None
        if number >= last:
            done = number - last
            self._widest = max(self._widest, done)
        elif 2 * number <= last or self._gone_back(number):
            self._before, done = last, 1
        else:
            return
        self._last, self._lower = number, None
        if done:
            self._step(done)

    def _gone_back(self, number: int) -> bool:
        now_s = self._now_s()
        before, since_s = self._lower or (number, now_s)
        self._lower = number, since_s
        return number > before and now_s - since_s >= _BACK_S


class OutputRelay:
    """with OutputRelay(progress, step) as passing: start a command with passing.outputs as its (stdout, stderr), then
    `begin`. progress, step: as of Counter.

    environment: more variables for the command.
    """

    def __init__(self, progress: str, step: Callable[[int], object]) -> None:
        self._progress, self._step = progress, step
        pattern_of(progress)
        places = [os.fstat(sink) for sink in (1, 2)]
        is_one = len({(place.st_dev, place.st_ino, place.st_rdev) for place in places}) == 1
        self._sinks = (1,) if is_one else (1, 2)
        self._ends = [_pair(sink) for sink in self._sinks]  # (read, write)
        self.outputs = self._ends[0][1], self._ends[-1][1]
        self.environment = {} if any(map(os.isatty, self._sinks)) else _AT_ONCE
        self._relay: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._listen, name="kernel-dvfs steps", daemon=True)

    def __enter__(self) -> OutputRelay:
        return self

    def begin(self) -> None:
        """The command has been started."""
        path = os.pathsep.join([package.FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
        steps_end, tells = os.pipe()
        channels = [(end, sink) for (end, _), sink in zip(self._ends, self._sinks)]
        arguments = json.dumps({"progress": self._progress, "channels": channels, "tells": tells})
        self._relay = subprocess.Popen(
            [sys.executable, "-m", "kernel_dvfs_deploy.progress", arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[end for end, _ in channels] + [tells],
            env=os.environ | {"PYTHONPATH": path},
            text=True,
            start_new_session=True,  # a signal to the group is not for it: the command may have more to say
        )
        os.close(tells)
        self._close()
        self._steps = os.fdopen(steps_end)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._relay:
            with suppress(subprocess.TimeoutExpired):
                self._relay.wait(_LEFT_OPEN_S)
                self._thread.join(_LEFT_OPEN_S)

    def _listen(self) -> None:
        for line in self._steps:
            self._step(int(line))

    def _close(self) -> None:
        for ends in self._ends:
            for end in ends:
                os.close(end)
        self._ends = []


def _pair(sink: int) -> tuple[int, int]:
    """Return (read end, write end) of a channel to where `sink` leads."""
    if not os.isatty(sink):
        return os.pipe()
    read_end, write_end = pty.openpty()
    attributes = termios.tcgetattr(sink)
    attributes[1] &= ~termios.OPOST  # the real terminal makes of a line feed what it wants
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(write_end, termios.TCSANOW, attributes)
    _resize(read_end, sink)
    return read_end, write_end


def _resize(read_end: int, sink: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(read_end, termios.TIOCSWINSZ, fcntl.ioctl(sink, termios.TIOCGWINSZ, bytes(8)))


# --- the other process ------------------------------------------------------------------------------------------------


def main(progress: str, channels: list[tuple[int, int]], tells: int) -> None:
    """Pass on until the command's output ends, also where nobody hears of its steps any more.

    channels: (file to read, file to write); tells: file for how many steps are done, a number a line. To be called in
    the main thread, which alone hears signals.
    """
    signal.signal(signal.SIGVTALRM, _too_slow)  # the engine of regular expressions heeds it
    slow = 0
    pipe: IO[str] | None = os.fdopen(tells, "w")

    def tell(steps: int) -> None:
        nonlocal pipe
        try:
            if pipe:
                pipe.write(f"{steps}\n")
                pipe.flush()
        except OSError:
            pipe = None

    done: list[int] = []
    counter = Counter(pattern_of(progress), done.append)
    rests = {read_end: b"" for read_end, _ in channels}
    with selectors.DefaultSelector() as open_ends:
        for read_end, sink in channels:
            open_ends.register(read_end, selectors.EVENT_READ, sink)
        while open_ends.get_map():
            for key, _ in open_ends.select(_RESIZE_EVERY_S):
                data = _read(key.fd)
                *whole, rest = re.split(rb"[\r\n]", rests[key.fd] + data)
                rests[key.fd] = rest[:_LOOKED_AT]
                if not data or not _write(key.data, data):
                    # its reader is gone: the command is to learn that as ever
                    whole.append(rest)
                    open_ends.unregister(key.fd)
                    os.close(key.fd)
                for line in whole if slow < _MOST_SLOW else ():
                    try:
                        signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_S)
                        counter.line(line)
                    except _TooSlow:
                        slow += 1
                    finally:
                        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                    if slow == _MOST_SLOW:
                        print(_SLOW, file=sys.stderr, flush=True)
                        break
                if done:  # lines that a program kept back and wrote at once are one sign of progress
                    tell(sum(done))
                    done.clear()
            for key in open_ends.get_map().values():
                if os.isatty(key.data):
                    _resize(key.fd, key.data)


_SLOW = (
    f"kernel-dvfs: --progress takes more than {_LOOK_S:g} s for a line, so no more steps are counted; make it simpler "
    "(one .* less)"
)


class _TooSlow(Exception):
    """A line took too long."""


def _too_slow(*_: object) -> NoReturn:
    raise _TooSlow


def _read(read_end: int) -> bytes:
    try:
        return os.read(read_end, 1 << 16)
    except OSError:  # how a terminal ends
        return b""


def _write(sink: int, data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
