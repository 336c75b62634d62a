"""What is looked at on a real board while something is measured on it, whichever command measures.

From it come what a record says of a window (window.Watched), and what makes its numbers unusable: a counter that falls
or that power readings contradict, somebody else's work, another power limit, a board that was divided meanwhile. The
verdict itself is verdict.judge's, for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_dvfs.measurement.counter import AlignedWindow, compared, fallen
from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS
from kernel_dvfs.measurement.verdict import Verdict, judge
from kernel_dvfs_clocks.clocks import BASELINE, THROTTLING, Pair
from kernel_dvfs_clocks.nvml.library import Unsupported

if TYPE_CHECKING:
    from kernel_dvfs.measurement.window import Watched
    from kernel_dvfs_clocks.clocks import Clock

# verdicts of numbers that nothing may be concluded from
UNFIT = ("counter", "disturbed", "not_reached")
# a counter that is further from the power reading than any sensor's error: of another unit, scale or board. A few
# readings may all come at the same moment of a step: of so many, this divided by them is added
_FAR_PERCENT, _FEW_PERCENT = 15.0, 300.0
# a board stays so near to its power limit; as windows of a steady load show it, and whole runs for sure
_OVER_SHARE, _FAR_OVER_SHARE = 0.001, 0.02
_SEEN_LATE_S = 0.02  # by which one who polls a counter now and then sees its edge
_IDLE = 0x1  # NVML's event reason of a GPU that has nothing to do: its clocks are not those of work
# what a record tells: what holds clocks down, and besides GPUs that are kept alike and the display's setting
_EVENT_BITS = sorted((*THROTTLING, 0x10, 0x100))


class BoardSample(NamedTuple):
    """A board at a moment."""

    reasons: int  # NVML's bits of why its clocks are not higher
    core_mhz: int
    mem_mhz: int
    power_mw: int | None  # None: it has no reading
    energy_mj: int | None  # None: not read


class BoardState(NamedTuple):
    """What should not change while a board is measured, and what has added up by now."""

    limit_mw: int | None
    is_divided: bool
    processes: int | None
    temperature_c: float
    cap_ns: int | None
    thermal: int | None


def look_at(board: Any, counts: bool = True) -> BoardSample:
    """Look at a board (nvml.board.Board). counts: at its energy counter too, which takes some ms."""
    reasons = board.event_reasons()
    core_mhz, mem_mhz, power_mw = board.sm_mhz(), board.mem_mhz(), board.power_mw()
    return BoardSample(reasons, core_mhz, mem_mhz, power_mw, board.energy_mj() if counts else None)


def state_of(board: Any) -> BoardState:
    """Return the state of a board."""
    temperature_c = 0.0
    with suppress(Unsupported):
        temperature_c = board.temperature_c()
    cap_ns, thermal, *_ = board.throttled()
    return BoardState(board.power_limit_mw(), board.mig(), board.compute_processes(), temperature_c, cap_ns, thermal)


class Watch:
    """Looks at a board from now until `end`, and what they tell.

    look, state: as of look_at and state_of. now_s: the clock by which windows are timed. own_processes: how many
    compute processes are the caller's; None: not known. all_own: those that there are now are.
    """

    def __init__(
        self,
        look: Callable[[], BoardSample],
        state: Callable[[], BoardState],
        now_s: Callable[[], float],
        own_processes: int | None = None,
        all_own: bool = False,
    ) -> None:
        self._look, self._state, self._now_s, self._own_processes = look, state, now_s, own_processes
        self._looks: list[tuple[float, BoardSample]] = []
        self._last_mj = 0
        self._end_s = math.inf
        self._before = self._after = state()
        if all_own:
            self._own_processes = self._before.processes

    def look(self) -> None:
        """Look at the board. Raises CounterFault where the energy counter has fallen."""
        sample = self._look()
        self._looks.append((self._now_s(), sample))
        self.check_rises(sample.energy_mj)

    def check_rises(self, energy_mj: int | None) -> None:
        """Raise CounterFault where the energy counter shows less than it has shown since the beginning."""
        if energy_mj is not None:
            if energy_mj < self._last_mj:
                raise fallen(self._last_mj, energy_mj)
            self._last_mj = energy_mj

    def end(self) -> None:
        """Note that what was watched is over."""
        self._after, self._end_s = self._state(), self._now_s()

    def following(self) -> Watch:
        """Return the watch of what follows `end`, with what was looked at since; processes of then are the caller's."""
        watch = copy(self)
        watch._looks = [(at_s, look) for at_s, look in self._looks if at_s >= self._end_s]
        watch._before, watch._own_processes = self._after, self._after.processes
        return watch

    @property
    def limit_mw(self) -> int | None:
        """The power limit at the end."""
        return self._after.limit_mw

    @property
    def has_looked(self) -> bool:
        """Whether any look has come."""
        return bool(self._looks)

    @property
    def foreign(self) -> int | None:
        """Compute processes at the end that are not the caller's; None where that is not known."""
        processes = self._after.processes
        return None if processes is None or self._own_processes is None else max(0, processes - self._own_processes)

    def disturbances(self) -> list[str]:
        """Return what came from outside, each in words."""
        return disturbances(self.foreign or 0, self._before.limit_mw, self._after.limit_mw, self._after.is_divided)

    def contradiction(self, window: AlignedWindow) -> str:
        """Return why the counter's energy of a window is not believed, in words; "" where nothing speaks against it."""
        seen = [(at_s, look.power_mw) for at_s, look in self._looks if look.power_mw is not None]
        if not seen or not (comparison := compared(window, seen)).exceeds(_FAR_PERCENT + _FEW_PERCENT / len(seen)):
            return ""
        power_w, reading_w = comparison.counter_j / comparison.time_s, comparison.integral_j / comparison.time_s
        return (
            f"energy counter: {power_w:.4g} W on average, the power reading {reading_w:.4g} W; kernel-dvfs counter "
            "compares them"
        )

    def excess(self, window: AlignedWindow, late_s: float, share: float = _OVER_SHARE) -> str:
        """Return why the mean power of a window cannot be, in words; "" where it can. late_s: by which its edges may be
        seen late; share: of its power limit, that the board may be above it."""
        limit_mw, time_s = self._after.limit_mw, window.end_s - window.start_s
        if not limit_mw or window.energy_mj / time_s <= limit_mw * (1 + share + late_s / time_s):
            return ""
        return f"{window.energy_mj / time_s / 1000:.1f} W on average, above the power limit of {limit_mw / 1000:g} W"

    def watched(self, duration_s: float, core_mhz: float | None = None, settled: bool = False) -> Watched:
        """Return what was seen, as records have it. core_mhz: as the device counted it, where it did; settled: as
        `judged` counts looks."""
        return self._of(self._settled if settled else [look for _, look in self._looks], duration_s, core_mhz)

    @property
    def _settled(self) -> list[BoardSample]:
        """The looks but the first one, at which clocks may be on their way; that one where it is the only one."""
        return [look for _, look in self._looks[1:] or self._looks]

    def _of(self, looks: Sequence[BoardSample], duration_s: float, core_mhz: float | None = None) -> Watched:
        cores: list[float] = [look.core_mhz for look in looks]
        middle = spread(cores)[1] if core_mhz is None else round(core_mhz, 1)
        return {
            # the middle may be the device's own count of cycles; NVML's samples say how far it strayed
            "core_mhz": [min(middle, *cores), middle, max(middle, *cores)],
            "mem_mhz": spread([look.mem_mhz for look in looks]),
            "temp_c": [self._before.temperature_c, self._after.temperature_c],
            # read before the first edge and after the last one, so it covers a little more than the window
            "cap_ns": min(rise(self._before.cap_ns, self._after.cap_ns), round(1e9 * duration_s)),
            "thermal_delta": rise(self._before.thermal, self._after.thermal),
            "reasons": shares([look.reasons for look in looks]),
            "processes": self.foreign,
        }

    def judged(self, pair: tuple[Clock, Clock], window: AlignedWindow, period_s: float) -> tuple[Verdict, list[str]]:
        """Return (verdict, reasons) of what ran at a pair over a window of the counter, which moves each period_s.

        Settled looks count, and of these none at a GPU that has nothing to do.
        """
        looks = self._settled
        busy = [look for look in looks if not look.reasons & _IDLE]
        unstable = ""
        if not busy and tuple(pair) != tuple(BASELINE):
            unstable, pair = "the GPU had nothing to do in any look: what clocks it reaches is not known", BASELINE
        time_s = window.end_s - window.start_s
        if time_s < 0.98 * LEAST_PERIODS * period_s:
            unstable = f"counted over {time_s:.2g} s, less than {LEAST_PERIODS} moves of the counter"
        seen = self._of(busy or looks, time_s)
        reached = {"core_mhz": seen["core_mhz"][1], "mem_mhz": seen["mem_mhz"][1]}
        counter = self.contradiction(window) or self.excess(window, _SEEN_LATE_S, _FAR_OVER_SHARE)
        verdict, reasons, _ = judge(Pair(*pair), reached, [seen], counter, self.disturbances(), unstable)
        return verdict, reasons


def disturbances(foreign: int, before_mw: int | None, limit_mw: int | None, is_divided: bool) -> list[str]:
    """Return what came from outside, in words: processes, another power limit than before, MIG."""
    reasons = []
    if foreign > 0:
        reasons.append(f"{foreign} other process(es) computed on the GPU")
    if limit_mw != before_mw:
        reasons.append(f"the power limit changed from {before_mw} to {limit_mw} mW")
    if is_divided:
        reasons.append("MIG was turned on")
    return reasons


def rise(before: int | None, after: int | None) -> int:
    """Return by how much a counter rose; 0 where the driver does not tell."""
    return 0 if before is None or after is None else max(0, after - before)


def spread(values: Iterable[float]) -> list[float]:
    """Return [lowest, middle, highest]."""
    ordered = sorted(values)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def shares(samples: Sequence[int]) -> dict[str, float]:
    """Return {event bit: share of the samples that show it}."""
    shown: dict[str, float] = {}
    for bit in _EVENT_BITS:
        count = sum(1 for sample in samples if sample & bit)
        if count:
            shown[hex(bit)] = round(count / len(samples), 4)
    return shown
