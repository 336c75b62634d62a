"""An iteration schedule played on a GPU: clocks asked for ahead of the launches that want them, from a host thread.

The player knows when each launch begins if all goes as chosen, corrects that by events that the GPU passes, asks for
each change so early that it lands at its launch, and looks whether it has. On any surprise (asked too late, not
reached in time, clocks held down, clocks that somebody else sets, launches that take another time, a driver that
refuses) it gives the clocks back to the governor for good; the iteration runs on at auto.

    iteration = read_iteration("schedule.json")
    with Guard(uuid) as guard:                         # before CUDA is opened
        control = Control(guard, about)
        player = Player(iteration, control, None)
        player.events = StreamEvents(make_event, player.boundaries, len(iteration.names))
        player.start(iterations=100)
        ...                                            # launch, with player.events.reached(launch) before each launch
        log = player.finish()

Knows schedules, a control and a source of events; no kernels.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from typing import NamedTuple

from kernel_dvfs.deploy.control import named
from kernel_dvfs.errors import InputError, lines
from kernel_dvfs.gpu.clocks import AUTO
from kernel_dvfs.measurement.verdict import is_reached

# NVML's reasons that hold clocks below what was asked for: power cap, slowdowns, brake
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
_LOOK_EVERY_S = 0.0005


class Tolerance(NamedTuple):
    """late_s: a request may be made so much after its time, and land so much after its latest. duration_share: launches
    may take so much more or less time than foreseen between two events, beside late_s. throttling: reasons that
    count."""

    late_s: float = 0.005
    duration_share: float = 0.2
    throttling: int = THROTTLING


class Step(NamedTuple):
    """A change: the launch that it is for, its pair, and the moment to ask for it: `delay_s` after the GPU passes
    boundary `anchor`, which lies `rounds` iterations back."""

    launch: int
    pair: tuple
    anchor: int
    rounds: int
    delay_s: float


class Asked(NamedTuple):
    """What became of a change, times of the source's clock, s: when it was due, asked for, and seen; when the GPU
    came to its launch, None where that was not noted. core_mhz, mem_mhz: as seen."""

    iteration: int
    launch: int
    pair: tuple
    due_s: float
    asked_s: float
    reached_s: float | None
    boundary_s: float | None
    core_mhz: int | None
    mem_mhz: int | None


class Log(NamedTuple):
    """asked: [Asked]. surprise: why the clocks went back to auto, or None. finished: whether all iterations were
    played."""

    asked: list
    surprise: str | None
    finished: bool


class Player:
    """play(iterations), or start() and finish() in a thread of its own.

    iteration: sequence.schedule.Iteration, behaviour `ahead` or `lag`. control: deploy.control.Control. events: see
    events.py; may be set later, since it may want `boundaries`. expects: {pair: (core, memory) MHz} where the board is
    known to deliver others than were asked for. launches: kernel ids as the program has them, to be the schedule's.
    Raises InputError for a schedule of another GPU or workload, or one that a host thread cannot play.
    """

    def __init__(self, iteration, control, events, about=None, launches=None, tolerance=None, expects=None):
        timing, where = iteration.timing, iteration.path
        if timing.behaviour == "wait":
            raise InputError(
                f"{where}, field switching.behaviour: `wait` stops the stream, which only the program can; choose "
                "with --switch-behaviour ahead or lag"
            )
        if about is not None:
            from kernel_dvfs.deploy.schedules import check_gpu

            check_gpu(where, iteration.gpu, about)
        if launches is not None and list(launches) != iteration.names:
            place = next(
                (at for at, (own, theirs) in enumerate(zip(iteration.names, launches)) if own != theirs),
                min(len(iteration.names), len(launches)),
            )
            raise InputError(
                f"{where}, field launches.{place}: made for workload {iteration.workload.get('name')} with "
                f"{len(iteration.names)} launches, this program launches {len(launches)} and differs there"
            )
        for number, pair in enumerate(iteration.pairs):
            control.check(pair, f"{where}, field pairs.{number}")
        self._iteration, self._control, self.events = iteration, control, events
        self._timing, self._tolerance = timing, tolerance or Tolerance()
        self._expects = expects or {}
        self._count = len(iteration.names)
        # when each boundary is passed, from the iteration's begin
        self._until_s = [0.0, *itertools.accumulate(iteration.time_s)]
        self.steps = [self._step(launch, iteration.pairs[pair]) for launch, pair in iteration.changes]
        self.boundaries = {step.anchor for step in self.steps} | {step.launch for step in self.steps} | {0}
        self._asked = []
        self._surprise = self._last_passed = self.log = None
        self._thread = None

    def _step(self, launch: int, pair: tuple) -> Step:
        ahead_s = self._timing.latency_s if self._timing.behaviour == "ahead" else 0.0
        ask_s, rounds = self._until_s[launch] - ahead_s, 0
        while ask_s < 0:
            ask_s += self._until_s[-1]
            rounds += 1
        # the last boundary before the moment to ask, so that little can go wrong in between
        anchor = min(bisect.bisect_right(self._until_s, ask_s) - 1, self._count - 1)
        return Step(launch, pair, anchor, rounds, ask_s - self._until_s[anchor])

    # --- playing ------------------------------------------------------------------------------------------------------

    def start(self, iterations: int) -> None:
        """Play in a thread of its own."""
        self._thread = threading.Thread(target=self.play, args=(iterations,), name="kernel-dvfs player", daemon=True)
        self._thread.start()

    def finish(self) -> Log:
        """Wait for the thread's end; what it did."""
        self._thread.join()
        return self.log

    def play(self, iterations: int) -> Log:
        """All changes of so many iterations, then the clocks given back. The first begins at the first pair."""
        finished = False
        try:
            self._control.announce(
                f"an iteration schedule of {len(self.steps)} changes among {len(self._iteration.pairs)} pairs"
            )
            self._begin()
            finished = all(
                self._change(iteration, step)
                for iteration in range(iterations)
                for step in self.steps
                if iteration >= step.rounds
            ) and self._end(iterations)
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
        """The pair of the iteration's begin; or, where a change lands so early that it has to be asked for before, that
        one's, so that the first iteration begins with what the others have after it."""
        early = [step.pair for step in self.steps if step.rounds]
        first = early[-1] if early else self._iteration.pairs[self._iteration.first]
        if self.steps or tuple(first) != (AUTO, AUTO):
            self._control.ask(first)

    def _change(self, iteration: int, step: Step) -> bool:
        """Ask for one change and see it land; whether to go on."""
        events, tolerance = self.events, self._tolerance
        passed_s = self._passed((iteration - step.rounds) * self._count + step.anchor)
        if passed_s is None:
            return self._give_up(f"launch {step.launch}: the GPU has not come to boundary {step.anchor} in time")
        due_s = passed_s + step.delay_s
        events.sleep_until(due_s)
        if not self._is_ours(step):
            return False
        asked_s = events.now_s()
        if asked_s - due_s > tolerance.late_s:
            return self._give_up(f"launch {step.launch}: asked {1000 * (asked_s - due_s):.1f} ms after its time")
        self._control.ask(step.pair)
        latest_s = asked_s + self._timing.latest_s + tolerance.late_s
        seen, reached_s = self._reach(step.pair, latest_s)
        number = iteration * self._count + step.launch
        self._asked.append((number, Asked(iteration, step.launch, step.pair, due_s, asked_s, reached_s, None, *seen)))
        if not self._is_free(step):
            return False
        if reached_s is None:
            return self._give_up(
                f"launch {step.launch}: {named(step.pair)} not reached {1000 * (latest_s - asked_s):.1f} ms after it "
                f"was asked for; the clocks are {seen[0]}, {seen[1]} MHz"
            )
        return True

    def _passed(self, boundary: int):
        """When the GPU passed a boundary; None, and a surprise, where it takes far too long or came at an odd time."""
        found = self.events.passed_s(boundary)
        if found is None:
            found = self.events.wait(boundary, self.events.now_s() + 3 * self._until_s[-1] + 1.0)
        if found is None:
            return None
        last, self._last_passed = self._last_passed, (boundary, found)
        if last is not None and boundary > last[0] and not self._control.reads_only:
            foreseen_s = self._foreseen_s(last[0], boundary)
            off_s = abs(found - last[1] - foreseen_s)
            if off_s > self._tolerance.duration_share * foreseen_s + self._tolerance.late_s:
                self._give_up(
                    f"launches {last[0] % self._count} to {boundary % self._count} took {1000 * (found - last[1]):.1f} "
                    f"ms, not {1000 * foreseen_s:.1f} ms"
                )
        return found

    def _foreseen_s(self, begin: int, end: int) -> float:
        def at(boundary):
            return boundary // self._count * self._until_s[-1] + self._until_s[boundary % self._count]

        return at(end) - at(begin)

    def _reach(self, pair, latest_s: float) -> tuple:
        """((core, memory) seen, when they were what was asked for or None)."""
        while True:
            seen = self._control.seen()
            now_s = self.events.now_s()
            if self._control.reads_only or self._is_there(pair, seen):
                return seen, now_s
            if now_s >= latest_s:
                return seen, None
            self.events.sleep_until(min(now_s + _LOOK_EVERY_S, latest_s))

    def _is_there(self, pair, seen) -> bool:
        return all(is_reached(wanted, own) for own, wanted in zip(seen, self._expects.get(tuple(pair), pair)))

    def _is_ours(self, step: Step) -> bool:
        """Whether the clocks are still those asked for last; a surprise otherwise."""
        if self._surprise:
            return False
        if self._control.reads_only:
            return True
        seen = self._control.seen()
        if self._asked and not self._is_there(self._control.pair, seen):
            if self._is_free(step):
                self._give_up(
                    f"launch {step.launch}: the clocks are {seen[0]}, {seen[1]} MHz where {named(self._control.pair)} "
                    "was asked for and reached: somebody else sets them"
                )
            return False
        return True

    def _is_free(self, step: Step) -> bool:
        """Whether nothing holds the core clock below what was asked for; a surprise otherwise. At auto the governor may
        do as it likes."""
        pair = self._expects.get(tuple(self._control.pair), self._control.pair)
        if pair[0] == AUTO or self._control.reads_only:
            return True
        reasons = self._control.board.event_reasons() & self._tolerance.throttling
        core_mhz = self._control.seen()[0]
        if reasons and core_mhz < pair[0] and not is_reached(pair[0], core_mhz):
            return self._give_up(
                f"launch {step.launch}: clocks held down (reasons {reasons:#x}): {core_mhz} MHz at {named(pair)}"
            )
        return True

    def _end(self, iterations: int) -> bool:
        """See the last iteration to its end, so that it runs at its clocks."""
        if not self.steps:
            return True
        last = self._asked[-1][0] if self._asked else 0
        began = self.events.wait(last, self.events.now_s() + 3 * self._until_s[-1] + 1.0)
        if began is None:
            return self._give_up("the last launches were not seen")
        self.events.sleep_until(began + self._foreseen_s(last, iterations * self._count))
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
            # the guard tries again on leaving, and its janitor after it
            said = f"the clocks could not be given back yet: {'; '.join(lines(error))}"
            self._surprise = f"{self._surprise}; {said}" if self._surprise else said

    def _with_boundaries(self) -> list:
        return [own._replace(boundary_s=self.events.passed_s(number)) for number, own in self._asked]
