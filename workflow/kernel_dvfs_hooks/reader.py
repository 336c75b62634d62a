"""A board watched beside a training, by a process of its own, asked now and then what it has counted.

A driver that hangs ends this process and not the training, and NVML is opened in none that has CUDA. Nothing is ever
set, and no lease is taken: whoever holds the GPU's clocks, `tune` for one, goes on.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from kernel_dvfs.measurement.counter import AlignedWindow
from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS, check_counter, check_whole
from kernel_dvfs.measurement.real.watch import BoardSample, Watch, look_at, state_of
from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.clocks import BASELINE
from kernel_dvfs_clocks.errors import CounterFault, InputError, lines
from kernel_dvfs_clocks.nvml.board import Board, resolve
from kernel_dvfs_clocks.nvml.library import Library

_ANSWER_S = 5.0  # a training waits for no longer
_FIRST_ANSWER_S = 90.0  # a driver that is not kept loaded takes long to come up
_END_S = 5.0  # a process that a driver holds ends later, or never
_EDGES = 2  # of the counter, that show how often it moves
_LOOKS = 5  # at the counter, from one move to the next: edges are seen within a fifth of that
_WATCH_EVERY_S = 0.25


class Reader:
    """Starts to watch the GPU that `which` (UUID, index, "" for the only one) names, which takes a second or two:
    `begin` waits for it, and `close` ends it."""

    def __init__(self, which: str) -> None:
        self.uuid = ""
        self._fault = ""
        path = os.pathsep.join([package.FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kernel_dvfs_hooks.reader", which],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # a signal to the training's group is not for it
        )
        self._rest = b""

    def begin(self) -> None:
        """Wait until the board is watched, and count from now. Raises InputError where it cannot be read; `so_far` does
        so later, too."""
        if not self.uuid and not self._fault:
            self.uuid = self._answer(_FIRST_ANSWER_S).get("uuid", "")
        self._ask("begin")

    def so_far(self) -> dict[str, Any]:
        """Return what was counted since `begin`, or since `next`: power_w, is_enough (for a verdict), verdict, reasons.
        Raises InputError where the board cannot be read, then and later."""
        self._ask("so_far")
        return self._answer(_ANSWER_S)

    def look(self) -> BoardSample:
        """Return what the board shows now. Raises as `so_far`, and only after it."""
        self._ask("look")
        return BoardSample(**self._answer(_ANSWER_S))

    def next(self) -> None:
        """Count anew from where `so_far` ended."""
        with suppress(InputError):
            self._ask("next")

    def close(self) -> None:
        """End the other process, and wait for that, but not for long."""
        assert self._process.stdin and self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, what: str) -> None:
        if self._fault:
            raise InputError(self._fault)
        assert self._process.stdin
        with suppress(OSError):  # its last words are still to be read
            self._process.stdin.write(f"{what}\n".encode())
            self._process.stdin.flush()

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process.stdout
        end_s = time.monotonic() + patience_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end_s - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                why = "has ended" if ready else f"has not answered for {patience_s:g} s"
                self._fault = f"the process that reads the GPU {why}; kernel-dvfs devices shows whether it answers"
                raise InputError(self._fault)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self._fault = answer["error"]
            raise InputError(self._fault)
        return answer


# --- the other process ------------------------------------------------------------------------------------------------


class CounterWindow:
    """A stretch of the board's counter from edge to edge, watched.

    begins: (s, mJ) of its first edge; None: the next one. period_s: of the counter.
    """

    def __init__(self, board: Board, period_s: float, begins: tuple[float, int] | None = None) -> None:
        self._board, self._period_s = board, period_s
        self._watch = Watch(lambda: look_at(board), lambda: state_of(board), time.monotonic, all_own=True)
        self._begins = self._ends = begins
        self._so_far_end: tuple[float, int] | None = None  # the edge at which `so_far` has ended
        self._seen_mj = begins[1] if begins else board.energy_mj()
        self._watched_s = -_WATCH_EVERY_S
        self._fault = ""

    def look(self) -> None:
        """Look at the counter, and at the board when that is due."""
        now_mj, now_s = self._board.energy_mj(), time.monotonic()
        if now_mj != self._seen_mj:
            self._seen_mj, self._ends = now_mj, (now_s, now_mj)
            self._begins = self._begins or self._ends
        try:
            self._watch.check_rises(now_mj)
            if now_s - self._watched_s >= _WATCH_EVERY_S:
                self._watched_s = now_s
                self._watch.look()
        except CounterFault as fault:
            self._fault = str(fault)

    def so_far(self) -> dict[str, Any]:
        """See Reader."""
        self.look()
        self._watch.end()
        self._so_far_end = None if self._fault else self._ends
        (begin_s, begin_mj), (end_s, end_mj) = self._begins or (0.0, 0), self._ends or (0.0, 0)
        is_enough = bool(self._fault) or end_s - begin_s >= 0.98 * LEAST_PERIODS * self._period_s
        counted: dict[str, Any] = {"power_w": None, "is_enough": is_enough}
        if self._fault or end_s == begin_s:
            why = self._fault or "the energy counter has not moved twice yet"
            return counted | {"verdict": "counter" if self._fault else "unstable", "reasons": [why]}
        window = AlignedWindow(begin_s, end_s, end_mj - begin_mj)
        verdict, reasons = self._watch.judged(BASELINE, window, self._period_s)
        power_w = (end_mj - begin_mj) / 1000 / (end_s - begin_s)
        return counted | {"power_w": power_w, "verdict": verdict, "reasons": reasons}

    def begin(self) -> CounterWindow:
        """Return a window that begins now, at the latest edge."""
        return CounterWindow(self._board, self._period_s, None if self._fault else self._ends)

    def next(self) -> CounterWindow:
        """Return the window that begins where `so_far` has ended, with what was seen since: who asked may have waited
        for other ranks meanwhile."""
        if not self._so_far_end:
            return self.begin()
        window = copy(self)
        window._begins, window._so_far_end = self._so_far_end, None
        window._watch, window._watched_s = self._watch.following(), -_WATCH_EVERY_S
        return window


def main(which: str) -> None:
    """Watch until the pipe ends, or whoever started this has."""
    parent = os.getppid()

    def tell(**answer: Any) -> None:
        print(json.dumps(answer), flush=True)

    try:
        with Library() as nvml:
            board = resolve(nvml, which)
            check_whole(board)
            counter = check_counter(board, time.monotonic, time.sleep, _EDGES)
            edge = time.monotonic(), board.energy_mj()  # it has just moved
            window = CounterWindow(board, counter.period_s, edge)
            tell(uuid=board.uuid)
            _serve(board, window, counter.period_s, tell, lambda: os.getppid() != parent)
    except BrokenPipeError:
        pass
    except InputError as error:
        tell(error="; ".join(lines(error)))


def _serve(
    board: Board, window: CounterWindow, period_s: float, tell: Callable[..., None], is_alone: Callable[[], bool]
) -> None:
    while not is_alone():
        ready, _, _ = select.select([0], [], [], period_s / _LOOKS)
        window.look()
        if not ready:
            continue
        asked = os.read(0, 1 << 10)
        if not asked:
            return
        for word in asked.split():
            if word == b"begin":
                window = window.begin()
            elif word == b"next":
                window = window.next()
            elif word == b"look":
                tell(**look_at(board)._asdict())
            else:
                tell(**window.so_far())


if __name__ == "__main__":
    main(sys.argv[1])
