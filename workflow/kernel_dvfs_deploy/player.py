"""An iteration schedule played on a GPU: clocks asked for ahead of the launches that want them, from a host thread.

The player knows when each launch begins if all goes as chosen, and corrects that by events that the GPU passes. It asks
for each change so early that it lands at its launch, and looks whether it has landed. On any surprise (asked too late,
not reached in time, several times in a row where latencies are distributions, clocks held down, clocks that somebody
else sets, launches that take another time, a driver that refuses) it gives the clocks back to the governor for good;
the iteration runs on at auto.

    iteration = read_iteration("schedule.json")
    with Guard(uuid) as guard:
        control = Control(guard, about)
        player = Player(iteration, control, None)
        player.events = StreamEvents(make_event, player.boundaries, len(iteration.names))
        player.start(iterations=100)
        ...                                            # launch, with player.events.reached(launch) before each launch
        log = player.finish()
"""

from __future__ import annotations

import bisect
import collections
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernel_dvfs.measurement.verdict import is_reached
from kernel_dvfs_clocks.clocks import AUTO, THROTTLING, label
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_deploy.schedules import check_gpu

if TYPE_CHECKING:
    from kernel_dvfs_deploy.control import Control, Pair
    from kernel_dvfs_deploy.events import EventSource
    from kernel_dvfs_deploy.sequence.schedule import IterationSchedule

_REMEDY = "choose again with kernel-dvfs sequence"
_LOOK_EVERY_S = 0.0005
# sums of times in a file may be off by so much
_ROUNDED_S = 1e-9
_LATE_IN_A_ROW = 4
# requests that the log of endless playing keeps, the last ones
_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is not yet a surprise."""

    late_s: float = 0.005  # a request may be made so much after its time, and land so much after its latest
    # launches may take this share more or less time than foreseen between two events, and late_s on top
    duration_share: float = 0.2
    throttling: int = sum(THROTTLING)  # NVML's event reasons that count


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of an iteration, and the moment to ask for it: `delay_s` after the GPU passes a boundary."""

    launch: int  # that it is for
    pair: Pair
    anchor: int  # the boundary
    delay_s: float
    latest_s: float  # how long it is waited for


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What became of a change; times are of the source's clock."""

    iteration: int
    launch: int
    pair: Pair
    due_s: float  # when it was to be asked for
    asked_s: float  # when it was asked for
    reached_s: float | None  # when the clocks were seen to be there; None: they were not, or nothing is ever set
    boundary_s: float | None  # when the GPU came to its launch; None: that was not recorded
    core_mhz: int | None  # as seen; None where nothing is ever set
    mem_mhz: int | None


@dataclass(frozen=True, slots=True)
class Log:
    """What came of playing."""

    asked: list[ChangeOutcome]
    surprise: str | None  # why the clocks went back to auto
    finished: bool  # whether all iterations were played


class Player:
    """play(iterations), or start() and finish() in a thread of its own; stop() ends it at the next change.

    iteration: of behaviour `ahead` or `lag`. events: may be set later, since a source may need `boundaries`. about: the
    GPU's facts, to be of the GPU that the schedule was made for. launches: kernel ids as the program has them, to be
    the schedule's. expects: {pair: (core, memory) MHz} where the board is known to deliver others than are asked for.
    Raises InputError for a schedule of another GPU or workload, or one that a host thread cannot play.
    """

    def __init__(
        self,
        iteration: IterationSchedule,
        control: Control,
        events: EventSource | None,
        about: Mapping[str, Any] | None = None,
        launches: Sequence[str] | None = None,
        tolerance: Tolerance | None = None,
        expects: Mapping[Pair, Pair] | None = None,
    ) -> None:
        timing, where = iteration.timing, f"schedule {iteration.path}"
        if about is not None:
            check_gpu(iteration.path, iteration.gpu, about)
        if launches is not None and list(launches) != iteration.names:
            place = next(
                (
                    at
                    for at, (scheduled, launched) in enumerate(zip(iteration.names, launches))
                    if scheduled != launched
                ),
                min(len(iteration.names), len(launches)),
            )
            raise InputError(
                f"{where}: launches[{place}] is not what this program launches there: it has {len(launches)} launches, "
                f"the schedule {len(iteration.names)}, of workload {iteration.workload.get('name')}; {_REMEDY}"
            )
        for number, pair in enumerate(iteration.pairs):
            control.check(pair, f"{where}: pairs[{number}]")
        self._iteration, self._control, self.events = iteration, control, events
        self._timing, self._tolerance = timing, tolerance or Tolerance()
        self._expects = expects or {}
        self._count = len(iteration.names)
        self._until_s = iteration.until_s()
        wanted = [iteration.pairs[pair] for pair in (iteration.first, *(pair for _, pair in iteration.changes))]
        self.steps = [
            self._step(launch, before, after)
            for (launch, _), before, after in zip(iteration.changes, wanted, wanted[1:])
        ]
        self.boundaries = {step.anchor for step in self.steps} | {step.launch for step in self.steps} | {0}
        # each with the number of its boundary
        self._asked: collections.deque[tuple[int, ChangeOutcome]] = collections.deque(maxlen=None)
        self._stopping = threading.Event()
        self._surprise: str | None = None
        self._missed = 0  # changes in a row that were not seen to land in time
        self._last_passed: tuple[int, float] | None = None  # (boundary, when s)
        self._thread: threading.Thread | None = None
        self.log: Log | None = None  # once it has been played

    @property
    def _source(self) -> EventSource:
        if self.events is None:
            raise ValueError("a player needs a source of events: set player.events before playing")
        return self.events

    def _step(self, launch: int, before: Pair, pair: Pair) -> PlannedChange:
        ask_s = self._until_s[launch] - self._timing.lead_s(before, pair)
        if ask_s < -_ROUNDED_S:
            raise InputError(
                f"schedule {self._iteration.path}: launches[{launch}] wants a change that has to be asked for "
                f"{-1000 * ask_s:.3g} ms before the iteration begins; {_REMEDY}"
            )
        # the last boundary before the moment to ask, so that little can go wrong in between
        anchor = min(bisect.bisect_right(self._until_s, ask_s) - 1, self._count - 1)
        anchor = max(anchor, 0)
        delay_s = max(0.0, ask_s - self._until_s[anchor])
        return PlannedChange(launch, pair, anchor, delay_s, self._timing.latest_of_s(before, pair))

    # --- playing ------------------------------------------------------------------------------------------------------

    def start(self, iterations: int | None) -> None:
        """Play in a thread of its own. iterations: None goes on until `stop`."""
        self._thread = threading.Thread(target=self.play, args=(iterations,), name="kernel-dvfs player", daemon=True)
        self._thread.start()

    def finish(self) -> Log:
        """Wait for the thread to end; returns what it did."""
        if self._thread is None:
            raise ValueError("a player finishes only what it has started")
        self._thread.join()
        if self.log is None:
            raise ValueError("the player's thread died; see its traceback")
        return self.log

    def stop(self) -> None:
        """Make no further change and give the clocks back; `finish` waits for that."""
        self._stopping.set()

    def play(self, iterations: int | None) -> Log:
        """Make all changes of so many iterations, then give the clocks back. Returns what came of it. The first begins
        at the first pair.

        iterations: None goes on until `stop`; the log then keeps the last requests.
        """
        finished = False
        if iterations is None:
            self._asked = collections.deque(maxlen=_KEPT)
        try:
            self._control.announce(
                f"an iteration schedule of {len(self.steps)} changes among {len(self._iteration.pairs)} pairs"
            )
            self._begin()
            if iterations is None and not self.steps:
                self._stopping.wait()
            finished = all(
                self._change(iteration, step)
                for iteration in (itertools.count() if iterations is None and self.steps else range(iterations or 0))
                for step in self.steps
            ) and self._end(iterations or 0)
            finished = finished or (self._stopping.is_set() and self._surprise is None)
        except (InputError, ExceptionGroup) as error:
            self._give_up("; ".join(lines(error)))
        except BaseException as error:
            self._give_up(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._to_auto()
            self.log = Log(self._with_boundaries(), self._surprise, finished)
        return self.log

    def _begin(self) -> None:
        """Ask for the pair that an iteration begins with, which is the one that it ends with."""
        first = self._iteration.pairs[self._iteration.first]
        if self.steps or first != (AUTO, AUTO):
            self._control.ask(first)

    def _change(self, iteration: int, step: PlannedChange) -> bool:
        """Ask for one change and see it land. Returns whether to go on."""
        events, tolerance = self._source, self._tolerance
        passed_s = self._passed(iteration * self._count + step.anchor, step)
        if self._stopping.is_set():
            return False
        if passed_s is None:
            return self._give_up(f"launch {step.launch}: the GPU has not come to boundary {step.anchor} in time")
        due_s = passed_s + step.delay_s
        events.sleep_until(due_s)
        if not self._is_ours(step, iteration):
            return False
        asked_s = events.now_s()
        if asked_s - due_s > tolerance.late_s:
            return self._give_up(f"launch {step.launch}: asked {1000 * (asked_s - due_s):.1f} ms after its time")
        self._control.ask(step.pair)
        number = iteration * self._count + step.launch
        if self._control.reads_only:  # it was noted, so there is nothing to see land
            noted = ChangeOutcome(iteration, step.launch, step.pair, due_s, asked_s, None, None, None, None)
            self._asked.append((number, noted))
            return True
        # of a distribution no longer than that, so that the next request is in time
        latest_s = asked_s + step.latest_s + (0.0 if self._timing.spreads else tolerance.late_s)
        seen, reached_s, is_idle = self._reach(step.pair, latest_s)
        self._asked.append(
            (number, ChangeOutcome(iteration, step.launch, step.pair, due_s, asked_s, reached_s, None, *seen))
        )
        if not self._is_free(step):
            return False
        if reached_s is None and not is_idle:
            self._missed += 1
        elif step.pair != (AUTO, AUTO):  # which any clock is
            self._missed = 0
        # where latencies are distributions some changes are late; the next request replaces one that has not landed
        if reached_s is None and self._missed > (_LATE_IN_A_ROW if self._timing.spreads else 0):
            return self._give_up(
                f"launch {step.launch}: {label(step.pair)} not reached {1000 * (latest_s - asked_s):.1f} ms after it "
                f"was asked for; the clocks are {seen[0]}, {seen[1]} MHz"
            )
        return True

    def _passed(self, boundary: int, step: PlannedChange) -> float | None:
        """Return when the GPU passed a boundary; None where that takes far too long. A surprise where it came at
        another time than foreseen."""
        passed_s = self._source.passed_s(boundary)
        if passed_s is None:
            passed_s = self._source.wait(boundary, self._source.now_s() + 3 * self._until_s[-1] + 1.0)
        if passed_s is None:
            return None
        last, self._last_passed = self._last_passed, (boundary, passed_s)
        # what lies between two iterations is the program's own affair
        alike = last is not None and last[0] // self._count == boundary // self._count
        if last is not None and alike and boundary > last[0] and not self._control.reads_only:
            foreseen_s = self._foreseen_s(last[0], boundary)
            off_s = abs(passed_s - last[1] - foreseen_s)
            # clocks that are held down explain it, and say more
            if off_s > self._tolerance.duration_share * foreseen_s + self._tolerance.late_s and self._is_free(step):
                self._give_up(
                    f"launches {last[0] % self._count} to {boundary % self._count} took "
                    f"{1000 * (passed_s - last[1]):.1f} ms, not {1000 * foreseen_s:.1f} ms"
                )
        return passed_s

    def _foreseen_s(self, begin: int, end: int) -> float:
        def at(boundary: int) -> float:
            return boundary // self._count * self._until_s[-1] + self._until_s[boundary % self._count]

        return at(end) - at(begin)

    def _reach(self, pair: Pair, latest_s: float) -> tuple[tuple[int, int], float | None, bool]:
        """Return ((core, memory) MHz seen, when they were as asked for or None, whether the GPU had nothing to do
        then).

        A GPU that has come to the end of its work lowers its clocks by itself. Nobody waits for them then: that would
        make the next change late.
        """
        while True:
            is_idle = self._source.is_idle()
            seen = self._control.seen()
            now_s = self._source.now_s()
            if self._is_there(pair, seen):
                return seen, now_s, is_idle
            if is_idle or now_s >= latest_s:
                return seen, None, is_idle or self._source.is_idle()
            self._source.sleep_until(min(now_s + _LOOK_EVERY_S, latest_s))

    def _is_there(self, pair: Pair, seen: tuple[int, int]) -> bool:
        return all(is_reached(wanted, seen_mhz) for seen_mhz, wanted in zip(seen, self._expects.get(pair, pair)))

    def _is_ours(self, step: PlannedChange, iteration: int) -> bool:
        """Return whether the clocks are still those asked for last, as far as they were reached in this iteration and
        the GPU still works; a surprise otherwise."""
        if self._surprise:
            return False
        last = self._asked[-1][1] if self._asked else None
        if self._control.reads_only or last is None or last.iteration != iteration or last.reached_s is None:
            return True
        was_idle = self._source.is_idle()  # before the look as well: the host may launch again while it is made
        seen = self._control.seen()
        if not self._is_there(self._control.pair, seen) and not was_idle and not self._source.is_idle():
            if self._is_free(step):
                self._give_up(
                    f"launch {step.launch}: the clocks are {seen[0]}, {seen[1]} MHz where {label(self._control.pair)} "
                    "was asked for and reached: somebody else sets them"
                )
            return False
        return True

    def _is_free(self, step: PlannedChange) -> bool:
        """Return whether nothing holds the core clock below what was asked for; a surprise otherwise. At auto the
        governor may choose any clock."""
        pair = self._expects.get(self._control.pair, self._control.pair)
        asked_mhz = pair[0]
        if isinstance(asked_mhz, str) or self._control.reads_only:
            return True
        reasons = self._control.board.event_reasons() & self._tolerance.throttling
        core_mhz = self._control.seen()[0]
        if reasons and core_mhz < asked_mhz and not is_reached(asked_mhz, core_mhz):
            return self._give_up(
                f"launch {step.launch}: clocks held down (reasons {reasons:#x}): {core_mhz} MHz at {label(pair)}"
            )
        return True

    def _end(self, iterations: int) -> bool:
        """Wait for the end of the last iteration, so that it runs at its clocks. Returns whether nothing surprised."""
        if not self.steps:
            return True
        last = self._asked[-1][0] if self._asked else 0
        began = self._source.wait(last, self._source.now_s() + 3 * self._until_s[-1] + 1.0)
        if began is None:
            return self._give_up("the last launches were not seen")
        self._source.sleep_until(began + self._foreseen_s(last, iterations * self._count))
        return self._surprise is None

    # --- when it does not go as chosen --------------------------------------------------------------------------------

    def _give_up(self, why: str) -> bool:
        if self._surprise is None:
            self._surprise = why
            self._to_auto()
        return False

    def _to_auto(self) -> None:
        try:
            self._control.to_auto()
        except (InputError, ExceptionGroup) as error:
            # the guard tries again on leaving
            why = f"the clocks could not be given back yet: {'; '.join(lines(error))}"
            self._surprise = f"{self._surprise}; {why}" if self._surprise else why

    def _with_boundaries(self) -> list[ChangeOutcome]:
        return [replace(outcome, boundary_s=self._source.passed_s(number)) for number, outcome in self._asked]
