"""A training tuned while it runs: its steps are counted, its clocks tried by blocks in turn with auto, and kept.

`tune` is for a training loop, `tune_command` for a command. Both follow the steps in a thread of their own, and hold
each GPU's clocks by a `GuardedControl`, whose process restores them however this one ends. Steps are never lost: a
block is training at some clocks.
"""

from __future__ import annotations

import math
import signal
import statistics
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from kernel_dvfs.child import attend, code_of, start
from kernel_dvfs.gpu import spec as gpu_spec
from kernel_dvfs.measurement.counter import AlignedWindow
from kernel_dvfs.measurement.latency_file import read
from kernel_dvfs_clocks.clocks import BASELINE, Pair, label
from kernel_dvfs_clocks.errors import CounterFault, InputError, lines
from kernel_dvfs_clocks.guard import ENDING_SIGNALS
from kernel_dvfs_clocks.nvml.facts import facts_of
from kernel_dvfs_clocks.setters import choice
from kernel_dvfs_clocks.setters.choice import AUTO
from kernel_dvfs_deploy.guarded_control import GuardedControl
from kernel_dvfs_deploy.marks import MarkListener, beside
from kernel_dvfs_deploy.passes import LEAST_CHANGES, PassClocks
from kernel_dvfs_deploy.progress import Counter, OutputRelay, pattern_of
from kernel_dvfs_deploy.tuning import (
    CHECK_ROUNDS,
    MOST_PASSES,
    Candidates,
    PassCandidates,
    Procedure,
    Round,
    TrialBlock,
    arguments,
    in_words,
    least_share,
    scatter,
)

if TYPE_CHECKING:
    from kernel_dvfs.measurement.real.watch import Watch
    from kernel_dvfs_deploy.tuning import Gain, Setting

_GENERIC = "h100_sxm"  # stands in for a board of no shipped spec: only the shape of its voltage curve is used
_BLOCK_S, _SETTLE_S = 5.0, 0.5
_LEAST_STEPS = 5  # of a block
_LOOK_STEPS, _LOOK_BLOCKS, _LOOK_SIGNS = 20, 2, 3  # at auto, before anything is tried: at least all of it
_CLOCK_LOOKS, _LOOK_EVERY_S = 9, 0.1
_FIRST_STEP_S = 1200.0  # loading and compiling come before the first step
_CHECK_EVERY_S = 3600.0
_TELL_EVERY_S = 300.0
_PAUSE = 5.0  # times the usual time between two signs of progress: a checkpoint, an evaluation, not a step
_LEAST_PAUSE_S = 2.0
_EDGE_LIMIT_S = 2.0
_TAIL = NormalDist().inv_cdf(0.9)  # standard errors of a bound that holds with 90 %
_LONGEST_WAIT_S = 3600.0  # a condition takes no wait without end


class Ended(Exception):
    """The training has ended."""


class Paused(Exception):
    """Steps stay away, or stayed away, for longer than usual."""


class Silent(Paused):
    """No step has been told yet."""


class StepsStopped(Paused):
    """The last step was told `seconds` ago."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Steps:
    """The steps that a training has done, as they are told. Safe between threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stamps: list[tuple[int, float]] = []  # (steps so far, monotonic s) of the block under way
        self._asked = (math.inf, 0, 0.0)  # from when on, and how many steps and seconds, somebody waits for
        self._count = 0
        self._last_s = 0.0  # when the last was told
        self._ended = False
        self._asleep = False  # nobody asks for steps

    @property
    def count(self) -> int:
        """Return how many have been told."""
        return self._count

    def now_s(self) -> float:
        """Return the time, as steps are stamped."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let so much of that time pass, between two looks at a counter."""
        time.sleep(seconds)

    def step(self, steps: int = 1) -> None:
        """So many more steps are done."""
        if steps < 1:
            return
        now_s = self.now_s()
        with self._condition:
            self._count, self._last_s = self._count + steps, now_s
            if not self._asleep:
                self._stamps.append((self._count, now_s))
                if self._spanned() is not None:  # whoever waits is not woken before: steps may take a millisecond
                    self._condition.notify_all()

    def end(self) -> None:
        """No more will come."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def since(self, begin_s: float, least: int, lasting_s: float, patience_s: float) -> list[tuple[int, float]]:
        """Return (steps so far, s) of every sign of progress from the first after begin_s on, until they span so many
        steps and seconds. Raises StepsStopped where none comes for patience_s, or Silent where none has been told yet,
        and Ended."""
        with self._condition:
            self._asked = begin_s, least, lasting_s
            while True:
                if (first := self._spanned()) is not None:
                    stamps, self._stamps = self._stamps[first:], self._stamps[-1:]
                    self._asked = math.inf, 0, 0.0
                    return stamps
                if self._ended:
                    raise Ended
                last_s = max([begin_s] + [stamped_s for _, stamped_s in self._stamps[-1:]])
                left_s = last_s + patience_s - self.now_s()
                if left_s <= 0:
                    self._stamps.clear()
                    raise StepsStopped(self.now_s() - self._last_s) if self._count else Silent
                self._condition.wait(min(left_s, _LONGEST_WAIT_S))

    def _spanned(self) -> int | None:
        """Return the place of the first stamp of those that are asked for; None while they do not span enough."""
        begin_s, least, lasting_s = self._asked
        if not self._stamps or self._stamps[-1][1] - begin_s < lasting_s:
            return None
        first = bisect_left(self._stamps, begin_s, key=lambda stamp: stamp[1])
        (begin, first_s), (end, last_s) = self._stamps[first], self._stamps[-1]
        return first if end - begin >= least and last_s - first_s >= lasting_s else None

    def forget(self) -> None:
        """Nobody asks for steps any more: from here on they are counted only."""
        with self._condition:
            self._asleep = True
            self._stamps.clear()

    def sleep(self, seconds: float) -> None:
        """Let the training run; steps are forgotten meanwhile. Raises Ended."""
        end_s = self.now_s() + seconds
        with self._condition:
            self._asleep = True
            while not self._ended and (left_s := end_s - self.now_s()) > 0:
                self._condition.wait(min(left_s, _LONGEST_WAIT_S))
            self._asleep = False
            self._stamps.clear()
            if self._ended:
                raise Ended


class TuningSession:
    """Steps followed and clocks tried; `run` is for a thread of its own.

    controls: one a GPU, entered; GPUs of one type. minutes: after which a pair is kept. say: called with a line for the
    user. block_s: least length of a block. samples: of a step of all ranks; 0 where nobody said. seed: of the draws.
    latency_s: what a change of clocks takes; passes that are marked (clocks.mark) and take much longer are given a pair
    each, once one pair for the run is found; None: they are not. counts_marks: the first pass's marks are the steps.
    """

    def __init__(
        self,
        controls: Sequence[GuardedControl],
        steps: Steps,
        slack_percent: float,
        minutes: float,
        say: Callable[[str], object],
        block_s: float = _BLOCK_S,
        samples: int = 0,
        seed: int = 1,
        latency_s: float | None = None,
        counts_marks: bool = False,
    ) -> None:
        self._latency_s = latency_s
        self.clocks = PassClocks(controls, steps.now_s, steps.step if counts_marks else None)
        self._samples, self._seed = samples, seed
        self._controls, self._steps, self._say = controls, steps, say
        self._slack_percent, self._end_s, self._block_s = slack_percent, 60 * minutes, block_s
        self._patience_s = _FIRST_STEP_S
        self._procedure: Procedure | None = None
        self._look: TrialBlock | None = None
        self._look_scatter = 0.0  # of that look
        self._scatter = 0.0  # sd of a step's time in the last block, as a share
        self._sign = 1.0, 0.0  # steps and s from one sign of progress to the next there
        self._more_points: float | None = None  # what another ten minutes may bring
        self._verdict = self._look_verdict = "ok"  # of the last block and of the look at auto, with its reasons
        self._missed = 0  # blocks in a row whose clocks were not reached
        self._limits_mw: list[int | None] = []  # of each GPU, in the last block
        self._counted_mj: list[int] | None = None  # counters when energy was counted last; None before the first look
        self._energy_j = 0.0  # since then
        self._kept_gain: Gain | None = None  # of the pair at which the training runs between two checks
        self._saved_j, self._saved_var = 0.0, 0.0  # of that, what auto would have taken more, and its variance
        self.surprise: str | None = None  # why clocks went back to auto for good

    def run(self) -> None:
        """Until the training ends. Whatever goes wrong, no clock stays locked and the training goes on."""
        try:
            self._follow()
        except Ended:
            pass
        except Exception as error:
            self.surprise = "; ".join(lines(error)) or type(error).__name__
            self._say(f"clocks go back to auto: {self.surprise}; the training goes on")
        finally:
            self._steps.forget()
            with suppress(InputError):  # a counter that is gone has ended all this
                self._count(self._kept_gain)
            try:
                self.clocks.ask(BASELINE)
            except (InputError, ExceptionGroup) as error:
                # the guard tries again on leaving
                self._say(f"clocks could not be given back yet: {'; '.join(lines(error))}")

    def summary(self) -> dict[str, Any]:
        """Return what came of it, for a report: the pair, its changes in percent with 90 % bounds, joules a step."""
        summary: dict[str, Any] = {"slack_percent": self._slack_percent, "pair": label(BASELINE), "why": self.surprise}
        summary |= {"dry_run": self._controls[0].reads_only, "verdict": self._verdict}
        summary |= {"steps": self._steps.count, "gpu": self._controls[0].about["name"], "gpus": len(self._controls)}
        if self._look:
            summary["auto_step_s"] = self._look.time_s / self._look.steps
            summary["auto_step_j"] = self._look.energy_j / self._look.steps
            summary["scatter_percent"] = 100 * self._look_scatter
        if self._samples and self._look:
            summary["auto_sample_j"] = summary["auto_step_j"] / self._samples
        procedure = self._procedure
        if procedure is None:
            return summary
        summary |= {
            "phase": procedure.phase,
            "rounds_in_all": len(procedure.rounds),
            "more_points_at_most": self._more_points,
            "energy_j": self._energy_j,
            "auto_would_have_taken_j": [
                self._energy_j + self._saved_j + side * _TAIL * math.sqrt(self._saved_var) for side in (-1, 0, 1)
            ],
            "tried": [{"pair": in_words(pair)} | _percent_of(gain) for pair, gain in procedure.tried()],
        }
        if (kept_gain := procedure.gain) and not self.surprise:
            summary |= _percent_of(kept_gain) | {
                "pair": in_words(procedure.kept),
                "arguments": arguments(procedure.kept),
                "step_j": summary["auto_step_j"] * math.exp(kept_gain.energy),
            }
            if self._samples:
                summary["sample_j"] = summary["step_j"] / self._samples
        return summary

    def last_line(self) -> str:
        """Return the result in one line."""
        summary = self.summary()
        if "auto_step_s" not in summary:
            return "no steps were told: nothing was measured and nothing set"
        a_sample = f", {summary['auto_sample_j']:.4g} J a sample" if self._samples else ""
        if "time_change_percent" not in summary:
            why = f" ({summary['why']})" if summary["why"] else ""
            tried = "dry run, nothing was set" if summary["dry_run"] else "auto is kept"
            shown = "" if summary["dry_run"] else "; no pair was shown to save within the limit"
            return f"{tried}{why}: {summary['auto_step_j']:.1f} J a step{a_sample} at auto: {summary['verdict']}{shown}"
        a_sample = f", {summary['sample_j']:.4g} J a sample" if self._samples else ""
        low, likely, high = (energy_j / 3.6e6 for energy_j in summary["auto_would_have_taken_j"])
        counted = (
            f"; {summary['energy_j'] / 3.6e6:.4g} kWh since tuning began, at auto {likely:.4g} ({low:.4g} to "
            f"{high:.4g})"
        )
        return (
            f"{summary['pair']} kept: {summary['energy_change_percent']:+.2f} % energy (at most "
            f"{summary['energy_change_at_most_percent']:+.2f} %), {summary['time_change_percent']:+.2f} % time (at "
            f"most {summary['time_change_at_most_percent']:+.2f} %), {summary['step_j']:.1f} J a step{a_sample}"
            f"{counted}: {summary['verdict']}; next time: kernel-dvfs apply {summary['arguments']} -- COMMAND"
        )

    def _follow(self) -> None:
        look = self._look_at_auto()
        self._look, self._look_scatter, self._passes = look, self._scatter, self.clocks.passes()
        self._look_verdict = self._verdict
        step_s = look.time_s / look.steps
        self._say(
            f"a step takes {step_s:.3g} s, {100 * self._scatter:.1f} % scatter, {look.energy_j / look.steps:.1f} J: "
            f"{self._verdict}"
        )
        seen_mhz = []
        for _ in range(_CLOCK_LOOKS):  # a governor at its power limit hunts
            seen_mhz += [control.seen()[0] for control in self._controls]
            self._steps.wait(_LOOK_EVERY_S)
        core_mhz = statistics.median(seen_mhz)
        about = self._controls[0].about
        spec = gpu_spec.resolve(gpu_spec.of_board(about["name"]) or _GENERIC)
        candidates = Candidates(about["clocks"], spec, core_mhz)
        if not candidates.pairs:
            raise InputError(f"no clock below the {core_mhz:g} MHz that it runs at auto can be locked")
        block_s = max(self._block_s, _LEAST_STEPS * step_s)
        steps, sign_s = self._sign
        # a block begins and ends with a sign, and another one passes while clocks settle
        signs = 1 + max(math.ceil(block_s / sign_s), math.ceil(_LEAST_STEPS / steps))
        kept_s = self._end_s * least_share(4 * (_SETTLE_S + signs * sign_s) / self._end_s)
        if kept_s > 1.1 * self._end_s:
            self._say(
                f"a block of {signs - 1} x {steps:g} steps takes {(signs - 1) * sign_s:.3g} s, so a pair is kept after "
                f"{kept_s / 60:.0f} minutes at the earliest, not {self._end_s / 60:g}"
            )
        if self._controls[0].reads_only:
            self._say(
                f"dry run: {len(candidates.pairs)} pairs would be tried, {label(candidates.pairs[-1])} to "
                f"{label(candidates.pairs[0])}, blocks of {block_s:.3g} s in turn with auto; nothing is set"
            )
            self._steps.sleep(math.inf)
        self._count()
        whole = Procedure(candidates, self._slack_percent, self._seed)
        self._tune(whole, block_s)
        if board := self._by_pass(candidates, whole.kept):
            self._tune(Procedure(board, self._slack_percent, self._seed, (whole.kept, whole.gain)), block_s)
        self._keep(block_s)

    def _tune(self, procedure: Procedure, block_s: float) -> None:
        """Follow a procedure until it says what to keep."""
        self._procedure = procedure
        began_s = said_s = self._steps.now_s()
        while procedure.phase != "keep":
            phase = procedure.phase
            try:
                block = self._measure(procedure.pair, _LEAST_STEPS, block_s)
            except Paused:
                self._rest()
                procedure.drop()
                continue
            now_s, rounds = self._steps.now_s(), len(procedure.rounds)
            procedure.add(block, (now_s - began_s) / self._end_s)
            for round_ in procedure.rounds[rounds:]:
                sd = math.sqrt(scatter(procedure.rounds)[1])
                for pair in round_.pairs:
                    self._save(round_.energy_j(pair), round_.change(pair)[1], sd)
            if phase == "race" and procedure.phase == "walk":
                self._say(f"found by trying; now measured again: {'; '.join(map(in_words, procedure.path))}")
            if now_s - said_s >= _TELL_EVERY_S:
                said_s = now_s
                points = self._count_more(procedure, now_s - began_s)
                self._say(
                    f"ten more minutes would save at most {points:.1f} points of energy"
                    if round(points, 1)
                    else "more measuring is not worth it"
                )
        self._count_more(procedure, self._steps.now_s() - began_s)

    def _count_more(self, procedure: Procedure, tuned_s: float) -> float:
        """Note and return what another ten minutes may bring at most, points of energy."""
        self._more_points = points = procedure.more_percent(len(procedure.rounds) * 600 / tuned_s)
        return points

    def _by_pass(self, candidates: Candidates, kept: Setting) -> PassCandidates | None:
        """Return what to choose from where each pass may have a pair; None where it may not, which is said."""
        if self._latency_s is None:
            return None
        passes = self._passes
        took = ", ".join(f"{name} {pass_s:.3g} s" for name, (_, pass_s) in passes.items())
        if not 2 <= len(passes) <= MOST_PASSES:
            self._say(f"{len(passes)} passes were marked ({took}), and 2 to {MOST_PASSES} can have pairs of their own")
            return None
        if min(pass_s for _, pass_s in passes.values()) < LEAST_CHANGES * self._latency_s:
            self._say(
                f"one pair for all passes: {took}, and a change of clocks takes {self._latency_s:.3g} s; a pass of its "
                f"own pair has to take {LEAST_CHANGES:g} times as long"
            )
            return None
        self._say(f"a pair for each pass: {took}")
        assert isinstance(kept, Pair)
        return PassCandidates(candidates, {name: share for name, (share, _) in passes.items()}, kept)

    def _look_at_auto(self) -> TrialBlock:
        """Return a block of the first steps, before anything is tried; what comes between them (compiling, a
        checkpoint) is left out."""
        least = _LOOK_STEPS
        while True:
            self.clocks.forget()
            try:
                block = self._measure(BASELINE, least, _LOOK_BLOCKS * self._block_s)
            except Silent:
                raise InputError(
                    f"no step was told for {self._patience_s:g} s; look at --progress, or mark steps (docs/tune.md)"
                ) from None
            except StepsStopped as quiet:
                self._say(
                    f"{self._steps.count} steps were told so far, and none for {quiet.seconds:.0f} s; if it takes "
                    "more, look at --progress"
                )
                continue
            except Paused:
                continue
            needed = math.ceil(_LOOK_SIGNS * self._sign[0])
            if block.steps >= needed:
                return block
            least = needed  # of fewer signs nobody can tell whether the training paused between them

    def _keep(self, block_s: float) -> None:
        """Keep what was chosen; look again every hour whether it holds."""
        procedure = self._procedure
        assert procedure
        while procedure.kept != BASELINE:
            self.clocks.ask(procedure.kept)
            self._count()  # what was spent on trying saves what its rounds say
            self._say(self.last_line())
            self._kept_gain = procedure.gain
            self._steps.sleep(_CHECK_EVERY_S)
            self._count(self._kept_gain)
            self._kept_gain = None
            if not procedure.check(self._check(procedure.kept, block_s)):
                self._say("the steps have become slower than allowed: back to auto for good")
        self.clocks.ask(BASELINE)
        self._steps.sleep(math.inf)

    def _check(self, pair: Setting, block_s: float) -> list[Round]:
        done: list[Round] = []
        while len(done) < CHECK_ROUNDS:
            round_ = Round((pair,))
            try:
                for setting in round_.order:
                    round_.blocks.append(self._measure(setting, _LEAST_STEPS, block_s))
            except Paused:
                self._rest()
                continue
            done.append(round_)
        return done

    def _measure(self, pair: Setting, least: int, lasting_s: float) -> TrialBlock:
        """Measure and return a block of whole steps at a pair, after the clocks have settled."""
        self.clocks.ask(pair)
        begin_s = self._steps.now_s() + _SETTLE_S
        (_, first_s), *_ = self._steps.since(begin_s, 0, 0, self._patience_s)
        watches = [control.watch(self._steps.now_s) for control in self._controls]
        first = self._edges(watches)
        stamps = self._steps.since(first_s, least, lasting_s, self._patience_s)
        last = self._edges(watches)
        self._judge(pair, watches, first, last)
        power_w = sum((end[0] - begin[0]) / 1000 / (end[1] - begin[1]) for begin, end in zip(first, last))
        apart = [(after[1] - before[1], after[0] - before[0]) for before, after in pairwise(stamps)]
        usual_s = statistics.median(gap_s for gap_s, _ in apart)
        if max(gap_s for gap_s, _ in apart) > max(_PAUSE * usual_s, _LEAST_PAUSE_S):
            raise Paused
        self._patience_s = max(2 * _PAUSE * usual_s, 10.0)
        time_s, steps = stamps[-1][1] - stamps[0][1], stamps[-1][0] - stamps[0][0]
        self._sign = steps / len(apart), time_s / len(apart)
        # a sign of many steps tells their mean, which scatters less than one of them
        square = sum((gap_s - gap_steps * time_s / steps) ** 2 / gap_steps for gap_s, gap_steps in apart)
        self._scatter = math.sqrt(square / max(1, len(apart) - 1)) * steps / time_s
        return TrialBlock(steps, time_s, power_w * time_s)

    def _judge(
        self,
        pair: Setting,
        watches: Sequence[Watch],
        first: Sequence[tuple[int, float]],
        last: Sequence[tuple[int, float]],
    ) -> None:
        """Raise InputError where nothing can be concluded from a block, nor from another one like it: no energy that
        can be believed, clocks that were not reached in two blocks in a row. Raise Paused where it was disturbed."""
        verdicts, missed, is_disturbed = [], "", False
        for control, watch, (begin_mj, begin_s), (end_mj, end_s) in zip(self._controls, watches, first, last):
            watch.end()
            asked = pair if isinstance(pair, Pair) else BASELINE
            window = AlignedWindow(begin_s, end_s, end_mj - begin_mj)
            verdict, reasons = watch.judged(asked, window, control.period_s)
            line = "; ".join([verdict, *reasons])
            if verdict == "counter":
                self._verdict = line
                raise CounterFault(reasons[0], fell=False)
            if verdict != "unstable":  # blocks are short, and many
                verdicts.append(line)
            is_disturbed |= verdict == "disturbed"
            missed = line if verdict == "not_reached" else missed
        self._verdict = next((line for line in verdicts if line != "ok"), "ok")
        limits_mw, self._limits_mw = self._limits_mw, [watch.limit_mw for watch in watches]
        if is_disturbed or (limits_mw and limits_mw != self._limits_mw):
            raise Paused
        self._missed = self._missed + 1 if missed else 0 if pair != BASELINE else self._missed
        if self._missed > 1:
            self._verdict = self._look_verdict  # what is told from here on is auto's
            raise InputError(f"its clocks are not reached: {missed}")

    def _rest(self) -> None:
        """Auto, until steps come again."""
        self.clocks.ask(BASELINE)
        self._steps.since(self._steps.now_s(), 1, 0, math.inf)

    def _energies_mj(self) -> list[int]:
        return [control.board.energy_mj() for control in self._controls]

    def _count(self, gain: Gain | None = None) -> None:
        """Count the energy since the last count, all of it at what is kept where its gain is given."""
        now_mj = self._energies_mj()
        used_mj = [now - then for now, then in zip(now_mj, self._counted_mj or now_mj)]
        if min(used_mj) < 0:
            raise CounterFault("an energy counter fell; was the driver reloaded meanwhile?", fell=True)
        used_j = sum(used_mj) / 1000
        self._counted_mj = now_mj
        self._energy_j += used_j
        if gain:
            self._save(used_j, gain.energy, (gain.high()[1] - gain.energy) / _TAIL)

    def _save(self, used_j: float, change: float, sd: float) -> None:
        """Energy was used where auto would have used another amount; change: its logarithm."""
        at_auto_j = used_j * math.exp(-change)
        self._saved_j += at_auto_j - used_j
        self._saved_var += (at_auto_j * sd) ** 2

    def _edges(self, watches: Sequence[Watch]) -> list[tuple[int, float]]:
        """Return (mJ, s) of each GPU at the next move of its counter, which is looked at before and after."""
        for watch in watches:
            watch.look()
        begin, end_s = self._energies_mj(), self._steps.now_s() + _EDGE_LIMIT_S
        edges: dict[int, tuple[int, float]] = {}
        while len(edges) < len(begin):
            for place, now_mj in enumerate(self._energies_mj()):
                watches[place].check_rises(now_mj)
                if place not in edges and now_mj != begin[place]:
                    edges[place] = now_mj, self._steps.now_s()
            if self._steps.now_s() > end_s:
                raise InputError(f"an energy counter has not moved for {_EDGE_LIMIT_S:g} s")
            self._steps.wait(0.001)
        for watch in watches:
            watch.look()
        return [edges[place] for place in range(len(begin))]


def _percent_of(gain: Gain) -> dict[str, Any]:
    """Return changes against auto, percent, for a report; None for a bound that one round cannot show."""
    time, energy = (None if math.isinf(bound) else 100 * math.expm1(bound) for bound in gain.high())
    return {
        "time_change_percent": 100 * math.expm1(gain.time),
        "time_change_at_most_percent": time,
        "energy_change_percent": 100 * math.expm1(gain.energy),
        "energy_change_at_most_percent": energy,
        "rounds": gain.rounds,
    }


class Tuner:
    """What a training loop tells its steps, and, where each is to have a pair, its passes (mark)."""

    def __init__(self, session: TuningSession, steps: Steps) -> None:
        self._session, self.step, self.mark = session, steps.step, session.clocks.mark

    def summary(self) -> dict[str, Any]:
        """Return what has come of it so far, see TuningSession."""
        return self._session.summary()


@contextmanager
def tune(
    slack_percent: float = 1.0,
    gpus: str = "",
    minutes: float = 30.0,
    through: str = AUTO,
    dry_run: bool = False,
    say: Callable[[str], object] | None = None,
    samples: int = 0,
    block_s: float = _BLOCK_S,
    latency: str | None = None,
) -> Iterator[Tuner]:
    """with tune(slack_percent=1) as tuner: for batch in data: train(batch); tuner.step()

    slack_percent: how much slower a step may become. gpus: UUIDs or indices with commas between, "" for the only one.
    minutes: after which a pair is kept. through: what sets clocks. dry_run: measure at auto, set nothing. say: called
    with each line; default: print. samples: of a step of all ranks, to tell joules a sample. block_s: at one pair, in
    turn with auto. latency: file of `kernel-dvfs latency`; then passes that are marked (tuner.mark) may have a pair
    each, and as many minutes again are spent on that. Clocks are restored on leaving, however that happens. Raises
    InputError where a GPU is taken, or its clocks may not be set.
    """
    steps, latency_s = Steps(), _change_s(latency)
    tell = say or (lambda line: print(f"kernel-dvfs: {line}", flush=True))
    with _held(gpus, through, dry_run, tell, share=True) as controls:  # a training that has begun is on it itself
        session = TuningSession(controls, steps, slack_percent, minutes, tell, block_s, samples, latency_s=latency_s)
        try:
            with beside(session.run, "kernel-dvfs tune", steps.end):
                yield Tuner(session, steps)
        finally:  # hours of training have shown it, however they end
            tell(session.last_line())


def tune_command(
    words: Sequence[str],
    progress: str | None,
    slack_percent: float,
    gpus: str,
    minutes: float,
    through: str,
    dry_run: bool,
    share: bool,
    say: Callable[[str], object],
    block_s: float = _BLOCK_S,
    samples: int = 0,
    latency: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return (exit code, summary) of a command that is tuned while it runs.

    progress: a regular expression whose first group is the number of the step, looked for in every line of what the
    command prints, which is passed on unchanged; None: the command tells or marks each step (deploy.marks). share:
    also where others compute on the GPU. samples, latency: as of `tune`. Signals are passed on. Raises InputError
    before the command is started.
    """
    steps, latency_s = Steps(), _change_s(latency)
    if progress is not None:
        pattern_of(progress)
    with _held(gpus, through, dry_run, say, share) as controls:
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING_SIGNALS, signal.SIGCHLD})
        try:
            session = TuningSession(
                *(controls, steps, slack_percent, minutes, say, block_s, samples),
                latency_s=latency_s,
                counts_marks=progress is None,
            )
            code = _run(words, progress, session, steps, held)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
    say(session.last_line())
    return code, session.summary()


def _run(
    words: Sequence[str],
    progress: str | None,
    session: TuningSession,
    steps: Steps,
    held: set[int | signal.Signals],
) -> int:
    with ExitStack() as stack:
        marks, counter = MarkListener(), Counter(None, steps.step)

        def step(number: int) -> None:
            if progress is None:
                session.clocks.repeats = None  # a step is what its program says, not the first pass again
                counter.number(number)

        stack.enter_context(marks.followed(session.clocks.mark, step))
        if progress is not None:
            passing = stack.enter_context(OutputRelay(progress, steps.step))
            child = start(words, held, marks.environment | passing.environment, passing.outputs)
            try:
                passing.begin()
            except BaseException:  # nobody would read what it prints
                child.kill()
                child.wait()
                raise
        else:
            child = start(words, held, marks.environment)
        with beside(session.run, "kernel-dvfs tune", steps.end):
            attend(child, lambda: None)
    return code_of(child)


@contextmanager
def _held(
    gpus: str, through: str, dry_run: bool, say: Callable[[str], object], share: bool
) -> Iterator[list[GuardedControl]]:
    """Hold the clocks of all GPUs, and yield what sets them, once they are shown to be ours to set."""
    choice.check(through, {}, one_clock_alone=not dry_run, ranges=not dry_run)
    facts = [facts_of(which.strip().removeprefix("nvml:")) for which in gpus.split(",")]
    if not dry_run and through == AUTO and (why := choice.only_slurm([about["uuid"] for about in facts])):
        raise InputError(why)
    if len({about["uuid"] for about in facts}) < len(facts):
        raise InputError(f"--gpu {gpus}: a GPU is named twice")
    names = sorted({about["name"] for about in facts})
    if len(names) > 1:
        raise InputError(f"{', '.join(names)}: one pair for all ranks needs GPUs of one type; give --gpus of one")
    with ExitStack() as stack:
        controls = [
            stack.enter_context(GuardedControl(about["uuid"], dry_run, say, through=through)) for about in facts
        ]
        for control in controls:
            control.preflight(share, say)
            control.announce("clock pairs in turn with auto, to tune a training")
        yield controls


def _change_s(latency: str | None) -> float | None:
    """Return what nearly every change of clocks takes, by a file of `kernel-dvfs latency`; None for no file."""
    return max(read(latency).latencies_s) if latency else None
