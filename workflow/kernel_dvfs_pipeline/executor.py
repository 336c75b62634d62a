"""A plan put to work while a pipeline trains: clocks asked for ahead of the operations that want them; certified.

The training thread marks where iterations and operations begin and end; a thread of this executor follows the marks as
the GPU passes them and asks for clocks. On any surprise (another order than planned, a driver that refuses) the clocks
of this rank go back to auto for good; the training runs on.

    with Executor(plan, stage, control, marks, gather) as executor:
        for batch in batches:
            with executor.iteration():
                ...                     # each operation between executor.begin(work) and executor.end()
    print(executor.certificate)

First blocks of iterations run at auto and at the plan in turn. The plan stays in force where it has saved energy within
its limit of time. Needs no torch; torch_stages.py brings it to torch.distributed.pipelining.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from kernel_dvfs.limit_verdict import BREAKS, verdict
from kernel_dvfs.measurement.verdict import is_reached
from kernel_dvfs.student import Change, interval
from kernel_dvfs_clocks.clocks import BASELINE, Clock, Pair
from kernel_dvfs_clocks.errors import InputError, lines
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_pipeline.following import Following, PlannedOperation, PlayedPlan, following
from kernel_dvfs_pipeline.stragglers import Lookup

Gather: TypeAlias = Callable[[Any], list[Any]]  # what every rank gives, in order of ranks; all call it together

AT_AUTO, AT_PLAN = "auto", "plan"
_WARM_UP = 3  # iterations before any is timed
_SETTLE_S, _COUNTER_S = 0.5, 0.3  # at a block's begin, and after it, until a counter of energy has moved
_LOOK_S = 0.002  # between two looks at clocks, which take a call of the driver each
_POLL_S = 0.0002
_LATE_S = 0.001  # by which a request, or a landing, may come later and still be in time
_EDGE_LIMIT_S = 2.0


class GpuMarks(Protocol):
    """Marks on the way of what a GPU does."""

    def mark(self) -> Any:
        """Mark what was launched last, from the training thread."""
        ...

    def passed_s(self, mark: Any) -> float | None:
        """Return when the GPU passed a mark, on now_s's clock; None: it has not yet."""
        ...

    def synchronise(self) -> None:
        """Wait until the GPU has passed all marks."""
        ...


class HostMarks:
    """Marks of a program that computes on the host: each is passed as it is made."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s

    def mark(self) -> float:
        return self._now_s()

    def passed_s(self, mark: float) -> float:
        return mark

    def synchronise(self) -> None:
        pass


class Noted:
    """The clocks of a rank whose GPU is not looked at: pairs are noted."""

    reads_only, board = True, None

    def __init__(self) -> None:
        self.pair: tuple[Clock, Clock] = BASELINE
        self.asked = 0

    def ask(self, pair: tuple[Clock, Clock]) -> None:
        self.pair, self.asked = pair, self.asked + 1

    def to_auto(self) -> None:
        self.pair = BASELINE

    def seen(self) -> tuple[int, int]:
        raise ValueError("no GPU is looked at")

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class IterationBlock:
    """Iterations that ran back to back, on one rank."""

    mode: str  # auto or plan
    iterations: int
    time_s: float  # of an iteration
    energy_j: float | None  # of an iteration, of this rank's board; None: not counted


@dataclass(slots=True)
class RequestOutcome:
    """What became of a request, s."""

    iteration: int
    place: int
    pair: Pair
    rises: bool  # to faster clocks
    late_s: float  # asked so much after its moment
    reached_s: float | None = None  # when the clocks were seen to be there
    begin_s: float | None = None  # when its operation began


@dataclass(frozen=True, slots=True)
class PlanCertificate:
    """What became of auto and plan in turn, on the training itself."""

    holds: bool  # the plan is used
    why: str  # why not; "" where it holds
    time: Change | None  # of an iteration against auto, %; None: blocks were not run
    energy: Change | None  # likewise, of all boards that were counted
    ranks: int
    counted: int  # ranks whose board's energy was counted
    changes: int  # of clocks that are asked for in an iteration, by all ranks
    asked: int  # requests made in all
    asked_late: int  # of them after their moment
    rises: int  # of them to faster clocks, that could be seen to land
    late: int  # of these not there as their operation began
    plans: int  # plans that were followed, of which all but one came of stragglers
    dry_run: bool  # no clock was set
    restored: bool  # the clocks were given back
    blocks: list[list[IterationBlock]] = field(repr=False, default_factory=list)  # per block of each rank

    def __str__(self) -> str:
        def percent(change: Change | None) -> str:
            return f"{change.mean:+.2f} % ({change.low:+.2f} to {change.high:+.2f})" if change else "unknown"

        what = "used" if self.holds else f"auto instead: {self.why}" if self.why else "dry run, nothing set"
        landed = f"{self.late} of {self.rises} to faster clocks late" if self.rises else "none seen to land"
        back = "nothing to restore" if self.dry_run else "restored" if self.restored else "NOT RESTORED"
        return (
            f"{self.changes} changes an iteration on {self.ranks} ranks: time {percent(self.time)}, energy "
            f"{percent(self.energy)} against auto; {self.asked} asked for, {self.asked_late} after their moment, "
            f"{landed}; {back}; {what}"
        )

    def document(self) -> dict[str, Any]:
        """Return it as its file has it."""
        return {"schema": "kernel-dvfs/pipeline-certificate/1", **asdict(self)}


class _Lap:
    """An iteration, as its marks are made."""

    def __init__(self, number: int, mode: str, plan: Following | None, start: Any) -> None:
        self.number, self.mode, self.plan, self.start = number, mode, plan, start
        self.marks: list[Any] = []  # begin and end of each operation
        self.ended = False
        self.opens = self.closes = False  # whether a block begins, or has ended, where it starts


class Executor:
    """One rank of a pipeline that follows a plan.

    plan: what following.read_played returns. stage: this rank's. control: its GPU's clocks (GuardedControl, entered),
    or Noted. marks: of what the GPU does. gather: among all ranks. blocks: of auto and of the plan each that the
    certificate rests on; 0: the plan is followed unasked. block_s: of each. slack_percent: time that an iteration
    may take more. lookup: on rank 0, who finds another plan while a replica straggles. dp_rank: of this rank. say: is
    given lines for the user. Raises InputError for a plan that cannot be played here.
    """

    def __init__(
        self,
        plan: PlayedPlan,
        stage: int,
        control: GuardedControl | Noted,
        marks: GpuMarks,
        gather: Gather,
        blocks: int = 5,
        block_s: float = 2.0,
        slack_percent: float = 1.0,
        lookup: Lookup | None = None,
        look_every: int = 10,
        dp_rank: int = 0,
        say: Callable[[str], object] = print,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stage, self._control, self._marks, self._gather, self._say = stage, control, marks, gather, say
        self._blocks_asked, self._block_s, self._slack_percent = blocks, block_s, slack_percent
        self._lookup, self._look_every, self._dp_rank = lookup, look_every, dp_rank
        self._now_s, self._sleep = now_s, sleep
        self._base = self._plan = following(plan, stage)
        self._plans = 1
        self._condition = threading.Condition()
        self._laps: list[_Lap] = []
        self._lap: _Lap | None = None
        self._count = 0
        self._closing = False
        self._modes: list[tuple[str, bool, bool]] = []  # of iterations to come: mode, whether a block opens, closes
        self._mode = AT_PLAN if not blocks else AT_AUTO  # the mode when no block is under way
        self._opened: tuple[float, _CounterEdge, str] | None = None
        # of each block: mode, s of an iteration, its ends
        self._measured: list[tuple[str, float, _CounterEdge, _CounterEdge]] = []
        self._asked_in_all = self._asked_late = self._rises = self._late = 0
        self._landing: RequestOutcome | None = None
        self._looked_s = 0.0
        self._span_s = math.nan  # of the last iteration that the GPU has done, from its first operation to its last
        self.surprise = ""  # why this rank's clocks went back to auto
        self.certificate: PlanCertificate | None = None  # once it is closed
        self._judged: tuple[bool, str, Change | None, Change | None] | None = None
        self._every: list[list[IterationBlock]] = []
        self._thread = threading.Thread(target=self._follow, name="kernel-dvfs pipeline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)

    @property
    def time_s(self) -> float:
        """Of an iteration, by the plan in force."""
        return self._plan.time_s

    @property
    def is_judging(self) -> bool:
        """Return whether blocks are still to be run before the certificate is complete."""
        return bool(self._blocks_asked) and self._judged is None

    # --- the training thread ------------------------------------------------------------------------------------------

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Run one iteration of the training within: all operations of the schedule, and what comes after them."""
        self._agree()
        mode, opens, closes = self._modes.pop(0) if self._modes else (self._mode, False, False)
        lap = _Lap(self._count, mode, self._plan if mode == AT_PLAN else None, self._marks.mark())
        lap.opens, lap.closes = opens, closes
        if self._count == 1:
            self._second = lap.start
        self._count += 1
        with self._condition:
            self._lap = lap
            self._laps.append(lap)
            self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                lap.ended, self._lap = True, None
                self._condition.notify_all()

    def begin(self, work: PlannedOperation) -> None:
        """Note that an operation begins."""
        lap = self._lap
        if lap is None:
            return
        place = len(lap.marks) // 2
        if (
            lap.plan is not None
            and not self.surprise
            and (place >= len(lap.plan.works) or lap.plan.works[place] != work)
        ):
            planned = lap.plan.works[place] if place < len(lap.plan.works) else "nothing"
            self.surprise = f"{work} came where the plan has {planned}: plan with the order that runs, --schedule"
        self._mark(lap)

    def end(self) -> None:
        """Note that it has ended."""
        if self._lap is not None:
            self._mark(self._lap)

    def _mark(self, lap: _Lap) -> None:
        mark = self._marks.mark()
        with self._condition:
            lap.marks.append(mark)
            self._condition.notify_all()

    def _agree(self) -> None:
        """Decide together with all ranks, between two iterations."""
        if self._blocks_asked and self._count == _WARM_UP:
            self._plan_blocks()
        elif self._blocks_asked and self._judged is None and self._count > _WARM_UP and not self._modes:
            self._judge()
        elif self._look_every and not self._modes and self._count and self._count % self._look_every == 0:
            self._look()

    def _plan_blocks(self) -> None:
        """Plan how many iterations each block takes, by the slowest rank's time."""
        self.settle()
        # not by the first iteration, in which much is made ready
        began_s = self._marks.passed_s(self._second)
        rank_s = 0.0 if began_s is None else (self._now_s() - began_s) / (_WARM_UP - 1)
        iteration_s = max(max(self._gather(rank_s)), 1e-6)
        settle, count, tail = (
            max(1, math.ceil(seconds / iteration_s)) for seconds in (_SETTLE_S, self._block_s, _COUNTER_S)
        )
        for number in range(2 * self._blocks_asked):
            # auto, plan, plan, auto, ...: what drifts is shared
            mode = AT_PLAN if number % 4 in (1, 2) else AT_AUTO
            self._modes += [(mode, False, False)] * settle + [(mode, True, False)]
            self._modes += [(mode, False, False)] * (count - 1) + [(mode, False, True)]
            self._modes += [(mode, False, False)] * (tail - 1)
        self._block_count = count

    def _judge(self) -> None:
        """Judge whether the plan is used from here on."""
        self.settle()
        blocks = []
        for mode, time_s, begin, end in self._measured:
            power_w = begin.power_until(end)
            blocks.append(
                IterationBlock(mode, self._block_count, time_s, None if power_w is None else power_w * time_s)
            )
        gathered = self._gather((blocks, self.surprise))
        self._every = [rank_blocks for rank_blocks, _ in gathered]
        self._judged = judged(
            self._every, next((why for _, why in gathered if why), ""), self._control.reads_only, self._slack_percent
        )
        self._mode = AT_PLAN if self._judged[0] or self._control.reads_only else AT_AUTO

    def _look(self) -> None:
        """Tell each other who straggles, and whether there is another plan: in one exchange."""
        new = self._lookup.answer() if self._lookup else None
        gathered = self._gather((self._dp_rank, self._span_s, new))
        if self._lookup:
            spans: dict[int, float] = {}
            for replica, span_s, _ in gathered:
                spans[replica] = max(span_s, spans.get(replica, 0.0))
            self._lookup.tell(spans)
        for _, _, answer in gathered:
            if answer is not None:
                document, stragglers = answer
                is_straggler = self._dp_rank in stragglers
                self._plan = self._base if is_straggler else following(document, self._stage)
                self._plans += 1

    def settle(self) -> None:
        """Wait, between two iterations, until the thread has followed all that was marked."""
        self._marks.synchronise()
        with self._condition:
            while self._laps and self._thread.is_alive():
                if len(self._laps) == 1 and self._laps[0].ended and self._laps[0].number == self._done:
                    break
                self._condition.wait(0.05)

    def close(self, failed: bool = False) -> None:
        """End following, give the clocks back, and certify. failed: the training has failed, and no rank is asked."""
        if self.certificate is not None or not self._thread.ident:
            return
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        self._thread.join()
        restored = True
        try:
            self._control.to_auto()
            self._control.close()
        except (InputError, ExceptionGroup) as error:
            restored = False
            self._say(f"clocks could not be given back: {'; '.join(lines(error))}")
        outcome = (
            *(len(self._base.requests), self._asked_in_all, self._asked_late, self._rises, self._late),
            *(restored, self._control.board is not None, self.surprise),
        )
        every = [outcome] if failed else self._gather(outcome)
        changes, asked, asked_late, rises, late, all_restored, counted, surprises = zip(*every, strict=True)
        holds, why, time_, energy = self._judged or (True, "", None, None)
        why = why or next(filter(None, surprises), "")
        self.certificate = PlanCertificate(
            holds=holds and not why and not self._control.reads_only,
            why=why,
            time=time_,
            energy=energy,
            ranks=len(every),
            counted=sum(counted),
            changes=sum(changes),
            asked=sum(asked),
            asked_late=sum(asked_late),
            rises=sum(rises),
            late=sum(late),
            plans=self._plans,
            dry_run=self._control.reads_only,
            restored=all(all_restored),
            blocks=self._every,
        )

    # --- the thread that follows --------------------------------------------------------------------------------------

    _done = -1  # the last iteration that was followed to its end

    def _follow(self) -> None:
        while True:
            with self._condition:
                while not self._closing and (not self._laps or self._laps[0].number == self._done):
                    if len(self._laps) > 1:
                        self._laps.pop(0)
                        continue
                    self._condition.wait(0.5)
                if self._closing:
                    return
                lap = self._laps[0]
            try:
                self._follow_lap(lap)
            except (InputError, ExceptionGroup) as error:
                self.surprise = self.surprise or "; ".join(lines(error))
            if self.surprise and self._control.pair != BASELINE:
                self._to_auto()
            with self._condition:
                self._done = lap.number
                self._condition.notify_all()

    def _follow_lap(self, lap: _Lap) -> None:
        began_s = self._passed(lap, lambda: lap.start)
        if began_s is None:
            return
        if lap.closes:
            self._close_block(began_s)
        if lap.opens:
            self._opened = began_s, _CounterEdge(self._control, self._now_s, self._sleep), lap.mode
        plan = None if self.surprise else lap.plan
        if plan is None:
            self._give_back()
        else:
            if plan.pairs and self._control.pair != plan.pairs[0]:
                self._control.ask(plan.pairs[0])
            for request in plan.requests:
                if self.surprise or not self._make(lap, plan, request):
                    break
        last = self._passed(lap, lambda: lap.marks[-1] if lap.ended and lap.marks else None)
        self._land(lap)
        if last is not None and lap.marks:
            first = self._marks.passed_s(lap.marks[0])
            if first is not None:
                self._span_s = last - first

    def _make(self, lap: _Lap, plan: Following, request: Any) -> bool:
        """Make one request at its moment. Returns whether to go on."""
        passed_s = self._passed(lap, lambda: lap.marks[request.mark] if len(lap.marks) > request.mark else None)
        if passed_s is None:
            return False
        due_s = passed_s + request.delay_s
        while (left_s := due_s - self._now_s()) > 0 and not self._closing:
            self._look_at_clocks()
            self._sleep(min(left_s, _LOOK_S))
        if self._closing:
            return False
        self._land(lap)
        before, asked_s = self._control.pair, self._now_s()
        self._control.ask(request.pair)
        outcome = RequestOutcome(
            lap.number, request.place, request.pair, _is_faster(request.pair, before), asked_s - due_s
        )
        self._asked_in_all += 1
        self._asked_late += outcome.late_s > _LATE_S
        self._landing = None if self._control.reads_only or request.place == 0 else outcome
        return True

    def _land(self, lap: _Lap) -> None:
        """Count what became of the request that was made last."""
        outcome, self._landing = self._landing, None
        if (
            outcome is None
            or not outcome.rises
            or outcome.iteration != lap.number
            or len(lap.marks) <= 2 * outcome.place
        ):
            return
        outcome.begin_s = self._marks.passed_s(lap.marks[2 * outcome.place])
        if outcome.begin_s is not None:
            self._rises += 1
            self._late += outcome.reached_s is None or outcome.reached_s > outcome.begin_s + _LATE_S

    def _look_at_clocks(self) -> None:
        """Look whether the request that was made last has landed."""
        outcome, now_s = self._landing, self._now_s()
        if outcome is None or outcome.reached_s is not None or now_s - self._looked_s < _LOOK_S:
            return
        seen = self._control.seen()
        self._looked_s = self._now_s()
        if all(is_reached(wanted, clock) for clock, wanted in zip(seen, outcome.pair)):
            outcome.reached_s = now_s

    def _passed(self, lap: _Lap, of: Callable[[], Any]) -> float | None:
        """Return when the GPU passed a mark of an iteration, once it has; None where the iteration ends without it."""
        while not self._closing:
            with self._condition:
                mark = of()
                if mark is None:
                    if lap.ended:
                        return None
                    if self._landing is None:
                        self._condition.wait(0.05)
                        continue
            if mark is not None and (passed_s := self._marks.passed_s(mark)) is not None:
                return passed_s
            self._look_at_clocks()
            self._sleep(_POLL_S if mark is not None else _LOOK_S)
        return None

    def _close_block(self, now_s: float) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        began_s, begin, mode = opened
        end = _CounterEdge(self._control, self._now_s, self._sleep)
        self._measured.append((mode, (now_s - began_s) / self._block_count, begin, end))

    def _give_back(self) -> None:
        if self._control.pair != BASELINE:
            self._to_auto()

    def _to_auto(self) -> None:
        try:
            self._control.to_auto()
        except (InputError, ExceptionGroup) as error:
            # its guard tries again on leaving
            self._say(f"clocks could not be given back yet: {'; '.join(lines(error))}")


class _CounterEdge:
    """The next move of an energy counter, waited for in a thread of its own: (s, mJ)."""

    def __init__(
        self, control: GuardedControl | Noted, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._control, self._now_s, self._sleep = control, now_s, sleep
        self._move: tuple[float, int] | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        board = self._control.board
        if board is None:
            return
        try:
            begin_mj, end_s = board.energy_mj(), self._now_s() + _EDGE_LIMIT_S
            while self._now_s() < end_s:
                if (now_mj := board.energy_mj()) != begin_mj:
                    self._move = self._now_s(), now_mj
                    return
                self._sleep(0.001)
        except InputError:
            return  # its holder is gone, which the next request tells

    def power_until(self, last: _CounterEdge) -> float | None:
        """Return the mean power from this edge to a later one, W; None where the counter tells nothing."""
        self._thread.join()
        last._thread.join()
        if self._move is None or last._move is None or last._move[0] <= self._move[0]:
            return None
        (begin_s, begin_mj), (end_s, end_mj) = self._move, last._move
        return (end_mj - begin_mj) / 1000 / (end_s - begin_s) if end_mj > begin_mj else None


def _is_faster(pair: tuple[Clock, Clock], before: tuple[Clock, Clock]) -> bool:
    def height(clocks: tuple[Clock, Clock]) -> tuple[float, ...]:
        return tuple(math.inf if isinstance(clock, str) else clock for clock in clocks)

    return height(pair) > height(before)


def judged(
    every: Sequence[Sequence[IterationBlock]], surprise: str, is_dry: bool, slack_percent: float
) -> tuple[bool, str, Change | None, Change | None]:
    """Return (whether the plan is used, why not, change of time, of energy) of the blocks of all ranks.

    An iteration takes as long as on the slowest rank, and the energy of all boards that were counted. Each pair of
    neighbours, one at auto and one at the plan, gives a change, in percent.
    """
    count = min(map(len, every), default=0)
    values: dict[str, list[float]] = {"time": [], "energy": []}
    for first in range(0, count - 1, 2):
        two: dict[str, tuple[float, float]] = {}
        for at in (first, first + 1):
            blocks = [rank_blocks[at] for rank_blocks in every]
            counted = [block.energy_j for block in blocks if block.energy_j is not None]
            two[blocks[0].mode] = max(block.time_s for block in blocks), math.fsum(counted)
        (auto_s, auto_j), (plan_s, plan_j) = two[AT_AUTO], two[AT_PLAN]
        values["time"].append(100 * (plan_s / auto_s - 1))
        if auto_j and plan_j:
            values["energy"].append(100 * (plan_j / auto_j - 1))
    time_, energy = (
        interval(changes, ["here"] * len(changes)) if len(changes) > 1 else None for changes in values.values()
    )
    why = surprise
    if not why and not is_dry:
        if time_ is None or energy is None:
            why = "too few blocks were counted"
        elif verdict(time_, slack_percent) == BREAKS:
            why = f"{BREAKS} of {slack_percent:+g} %"
        elif not energy.high < 0:
            why = "no energy saved that the blocks can show"
    return not why and not is_dry, why, time_, energy
