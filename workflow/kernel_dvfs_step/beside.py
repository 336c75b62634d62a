"""The board beside a capture, through NVML, which is only read: who else computes on the GPU, and what runs cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.nvml.board import Board, uuids
from kernel_dvfs_clocks.nvml.library import Library, NvmlError

# runs are waited for about so often, and what they change is put back for at most this share of the time
_BATCH_S, _REFRESH_SHARE = 0.1, 0.002
# a capture that was just killed may still be giving the GPU back to the driver
_ENDING_S, _ASK_EVERY_S = 10.0, 0.1
# edges of the energy counter are looked for every so often, after one only near the next
_LOOK_S, _STILL_SHARE = 0.002, 0.7


class Cost(NamedTuple):
    """What one run takes."""

    time_s: float
    energy_j: float | None  # None: there is no energy counter that counts it


class Beside:
    """All boards before CUDA is opened, then the one that was opened. Where NVML is missing, nothing is known."""

    def __init__(self) -> None:
        self._board: Board | None = None
        self._opened: int | None = None
        self._before: dict[str, int | None] = {}
        self.neighbours = 0  # so many other processes compute on it all along, and may (share)
        try:
            self._nvml = Library()
            self._nvml.__enter__()
            for uuid in uuids(self._nvml):
                with suppress(NvmlError):  # one that is sick hides no other
                    self._before[uuid] = Board(self._nvml, uuid).compute_processes()
        except InputError:
            pass

    def open(self, uuid: str, share: bool) -> None:
        """Note that this process has opened the GPU. share: although others compute on it. Raises InputError where they
        do, and have not ended within a while."""
        if self._board or uuid not in self._before:
            return
        self._board = Board(self._nvml, uuid)
        others, end_s = self._before[uuid], time.monotonic() + _ENDING_S
        while others and not share and time.monotonic() < end_s:
            time.sleep(_ASK_EVERY_S)
            now = self._board.compute_processes()
            others = others if now is None else max(0, now - 1)  # this process is one of them
        if others and not share:
            raise InputError(
                f"GPU {uuid}: {others} other process(es) compute on it, so no time of a kernel would be its own; wait "
                "for them, or capture all the same: --share (a study: share: true)"
            )
        self.neighbours = others or 0
        self._opened = self._board.compute_processes()

    def newcomers(self) -> int:
        """Return how many processes more compute on it than when it was opened; 0 where that is not known."""
        now = self._board.compute_processes() if self._board else None
        return 0 if now is None or self._opened is None else max(0, now - self._opened)

    def cost(
        self,
        run: Callable[[], object],
        restore: Callable[[], object],
        synchronize: Callable[[], object],
        seconds: float,
        settle_s: float = 0.5,
    ) -> Cost:
        """Return what one run costs, of runs back to back for so many seconds after settle_s of them; restore: puts
        back what runs change, now and then in between."""

        def timed(what: Callable[[], object]) -> float:
            synchronize()
            began_s = time.monotonic()
            what()
            synchronize()
            return time.monotonic() - began_s

        timed(run)
        run_s, restore_s = max(timed(run), 1e-6), timed(restore)
        batch, every = max(1, round(_BATCH_S / run_s)), math.ceil(restore_s / (_REFRESH_SHARE * run_s))
        left = every

        def for_s(duration_s: float) -> tuple[float, float, int]:
            nonlocal left
            synchronize()
            began_s, count = time.monotonic(), 0
            while time.monotonic() - began_s < duration_s:
                for _ in range(batch):
                    if left <= 0:
                        restore()
                        left = every
                    run()
                    left -= 1
                count += batch
                synchronize()
            return began_s, time.monotonic(), count

        for_s(settle_s)
        # of a divided board the counter counts others' slices too
        watch = _Edges(self._board.energy_mj) if self._board and not self._board.mig() else None
        begin_s, end_s, count = for_s(seconds)
        power_w = watch.power_w(begin_s, end_s) if watch else None
        time_s = (end_s - begin_s) / count
        return Cost(time_s, None if power_w is None else power_w * time_s)


class _Edges(threading.Thread):
    """When the energy counter moves, watched from a thread: the one that launches a step of many kernels is busy for
    longer than an edge may be missed by."""

    def __init__(self, energy_mj: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._energy_mj, self._ended = energy_mj, threading.Event()
        self._seen: list[tuple[float, int]] = []
        self.start()

    def run(self) -> None:
        try:
            last_mj, period_s, seen_s = self._energy_mj(), math.inf, 0.0
            while not self._ended.is_set():
                energy_mj, now_s = self._energy_mj(), time.monotonic()
                if energy_mj == last_mj:
                    time.sleep(_LOOK_S)
                    continue
                last_mj = energy_mj
                self._seen.append((now_s, energy_mj))
                if seen_s:
                    period_s = min(period_s, now_s - seen_s)
                    self._ended.wait(_STILL_SHARE * period_s)
                seen_s = now_s
        except NvmlError:
            return  # there is no counter

    def power_w(self, begin_s: float, end_s: float) -> float | None:
        """Return the mean power between the first and the last edge within; None where there are no two of them, and of
        a counter that fell."""
        self._ended.set()
        self.join()
        within = [edge for edge in self._seen if begin_s <= edge[0] <= end_s]
        if len(within) < 2 or any(later < earlier for (_, earlier), (_, later) in pairwise(within)):
            return None
        (first_s, first_mj), (last_s, last_mj) = within[0], within[-1]
        return 1e-3 * (last_mj - first_mj) / (last_s - first_s)
