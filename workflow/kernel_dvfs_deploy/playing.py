"""`kernel_dvfs_deploy.play`: a user's own captured step at the clocks of a schedule, once it has been shown to hold.

The captured graph is cut where clocks change; pieces are launched one after the other while a player asks for changes
ahead. Before the first step of the user's, auto and schedule run in turn on the same step: the schedule is used only if
the step leaves the same bits, saves energy, and is not over its time limit. On any surprise later, the clocks go back
to auto and the step runs on as it was captured.

    with kernel_dvfs_deploy.play(step, "results/nvidia-h200-1a2b3c4d/step-train/schedules/iteration-15ms.json") as run:
        print(run.certificate)
        for batch in batches:
            static_batch.copy_(batch)
            run()
"""

from __future__ import annotations

import collections
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from kernel_dvfs.choice.schedule_file import read_schedule, schema_of
from kernel_dvfs.layout import ITERATION_SCHEDULE
from kernel_dvfs.limit_verdict import BREAKS, verdict
from kernel_dvfs.measurement.counter import AlignedWindow, EnergyCounter
from kernel_dvfs.measurement.real.watch import UNFIT
from kernel_dvfs.student import Change, interval
from kernel_dvfs.workload.step import read as read_step
from kernel_dvfs_clocks.clocks import BASELINE, EXACT, LOCKS, RANGE, parse_after
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_clocks.setters import choice
from kernel_dvfs_clocks.setters.choice import AUTO
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_deploy.player import Player, Tolerance
from kernel_dvfs_deploy.replay import StepEvents
from kernel_dvfs_deploy.schedules import check_gpu, pass_pairs, run_pair
from kernel_dvfs_deploy.sequence.changes import Timing
from kernel_dvfs_deploy.sequence.schedule import IterationSchedule, read_iteration

if TYPE_CHECKING:
    from types import TracebackType

    from kernel_dvfs.choice.schedule_file import Schedule, ScheduleWorkload
    from kernel_dvfs.workload.step import Step
    from kernel_dvfs_deploy.control import Pair
    from kernel_dvfs_deploy.player import Log
    from kernel_dvfs_deploy.replay import Piece, Replay

# while a block is measured, so many steps, and so much time, are queued ahead of the GPU: a read of the energy counter
# takes 4 ms, and the counter sleeps 10 ms between two
_AHEAD, _AHEAD_S = 3, 0.05
# each block runs so long before it is measured: clocks, and power under a cap, are then those of its way to run
_SETTLE_S = 0.5
# steps of each way to run whose bits are compared
_COMPARED = 2
# how much longer than at auto a section may take, of its time at auto
_AT_AUTO_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Steps that ran back to back."""

    time_s: float  # of a step
    energy_j: float  # of a step: mean power between two edges of the board's counter times time_s
    steps: int
    window: AlignedWindow = field(repr=False)  # between these edges


@dataclass(frozen=True, slots=True)
class ScheduleCertificate:
    """What became of auto and schedule in turn, on the user's own step."""

    holds: bool  # the schedule is used
    why: str  # why not; "" where it holds
    time: Change  # of a step against auto, %
    energy: Change  # likewise
    same_bits: bool | None  # the step leaves the bits that it leaves uncut at auto; None: it never does so twice
    pieces: int  # that the step is cut into
    changes: int  # of clocks in a step
    dry_run: bool  # no clock was set: what cutting alone costs
    blocks: list[tuple[str, StepBlock]] = field(repr=False, default_factory=list)  # in order

    def __str__(self) -> str:
        def in_words(change: Change) -> str:
            if math.isnan(change.mean):
                return "unknown"
            return f"{change.mean:+.2f} % ({change.low:+.2f} to {change.high:+.2f})"

        bits = {True: "same bits", False: "OTHER BITS", None: "bits differ from step to step even at auto"}
        what = "used" if self.holds else f"auto instead: {self.why}" if self.why else "dry run, nothing set"
        return (
            f"{self.pieces} pieces, {self.changes} changes a step, {self.time.repeats} repeats: time "
            f"{in_words(self.time)}, energy {in_words(self.energy)} against auto, {bits[self.same_bits]}; {what}"
        )


def play(
    step: Replay,
    schedule: str | PathLike[str],
    *,
    dry_run: bool = False,
    repeats: int = 5,
    block_s: float = 2.0,
    latency_s: float = 0.05,
    share: bool = False,
    after: str = "",
    through: str = AUTO,
    lock: str = RANGE,
    say: Callable[[str], object] | None = None,
) -> Playing:
    """Return a context that runs `step` at the clocks of `schedule`: calling what it yields runs one step.

    schedule: of one pair for the whole run, of a pair for each section, or an iteration schedule (kernel-dvfs
    sequence), made for this step on this GPU. dry_run: cut the step and set nothing, for hardware whose clocks are
    not yours: the certificate then says what cutting costs, and any GPU's schedule of this step will do. repeats,
    block_s: of auto, schedule, schedule, auto, each measured for so many seconds, before the first step; 0 repeats
    trusts the schedule. The copy of the step's state that this takes is freed again. latency_s: how long a change
    between sections may take; an iteration schedule says so itself. share: although others compute on the GPU. after:
    the site's own clocks to leave locked at the end instead of none, as `kernel-dvfs apply --after` takes them:
    core=LOWEST-HIGHEST,mem=LOWEST-HIGHEST in MHz, or one of them. through: what sets the clocks: nvml, broker, zeusd,
    sudo, dcgm, or auto, the first of the others that works; one that starts a program for each change (sudo, dcgm) is
    soon too late for changes within a step. lock: range, from the lowest clock up to the one that is asked for, or
    exact, that clock alone, which dcgm needs. say: called with a line for the user; default: print
    on stderr.
    Raises InputError on entering: a step whose replays train otherwise than its calls, a schedule of another GPU or
    step, one that changes clocks for each kernel as if that cost nothing, a GPU that is taken, no right to set clocks,
    clocks in `after` that the GPU lacks, what that way of setting clocks cannot do. Raises InputError at once for words
    that `through`, `lock` and `after` do not know.
    """
    return Playing(step, schedule, dry_run, repeats, block_s, latency_s, share, after, through, lock, say or _print)


class Playing:
    """What `play` gives: see there. certificate: None where nothing was repeated; log: of the player, once it ended."""

    certificate: ScheduleCertificate | None = None
    log: Log | None = None

    def __init__(
        self,
        step: Replay,
        schedule: str | PathLike[str],
        dry_run: bool,
        repeats: int,
        block_s: float,
        latency_s: float,
        share: bool,
        after: str,
        through: str,
        lock: str,
        say: Callable[[str], object],
    ) -> None:
        self._step, self._schedule, self._dry_run, self._say = step, os.fspath(schedule), dry_run, say
        self._after, self._through, self._lock = parse_after(after), through, lock
        choice.check(through, self._after)
        if lock not in LOCKS:
            raise InputError(f"lock: {lock!r}; allowed: {', '.join(LOCKS)}")
        self._repeats, self._block_s, self._latency_s, self._share = repeats, block_s, latency_s, share
        self._player: Player | None = None
        self._pieces: list[tuple[int, Piece]] = []  # (launch that it begins with, piece)
        self._uses_schedule = False

    def __enter__(self) -> Self:
        if frozen := self._step.record.frozen:
            raise InputError(f"step {self._step.record.name}: it would train otherwise than called: {frozen[0]}")
        uuid, exact = self._step.record.device["uuid"], self._lock == EXACT
        self._control = GuardedControl(uuid, self._dry_run, self._say, self._after, self._through, exact)
        self._control.__enter__()
        try:
            self._open()
        except BaseException:
            self._control.close()
            raise
        return self

    def _open(self) -> None:
        self._about = None if self._dry_run else self._control.about
        self._record = record_of(self._schedule, self._step.record)
        self._iteration = iteration_of(self._schedule, self._record, self._about, self._latency_s)
        self._whole = self._step.whole()
        player = self._new_player()
        self._control.preflight(self._share, self._say, self._iteration.pairs, own_processes=1)  # this process is on it
        self._pieces = cut(self._step, self._record, sorted(player.boundaries))
        if not self._dry_run:
            self._control.announce("a captured step at its schedule")
        self._uses_schedule = True
        if self._repeats:
            self.certificate = self._certified()
            self._uses_schedule = not self.certificate.why
            self._say(f"kernel-dvfs: {self.certificate}")

    def __call__(self) -> None:
        """Enqueue one step: at the schedule's clocks, or as it was captured where the schedule is not used."""
        if not self._uses_schedule:
            self._whole.run()
            return
        if self._player is None:
            self._begin()
        self._launch()
        assert self._player
        if self._player.log is not None:
            self._end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            self._control.close()

    # --- playing ------------------------------------------------------------------------------------------------------

    def _new_player(self) -> Player:
        names = [target.id for target in measured_launches(self._record)]
        tolerance = None
        if self._dry_run:
            tolerance = Tolerance(late_s=math.inf)  # nothing is set, so nothing can land late
        elif self._iteration.timing.behaviour == "lag":
            # a schedule of sections knows its launches' times at auto only, and a change may come late: nothing lands
            # where it does harm
            tolerance = Tolerance(late_s=self._latency_s, duration_share=_AT_AUTO_SHARE)
        player = Player(self._iteration, self._control, None, self._about, names, tolerance)
        # of one pair for the whole run, nobody looks at any event
        wanted = player.boundaries if player.steps else ()
        player.events = StepEvents(self._step.event, wanted, len(names))
        return player

    def _begin(self) -> None:
        self._player = self._new_player()
        self._player.start(None)

    def _launch(self) -> None:
        """One step in its pieces, marked for the player."""
        assert self._player and isinstance(self._player.events, StepEvents)
        events = self._player.events
        events.begin()
        for launch, piece in self._pieces:
            events.reached(launch)
            piece.run()
        events.launched()

    def _end(self) -> None:
        """End the player, if there is one, and say what surprised it."""
        player, self._player = self._player, None
        if player is None:
            return
        self._step.synchronize()
        player.stop()
        if isinstance(player.events, StepEvents):
            player.events.end()
        self.log = player.finish()
        if self.log.surprise:
            self._uses_schedule = False
            self._say(f"kernel-dvfs: back to auto clocks for good: {self.log.surprise}")

    # --- the certificate ----------------------------------------------------------------------------------------------

    def _certified(self) -> ScheduleCertificate:
        """Run auto and schedule in turn, and return what came of it; what outlives a step is put back at the end."""
        same_bits: bool | None = None
        blocks: list[tuple[str, StepBlock]] = []
        try:
            watch = self._control.watch()
            self._step.save()
            same_bits = self._same_bits()
            if self.log and self.log.surprise:
                return self._judged(same_bits, blocks, self.log.surprise)
            self._block("auto")  # warms the board up
            for _ in range(self._repeats):
                for how in ("auto", "schedule", "schedule", "auto"):
                    blocks.append((how, self._block(how)))
                    if how == "schedule" and self.log and self.log.surprise:
                        return self._judged(same_bits, blocks, self.log.surprise)
            watch.end()
            return self._judged(same_bits, blocks, "; ".join(watch.disturbances()))
        except InputError as fault:  # of the counter, or the GPU: the training goes on, at auto
            return self._judged(same_bits, blocks, str(fault))
        finally:
            self._step.restore()
            self._step.synchronize()
            self._step.drop()

    @contextmanager
    def _launching(self, how: str) -> Iterator[Callable[[], None]]:
        """Yield what launches a step at auto, as it was captured, or in pieces at the schedule, whose player ends with
        it."""
        if how == "auto":
            yield self._whole.run
            return
        self._begin()
        try:
            yield self._launch
        finally:
            self._end()

    def _same_bits(self) -> bool | None:
        """Return whether a step in pieces leaves the same bits: in all memory, or, where the step by itself leaves
        other bits in its working memory each time, in what outlives it; None where it does so there as well."""

        def left_by(how: str) -> tuple[str, str]:
            self._step.restore()
            with self._launching(how) as launch:
                for _ in range(_COMPARED):
                    launch()
                self._step.synchronize()
            return self._step.fingerprint()

        first, second, in_pieces = left_by("auto"), left_by("auto"), left_by("schedule")
        for bits, bits_again, bits_in_pieces in reversed(list(zip(first, second, in_pieces))):
            if bits == bits_again:
                return bits_in_pieces == bits
        return None

    def _block(self, how: str) -> StepBlock:
        """Run steps for block_s, and return what they took. Raises CounterFault where the counter stands or falls."""
        settle_s = _SETTLE_S + self._iteration.timing.latest_s
        # without a look at the counter: the player asks for clocks through the same process
        watch = self._control.watch(counts=False)
        with self._launching(how) as launch:
            energy_mj = self._control.board.energy_mj
            block = measured_block(launch, self._step, energy_mj, self._block_s, settle_s, watch.look)
        watch.end()
        # of several pairs the player looks whether each is reached
        alone = how == "schedule" and not self._iteration.changes and not self._dry_run
        asked = self._iteration.pairs[self._iteration.first] if alone else BASELINE
        verdict, reasons = watch.judged(asked, block.window, self._control.period_s)
        if verdict in UNFIT:
            raise InputError(f"a block at {how}: {'; '.join([verdict, *reasons])}")
        return block

    def _judged(
        self, same_bits: bool | None, blocks: list[tuple[str, StepBlock]], surprise: str
    ) -> ScheduleCertificate:
        changes = {}
        for name in ("time_s", "energy_j"):
            values = []
            for first, second, third, fourth in zip(*(blocks[at::4] for at in range(4))):
                auto, chosen = (
                    [getattr(block, name) for _, block in two] for two in ((first, fourth), (second, third))
                )
                values.append(100 * (sum(chosen) / sum(auto) - 1))
            unknown = Change(float("nan"), float("nan"), float("nan"), float("nan"), len(values), 1, values)
            changes[name] = interval(values, ["here"] * len(values)) if len(values) > 1 else unknown
        time, energy = changes["time_s"], changes["energy_j"]
        limit = float(self._iteration.totals.get("slack_percent") or 0)
        why = ""
        if surprise:
            why = surprise
        elif same_bits is False:
            why = "the step cut into pieces leaves other bits"
        elif self._dry_run:
            pass  # nothing was promised
        elif verdict(time, limit) == BREAKS:
            why = f"{BREAKS} of {limit:+g} %"
        elif not energy.high < 0:
            why = "no energy saved that the repeats can show"
        return ScheduleCertificate(
            holds=not why and not self._dry_run,
            why=why,
            time=time,
            energy=energy,
            same_bits=same_bits,
            pieces=len(self._pieces),
            changes=len(self._iteration.changes),
            dry_run=self._dry_run,
            blocks=blocks,
        )


def measured_block(
    launch: Callable[[], None],
    step: Replay,
    energy_mj: Callable[[], int],
    seconds: float,
    settle_s: float = _SETTLE_S,
    look: Callable[[], None] = lambda: None,
) -> StepBlock:
    """Steps back to back for about `seconds`, after `settle_s` of them that do not count.

    Time runs from the first launch to the end of the last step, on an idle stream before and after; power is that
    between two edges of the energy counter within. The counter is read only near an edge: the player asks for clocks
    through the same process. look: called once before, then about once a period of the counter, away from its edges.
    Raises CounterFault where the counter stands still or falls.
    """
    queue = _Queue(launch, step)
    began_s = time.monotonic()
    while time.monotonic() - began_s < settle_s or not queue.count:
        queue.feed()
        time.sleep(0.001)
    look()  # once at least, while it works
    counter = EnergyCounter(energy_mj, time.monotonic, time.sleep, queue.feed, look)
    queue.feed()
    counter.time_reads()
    step.synchronize()
    queue.keep((time.monotonic() - began_s) / queue.count)
    queue.count, began_s = 0, time.monotonic()
    window = counter.window(seconds)
    step.synchronize()
    step_s = (time.monotonic() - began_s) / queue.count
    power_w = 1e-3 * window.energy_mj / (window.end_s - window.start_s)
    return StepBlock(step_s, power_w * step_s, queue.count, window)


class _Queue:
    """Steps launched ahead of the GPU."""

    def __init__(self, launch: Callable[[], None], step: Replay) -> None:
        self._launch, self._step, self._ahead = launch, step, _AHEAD
        self._waiting: collections.deque[Any] = collections.deque()  # an event behind each step
        self.count = 0  # launched so far

    def keep(self, step_s: float) -> None:
        """Keep enough of them queued, where each takes so long."""
        self._ahead = max(_AHEAD, math.ceil(_AHEAD_S / step_s))

    def feed(self) -> None:
        """Launch what is missing."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        while len(self._waiting) < self._ahead:
            self._launch()
            self._waiting.append(self._step.event())
            self._waiting[-1].record()
            self.count += 1


# --- schedule and step ------------------------------------------------------------------------------------------------


def measured_launches(step: Step) -> list[Any]:
    """Return the target of each launch that has clocks of its own, in order: the launches that a schedule knows."""
    return [target for target in (step.targets[place] for place in step.order) if target.repeatable != "no"]


def record_of(path: str, captured: Step) -> Step:
    """Return the record that a schedule's study is of, where it is at hand and of the step that was captured here.

    Only the study has tried which kernels can be repeated alone, so only its record counts launches as its schedules
    do.
    """
    made_for = _workload_of(path).get("step")
    file = made_for.get("file") if made_for else None
    # as the study named it, from where Snakemake ran; else where a study keeps it, beside its schedules' folder
    beside = os.path.join(os.path.dirname(path), os.pardir, os.path.basename(file or ""))
    for place in filter(os.path.isfile, [file, beside] if file else []):
        studied = read_step(place)
        if studied.checksum == captured.checksum:
            return studied
    return captured


def cut(step: Replay, record: Step, at: Sequence[int]) -> list[tuple[int, Piece]]:
    """Return a step in pieces that begin at these launches (as a schedule counts them, 0 among them): [(launch,
    piece)].

    A launch without clocks of its own belongs to the piece before it, the first ones to the first piece.
    """
    if list(at) == [0]:
        return [(0, step.whole())]
    places = [place for place, number in enumerate(record.order) if record.targets[number].repeatable != "no"]
    begins = [0, *(places[launch] for launch in at[1:])]
    ends = [*begins[1:], len(record.order)]
    return [
        (launch, step.piece([node for node, place in enumerate(record.nodes) if begin <= place < end]))
        for launch, begin, end in zip(at, begins, ends)
    ]


def iteration_of(path: str, step: Step, about: dict[str, Any] | None, latency_s: float) -> IterationSchedule:
    """Return what a schedule asks of a step's launches. about: the GPU's facts with its slug; None: any GPU's schedule
    will do.

    Raises InputError where the schedule is not for this step, or not one that a host thread can play.
    """
    made_for = _workload_of(path).get("step")
    checksum = made_for["checksum"] if made_for else "no captured step"
    if checksum != step.checksum:
        raise InputError(
            f"schedule {path}: workload.step.checksum: made for {checksum}, this step is {step.checksum}: other "
            "kernels, another batch size perhaps; study this one"
        )
    if schema_of(path) == ITERATION_SCHEDULE:
        iteration = read_iteration(path)
        if about is not None:
            check_gpu(path, iteration.gpu, about)
        return iteration
    content = read_schedule(path)
    if about is not None:
        check_gpu(path, content["gpu"], about)
    facts: Mapping[str, Any] = about or {"slug": content["gpu"]["slug"], "name": "any"}
    if content["granularity"] == "pass":
        by_section = pass_pairs(path, facts)
        wanted = [by_section.get(target.section, BASELINE) for target in measured_launches(step)]
    elif content["scope"] == "single":
        wanted = [run_pair(path, facts)] * len(measured_launches(step))
    else:
        raise InputError(
            f"{path}: clocks for each kernel, chosen as if changes cost nothing, which nobody can play; choose for the "
            "time that yours take: kernel-dvfs sequence PROFILE --switch-latency 0.01 -o iteration.json"
        )
    return _iteration(path, content, step, wanted, latency_s)


def _workload_of(path: str) -> ScheduleWorkload:
    """Return what a schedule, or one of an iteration, is for."""
    if schema_of(path) == ITERATION_SCHEDULE:
        return read_iteration(path).workload
    return read_schedule(path)["workload"]


def _iteration(path: str, content: Schedule, step: Step, wanted: Sequence[Pair], latency_s: float) -> IterationSchedule:
    """Return a schedule of sections, or of one pair, launch by launch: each change is asked for as its section
    begins."""
    launched = measured_launches(step)
    pairs = list(dict.fromkeys(wanted))
    place = [pairs.index(pair) for pair in wanted]
    before = [place[-1], *place]
    return IterationSchedule(
        path=path,
        gpu=content["gpu"],
        workload=content["workload"],
        timing=Timing("lag", latency_s),
        pairs=pairs,
        first=place[-1],
        names=[target.id for target in launched],
        wanted=place,
        # only to know when something takes far too long, so any launch that was not traced may take a millisecond
        time_s=[1e-6 * (target.auto_time_us or target.time_us or target.alone_us or 1000.0) for target in launched],
        changes=[(number, now) for number, (old, now) in enumerate(zip(before, place)) if now != old],
        totals={key: value for key, value in content.items() if key not in ("gpu", "workload")},
    )


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
