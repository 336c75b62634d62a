"""A command run under clocks that are held for it: signals passed on, time and energy taken, clocks looked at
meanwhile.

Knows a board and a child process; what is locked when is its caller's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import NamedTuple

from kernel_dvfs.errors import CounterFault, InputError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_S = 0.5
_EDGE_LIMIT_S = 2.0
_SI_USER = 0  # or less: sent by a process; the terminal's reach the whole group by themselves
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


class Ran(NamedTuple):
    """code: exit code as a shell has it (128 + signal). time_s: of the command. energy_j: of the board in counted_s,
    from an edge of its counter before to the next after. core_mhz, mem_mhz: [min, median, max] of looks while it
    ran; throttled: share of the looks that saw the clocks held down."""

    code: int
    time_s: float
    energy_j: float
    counted_s: float
    core_mhz: list
    mem_mhz: list
    throttled: float

    @property
    def power_w(self) -> float:
        return self.energy_j / self.counted_s


def run_command(board, words: list, environment: dict | None = None, before=None, after=None) -> Ran:
    """Run `words` to its end. before(): called just before it starts, such as to lock clocks; after(): as soon as it
    has ended, however it did.

    SIGINT, SIGTERM and SIGHUP of this process are passed on and end nothing here: the command decides. Raises
    InputError where the command cannot be started, CounterFault where the energy counter stands still or falls.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGCHLD})
    try:
        try:
            if before:
                before()
            first_mj, first_s = _edge(board)
            began_s = time.monotonic()
            child = _start(words, environment, held)
            looks = []
            try:
                _attend(child, board, looks)
            except BaseException:
                child.kill()
                child.wait()
                raise
            ended_s = time.monotonic()
            last_mj, last_s = _edge(board)
        finally:
            if after:
                after()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    if last_mj < first_mj:
        raise CounterFault("the energy counter fell while the command ran: the driver was reloaded", fell=True)
    code = child.returncode
    looks = looks[1:] or looks  # at the first one clocks may still be on their way
    return Ran(
        code=code if code >= 0 else 128 - code,
        time_s=ended_s - began_s,
        energy_j=(last_mj - first_mj) / 1000,
        counted_s=last_s - first_s,
        core_mhz=_spread([look[0] for look in looks]),
        mem_mhz=_spread([look[1] for look in looks]),
        throttled=sum(1 for look in looks if look[2] & THROTTLING) / len(looks),
    )


def _start(words: list, environment, held):
    def release():
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

    try:
        return subprocess.Popen(words, env=os.environ | (environment or {}), preexec_fn=release)
    except OSError as error:
        raise InputError(f"{words[0]}: {error.strerror}; the command cannot be started") from None


def _attend(child, board, looks: list) -> None:
    while True:
        looks.append((board.sm_mhz(), board.mem_mhz(), board.event_reasons()))
        end_s = time.monotonic() + _LOOK_EVERY_S
        while (left_s := end_s - time.monotonic()) > 0:
            info = signal.sigtimedwait({*_SIGNALS, signal.SIGCHLD}, left_s)
            if child.poll() is not None:
                return
            if info is not None and info.si_signo in _SIGNALS and info.si_code <= _SI_USER:
                child.send_signal(info.si_signo)


def _edge(board) -> tuple:
    """(mJ, s) at the next move of the counter."""
    begin, limit_s = board.energy_mj(), time.monotonic() + _EDGE_LIMIT_S
    while (now := board.energy_mj()) == begin:
        if time.monotonic() > limit_s:
            raise CounterFault(f"the energy counter has not moved for {_EDGE_LIMIT_S:g} s", fell=False)
        time.sleep(0.001)
    return now, time.monotonic()


def _spread(values: list) -> list:
    ordered = sorted(values)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
