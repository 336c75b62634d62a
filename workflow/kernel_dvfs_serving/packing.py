"""Fixed kinds of server that serve a trace: the static plan, and packing, the same servers with another router.

Packing fills a replica as long as a prompt is still answered in time there, so that steps are large and the rest of the
replicas can stand idle. It knows no classes, forecasts nothing and divides no server again:

* a request goes to the fullest replica (KV cache spoken for) where its first token is expected within `safety` of the
  time left; where there is none, to the earliest;
* a replica reads prompts by the earliest deadline;
* it runs at the clock of the least energy, and at `boost` while a prompt would be late at that one;
* one that holds nothing rests at the lowest clock, all but `ready`;
* the servers are fixed, or as many as were in use lately.

Each part can be left out (`Parts`), to see what it is worth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_dvfs_serving.cluster import Router
from kernel_dvfs_serving.resharding import SERVER_GPUS
from kernel_dvfs_serving.servers import DRAINING, OFF, ON, STARTING

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.requests import Request
    from kernel_dvfs_serving.servers import Replica, Server

# settings of the recipe, found on other traces of these kinds and not tuned again (docs/serving-details.md)
SAFETY = 0.6  # share of the time to the first token's deadline that an estimate may take
FULL = 0.9  # share of a KV cache that may be spoken for
SLOWEST_STEP = 0.95  # of the promise on time between tokens: a mixed step of more is boosted
HOLD_S = 0.25  # that a boost lasts at least
READY = 2  # idle replicas that do not rest
BOOST = 1.2  # of the usual clock, at least
_SAMPLE_S, _DECIDE_S, _WINDOW_S = 2.0, 60.0, 600.0  # of the count of servers
PAIR_TOKENS = 1000.0  # cached tokens before a prompt's chunk, in an estimate


class Mix(NamedTuple):
    """So many GPUs (a multiple of the larger degree) are divided otherwise."""

    gpus: int
    tp: int
    clock: str


class Parts(NamedTuple):
    """What of packing is on."""

    deadline: bool = True
    packs: bool = True
    boosts: bool = True
    rests: bool = True
    counts: bool = False


PARTS = Parts()
# what each part is worth, one after the other
LADDER = {
    "earliest deadline first": Parts(True, False, False, False, False),
    "+ packing router": Parts(True, True, False, False, False),
    "+ boost": Parts(True, True, True, False, False),
    "+ idle clocks (packing)": Parts(True, True, True, True, False),
    "+ servers by use": Parts(True, True, True, True, True),
}


@dataclass(frozen=True, slots=True)
class Static:
    """Servers of 8 GPUs, all divided into instances of `tp` GPUs at one clock (as the profile names it).

    route_s: from a request's arrival until its replica has it. fails_s: when the first server is lost and brought up
    again, inf: never. mix: GPUs among them that are divided otherwise.
    """

    servers: int
    tp: int
    clock: str
    route_s: float = 0.0
    fails_s: float = inf
    mix: Mix | None = None

    @property
    def instances(self) -> list[tuple[int, str]]:
        """(degree, clock) of each instance on all servers, the larger degree first, so that they fill one by one."""
        other = self.mix or Mix(0, self.tp, self.clock)
        own = [(self.tp, self.clock)] * ((SERVER_GPUS * self.servers - other.gpus) // self.tp)
        return sorted(own + [(other.tp, other.clock)] * (other.gpus // other.tp), key=lambda each: -each[0])

    @property
    def replicas(self) -> int:
        """Instances on all servers."""
        return len(self.instances)

    def router(self, cluster: Cluster) -> Router:
        """To the least loaded replica."""
        return LateRouter(cluster, self.route_s)

    def begin(self, cluster: Cluster) -> None:
        """Every server is there before the first request, at no cost, its clocks set."""
        fleet, left = cluster.fleet, self.instances
        for server in fleet.servers:
            # one beyond those that are planned, of an autoscaler, is as the first
            left = left or self.instances
            own: list[tuple[int, str]] = []
            while sum(tp for tp, _ in own) < SERVER_GPUS:
                own.append(left.pop(0))
            server.fresh, server.fresh_clocks = tuple(tp for tp, _ in own), tuple(clock for _, clock in own)
        for server in fleet.servers[: self.servers]:
            fleet.take(server, 0, server.fresh)
        if self.fails_s < inf:
            cluster.agenda.at(self.fails_s, fleet.fail, fleet.servers[0])

    def raise_clock(self, cluster: Cluster, replica: Replica) -> None:
        """Nothing: its clocks stay, or its router sets them."""

    def watch_queue(self, cluster: Cluster, replica: Replica) -> None:
        """Nothing: nobody watches its queues."""


@dataclass(frozen=True, slots=True)
class Packing(Static):
    """As Static, with the packing router.

    boost, rest: clocks under pressure and without work. answer_tokens: the service's mean answer. most: servers if they
    are counted by use.
    """

    boost: str = ""
    rest: str = ""
    answer_tokens: float = 200.0
    parts: Parts = PARTS

    def router(self, cluster: Cluster) -> Router:
        """See the module."""
        return PackingRouter(cluster, self)

    def begin(self, cluster: Cluster) -> None:
        """As Static; the replicas that nothing needs yet rest."""
        cluster.fleet.deadline_first = self.parts.deadline
        Static.begin(self, cluster)
        if self.parts.counts:
            ByUse(cluster, self)


@dataclass(frozen=True, slots=True)
class Autoscaled(Static):
    """As Static, its servers counted by requests: ceil(requests held / `holds`), looked at every 15 s, and no fewer
    than were wanted in the last 5 min. So scales Kubernetes' autoscaler on a mean per pod.
    """

    holds: float = 32.0

    def begin(self, cluster: Cluster) -> None:
        """As Static."""
        Static.begin(self, cluster)
        ByRequests(cluster, self)


def choose(left_s: float, tokens: float, replicas: Iterable[tuple[float, float, float]]) -> int | None:
    """Which replica a request goes to, by its place: the fullest that is in time, else the earliest; None of none.

    left_s: until its first token is due, s. tokens: that it is expected to take. replicas: of each, the estimated time
    to its first token there, s, tokens spoken for, and tokens of its KV cache.
    """
    fullest = earliest = None
    most, least_s = -1.0, inf
    for place, (first_s, held, capacity) in enumerate(replicas):
        if held + tokens > FULL * capacity:
            first_s += 5.0  # it would wait for others to end
        if first_s < least_s:
            least_s, earliest = first_s, place
        if first_s <= SAFETY * left_s and held / capacity > most:
            most, fullest = held / capacity, place
    return earliest if fullest is None else fullest


class LateRouter(Router):
    """To the least loaded replica, which has the request `route_s` later; what it held when lost goes on."""

    def __init__(self, cluster: Cluster, route_s: float):
        super().__init__(cluster)
        self.route_s = route_s
        self.coming: dict[Replica, int] = {}  # prompt tokens on their way

    def deliver(self, request: Request, replica: Replica) -> None:
        """As Router, after a delay."""
        delay_s = self.route_s + self._wake_s(replica)
        if delay_s == 0.0:
            super().deliver(request, replica)
            return
        tokens = self.expected_tokens(request)
        # spoken for from now on, so that the next request sees it
        replica.outstanding += tokens
        self.coming[replica] = self.coming.get(replica, 0) + request.input
        self.agenda.at(self.agenda.now_s + delay_s, self._hand_over, request, replica)

    def _hand_over(self, request: Request, replica: Replica) -> None:
        replica.outstanding -= self.expected_tokens(request)
        self.coming[replica] -= request.input
        if replica.serving:
            super().deliver(request, replica)
        else:
            self.route(request)

    def _wake_s(self, replica: Replica) -> float:
        """How long until it can begin, s; sees to it that it can."""
        return 0.0


class PackingRouter(LateRouter):
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Packing):
        super().__init__(cluster, plan.route_s)
        self.plan = plan
        self._gap_s = SLOWEST_STEP * cluster.tbt_slo_s
        self._ready_s: dict[Replica, float] = {}  # when a replica that was woken has its clock

    def expected_tokens(self, request: Request) -> float:
        """Prompt and the service's mean answer."""
        return request.input + self.plan.answer_tokens

    def choose(self, request: Request, above: int | None = None) -> Replica | None:
        """The fullest replica that is in time, else the earliest; None where there is none."""
        if not self.plan.parts.packs:
            return super().choose(request, above)
        need = request.input + request.output
        able = [each for each in self.serving[0] if each.instance.kv_tokens >= need]
        left_s = request.deadline_s - self.agenda.now_s - self.route_s / SAFETY
        tokens = self.expected_tokens(request)
        place = choose(
            left_s,
            tokens,
            ((self.first_s(each, request.input), each.outstanding, each.instance.kv_tokens) for each in able),
        )
        return None if place is None else able[place]

    def first_s(self, replica: Replica, prompt_tokens: int) -> float:
        """Estimated time until so many prompt tokens are read there behind what is unread, s."""
        instance = replica.instance
        chunk, batch, context = self.settings.chunk_tokens, instance.decoding, instance.context_tokens
        resting = self._resting(replica)
        engine = self.machine.engine(replica.tp, self.plan.clock if resting else replica.clock)
        tokens = instance.unread + self.coming.get(replica, 0) + prompt_tokens
        steps = ceil(tokens / max(1, chunk - batch))
        last_s, _ = engine.step(min(chunk, tokens + batch), min(chunk, tokens) * PAIR_TOKENS, context)
        found_s = last_s
        if steps > 1:
            found_s += (steps - 1) * engine.step(chunk, chunk * PAIR_TOKENS, context)[0]
        if instance.next_s is not None:
            # a run of decode steps is cut after the one in progress
            found_s += max(0.0, instance.next_s - self.agenda.now_s) if instance.reading else 0.02
        return found_s + (self.settings.clock_latency_s if resting else 0.0)

    def follow(self, replica: Replica) -> None:
        """As Router, and the clock that the replica then needs."""
        super().follow(replica)
        if replica in replica.server.replicas:
            self._steer(replica)

    def _steer(self, replica: Replica) -> None:
        plan, instance, now_s = self.plan, replica.instance, self.agenda.now_s
        if instance.next_s is None:
            if plan.parts.rests and instance.empty and not self.coming.get(replica) and self._ready(replica) >= READY:
                self.cluster.fleet.set_clock(replica, plan.rest)
            return
        wanted = plan.clock
        if plan.parts.boosts and instance.unread and self._late(replica):
            wanted, replica.held_until_s = plan.boost, now_s + HOLD_S
        elif replica.clock == plan.boost and now_s < replica.held_until_s:
            return
        self.cluster.fleet.set_clock(replica, wanted)

    def _late(self, replica: Replica) -> bool:
        """Whether a prompt, or a step with one, would be late at the usual clock."""
        instance, chunk = replica.instance, self.settings.chunk_tokens
        engine = self.machine.engine(replica.tp, self.plan.clock)
        step_s, _ = engine.step(chunk, chunk * PAIR_TOKENS, instance.context_tokens)
        if step_s > self._gap_s:
            return True
        room, tokens = max(1, chunk - instance.decoding), 0
        now_s, latency_s = self.agenda.now_s, self.settings.clock_latency_s
        for request in instance.to_read():
            tokens += request.prompt - request.prefilled
            if 0 < SAFETY * (request.deadline_s - now_s) < ceil(tokens / room) * step_s + latency_s:
                return True
        return False

    def _resting(self, replica: Replica) -> bool:
        return self.plan.parts.rests and replica.clock == self.plan.rest != self.plan.clock

    def _ready(self, but: Replica) -> int:
        """Other idle replicas that do not rest."""
        return sum(
            each is not but and each.instance.next_s is None and not self._resting(each) for each in self.serving[0]
        )

    def _wake_s(self, replica: Replica) -> float:
        now_s = self.agenda.now_s
        if self._resting(replica):
            # the clock first, then the work: a step once begun would end at the low clock
            self.cluster.fleet.set_clock(replica, self.plan.clock)
            self._ready_s[replica] = now_s + self.settings.clock_latency_s
        return max(0.0, self._ready_s.get(replica, 0.0) - now_s)


class _Count:
    """Servers started and drained, as many as are wanted, no fewer than in the decisions of the last `window_s`."""

    def __init__(self, cluster: Cluster, plan: Static, every_s: float, window_s: float):
        self._cluster, self._each, self._every_s = cluster, SERVER_GPUS // plan.tp, every_s
        self._wanted: deque[int] = deque([plan.servers], maxlen=max(1, int(window_s / every_s)))
        cluster.agenda.at(every_s, self._decide)

    def _decide(self) -> None:
        if self._cluster.active:
            self._cluster.agenda.at(self._cluster.now_s + self._every_s, self._decide)
            self._wanted.append(max(1, self._own()))
            self._reach(max(self._wanted))

    def _own(self) -> int:
        """Servers wanted by what is seen now."""
        raise NotImplementedError

    def _reach(self, count: int) -> None:
        fleet = self._cluster.fleet
        there = [each for each in fleet.servers if each.state in (ON, STARTING)]
        for state, take in ((DRAINING, fleet.keep), (OFF, lambda server: fleet.start(server, 0))):
            for server in [each for each in fleet.servers if each.state == state][: max(0, count - len(there))]:
                take(server)
                there.append(server)
        on = sorted((each for each in there if each.state == ON), key=_held)
        for server in on[: min(len(there) - count, len(on) - 1)] if len(there) > count else []:
            fleet.drain(server)


class ByUse(_Count):
    """The replicas in use at once, P95 of ten minutes, and one server more while promises break."""

    def __init__(self, cluster: Cluster, plan: Packing):
        super().__init__(cluster, plan, _DECIDE_S, _WINDOW_S)
        self._used: deque[int] = deque(maxlen=int(_WINDOW_S / _SAMPLE_S))
        self._more = 0.0
        cluster.agenda.at(_SAMPLE_S, self._sample)

    def _sample(self) -> None:
        if self._cluster.active:
            self._used.append(sum(replica.outstanding > 0 for replica in self._cluster.router.serving[0]))
            self._cluster.agenda.at(self._cluster.now_s + _SAMPLE_S, self._sample)

    def _own(self) -> int:
        late = self._cluster.late_percent(_WINDOW_S)
        self._more = min(2.0, self._more + 0.25) if late > 0.5 else max(0.0, self._more - 0.02)
        return ceil(float(np.quantile(list(self._used), 0.95)) / self._each) + int(self._more)


class ByRequests(_Count):
    """See Autoscaled."""

    def __init__(self, cluster: Cluster, plan: Autoscaled):
        super().__init__(cluster, plan, 15.0, 300.0)
        self._holds = plan.holds

    def _own(self) -> int:
        return ceil(self._cluster.open / self._holds)


def _held(server: Server) -> float:
    return sum(replica.outstanding for replica in server.replicas)


def boost_of(clock: str, clocks: list[str]) -> str:
    """The lowest of the clocks that is BOOST times one, else the highest of those not below it."""
    above = sorted((each for each in clocks if int(each) >= int(clock)), key=int)
    return next((each for each in above if int(each) >= BOOST * int(clock)), above[-1])
