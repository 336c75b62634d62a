"""The clocks of one guarded GPU while something is played: asked for, given back, or only looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement.real import preflight
from kernel_dvfs.measurement.real.watch import Watch, look_at, state_of
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, check
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.guard import lock_pair
from kernel_dvfs_clocks.setters import choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from kernel_dvfs.measurement.real.watch import BoardSample, BoardState
    from kernel_dvfs_clocks.clocks import Clock
    from kernel_dvfs_clocks.guard import Guard

    Pair: TypeAlias = tuple[Clock, Clock]  # (core, memory), MHz or AUTO each


class Control:
    """What a player, or a command by pass, asks clocks of.

    guard: entered. about: the GPU's facts (facts_of). exact: lock the clock alone, instead of the range up to it.
    reads_only: nothing is ever set; pairs are only noted.
    """

    period_s = 0.1  # of the energy counter, until `preflight` has measured it

    def __init__(self, guard: Guard, about: dict[str, Any], exact: bool = False, reads_only: bool = False) -> None:
        self._guard, self.clocks, self._exact = guard, about["clocks"], exact
        self.through = guard.through  # what sets the clocks
        self.board = guard.board
        self.reads_only = reads_only
        self.pair: Pair = BASELINE  # the one asked for last
        self.asked = 0  # how many requests were made

    def preflight(
        self,
        share: bool,
        say: Callable[[str], object],
        pairs: Sequence[Pair] | None = None,
        own_processes: int | None = 0,
    ) -> None:
        """Refuse what cannot be tuned, played or measured (measurement.real.preflight.check): nothing is locked then.
        Where memory clocks turn out not to be lockable, there are none from here on."""
        wanted = [] if self.reads_only else pairs
        self.clocks, counter = preflight.check(self._guard, self.clocks, share, say, wanted, own_processes)
        self.period_s = counter.period_s

    def check(self, pair: Pair, where: str) -> None:
        """Raise InputError if the GPU does not list a clock of the pair, or what sets the clocks could not lock it.
        where: what the message begins with."""
        if not self.reads_only and tuple(pair) != tuple(BASELINE):
            try:
                choice.check(self.through, {}, one_clock_alone=AUTO in pair, ranges=not self._exact)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
        if self.clocks["core_mhz"]["listed"]:
            check(self.clocks, pair, where)
        elif tuple(pair) != tuple(BASELINE):
            raise InputError(f"{where}: the driver lists no clocks of this GPU, so none can be locked")

    def announce(self, what: str) -> None:
        """Write down for others what is about to be asked of the clocks."""
        if not self.reads_only:
            self._guard.announce(what)

    def ask(self, pair: Pair) -> None:
        """Request a pair. Where that fails, nothing is locked; raises nvml.library.NvmlError then."""
        if not self.reads_only:
            try:
                lock_pair(self._guard, self.clocks, pair, self._exact)
            except BaseException:
                self._guard.reset()
                raise
        self.pair = pair
        self.asked += 1

    def to_auto(self) -> None:
        """Nothing locked. Raises setters.setter.NotRestored."""
        if not self.reads_only:
            self._guard.reset()
        self.pair = BASELINE

    def watch(self, now_s: Callable[[], float] = time.monotonic, counts: bool = True) -> Watch:
        """Return what watches the board from now on (measurement.real.watch); more processes than now disturb it."""
        return Watch(lambda: self.look(counts), self.state, now_s, all_own=True)

    def look(self, counts: bool = True) -> BoardSample:
        """Look at the board, and return what was seen. counts: at its energy counter too, which takes some ms."""
        return look_at(self.board, counts)

    def state(self) -> BoardState:
        """Return the state of the board."""
        return state_of(self.board)

    def seen(self) -> tuple[int, int]:
        """Return the (core, memory) clocks now, MHz."""
        return self.board.sm_mhz(), self.board.mem_mhz()
