"""A command run under clocks that are held for it: signals passed on, time and energy measured, clocks watched.

It knows a board and a child process; its caller decides what is locked and when.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.errors import CounterFault, InputError
from kernel_dvfs.gpu.clocks import THROTTLING
from kernel_dvfs.gpu.guard import ENDING_SIGNALS

if TYPE_CHECKING:
    from kernel_dvfs.gpu.nvml.board import Board

_LOOK_EVERY_S = 0.5
_EDGE_LIMIT_S = 2.0
_SI_USER = 0  # si_code up to this: sent by a process; signals of the terminal reach the whole group by themselves


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    code: int  # exit code as a shell has it (128 + signal)
    time_s: float  # from its start to its end
    energy_j: float  # of the board, in counted_s
    counted_s: float  # from the edge of the board's counter before the command to the next one after it
    core_mhz: list[int]  # [min, median, max] of the looks while it ran
    mem_mhz: list[int]  # likewise
    throttled: float  # share of the looks that saw the clocks held down

    @property
    def power_w(self) -> float:
        """Mean power of the board while it was counted."""
        return self.energy_j / self.counted_s


def run_command(
    board: Board,
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> Ran:
    """Run a command to its end.

    environment: more variables for it. before(): called just before it starts, such as to lock clocks; after(): called
    as soon as it has ended, however it did. Signals that would end this process (ENDING_SIGNALS) are passed on and end
    nothing here: the command decides. Raises InputError where the command cannot be started, CounterFault where the
    energy counter does not move or falls.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING_SIGNALS, signal.SIGCHLD})
    try:
        try:
            if before:
                before()
            first_mj, first_s = _edge(board)
            began_s = time.monotonic()
            child = start(words, held, environment)
            looks: list[tuple[int, int, int]] = []  # (core MHz, memory MHz, event reasons)
            try:
                attend(child, lambda: looks.append((board.sm_mhz(), board.mem_mhz(), board.event_reasons())))
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
        throttled=sum(1 for look in looks if look[2] & sum(THROTTLING)) / len(looks),
    )


def start(
    words: Sequence[str],
    held: set[int | signal.Signals],
    environment: Mapping[str, str] | None = None,
    outputs: tuple[int, int] | tuple[None, None] = (None, None),
) -> subprocess.Popen[bytes]:
    """Start a command with the signal mask `held`. environment: more variables for it; outputs: files that its stdout
    and stderr are. Raises InputError where it cannot be started."""

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

    try:
        own = {**os.environ, **(environment or {})}
        return subprocess.Popen(words, env=own, preexec_fn=release, stdout=outputs[0], stderr=outputs[1])
    except OSError as error:
        raise InputError(f"{words[0]}: {error.strerror}; the command cannot be started") from None


def attend(child: subprocess.Popen[bytes], look: Callable[[], object]) -> None:
    """Call look() now and then and pass signals on until the child ends. ENDING_SIGNALS and SIGCHLD must be blocked."""
    while True:
        look()
        end_s = time.monotonic() + _LOOK_EVERY_S
        while (left_s := end_s - time.monotonic()) > 0:
            info = signal.sigtimedwait({*ENDING_SIGNALS, signal.SIGCHLD}, left_s)
            if child.poll() is not None:
                return
            if info is not None and info.si_signo in ENDING_SIGNALS and info.si_code <= _SI_USER:
                child.send_signal(info.si_signo)


def _edge(board: Board) -> tuple[int, float]:
    """(mJ, s) at the next move of the counter."""
    begin, limit_s = board.energy_mj(), time.monotonic() + _EDGE_LIMIT_S
    while (now := board.energy_mj()) == begin:
        if time.monotonic() > limit_s:
            raise CounterFault(f"the energy counter has not moved for {_EDGE_LIMIT_S:g} s", fell=False)
        time.sleep(0.001)
    return now, time.monotonic()


def _spread(values: list[int]) -> list[int]:
    ordered = sorted(values)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
