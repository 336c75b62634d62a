"""A command run under clocks that are held for it: signals passed on, time and energy measured, clocks watched.

It knows a board and a child process; its caller decides what is locked and when.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_dvfs.child import attend, code_of, start
from kernel_dvfs.measurement.counter import AlignedWindow
from kernel_dvfs.measurement.verdict import Verdict
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import CounterFault, InputError
from kernel_dvfs_clocks.guard import ENDING_SIGNALS

if TYPE_CHECKING:
    from kernel_dvfs_clocks.nvml.board import Board
    from kernel_dvfs_deploy.control import Control, Pair

_EDGE_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    code: int  # exit code as a shell has it (128 + signal)
    time_s: float  # from its start to its end
    energy_j: float | None  # of the board, in counted_s; None where the counter tells nothing
    counted_s: float  # from the edge of the board's counter before the command to the next one after it
    core_mhz: list[float]  # [min, median, max] of the looks while it ran; empty where none came
    mem_mhz: list[float]  # likewise
    verdict: Verdict  # of these numbers (measurement.verdict)
    reasons: list[str]  # for it


def run_command(
    control: Control, words: Sequence[str], pair: Pair = BASELINE, environment: Mapping[str, str] | None = None
) -> Ran:
    """Run a command to its end, at a pair, and give the clocks back as soon as it has ended, however it did. Returns
    what came of it.

    pair: BASELINE asks for nothing. environment: more variables for it. Signals that would end this process
    (ENDING_SIGNALS) are passed on and end nothing here: the command decides. Nor does what is wrong with the GPU or its
    counter while it runs: the verdict says so. Raises InputError where the command cannot be started, CounterFault
    where the energy counter does not move before it is.
    """
    board, fault, energy_mj = control.board, "", None
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING_SIGNALS, signal.SIGCHLD})
    try:
        try:
            if tuple(pair) != tuple(BASELINE):
                control.ask(pair)
            watch = control.watch()
            first_mj, first_s = _edge(board)
            began_s = time.monotonic()
            child = start(words, held, environment)

            def look() -> None:
                nonlocal fault
                if not fault:
                    try:
                        watch.look()
                    except InputError as error:
                        fault = str(error)

            attend(child, look)
            ended_s = last_s = time.monotonic()
            try:
                last_mj, last_s = _edge(board)
                watch.check_rises(last_mj)
                watch.end()
                energy_mj = last_mj - first_mj
            except InputError as error:
                fault = fault or str(error)
        finally:
            if tuple(control.pair) != tuple(BASELINE):
                control.to_auto()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    verdict: Verdict = "counter"
    reasons = [fault]
    if not fault and energy_mj is not None:
        window = AlignedWindow(first_s, last_s, energy_mj)
        verdict, reasons = watch.judged(BASELINE if control.reads_only else pair, window, control.period_s)
    seen = watch.watched(last_s - first_s, settled=True) if watch.has_looked else None
    return Ran(
        code=code_of(child),
        time_s=ended_s - began_s,
        energy_j=None if fault or energy_mj is None else energy_mj / 1000,
        counted_s=last_s - first_s,
        core_mhz=seen["core_mhz"] if seen else [],
        mem_mhz=seen["mem_mhz"] if seen else [],
        verdict=verdict,
        reasons=reasons,
    )


def _edge(board: Board) -> tuple[int, float]:
    """Return (mJ, s) at the next move of the counter."""
    begin, limit_s = board.energy_mj(), time.monotonic() + _EDGE_LIMIT_S
    while (now := board.energy_mj()) == begin:
        if time.monotonic() > limit_s:
            raise CounterFault(f"the energy counter has not moved for {_EDGE_LIMIT_S:g} s", fell=False)
        time.sleep(0.001)
    return now, time.monotonic()
