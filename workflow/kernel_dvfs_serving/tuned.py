"""The tuned static plan of a trace: the servers, the degree and the clock that, held fixed, serve it for the least
energy while they keep the promises. Bounds leave out what cannot be it, replays decide among the rest.

A static plan is what anybody has who sweeps: one pool of like replicas, the least loaded takes the next request, and
nothing is changed while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
import yaml

from kernel_dvfs.errors import InputError
from kernel_dvfs.shape import FILLED, checked
from kernel_dvfs_serving.columns import mhz
from kernel_dvfs_serving.replay import outcome
from kernel_dvfs_serving.requests import CLASSES, TBT_SLO_S, classify, ttft_slo_s
from kernel_dvfs_serving.resharding import SERVER_GPUS
from kernel_dvfs_serving.system import System

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.instance import Engine
    from kernel_dvfs_serving.replay import Replayer
    from kernel_dvfs_serving.servers import Replica
    from kernel_dvfs_serving.system import Settings
    from kernel_dvfs_serving.trace import Trace

SCHEMA = "kernel-dvfs/serving-static/1"
LEVELS = (99.0, 99.5, 99.9)  # percent of requests whose promises are kept
_SYSTEM = System("tuned static plan", False, False, False, False, False)
_REMEDY = "make it again with kernel-dvfs serving plan TRACE.csv --profile PROFILE.csv"


@dataclass(frozen=True, slots=True)
class Static:
    """Servers of 8 GPUs, all divided into instances of `tp` GPUs at one clock (as the profile names it)."""

    servers: int
    tp: int
    clock: str

    @property
    def replicas(self) -> int:
        """Instances on all servers."""
        return self.servers * (SERVER_GPUS // self.tp)

    def begin(self, cluster: Cluster) -> None:
        """Every server is there before the first request, at no cost, its clocks set."""
        for server in cluster.fleet.servers[: self.servers]:
            cluster.fleet.take(server, 0, (self.tp,) * (SERVER_GPUS // self.tp))
            for replica in server.replicas:
                replica.clock = self.clock
                replica.instance.set_engine(cluster.machine.engine(self.tp, self.clock), 0.0)

    def raise_clock(self, cluster: Cluster, replica: Replica) -> None:
        """Nothing: its clocks stay."""

    def watch_queue(self, cluster: Cluster, replica: Replica) -> None:
        """Nothing: its queues are first come, first served."""


class _StaticPlan(TypedDict):
    keep_percent: float
    servers: int
    tp: int
    clock: str


class StaticFile(TypedDict):
    """What a replay takes from a plan; `written` makes more."""

    schema: str
    plans: Annotated[list[_StaticPlan], FILLED]


def replayed(replayer: Replayer, trace: Trace, plan: Static, settings: Settings, timeline: bool = False) -> dict:
    """The outcome of a plan on a trace (replay.outcome), with its tp and clock."""
    found = outcome(replayer.run_system(trace, _SYSTEM, settings, plan, servers=plan.servers), timeline)
    return found | {"tp": plan.tp, "clock": plan.clock, "replicas": plan.replicas}


class Tuner:
    """The static plans of one trace on one machine; each is replayed at most once.

    settings.servers: as many as there are at most.
    """

    def __init__(self, replayer: Replayer, trace: Trace, settings: Settings):
        self._replayer, self._trace, self._settings = replayer, trace, settings
        self._found: dict[Static, dict] = {}
        columns = replayer.columns()
        self.slo_scale = columns.slo_scale
        self.kinds = [(tp, clock) for tp in columns.degrees for clock in columns.clocks[tp]]

    @property
    def replays(self) -> int:
        """How many plans were replayed."""
        return len(self._found)

    def on(self, plan: Static) -> dict:
        """The outcome of a plan."""
        if plan not in self._found:
            self._found[plan] = replayed(self._replayer, self._trace, plan, self._settings)
        return self._found[plan]

    def frontier(self, levels: Sequence[float] = LEVELS) -> list[dict]:
        """The cheapest plan found at each level of kept promises, percent, that any plan reaches, with its outcome.

        Of each degree and clock the fewest servers that keep a level are looked for: more of them idle more. Levels
        are kept the more, the more servers there are; a trace may break this by a request or two, and then a plan of
        a server less is missed.
        """
        best: dict[float, dict] = {}
        for tp, clock in sorted(self.kinds, key=self._promising):
            reach = self._lone_percent(tp, clock)
            least = 1
            for level in sorted(levels):
                if reach < level:
                    break
                cheapest = best[level]["j_per_token_in_time"] if level in best else inf
                count = self._fewest(tp, clock, level, least, self._affordable(tp, clock, cheapest))
                if count is None:
                    break
                least = count
                found = self.on(Static(count, tp, clock))
                if found["j_per_token_in_time"] < cheapest:
                    best[level] = found
        return [{"keep_percent": level} | best[level] for level in sorted(best)]

    def _promising(self, kind: tuple[int, str]) -> tuple[float, int]:
        # the middle clocks first: a cheap plan found early bounds all after it
        tp, clock = kind
        clocks = [mhz(each) for own, each in self.kinds if own == tp]
        return abs(mhz(clock) - float(np.quantile(clocks, 0.7))), tp

    def _fewest(self, tp: int, clock: str, level: float, least: int, most: int) -> int | None:
        """Fewest servers that keep a level, of `least` to `most`; None if none do. Doubles, then halves."""
        broken, count = least - 1, least
        while count <= most and not self._keeps(Static(count, tp, clock), level):
            broken, count = count, count + max(1, count - least + 1)
        if count > most:
            if broken >= most or not self._keeps(Static(most, tp, clock), level):
                return None
            count = most
        while count - broken > 1:
            middle = (count + broken) // 2
            if self._keeps(Static(middle, tp, clock), level):
                count = middle
            else:
                broken = middle
        return count

    def _keeps(self, plan: Static, level: float) -> bool:
        return bool(self.on(plan)["kept_percent"] >= level)

    def _affordable(self, tp: int, clock: str, j_per_token: float) -> int:
        """Most servers whose idle power alone does not cost more: what is left out could only lose."""
        tokens = int(self._trace.input_tokens.sum(dtype=int) + self._trace.output_tokens.sum(dtype=int))
        idle_w = self._engine(tp, clock).idle_w * (SERVER_GPUS // tp)
        affordable = j_per_token * tokens / (idle_w * self._trace.span_s)
        return int(min(self._settings.servers, affordable))

    def _lone_percent(self, tp: int, clock: str) -> float:
        """Share of requests, percent, whose promises a replica keeps that holds nothing else: no plan keeps more."""
        engine, inputs = self._engine(tp, clock), self._trace.input_tokens
        kinds = classify(inputs, self._trace.output_tokens)
        promises = self.slo_scale * np.array([ttft_slo_s(name) for name in CLASSES])[kinds]
        longest = {s: _longest(engine, s, int(inputs.max()), self._settings.chunk_tokens) for s in set(promises)}
        kept = inputs <= np.vectorize(longest.get)(promises)
        if engine.step(1, 1.0, 1.0)[0] > self.slo_scale * TBT_SLO_S:
            kept &= self._trace.output_tokens == 1
        return 100.0 * float(kept.mean())

    def _engine(self, tp: int, clock: str) -> Engine:
        return self._replayer.machine.engine(tp, clock)


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


def written(found: list[dict], tuner: Tuner, profile: str, trace: str, source: str, model: str) -> dict[str, Any]:
    """A frontier in plain values, fit for YAML, with the commands that start a replica of each plan."""
    keys = ("kept_percent", "j_per_token_in_time", "ttft_p99_s", "tbt_p99_s", "energy_kwh")
    return {
        "schema": SCHEMA,
        "trace": trace,
        "profile": profile,
        "source": source,
        "plans": [
            {
                "keep_percent": each["keep_percent"],
                "servers": each["servers"],
                "tp": each["tp"],
                "clock": each["clock"],
                "replicas": each["replicas"],
                **{key: float(f"{each[key]:.5g}") for key in keys if each[key] is not None},
                "vllm": f"vllm serve {model} --tensor-parallel-size {each['tp']}",
                "sglang": f"python -m sglang.launch_server --model-path {model} --tp {each['tp']}",
            }
            for each in found
        ],
        "replays": tuner.replays,
    }


def read_static(path: str, keep_percent: float | None = None) -> Static:
    """The plan in a file that keeps the promises of so many percent; None: the first. Raises InputError."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such plan; {_REMEDY}") from None
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())}); {_REMEDY}") from None
    plans = {each["keep_percent"]: each for each in checked(content, StaticFile, path, _REMEDY, SCHEMA)["plans"]}
    level = next(iter(plans)) if keep_percent is None else keep_percent
    if level not in plans:
        raise InputError(f"{path}: no plan keeps {level:g} %; it has {', '.join(f'{each:g}' for each in plans)}")
    own = plans[level]
    if not 1 <= own["servers"] <= 128 or own["tp"] not in (1, 2, 4, 8):
        raise InputError(f"{path}: {own['servers']} servers of degree {own['tp']} are not possible; {_REMEDY}")
    return Static(own["servers"], own["tp"], own["clock"])


def lines(found: list[dict], levels: Sequence[float]) -> Iterator[str]:
    """The frontier for a terminal, a line a level."""
    yield "keep %  servers  degree   clock  replicas  J/token  kept %  TTFT P99  gap P99"
    for each in found:
        clock = f"{mhz(each['clock'])} MHz"
        yield (
            f"{each['keep_percent']:6g}  {each['servers']:7d}  {each['tp']:6d}  {clock:>8}  {each['replicas']:6d}  "
            f"{each['j_per_token_in_time']:7.4f}  {each['kept_percent']:6.2f}  {each['ttft_p99_s']:6.2f} s  "
            f"{1000 * each['tbt_p99_s']:4.0f} ms"
        )
    for level in sorted(set(levels) - {each["keep_percent"] for each in found}):
        yield f"{level:6g}  no plan keeps so many on these servers, at these degrees and clocks"
