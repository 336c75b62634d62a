"""Stages measured by visits: a clock pair is put in force and verified once, then operations run in blocks.

A block repeats one mix of operations, such as a forward and a backward pass, for as long as a counter of energy needs:
each operation's time comes from stamps around it, and the block's power from the counter. A backward pass runs only
after its forward pass, so its energy is the difference of two mixes. Every rank measures its own stages; ranks that
share a GPU take turns. What a stage draws while it waits is measured in a receive that nobody answers for a while.

Knows no framework: torch_stages.Replays runs the operations.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from kernel_dvfs.measurement.counter import AlignedWindow
from kernel_dvfs.measurement.latency_file import content
from kernel_dvfs.measurement.real.preflight import LEAST_PERIODS
from kernel_dvfs.measurement.real.watch import Watch
from kernel_dvfs.measurement.verdict import Verdict, is_reached
from kernel_dvfs_clocks.clocks import AUTO, BASELINE, Pair, label, supported_core_mhz
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_pipeline.executor import Gather
from kernel_dvfs_pipeline.recording import InstructionRow
from kernel_dvfs_pipeline.schedules import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from kernel_dvfs_pipeline.stage_profile import WAITING

BLOCK_S, SETTLE_S, WAIT_S = 2.0, 0.5, 3.0
# of the highest clock: where clocks are tried; below, no operation of a training is known to save
_STEP_SHARE, _LOWEST_SHARE = 0.06, 0.4
_NO_GAIN = 2  # pairs in a row at which no operation saves more, after which none is tried
# a window needs its periods of the counter, some of which come at its ends, or are seen too late
_PERIODS = 1.25 * LEAST_PERIODS + 2
_LATE_PERIODS = 0.2  # by which one that is seen late still counts: 1 % of a window
_ATTEMPTS = 1.0, 1.5, 2.5  # at a visit that came to nothing by chance: so much longer
_BY_CHANCE = ("unstable", "disturbed")
_LOOK_S, _READ_S = 0.1, 0.001
_TRIED, _TRIED_S = 3, 0.2  # rounds, and then time, by which a block's length is found


class Timed(NamedTuple):
    """What a block of one mix took."""

    times_s: dict[str, float]  # of each operation of the mix, mean
    round_s: float  # of the whole mix, with what lies between its operations


class RankBench(Protocol):
    """What runs the operations of a rank."""

    def mixes(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return (virtual stage, operations that run in turn) of each block."""
        ...

    def run(self, stage: int, mix: tuple[str, ...], rounds: int) -> Timed:
        """Run a mix so often, back to back."""
        ...

    def wait(self, seconds: float, metered: Callable[[Callable[[], None]], None]) -> None:
        """Wait for another rank for so long, by metered(receive), while that one does nothing; all ranks in turn."""
        ...


class MeterReading(NamedTuple):
    """What a meter saw."""

    window: AlignedWindow
    verdict: Verdict
    reasons: list[str]


class Meter:
    """Looks at a board's counter, power and clocks in a thread of its own, from `start` to `stop`.

    The energy is that between the first and the last move of the counter that were seen in time.
    """

    def __init__(
        self,
        control: GuardedControl,
        pair: Pair,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._control, self._pair, self._now_s, self._sleep = control, pair, now_s, sleep
        self._watch: Watch = control.watch(now_s)
        self._edges: list[tuple[float, int]] = []
        self.landed_s: float | None = None  # when the pair was first seen to be there
        self._ending = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._look, name="kernel-dvfs meter", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _look(self) -> None:
        try:
            last_mj, last_s, looked_s = self._control.board.energy_mj(), self._now_s(), -math.inf
            while not self._ending.is_set():
                now_mj, now_s = self._control.board.energy_mj(), self._now_s()
                self._watch.check_rises(now_mj)
                if now_mj != last_mj and now_s - last_s < _LATE_PERIODS * self._control.period_s:
                    self._edges.append((now_s, now_mj))
                last_mj, last_s = now_mj, now_s
                if self.landed_s is None and self._pair != BASELINE:
                    seen = self._control.seen()
                    if all(is_reached(wanted, clock) for clock, wanted in zip(seen, self._pair)):
                        self.landed_s = self._now_s()
                elif now_s - looked_s > _LOOK_S:
                    self._watch.look()
                    looked_s = self._now_s()
                self._sleep(_READ_S)
        except InputError as error:
            self._fault = error

    def stop(self) -> None:
        """End. Raises InputError where the board or its counter could not be read."""
        self._ending.set()
        self._thread.join()
        if self._fault:
            raise self._fault

    def seen(self) -> MeterReading:
        """Return what was seen until the end. Raises InputError where the counter hardly moved."""
        if len(self._edges) < 2:
            raise InputError("the energy counter was hardly seen to move: ask for longer blocks, --block-s")
        self._watch.look()
        self._watch.end()
        (begin_s, begin_mj), (end_s, end_mj) = self._edges[0], self._edges[-1]
        window = AlignedWindow(begin_s, end_s, end_mj - begin_mj)
        pair = BASELINE if self._control.reads_only else self._pair
        verdict, reasons = self._watch.judged(pair, window, self._control.period_s)
        return MeterReading(window, verdict, reasons)


class RankVisit(NamedTuple):
    """What a rank measured at one pair."""

    rows: list[InstructionRow]
    verdict: Verdict
    reasons: list[str]


def pairs_to_try(clocks: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs at which stages are measured, fastest first: core clocks; the memory's is left to the GPU, which
    a training step's big products need."""
    listed = supported_core_mhz(dict(clocks))
    wanted, pairs = float(listed[-1]), []
    while wanted >= _LOWEST_SHARE * listed[-1]:
        nearest = min(listed, key=lambda mhz: abs(mhz - wanted))
        pairs.append(Pair(nearest, AUTO))
        wanted -= _STEP_SHARE * listed[-1]
    return list(dict.fromkeys(pairs))


class Measuring:
    """One rank's measurement; all ranks make the same calls at the same time.

    bench: runs this rank's operations. control: of its GPU, entered. gather: among all ranks that measure now. now_s,
    sleep: the clock of the bench and the counter, and how a meter waits for it.
    """

    def __init__(
        self,
        bench: RankBench,
        control: GuardedControl,
        gather: Gather,
        block_s: float = BLOCK_S,
        dp_rank: int = 0,
        tp_rank: int = 0,
        say: Callable[[str], object] = print,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bench, self._control, self._gather, self._say = bench, control, gather, say
        self._now_s, self._sleep = now_s, sleep
        self._block_s = max(block_s, _PERIODS * control.period_s)
        self._ranks = dp_rank, tp_rank
        self._trials: list[dict[str, Any]] = []
        self.rows: list[InstructionRow] = []

    def waiting(self, seconds: float = WAIT_S, is_alone: bool = True) -> None:
        """Measure what this rank's GPU draws while it waits for another. is_alone: on its GPU; where several ranks
        share one, they cannot wait in turn, and what it draws with nothing to do stands for it."""
        seconds = max(seconds, _PERIODS * self._control.period_s)
        readings: list[MeterReading] = []

        def metered(receive: Callable[[], None]) -> None:
            with self._metered(BASELINE, readings):
                receive()

        if is_alone:
            self._bench.wait(seconds, metered)
        else:
            metered(lambda: self._sleep(seconds))
        stage = min(stage for stage, _ in self._bench.mixes())
        for reading in readings:
            time_s = reading.window.end_s - reading.window.start_s
            self.rows.append(
                InstructionRow(stage, WAITING, None, None, time_s, reading.window.energy_mj / 1000, *self._ranks)
            )

    def visits(self, pairs: Sequence[Pair]) -> None:
        """Measure at each pair in turn, fastest first, until no operation of any rank saves any more."""
        waits = [row.energy_j / row.time_s for row in self.rows if row.instruction == WAITING]
        known = [power_w for power_w in self._gather(waits[0] if waits else None) if power_w is not None]
        blocking_w = math.fsum(known) / len(known) if known else 0.0
        least: dict[tuple[int, str], float] = {}
        without_gain = 0
        for pair in pairs:
            for stretch in _ATTEMPTS:
                visited = self._visit(pair, blocking_w, stretch * self._block_s)
                faults = [outcome for outcome in self._gather((visited.verdict, visited.reasons)) if outcome[0] != "ok"]
                if not faults or faults[0][0] not in _BY_CHANCE:
                    break
            if faults:
                verdict, reasons = faults[0]
                self._say(f"{label(pair)} is left out: {verdict}: {'; '.join(reasons)}")
                continue
            self.rows += visited.rows
            gains = False
            for row in visited.rows:
                cost_j = row.energy_j - blocking_w * row.time_s
                gains |= cost_j < least.get((row.stage, row.instruction), math.inf)
                least[row.stage, row.instruction] = min(cost_j, least.get((row.stage, row.instruction), math.inf))
            without_gain = 0 if any(self._gather(gains)) else without_gain + 1
            if without_gain == _NO_GAIN:
                break
        self._control.to_auto()
        if not any(self._gather(len(self.rows) > len(waits))):
            raise InputError("pipeline measure: no pair of clocks could be used; the lines above say why")

    def latency(self) -> dict[str, Any] | None:
        """Return the document of how long changes took until the driver showed them, as kernel-dvfs latency writes one;
        None where none was seen."""
        gpu = {name: self._control.about[name] for name in ("name", "uuid", "driver")}
        trials = [trial for of_rank in self._gather(self._trials) for trial in of_rank]
        if not trials:
            return None
        about = {
            "gpu": gpu,
            "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "through": self._control.through,
            "protocol": {"what": "from the request until the driver shows the clock, in visits of pipeline measure"},
        }
        return content(about, trials)

    def _visit(self, pair: Pair, blocking_w: float, block_s: float) -> RankVisit:
        before, mixes = self._control.pair, self._bench.mixes()
        rounds = {block: self._rounds(*block, SETTLE_S) for block in mixes[:1]}
        meter = None
        if pair != BASELINE:
            asked_s = self._now_s()
            self._control.ask(pair)
            call_s = self._now_s() - asked_s
            meter = self._meter(pair)
            meter.start()
        self._bench.run(*mixes[0], rounds[mixes[0]])
        if meter:
            meter.stop()
            self._note(before, pair, asked_s, call_s, meter.landed_s)
        measured: dict[tuple[int, tuple[str, ...]], tuple[Timed, float]] = {}
        verdict, reasons = "ok", []
        for stage, mix in mixes:
            count = self._rounds(stage, mix, block_s)
            seen: list[MeterReading] = []
            with self._metered(pair, seen):
                timed = self._bench.run(stage, mix, count)
            window = seen[0].window
            measured[stage, mix] = timed, window.energy_mj / 1000 / (window.end_s - window.start_s)
            if seen[0].verdict != "ok":
                verdict, reasons = seen[0].verdict, seen[0].reasons
        return RankVisit(self._rows_of(pair, measured, blocking_w), verdict, reasons)  # type: ignore[arg-type]

    def _note(self, before: tuple[Any, Any], pair: Pair, asked_s: float, call_s: float, landed_s: float | None) -> None:
        if landed_s is None or before[0] == AUTO:
            return
        took_s = landed_s - asked_s
        self._trials.append(
            {
                "domain": "core",
                "from_mhz": before[0],
                "to_mhz": pair[0],
                "verdict": "ok",
                "call_s": call_s,
                "first_effect_s": None,
                "settled_s": took_s,
                "nvml_s": took_s,
                "stall_s": 0.0,  # not seen by the driver's clock
            }
        )

    def _rounds(self, stage: int, mix: tuple[str, ...], seconds: float) -> int:
        """Return a block's rounds, the same on all ranks: of tensor-parallel ones each waits for the others."""
        count = _TRIED
        for tried_s in (_TRIED_S, seconds):  # a few rounds say how many tell more
            round_s = min(self._gather(self._bench.run(stage, mix, count).round_s))
            count = max(_TRIED, math.ceil(tried_s / max(1e-6, round_s)))
        return count

    def _meter(self, pair: Pair) -> Meter:
        return Meter(self._control, pair, self._now_s, self._sleep)

    @contextmanager
    def _metered(self, pair: Pair, readings: list[MeterReading]) -> Iterator[None]:
        meter = self._meter(pair)
        meter.start()
        try:
            yield
        finally:
            meter.stop()
        readings.append(meter.seen())

    def _rows_of(
        self, pair: Pair, measured: Mapping[tuple[int, tuple[str, ...]], tuple[Timed, float]], blocking_w: float
    ) -> list[InstructionRow]:
        core, mem = (None if clock == AUTO else float(clock) for clock in pair)
        rows = []
        for (stage, mix), (timed, power_w) in measured.items():
            instruction, before = mix[-1], measured.get((stage, mix[:-1]))
            energy_j, time_s = power_w * timed.round_s, timed.times_s[instruction]
            if before is not None:
                energy_j -= before[1] * before[0].round_s
            if energy_j <= blocking_w * time_s:  # what takes next to no time has no difference that can be seen
                energy_j = power_w * time_s
            rows.append(InstructionRow(stage, instruction, core, mem, time_s, energy_j, *self._ranks))
        return rows


def mixes_of(instructions: set[str]) -> list[tuple[str, ...]]:
    """Return the mixes that tell each of a stage's instructions apart, each of which adds one to another."""
    mixes: list[tuple[str, ...]] = [(FORWARD,)]
    if BACKWARD in instructions:
        mixes.append((FORWARD, BACKWARD))
    if BACKWARD_INPUT in instructions:
        mixes += [(FORWARD, BACKWARD_INPUT), (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)]
    return mixes


def in_turns(gather: Gather, turn: int, turns: int, measure: Callable[[Gather], None]) -> None:
    """Have every rank call measure(gather among those of its turn) while the others wait. turn: this rank's."""
    for now in range(turns):
        if now == turn:
            measure(lambda value: [given for is_in, given in gather((True, value)) if is_in])
            gather((False, None))
        else:
            while any(is_in for is_in, _ in gather((False, None))):
                pass
