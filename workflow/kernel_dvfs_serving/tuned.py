"""The tuned static plan of a trace: the servers, the degree, the clock and the step that, held fixed, serve it for the
least energy while they keep the promises.

A promise has margins. It is kept on each half of the trace, the second begun afresh as another trace, and on both also
where all steps take SLOWER times as long as the profile says. What each margin costs is told: plans are looked for that
keep the promise on the first half alone, on both, and with slower steps.

Bounds leave out what cannot be the cheapest, replays decide among the rest; a replay ends as soon as it breaks too many
promises, or spends more than the cheapest. The search is made in two halves, which two processes share (Second) and
which find the same in one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from math import inf
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from kernel_dvfs_serving.cluster import Hopeless
from kernel_dvfs_serving.machine import SlowerMachine
from kernel_dvfs_serving.replay import J_PER_KWH, Replayer, outcome
from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, classify, ttft_slo_s
from kernel_dvfs_serving.static import Static
from kernel_dvfs_serving.system import CAPPED, EARLIEST, LEAST, LEAST_REQUESTS, SLOWER, STEP_TOKENS, TUNED, System
from kernel_dvfs_serving.trace import halves

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kernel_dvfs_serving.instance import Engine
    from kernel_dvfs_serving.system import ClusterSettings
    from kernel_dvfs_serving.trace import Trace

LEVELS = (99.0, 99.5, 99.9)  # percent of requests whose promises are kept
LONG = 2000  # requests of a trace whose plans two processes look for
# what a promise is kept on: how many of the trials, and how that is called
TRIALS = ("first half", "second half", "first half, slower", "second half, slower")
MARGINS = {"first half": 1, "both halves": 2, "both halves, slower steps": 4}
CAPS = (0.45, 0.6, 0.75, 0.9)  # of a GPU's own power cap
_KNOBS = (False, False, False, False)


class Family(NamedTuple):
    """Plans of one kind."""

    name: str  # of the system
    router: str
    capped: bool = False  # a power cap instead of a lock on clocks


FAMILIES = (Family(TUNED, EARLIEST), Family(LEAST_REQUESTS, LEAST), Family(CAPPED, EARLIEST, True))


def replayed(
    replayer: Replayer,
    trace: Trace,
    plan: Static,
    settings: ClusterSettings,
    timeline: bool = False,
    limits: Sequence = (),
) -> dict:
    """Return a plan's outcome on a trace (replay.outcome), and what it sets. limits: see Cluster. Raises Hopeless."""
    kind = plan.router_name, "@" in plan.clock
    name = next(family.name for family in FAMILIES if (family.router, family.capped) == kind)
    plan_settings = replace(settings, servers=plan.servers, chunk_tokens=plan.step_tokens)
    cluster = replayer.run_system(trace, System(name, *_KNOBS), plan_settings, plan, *limits)
    return outcome(cluster, timeline) | {"replicas": plan.replicas} | plan_values(plan)


def plan_values(plan: Static) -> dict[str, Any]:
    """Return what a plan sets, in plain values."""
    names = ("servers", "tp", "clock", "rest", "step_tokens", "answer_tokens")
    return {name: getattr(plan, name) for name in names} | {"router": plan.router_name}


class Trials:
    """What promises are tried on: two halves of a trace, as the profile says and slower.

    settings: servers are the plan's. In order of TRIALS: `pairs` of a Replayer and a Trace.
    """

    def __init__(self, replayer: Replayer, trace: Trace, settings: ClusterSettings):
        slower = Replayer(SlowerMachine(replayer.machine, SLOWER), replayer.columns.profile)
        slower.columns = replayer.columns
        self.settings, self.trace, self.replayer = settings, trace, replayer
        self.pairs = [(trial_replayer, half) for trial_replayer in (replayer, slower) for half in halves(trace)]

    def verdict(self, plan: Static) -> dict[str, Any]:
        """Return a plan, and what comes of it (`tried`)."""
        run = self.tried(lambda replayer, trace: replayed(replayer, trace, plan, self.settings))
        return plan_values(plan) | {"replicas": plan.replicas} | run

    def tried(self, run: Callable[[Replayer, Trace], dict]) -> dict[str, Any]:
        """Run something on all of them; return both halves' J a token and latencies as profiled, and what is kept."""
        runs = [run(*pair) for pair in self.pairs]
        joules = sum(run["energy_kwh"] * J_PER_KWH for run in runs[:2])
        tokens = sum(run["tokens_in_time"] for run in runs[:2])
        return {
            "j_per_token_in_time": joules / tokens if tokens else None,
            "kept_percent": {name: run["kept_percent"] for name, run in zip(TRIALS, runs)},
            "ttft_p99_s": max(run["ttft_p99_s"] or 0.0 for run in runs[:2]),
            "tbt_p99_s": max(run["tbt_p99_s"] or 0.0 for run in runs[:2]),
        }


class PlanTuner:
    """The plans of one family, of one trace on one machine.

    trials.settings.servers: as many as there are at most; spare: of them, beyond the fewest that keep a promise: what a
    plan takes is counted with them, what it keeps without. count: of the trials, that a promise is kept on. second: who
    looks through one half; None: nobody else.
    """

    def __init__(self, trials: Trials, family: Family, count: int = len(TRIALS), second: Second | None = None):
        self.trials, self.family, self._second = trials, family, second
        self._settings = settings = trials.settings
        self._columns = columns = trials.replayer.columns
        self.count = count
        self.slo_scale = columns.slo_scale
        self._runs: dict[tuple[Static, int], dict] = {}
        self._rests_j: dict[tuple, list[float]] = {}
        self._most = settings.servers - settings.spare
        self.replays = 0  # so far
        self._answer = float(trials.trace.output_tokens.mean())
        machine, profile = trials.replayer.machine, columns.profile
        step_choices = STEP_TOKENS if profile.simulated else (settings.chunk_tokens,)
        steps = [tokens for tokens in step_choices if tokens >= settings.max_batch] or [settings.chunk_tokens]
        if family.capped:
            kinds = [(tp, f"{columns.top(tp)}@{watts:g}") for tp in columns.degrees for watts in machine.caps_w(CAPS)]
        else:
            kinds = [(tp, clock) for tp in columns.degrees for clock in columns.clocks[tp]]
        self.kinds = [(*kind, tokens) for kind in kinds for tokens in steps]

    def plan(self, servers: int, tp: int, clock: str, step_tokens: int) -> Static:
        """Return the plan of so many servers, a degree, a clock and a step."""
        rest = clock if self.family.capped else min(self._columns.clocks[tp], key=int)
        return Static(servers, tp, clock, rest, step_tokens, self.family.router, self._answer)

    def on(self, plan: Static, level: float = 0.0, most_j: float = inf) -> dict:
        """Return {"j_per_token", "kept_percent": the least of the trials}. Where it keeps fewer promises than `level`,
        percent, or takes more than `most_j` a token, only that may be found: {"ended": "late" or "dear"}."""
        joules, tokens, kept_percent = 0.0, 0, 100.0
        plain = range(min(2, self.count))
        # what the halves that are still to come take at least is not there to be spent
        least_j = {trial: self._least_j(plan, trial) for trial in plain} if most_j < inf else {}
        whole_j = most_j * sum(self._tokens(trial) for trial in plain)
        for trial in range(self.count):
            left_j = inf
            if trial in plain:
                least_j.pop(trial, None)
                left_j = whole_j - joules - sum(least_j.values())
            run = self._try(plan, trial, level, left_j)
            if "ended" in run:
                return run
            kept_percent = min(kept_percent, run["kept_percent"])
            if trial in plain:
                joules, tokens = joules + run["energy_kwh"] * J_PER_KWH, tokens + run["tokens_in_time"]
        return {"plan": plan, "kept_percent": kept_percent, "joules": joules, "j_per_token": joules / max(1, tokens)}

    def _try(self, plan: Static, trial: int, level: float, most_j: float) -> dict:
        replayer, trace = self.trials.pairs[trial]
        run = self._runs.get((plan, trial))
        if run and (
            ("ended" not in run and run["kept_percent"] >= level)
            or (run.get("ended") == "late" and run["kept_percent"] < level)
            or (run.get("ended") == "dear" and most_j <= run["j_at_least"])
        ):
            return run
        if run and "ended" not in run:
            return {"ended": "late", "kept_percent": run["kept_percent"]}
        count = len(trace.arrival_s)
        most_late = count * (1 - level / 100) + 1e-6  # a plan exactly at its level keeps it
        self.replays += 1
        try:
            limits = most_late, most_j, self._floor_w(plan), self._rest_j(plan, trial)
            run = replayed(replayer, trace, plan, self._settings, limits=limits)
        except Hopeless as end:
            if end.late > most_late:
                run = {"ended": "late", "kept_percent": 100 * (1 - end.late / count)}
            else:
                run = {"ended": "dear", "j_at_least": most_j, "kept_percent": 0.0}
        self._runs[plan, trial] = run
        return run

    def _least_j(self, plan: Static, trial: int) -> float:
        """Return what a plan takes at least on a trial, J."""
        trace = self.trials.pairs[trial][1]
        return self._floor_w(plan) * trace.span_s + self._rest_j(plan, trial)[0]

    def _tokens(self, trial: int) -> int:
        trace = self.trials.pairs[trial][1]
        return int(trace.input_tokens.sum(dtype=int) + trace.output_tokens.sum(dtype=int))

    def frontier(self, levels: Sequence[float] = LEVELS) -> dict[float, Static]:
        """Return the cheapest plan found at each level of kept promises, percent, that any plan reaches.

        Of each degree, clock and step the fewest servers that keep a level are looked for: more of them idle more.
        Levels are kept the more, the more servers there are; a trace may break this by a request or two, and then a
        plan of a server less is missed.
        """
        kinds = sorted(self.kinds, key=self._promising)
        best: dict[float, dict] = {}
        # the first two bound all others, which then bound those of their half alone: so it does not matter who asks
        for parts in ((kinds[:1], kinds[1:2]), (kinds[2::2], kinds[3::2])):
            for better in self._halves(*((list(levels), best, part) for part in parts)):
                best |= {
                    level: totals for level, totals in better.items() if totals["j_per_token"] < _cost(best, level)
                }
        return {level: totals["plan"] for level, totals in sorted(best.items())}

    def _halves(self, *parts: tuple) -> list[dict[float, dict]]:
        """Return what `search` finds of two halves, of the second in the other process while that one lives."""
        first, second = parts
        if self._second is None:
            return [self.search(*part) for part in parts]
        try:
            self._second.ask(self.family, self.count, second)
            first_best = self.search(*first)
            second_best, replays = self._second.answer()
        except (EOFError, OSError):  # it was killed
            self._second = None
            return [self.search(*part) for part in parts]
        self.replays += replays
        return [first_best, second_best]

    def search(self, levels: Sequence[float], best: dict[float, dict], kinds: Sequence[tuple[int, str, int]]) -> dict:
        """Return `best`, the cheapest plans so far by level, with what of these kinds is cheaper."""
        best = dict(best)
        for kind in kinds:
            reach, least, least_j = self._lone_percent(*kind), 1, 0.0
            for level in sorted(levels):
                if reach < level:
                    break
                cheapest = _cost(best, level)
                most = self._affordable(kind, cheapest, least if least_j else 0, least_j)
                # what is no cheaper than the dearest of the levels that are left is of no use for any
                limits = level, max(_cost(best, stricter) for stricter in levels if stricter >= level)
                count = self._fewest(kind, level, least, most, limits)
                if count is None:
                    continue  # a stricter level may have a dearer best plan, and room for more servers
                totals = self.on(self._with_spare(self.plan(count, *kind)))
                if totals["j_per_token"] < cheapest and totals["kept_percent"] >= level:
                    best[level] = totals
                least, least_j = count, totals["joules"]
        return best

    def _with_spare(self, plan: Static) -> Static:
        return replace(plan, servers=plan.servers + self._settings.spare)

    def _promising(self, kind: tuple[int, str, int]) -> tuple[float, int, int]:
        # the middle clocks first: a cheap plan found early bounds all after it; and of these the few large replicas,
        # whose replays take the least time
        tp, clock, step_tokens = kind
        clocks = [float(name.partition("@")[2] or name) for degree, name, _ in self.kinds if degree == tp]
        clock_number = float(clock.partition("@")[2] or clock)
        return abs(clock_number - float(np.quantile(clocks, 0.7))), -tp, step_tokens

    def _fewest(
        self, kind: tuple[int, str, int], level: float, least: int, most: int, limits: tuple[float, float]
    ) -> int | None:
        """Return the fewest servers that keep a level, of `least` to `most`; None if none do. Doubles, then halves.

        limits: as on() takes them. More servers idle more: beyond a number that is too dear none is of use.
        """
        broken, count = least - 1, least
        while count <= most and self._breaks(self.plan(count, *kind), level, limits):
            broken, count = count, count + max(1, count - least + 1)
        if count > most:
            if broken >= most or self._breaks(self.plan(most, *kind), level, limits):
                return None
            count = most
        while count - broken > 1:
            middle = (count + broken) // 2
            if self._breaks(self.plan(middle, *kind), level, limits):
                broken = middle
            else:
                count = middle
        return None if "ended" in self.on(self.plan(count, *kind), *limits) else count

    def _breaks(self, plan: Static, level: float, limits: tuple[float, float]) -> bool:
        """Return whether it breaks a level; one that is too dear does not, as far as is known."""
        totals = self.on(plan, *limits)
        return totals.get("ended") != "dear" and bool(totals["kept_percent"] < level)

    def _affordable(self, kind: tuple[int, str, int], j_per_token: float, least: int, least_j: float) -> int:
        """Return the most servers that need not cost more: all beyond `least`, which take `least_j`, draw idle
        power."""
        plain = range(min(2, self.count))
        left_j = j_per_token * sum(self._tokens(trial) for trial in plain) - least_j
        idle_j = self._floor_w(self.plan(1, *kind)) * sum(self.trials.pairs[trial][1].span_s for trial in plain)
        return int(min(self._most, least + left_j / idle_j if idle_j else inf)) if left_j >= 0 else 0

    def _floor_w(self, plan: Static) -> float:
        """Return the power of a plan's servers without a request, W: they never draw less."""
        return plan.replicas * self._idle_w(plan)

    def _idle_w(self, plan: Static) -> float:
        """Return the least that one of its replicas draws, W."""
        return min(engine.least_w for engine in self._engines(plan))

    def _engines(self, plan: Static) -> list[Engine]:
        machine = self.trials.replayer.machine
        return [machine.engine(plan.tp, clock) for clock in dict.fromkeys((plan.clock, plan.rest))]

    def _rest_j(self, plan: Static, trial: int) -> list[float]:
        """Return what, beyond that, the requests from each on take at least, J; what no replica can hold is rejected in
        the end and takes nothing."""
        key = plan.tp, plan.clock, plan.rest, plan.step_tokens, trial
        if key not in self._rests_j:
            self._rests_j[key] = self._made_rest_j(plan, self.trials.pairs[trial][1])
        return self._rests_j[key]

    def _made_rest_j(self, plan: Static, trace: Trace) -> list[float]:
        most_tokens, idle_w = max(plan.step_tokens, self._settings.max_batch), self._idle_w(plan)
        least = [engine.least_j(idle_w, most_tokens) for engine in self._engines(plan)[:1]]
        token_j, pair_j, context_j = map(min, zip(*least))
        read, given = trace.input_tokens.astype(float), trace.output_tokens - 1.0
        # the first token comes with the prompt's last; each after it attends over all before it
        request_j = token_j * (read + given) + pair_j * read * (read + 1) / 2
        request_j += context_j * given * (read + (given + 1) / 2)
        request_j[read + given + 1 > self.trials.replayer.machine.kv_tokens(plan.tp)] = 0.0
        return [*np.cumsum(request_j[::-1])[::-1].tolist(), 0.0]

    def _lone_percent(self, tp: int, clock: str, step_tokens: int) -> float:
        """Return the percent of requests whose promises a replica keeps that holds nothing else: no plan keeps more."""
        machine, trace = self.trials.pairs[self.count - 1][0].machine, self.trials.trace
        engine, inputs = machine.engine(tp, clock), trace.input_tokens
        kinds = classify(inputs, trace.output_tokens)
        promises = self.slo_scale * np.array([ttft_slo_s(name) for name in CLASSES])[kinds]
        longest = {s: _longest(engine, s, int(inputs.max()), step_tokens) for s in set(promises)}
        is_kept = inputs <= np.vectorize(longest.get)(promises)
        # a lone answer's gaps only grow: where the first is too long, all are
        if engine.step(1, 1.0, 1.0)[0] > self.slo_scale * TBT_SLO_S:
            is_kept &= trace.output_tokens == 1
        # a half may be easier than the whole: no more is left out than what either cannot keep
        half = halves(trace)
        shares = [is_kept[: len(half[0].arrival_s)], is_kept[len(half[0].arrival_s) :]][: min(2, self.count)]
        # all requests may be in one half
        return 100.0 * min(float(kept_share.mean()) for kept_share in shares if len(kept_share))


def planned(trials: Trials, levels: Sequence[float], second: Second | None) -> tuple[list[dict[str, Any]], int]:
    """Return (the cheapest plans with their verdicts, and in how many replays): of each level that is kept with all
    margins by either router, the cheaper first; then, of the router that is cheaper at the first of these, with fewer
    margins. None where no level is kept with all."""
    plans: list[dict[str, Any]] = []
    replays = 0
    names = list(MARGINS)
    routed = [PlanTuner(trials, family, second=second) for family in FAMILIES if not family.capped]
    for name in reversed(names):
        verdicts = []
        for tuner in routed:
            tuner.count = MARGINS[name]
            for level, plan in tuner.frontier(levels).items():
                verdicts.append({"keep_percent": level, "kept_on": name} | trials.verdict(plan))
        verdicts.sort(key=lambda verdict: (verdict["keep_percent"], verdict["j_per_token_in_time"]))
        plans += verdicts
        if not plans:
            break
        if name == names[-1]:
            replays = sum(tuner.replays for tuner in routed if tuner.family.router != verdicts[0]["router"])
            routed = [tuner for tuner in routed if tuner.family.router == verdicts[0]["router"]]
    return plans, replays + sum(tuner.replays for tuner in routed)


class Second:
    """A second process, which searches for plans of one trace on one machine as a PlanTuner asks; use with `with`.

    Started afresh, not forked: a library's threads do not outlive a fork. It ends with this process, whatever ends
    that. Raises OSError where none can be started.
    """

    def __init__(self, trials: Trials):
        context = get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, trials), daemon=True)
        # a Ctrl-C meanwhile waits until it can end without a word of its own
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()
        self._process.terminate()
        self._process.join()

    def ask(self, family: Family, count: int, arguments: tuple) -> None:
        """Have a PlanTuner of this family and so many trials search."""
        self._end.send((family, count, arguments))

    def answer(self) -> tuple[dict[float, dict], int]:
        """Return what it found, and in how many replays. Raises EOFError or OSError if the process is gone."""
        answer = self._end.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(end: Connection, trials: Trials) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no word of its own when the user ends it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tuners: dict[Family, PlanTuner] = {}
    with suppress(EOFError, OSError):
        while True:
            family, count, arguments = end.recv()
            try:
                tuner = tuners.setdefault(family, PlanTuner(trials, family))
                tuner.count, before = count, tuner.replays
                best = tuner.search(*arguments)
            except Exception as error:
                end.send(error)
            else:
                end.send((best, tuner.replays - before))


def _end_with_parent() -> None:
    """End this process in the middle of a search when its parent is gone: nobody waits for what it finds."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


def second_for(trials: Trials, cores: int | None = None) -> AbstractContextManager[Second | None]:
    """Return a Second where it pays: a second core, and a trace that takes longer to replay than a process to start.

    cores: that may be used; None: as many as there are.
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores < 2 or len(trials.trace.arrival_s) <= LONG:
        return nullcontext()
    try:
        return Second(trials)
    except OSError:  # one process finds the same
        return nullcontext()


def _cost(best: dict[float, dict], level: float) -> float:
    """Return what the cheapest plan found for a level takes, J a token; inf of none."""
    return best[level]["j_per_token"] if level in best else inf


def _longest(engine: Engine, promise_s: float, most: int, chunk_tokens: int) -> int:
    """Return the longest prompt, tokens, that a lone request reads within its promise, s; 0 if none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if lone_ttft_s(engine, middle, chunk_tokens) <= promise_s:
            low = middle
        else:
            high = middle - 1
    return low


def lone_ttft_s(engine: Engine, input_tokens: int, chunk_tokens: int) -> float:
    """Return the time to the first token of a request that has the replica to itself, s."""
    chunks = ((start, min(chunk_tokens, input_tokens - start)) for start in range(0, input_tokens, chunk_tokens))
    return sum(engine.step(size, size * start + size * (size + 1) // 2, 0)[0] for start, size in chunks)
