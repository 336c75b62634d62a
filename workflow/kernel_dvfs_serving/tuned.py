"""The tuned static plan of a trace: the servers, the degree and the clock that, held fixed, serve it for the least
energy while they keep the promises; also mixes of two degrees. Bounds leave out what cannot be it, replays decide among
the rest; a replay ends as soon as it breaks too many promises, or spends more than the cheapest. The search is made in
two halves, which two processes share (Second) and which find the same in one.

A static plan is what anybody has who sweeps: one pool of replicas, the least loaded takes the next request, and nothing
is changed while it runs.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from math import inf
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, Self, TypedDict

import numpy as np

from kernel_dvfs.errors import InputError
from kernel_dvfs.files import parse_yaml
from kernel_dvfs.shape import FILLED, Is, checked
from kernel_dvfs_serving.cluster import Hopeless
from kernel_dvfs_serving.packing import FULL, HOLD_S, READY, SAFETY, Autoscaled, Mix, Packing, Parts, Static, boost_of
from kernel_dvfs_serving.replay import J_PER_KWH, outcome
from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, classify, ttft_slo_s
from kernel_dvfs_serving.resharding import SERVER_GPUS
from kernel_dvfs_serving.system import AUTOSCALED, NO_SPARE, PACKED, TUNED, System

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kernel_dvfs_serving.instance import Engine
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.trace import Trace

SCHEMA = "kernel-dvfs/serving-static/2"
LEVELS = (99.0, 99.5, 99.9)  # percent of requests whose promises are kept
LONG = 2000  # requests of a trace whose plans two processes look for
_KNOBS = (False, False, False, False)
STATIC_PLAN, PACKING, AUTOSCALER = (System(name, *_KNOBS) for name in (TUNED, PACKED, AUTOSCALED))
_REMEDY = "make it again with kernel-dvfs serving plan TRACE.csv --profile PROFILE.csv"


class _PackingPlan(TypedDict):
    servers: int
    tp: int
    clock: str
    boost: str
    rest: str
    answer_tokens: float


class _Mix(TypedDict):
    gpus: int
    tp: int
    clock: str


class _StaticPlan(TypedDict):
    keep_percent: float
    servers: int
    tp: int
    clock: str
    mix: NotRequired[_Mix]
    packing: NotRequired[_PackingPlan]


class StaticFile(TypedDict):
    """What a replay takes from a plan; `written` makes more."""

    schema: str
    cells: Annotated[int, Is("a whole number of at least 1", lambda value: value >= 1)]
    slo_scale: Annotated[float, Is("a number above 0", lambda value: value > 0)]
    gaps: Literal["mean", "p99"]
    plans: Annotated[list[_StaticPlan], FILLED]


class Planned(NamedTuple):
    """A plan from its file, and under what it was tuned."""

    plan: Static
    cells: int  # as many fleets like this, to which requests are dealt in turn
    slo_scale: float
    gaps: str


def replayed(
    replayer: Replayer,
    trace: Trace,
    plan: Static,
    settings: Settings,
    timeline: bool = False,
    servers: int | None = None,
    limits: Sequence[Any] = (),
) -> dict:
    """The outcome of a plan on a trace (replay.outcome), with what it sets. servers: there are; None: as planned.

    limits: see Cluster. Raises cluster.Hopeless.
    """
    system = STATIC_PLAN
    if isinstance(plan, Packing | Autoscaled):
        system = PACKING if isinstance(plan, Packing) else AUTOSCALER
    own = replace(settings, servers=servers or plan.servers)
    cluster = replayer.run_system(trace, system, own, plan, *limits)
    found = outcome(cluster, timeline) | {"tp": plan.tp, "clock": plan.clock, "replicas": plan.replicas}
    if plan.mix:
        found["mix"] = plan.mix._asdict()
    if isinstance(plan, Packing):
        found |= {"boost": plan.boost, "rest": plan.rest, "answer_tokens": plan.answer_tokens}
    return found


class Tuner:
    """The plans of one trace on one machine.

    settings.servers: as many as there are at most. settings.spare: of them, beyond the fewest that keep a promise: what
    a plan takes is counted with them, what it keeps without. parts: of packing; None: static plans. second: who looks
    through one half; None: nobody else.
    """

    def __init__(
        self,
        replayer: Replayer,
        trace: Trace,
        settings: Settings,
        parts: Parts | None = None,
        second: Second | None = None,
    ):
        self._replayer, self._trace, self._settings, self._parts = replayer, trace, settings, parts
        self._second = second
        self._found: dict[Static, dict] = {}
        self._columns = columns = replayer.columns
        self.slo_scale = columns.slo_scale
        self.kinds = [(tp, clock) for tp in columns.degrees for clock in columns.clocks[tp]]
        self._most = settings.servers - settings.spare
        self.replays = 0  # so far
        self._tokens = int(trace.input_tokens.sum(dtype=int) + trace.output_tokens.sum(dtype=int))

    def plan(self, servers: int, tp: int, clock: str, mix: Mix | None = None) -> Static:
        """The plan of so many servers, a degree and a clock."""
        if self._parts is None:
            return Static(servers, tp, clock, mix=mix)
        clocks = self._columns.clocks[tp]
        answer = float(self._trace.output_tokens.mean())
        boost = boost_of(clock, clocks) if self._parts.boosts else clock
        rest = min(clocks, key=int)
        return Packing(servers, tp, clock, boost=boost, rest=rest, answer_tokens=answer, parts=self._parts)

    def plan_of(self, found: dict) -> Static:
        """The plan that an outcome is of."""
        mix = Mix(**found["mix"]) if "mix" in found else None
        return self.plan(found["servers"], found["tp"], found["clock"], mix)

    def on(self, plan: Static, level: float = 0.0, most_j: float = inf) -> dict:
        """The outcome of a plan. Where it keeps fewer promises than `level`, percent, or takes more than `most_j` a
        token, only that may be found: {"ended": "late", "kept_percent": at most} or {"ended": "dear"}.
        """
        found = self._found.get(plan)
        if found and (
            "ended" not in found
            or (found["ended"] == "late" and found["kept_percent"] < level)
            or (found["ended"] == "dear" and most_j <= found["j_at_least"])
        ):
            return found
        count = len(self._trace.arrival_s)
        most_late = count * (1 - level / 100) + 1e-6  # a plan exactly at its level keeps it
        self.replays += 1
        try:
            limits = most_late, most_j * self._tokens, self._floor_w(plan), self._rest_j(plan)
            found = replayed(self._replayer, self._trace, plan, self._settings, limits=limits)
        except Hopeless as end:
            if end.late > most_late:
                found = {"ended": "late", "kept_percent": 100 * (1 - end.late / count)}
            else:
                found = {"ended": "dear", "j_at_least": most_j, "kept_percent": 0.0}
        self._found[plan] = found
        return found

    def frontier(self, levels: Sequence[float] = LEVELS, like: dict | None = None) -> list[dict]:
        """The cheapest plan found at each level of kept promises, percent, that any plan reaches, with its outcome.

        like: whose degree and clock are looked at first: where its cost is about that of the cheapest, most others are
        soon left out.

        Of each degree and clock the fewest servers that keep a level are looked for: more of them idle more. Levels
        are kept the more, the more servers there are; a trace may break this by a request or two, and then a plan of
        a server less is missed.
        """
        kinds = sorted(self.kinds, key=self._promising)
        if like:
            kinds.sort(key=lambda kind: kind != (like["tp"], like["clock"]))
        best: dict[float, dict] = {}
        # the first two bound all others, which then bound those of their half alone: so it does not matter who asks
        for halves in ((kinds[:1], kinds[1:2]), (kinds[2::2], kinds[3::2])):
            for found in self._halves("search", *((list(levels), best, half) for half in halves)):
                best |= {each: own for each, own in found.items() if own["j_per_token_in_time"] < _cost(best, each)}
        if self._parts is None:
            every = sorted(best.items())
            for found in self._halves("mixed", (dict(every[::2]),), (dict(every[1::2]),)):
                best |= found
        return [{"keep_percent": level} | own | self._lost(own) for level, own in sorted(best.items())]

    def _lost(self, found: dict) -> dict[str, float]:
        """With a spare, what a plan keeps where one of its servers is lost half way: it was sized by count."""
        if not self._settings.spare:
            return {}
        plan = replace(self.plan_of(found), fails_s=self._trace.span_s / 2)
        return {"kept_lost_percent": self.on(plan)["kept_percent"]}

    def _halves(self, method: str, *halves: tuple) -> list[dict[float, dict]]:
        """What `search` or `mixed` finds of two halves, of the second in the other process while that one lives."""
        first, second = halves
        if self._second is None:
            return [getattr(self, method)(*half) for half in halves]
        try:
            self._second.ask(self._settings, self._parts, method, second)
            mine = getattr(self, method)(*first)
            theirs, replays = self._second.answer()
        except (EOFError, OSError):  # it was killed
            self._second = None
            return [getattr(self, method)(*half) for half in halves]
        self.replays += replays
        return [mine, theirs]

    def search(self, levels: Sequence[float], best: dict[float, dict], kinds: Sequence[tuple[int, str]]) -> dict:
        """`best`, the cheapest plans so far by level, with what of these degrees and clocks is cheaper."""
        best = dict(best)
        for tp, clock in kinds:
            reach = self._lone_percent(tp, self._fastest(tp, clock))
            least, least_j = 1, 0.0
            for level in sorted(levels):
                if reach < level:
                    break
                cheapest = _cost(best, level)
                most = self._affordable(tp, clock, cheapest, least if least_j else 0, least_j)
                # what is no cheaper than the dearest of the levels that are left is of no use for any
                search = level, max(_cost(best, each) for each in levels if each >= level)
                count = self._fewest(tp, clock, level, least, most, search)
                if count is None:
                    continue  # a stricter level may have a dearer best plan, and room for more servers
                found = self.on(self._with_spare(self.plan(count, tp, clock)))
                if found["j_per_token_in_time"] < cheapest and found["kept_percent"] >= level:
                    best[level] = found
                least = count
                if self._parts is None:  # packing boosts less on more servers
                    least_j = found["energy_kwh"] * J_PER_KWH
        return best

    def mixed(self, best: dict[float, dict]) -> dict[float, dict]:
        """The plans of each level, with half a server of another degree where that is cheaper."""
        return {level: self._mixed(found, level) for level, found in best.items()}

    def _mixed(self, found: dict, level: float) -> dict:
        """A cheaper plan with half a server of another degree at this clock, also on one server less; else the same."""
        servers, tp, clock = found["servers"] - self._settings.spare, found["tp"], found["clock"]
        for count in {servers, servers - 1} - {0}:
            for other in set(self._columns.degrees) - {tp}:
                gpus = max(tp, other, SERVER_GPUS // 2)
                if clock in self._columns.clocks[other] and gpus < SERVER_GPUS * count:
                    plan, most_j = self.plan(count, tp, clock, Mix(gpus, other, clock)), found["j_per_token_in_time"]
                    whole = [self.on(each, level, most_j) for each in (plan, self._with_spare(plan))]
                    if all("ended" not in each and each["kept_percent"] >= level for each in whole):
                        found = min(found, whole[1], key=lambda one: one["j_per_token_in_time"])
        return found

    def least(self, tp: int, clock: str, level: float) -> dict:
        """The outcome of a degree and clock on the fewest servers that keep a level; without energy where none do."""
        reached = self._lone_percent(tp, self._fastest(tp, clock)) >= level
        count = self._fewest(tp, clock, level, 1, self._most, (level, inf)) if reached else None
        if count is None:
            return {"servers": self._settings.servers, "j_per_token_in_time": None, "kept_percent": None}
        return self.on(self._with_spare(self.plan(count, tp, clock)))

    def _with_spare(self, plan: Static) -> Static:
        return replace(plan, servers=plan.servers + self._settings.spare)

    def _promising(self, kind: tuple[int, str]) -> tuple[float, int]:
        # the middle clocks first, without boost somewhat higher: a cheap plan found early bounds all after it; and of
        # these the few large replicas, whose replays take the least time
        tp, clock = kind
        clocks = [int(each) for own, each in self.kinds if own == tp]
        return abs(int(clock) - float(np.quantile(clocks, 0.7 if self._parts is None else 0.5))), -tp

    def _fewest(
        self, tp: int, clock: str, level: float, least: int, most: int, search: tuple[float, float]
    ) -> int | None:
        """Fewest servers that keep a level, of `least` to `most`; None if none do. Doubles, then halves.

        search: as on() takes them. More servers idle more: beyond a number that is too dear none is of use.
        """
        broken, count = least - 1, least
        while count <= most and self._breaks(self.plan(count, tp, clock), level, search):
            broken, count = count, count + max(1, count - least + 1)
        if count > most:
            if broken >= most or self._breaks(self.plan(most, tp, clock), level, search):
                return None
            count = most
        while count - broken > 1:
            middle = (count + broken) // 2
            if self._breaks(self.plan(middle, tp, clock), level, search):
                broken = middle
            else:
                count = middle
        return None if "ended" in self.on(self.plan(count, tp, clock), *search) else count

    def _breaks(self, plan: Static, level: float, search: tuple[float, float]) -> bool:
        """Whether it breaks a level; one that is too dear does not, as far as is known."""
        found = self.on(plan, *search)
        return found.get("ended") != "dear" and bool(found["kept_percent"] < level)

    def _affordable(self, tp: int, clock: str, j_per_token: float, least: int = 0, least_j: float = 0.0) -> int:
        """Most servers that need not cost more: all beyond `least`, which take `least_j`, draw their idle power."""
        left_j = j_per_token * self._tokens - least_j
        idle_j = self._floor_w(self.plan(1, tp, clock)) * self._trace.span_s
        return int(min(self._most, least + left_j / idle_j if idle_j else inf)) if left_j >= 0 else 0

    def _floor_w(self, plan: Static) -> float:
        """Power of a plan's servers without a request, W: they never draw less."""
        return sum(self._idle_w(plan, *own) for own in plan.instances)

    def _idle_w(self, plan: Static, tp: int, clock: str) -> float:
        """The least that one of its replicas draws, W."""
        if isinstance(plan, Packing) and plan.parts.counts:
            return 0.0
        return min(each.least_w for each in self._engines(plan, tp, clock))

    def _engines(self, plan: Static, tp: int, clock: str) -> list[Engine]:
        """Those that one of its replicas runs on."""
        clocks = {clock}
        if isinstance(plan, Packing):
            clocks |= {plan.boost, plan.rest} if plan.parts.rests else {plan.boost}
        return [self._engine(tp, each) for each in clocks]

    def _rest_j(self, plan: Static) -> list[float]:
        """Beyond that, what the requests from each on take at least, J, whichever of its replicas serves them; what
        none of them can hold is rejected in the end and takes nothing.
        """
        most_tokens = max(self._settings.chunk_tokens, self._settings.max_batch)
        least = [
            each.least_j(self._idle_w(plan, *own), most_tokens)
            for own in set(plan.instances)
            for each in self._engines(plan, *own)
        ]
        token_j, pair_j, context_j = map(min, zip(*least))
        read, given = self._trace.input_tokens.astype(float), self._trace.output_tokens - 1.0
        # the first token comes with the prompt's last; each after it attends over all before it
        own_j = token_j * (read + given) + pair_j * read * (read + 1) / 2
        own_j += context_j * given * (read + (given + 1) / 2)
        own_j[read + given + 1 > max(self._replayer.machine.kv_tokens(tp) for tp, _ in plan.instances)] = 0.0
        return [*np.cumsum(own_j[::-1])[::-1].tolist(), 0.0]

    def _fastest(self, tp: int, clock: str) -> str:
        plan = self.plan(1, tp, clock)
        return plan.boost if isinstance(plan, Packing) else clock

    def _lone_percent(self, tp: int, clock: str) -> float:
        """Share of requests, percent, whose promises a replica keeps that holds nothing else: no plan keeps more."""
        engine, inputs = self._engine(tp, clock), self._trace.input_tokens
        kinds = classify(inputs, self._trace.output_tokens)
        promises = self.slo_scale * np.array([ttft_slo_s(name) for name in CLASSES])[kinds]
        longest = {s: _longest(engine, s, int(inputs.max()), self._settings.chunk_tokens) for s in set(promises)}
        kept = inputs <= np.vectorize(longest.get)(promises)
        # a lone answer's gaps only grow: where the first is too long, all are
        if engine.step(1, 1.0, 1.0)[0] > self.slo_scale * TBT_SLO_S:
            kept &= self._trace.output_tokens == 1
        return 100.0 * float(kept.mean())

    def _engine(self, tp: int, clock: str) -> Engine:
        return self._replayer.machine.engine(tp, clock)


class Second:
    """A second process, which searches for plans of one trace on one machine as a Tuner asks; use with `with`.

    Started afresh, not forked: a library's threads do not outlive a fork. It ends with this process, whatever ends
    that. Raises OSError where none can be started.
    """

    def __init__(self, replayer: Replayer, trace: Trace):
        context = get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, replayer, trace), daemon=True)
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

    def ask(self, settings: Settings, parts: Parts | None, method: str, arguments: tuple) -> None:
        """Have a method of a Tuner with these settings and parts called."""
        self._end.send((settings, parts, method, arguments))

    def answer(self) -> tuple[dict[float, dict], int]:
        """What it found, and in how many replays. Raises EOFError or OSError if the process is gone."""
        found = self._end.recv()
        if isinstance(found, Exception):
            raise found
        return found


def _serve(end: Connection, replayer: Replayer, trace: Trace) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no word of its own when the user ends it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tuners: dict[tuple, Tuner] = {}
    with suppress(EOFError, OSError):
        while True:
            settings, parts, method, arguments = end.recv()
            try:
                if (settings, parts) not in tuners:
                    tuners[settings, parts] = Tuner(replayer, trace, settings, parts)
                tuner = tuners[settings, parts]
                before = tuner.replays
                found = getattr(tuner, method)(*arguments)
            except Exception as error:
                end.send(error)
            else:
                end.send((found, tuner.replays - before))


def _end_with_parent() -> None:
    """End this process in the middle of a search when its parent is gone: nobody waits for what it finds."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


def second_for(replayer: Replayer, trace: Trace, cores: int | None = None) -> AbstractContextManager[Second | None]:
    """A Second where it pays: a second core, and a trace that takes longer to replay than a process to start.

    cores: that may be used; None: as many as there are.
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores < 2 or len(trace.arrival_s) <= LONG:
        return nullcontext()
    try:
        return Second(replayer, trace)
    except OSError:  # one process finds the same
        return nullcontext()


def _cost(best: dict[float, dict], level: float) -> float:
    """Of the cheapest plan found for a level, J a token; inf of none."""
    return best[level]["j_per_token_in_time"] if level in best else inf


def _longest(engine: Engine, promise_s: float, most: int, chunk_tokens: int) -> int:
    """Longest prompt, tokens, that a lone request reads within its promise, s; 0 if none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if lone_ttft_s(engine, middle, chunk_tokens) <= promise_s:
            low = middle
        else:
            high = middle - 1
    return low


def lone_ttft_s(engine: Engine, input_tokens: int, chunk_tokens: int) -> float:
    """Time to the first token of a request that has the replica to itself, s."""
    chunks = ((start, min(chunk_tokens, input_tokens - start)) for start in range(0, input_tokens, chunk_tokens))
    return sum(engine.step(size, size * start + size * (size + 1) // 2, 0)[0] for start, size in chunks)


# -- a plan as a file ------------------------------------------------------------------------------------------------


def written(found: list[dict], packed: list[dict], about: dict[str, Any], model: str) -> dict[str, Any]:
    """Two frontiers, static plans and packing, in plain values fit for YAML, with what starts a replica of each.

    about: cells, slo_scale and gaps, and what else is to be said of all plans.
    """
    packing = {each["keep_percent"]: each for each in packed}
    return {
        "schema": SCHEMA,
        **about,
        "plans": [
            {
                "keep_percent": each["keep_percent"],
                **_plain(each, model),
                **({"packing": _plain(own, model)} if (own := packing.get(each["keep_percent"])) else {}),
            }
            for each in found
        ],
    }


def _plain(found: dict, model: str) -> dict[str, Any]:
    figures = ("kept_percent", "kept_lost_percent", "j_per_token_in_time", "ttft_p99_s", "tbt_p99_s", "energy_kwh")
    packs, mix = "boost" in found, found.get("mix")
    router = {"safety": SAFETY, "full": FULL, "boost_hold_s": HOLD_S, "ready": READY}
    return {
        **{key: found[key] for key in ("servers", "tp", "clock", "boost", "rest", "replicas") if key in found},
        **{key: float(f"{found[key]:.5g}") for key in (*figures, "answer_tokens") if found.get(key) is not None},
        **({"router": router} if packs else {}),
        **({"mix": mix | started(model, mix["tp"], packs)} if mix else {}),
        **({"note": NO_SPARE} if found["servers"] == 1 else {}),
        **started(model, found["tp"], packs),
    }


def started(model: str, tp: int, packs: bool) -> dict[str, str]:
    """What starts a replica, to be pasted into a shell. The router's deadlines are priorities of which the lower goes
    first."""
    model = shlex.quote(model)  # a table of others names it
    return {
        "vllm": f"vllm serve {model} --tensor-parallel-size {tp}" + (" --scheduling-policy priority" if packs else ""),
        "sglang": f"python -m sglang.launch_server --model-path {model} --tp {tp}"
        + (" --enable-priority-scheduling --schedule-low-priority-values-first" if packs else ""),
    }


def read_static(path: str, keep_percent: float | None = None, packing: bool = False) -> Planned:
    """The plan in a file that keeps the promises of so many percent; None: the first. Raises InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            content = parse_yaml(file.read())
    except FileNotFoundError:
        raise InputError(f"{path}: no such plan; {_REMEDY}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not YAML ({error}); {_REMEDY}") from None
    file_ = checked(content, StaticFile, path, _REMEDY, SCHEMA)
    plans = {each["keep_percent"]: each for each in file_["plans"]}
    level = next(iter(plans)) if keep_percent is None else keep_percent
    if level not in plans:
        raise InputError(f"{path}: no plan keeps {level:g} %; it has {', '.join(f'{each:g}' for each in plans)}")
    own: _StaticPlan | _PackingPlan = plans[level]
    if packing:
        if "packing" not in plans[level]:
            raise InputError(f"{path}: packing has no plan for {level:g} %; {_REMEDY}")
        own = plans[level]["packing"]
    mix = None if packing or "mix" not in plans[level] else plans[level]["mix"]
    kinds = [own["tp"], *([mix["tp"]] if mix else [])]
    whole = not mix or (0 < mix["gpus"] < SERVER_GPUS * own["servers"] and mix["gpus"] % max(kinds) == 0)
    if not 1 <= own["servers"] <= 128 or not {*kinds} <= {1, 2, 4, 8} or not whole:
        told = " and ".join(map(str, kinds))
        raise InputError(f"{path}: {own['servers']} servers of degree {told} are not possible; {_REMEDY}")
    plan = Static(
        own["servers"], own["tp"], own["clock"], mix=Mix(mix["gpus"], mix["tp"], mix["clock"]) if mix else None
    )
    if packing:
        packs = plans[level]["packing"]
        plan = Packing(
            packs["servers"],
            packs["tp"],
            packs["clock"],
            boost=packs["boost"],
            rest=packs["rest"],
            answer_tokens=packs["answer_tokens"],
        )
    return Planned(plan, file_["cells"], file_["slo_scale"], file_["gaps"])


def lines(
    found: list[dict], packed: list[dict], levels: Sequence[float], cells: int = 1, spare: int = 0
) -> Iterator[str]:
    """The frontiers for a terminal, a line a level, then packing's, each beside the static plan of its level."""
    yield "keep %  servers  degree          clock  replicas  J/token  kept %  TTFT P99  gap P99"
    yield from _rows(found)
    for level in sorted(set(levels) - {each["keep_percent"] for each in found}):
        yield f"{level:6g}  no plan keeps so many on these servers, at these degrees and clocks"
    if packed:
        yield "the same with the packing router (a prompt by its deadline, replicas filled, the rest idle):"
        yield from _rows(packed)
    static = {each["keep_percent"]: each["j_per_token_in_time"] for each in found}
    for each in packed:
        level, own = each["keep_percent"], each["j_per_token_in_time"]
        if level in static:
            yield f"packing / static at {level:g} %: {own / static[level]:.3f} of the energy of a token"
    if cells > 1:
        yield f"note: these are the servers of one cell of {cells}; deal the requests to the cells in turn"
    if spare:
        yield f"note: {spare} of these servers {'is' if spare == 1 else 'are'} spare: without them the promise is kept"
    if any(each["servers"] == 1 for each in (*found, *packed)):
        yield f"note: {NO_SPARE} (--spare 1 adds one)"


def _rows(found: list[dict]) -> Iterator[str]:
    for each in found:
        clock = "/".join(each[name] for name in ("clock", "boost") if name in each) + " MHz"
        yield (
            f"{each['keep_percent']:6g}  {each['servers']:7d}  {each['tp']:6d}  {clock:>13}  {each['replicas']:6d}  "
            f"{each['j_per_token_in_time']:7.4f}  {each['kept_percent']:6.2f}  {each['ttft_p99_s']:6.2f} s  "
            + (f"{1000 * each['tbt_p99_s']:4.0f} ms" if each["tbt_p99_s"] is not None else "no gaps")
        )
        if mix := each.get("mix"):
            yield f"        of them {mix['gpus']} GPUs as TP{mix['tp']} at {mix['clock']} MHz"
        if (lost := each.get("kept_lost_percent")) is not None:
            broken = f", fewer than {each['keep_percent']:g}" if lost < each["keep_percent"] else ""
            yield f"        a server lost half way and started again: {int(100 * lost) / 100:.2f} % kept{broken}"
