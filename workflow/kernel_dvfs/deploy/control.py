"""The clocks of one guarded GPU while something is played: asked for, given back, or only looked at."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.files import parse_json
from kernel_dvfs.gpu.clocks import AUTO, BASELINE, check
from kernel_dvfs.gpu.guard import lock_pair
from kernel_dvfs.gpu.setters import choice

if TYPE_CHECKING:
    from typing import TypeAlias

    from kernel_dvfs.gpu.clocks import Clock
    from kernel_dvfs.gpu.guard import Guard

    Pair: TypeAlias = tuple[Clock, Clock]  # (core, memory), MHz or AUTO each


class Control:
    """What a player, or a command by pass, asks clocks of.

    guard: entered. about: the GPU's facts (facts_of). exact: lock the clock alone, instead of the range up to it.
    reads_only: nothing is ever set; pairs are only noted.
    """

    def __init__(self, guard: Guard, about: dict[str, Any], exact: bool = False, reads_only: bool = False) -> None:
        self._guard, self._clocks, self._exact = guard, about["clocks"], exact
        self.through = guard.through  # what sets the clocks
        self.board = guard.board
        self.reads_only = reads_only
        self.pair: Pair = BASELINE  # the one asked for last
        self.asked = 0  # how many requests were made

    def check(self, pair: Pair, where: str) -> None:
        """Raise InputError if the GPU does not list a clock of the pair, or what sets the clocks could not lock it.
        where: what the message begins with."""
        if not self.reads_only and tuple(pair) != tuple(BASELINE):
            try:
                choice.check(self.through, {}, one_clock_alone=AUTO in pair, ranges=not self._exact)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
        if self._clocks["core_mhz"]["listed"]:
            check(self._clocks, pair, where)
        elif tuple(pair) != tuple(BASELINE):
            raise InputError(f"{where}: the driver lists no clocks of this GPU, so none can be locked")

    def announce(self, what: str) -> None:
        """Write down for others what is about to be asked of the clocks."""
        if not self.reads_only:
            self._guard.announce(what)

    def ask(self, pair: Pair) -> None:
        """Request a pair. Where that fails, nothing is locked; raises gpu.nvml.library then."""
        if not self.reads_only:
            try:
                lock_pair(self._guard, self._clocks, pair, self._exact)
            except BaseException:
                self._guard.reset()
                raise
        self.pair = pair
        self.asked += 1

    def to_auto(self) -> None:
        """Nothing locked. Raises locks.NotRestored."""
        if not self.reads_only:
            self._guard.reset()
        self.pair = BASELINE

    def seen(self) -> tuple[int, int]:
        """(core, memory) clocks now, MHz."""
        return self.board.sm_mhz(), self.board.mem_mhz()


def facts_of(which: str) -> dict[str, Any]:
    """Facts and slug of the GPU that `which` (UUID, index or nothing) names. Raises InputError.

    A child process asks for them, because a process must not have had NVML open before it holds a guard.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        code = 1
        try:
            os.write(write_end, _facts_text(which).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    data = b""
    while part := os.read(read_end, 1 << 16):
        data += part
    os.close(read_end)
    os.waitpid(child, 0)
    answer = parse_json(data.decode() or "{}")
    if "error" in answer or not answer:
        raise InputError(answer.get("error", "NVML died while the GPU was looked up; see dmesg"))
    return answer


def _facts_text(which: str) -> str:
    from kernel_dvfs.gpu.nvml.board import resolve
    from kernel_dvfs.gpu.nvml.facts import facts, slug
    from kernel_dvfs.gpu.nvml.library import Library

    try:
        with Library() as nvml:
            found = facts(nvml, resolve(nvml, which))
        return json.dumps(found | {"slug": slug(found)})
    except InputError as error:
        return json.dumps({"error": " ".join(lines(error))})
