"""Fixed servers that serve a trace: one kind of replica, one lock on its clocks, a router that exists.

Two routers are simulated, each as it is run elsewhere. `least requests`: the replica that holds the fewest requests
takes the next (vllm-router and sglang-router, printed with a plan). `earliest first token`: the one whose unread
prompts end first, with the new one behind them (llm-d's predicted latency, Dynamo's KV router and Ray Serve weigh
queues so, without a prefix cache). A replica that holds nothing draws what it draws at the lowest clock of the lock,
and takes `clock_latency_s` to come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from kernel_dvfs_serving.cluster import Router
from kernel_dvfs_serving.resharding import SERVER_GPUS
from kernel_dvfs_serving.system import EARLIEST, LEAST

if TYPE_CHECKING:
    from kernel_dvfs_serving.cluster import Cluster
    from kernel_dvfs_serving.requests import Request
    from kernel_dvfs_serving.servers import Replica

FULL = 0.9  # share of a KV cache that may be spoken for before a request would have to wait
FULL_S = 5.0  # that it is then taken to wait
PAIR_TOKENS = 1000.0  # cached tokens before a prompt's chunk, in an estimate


@dataclass(frozen=True, slots=True)
class Static:
    """Servers of 8 GPUs, all divided into instances of `tp` GPUs at one clock (as the profile names it).

    rest: the clock of a replica that holds nothing. step_tokens: of a step, at most. answer_tokens: the service's mean
    answer. route_s: from a request's arrival until its replica has it. fails_s: when the first server is lost and
    brought up again, inf: never.
    """

    servers: int
    tp: int
    clock: str
    rest: str
    step_tokens: int
    router_name: str = EARLIEST
    answer_tokens: float = 200.0
    route_s: float = 0.0
    fails_s: float = inf

    @property
    def replicas(self) -> int:
        """Return how many instances are on all servers."""
        return SERVER_GPUS * self.servers // self.tp

    def router(self, cluster: Cluster) -> Router:
        """Return the plan's router, one of the module's."""
        return (LeastRequests if self.router_name == LEAST else EarliestFirst)(cluster, self)

    def begin(self, cluster: Cluster) -> None:
        """Every server is there before the first request, at no cost, its clocks set."""
        fleet = cluster.fleet
        for server in fleet.servers:
            server.fresh = (self.tp,) * (SERVER_GPUS // self.tp)
            server.fresh_clocks = (self.clock,) * len(server.fresh)
        for server in fleet.servers[: self.servers]:
            fleet.take(server, 0, server.fresh)
        if self.fails_s < inf:
            cluster.agenda.at(self.fails_s, fleet.fail, fleet.servers[0])

    def watch_queue(self, cluster: Cluster, replica: Replica) -> None:
        """Nothing: nobody watches its queues."""


class _Fixed(Router):
    """What both do: a request is there `route_s` later, and an idle replica rests."""

    def __init__(self, cluster: Cluster, plan: Static):
        super().__init__(cluster)
        self.plan = plan
        self.coming: dict[Replica, int] = {}  # prompt tokens on their way
        self._ready_s: dict[Replica, float] = {}  # when a replica that was woken has its clock

    def choose(self, request: Request, above: int | None = None) -> Replica | None:
        """Return the replica that a request goes to; None where there is none that could hold it."""
        able = [replica for replica in self.serving[0] if replica.instance.fits(request)]
        return min(able, key=lambda replica: self.cost(replica, request), default=None)

    def cost(self, replica: Replica, request: Request) -> float:
        """Return what a replica costs: the one that costs least has the request."""
        raise NotImplementedError

    def deliver(self, request: Request, replica: Replica) -> None:
        """As Router, after a delay."""
        delay_s = self.plan.route_s + self._wake_s(replica)
        if delay_s == 0.0:
            super().deliver(request, replica)
            return
        # spoken for from now on, so that the next request sees it
        replica.outstanding += self.expected_tokens(request)
        self.coming[replica] = self.coming.get(replica, 0) + request.input
        self.agenda.at(self.agenda.now_s + delay_s, self._hand_over, request, replica)

    def _hand_over(self, request: Request, replica: Replica) -> None:
        replica.outstanding -= self.expected_tokens(request)
        self.coming[replica] -= request.input
        if replica.serving:
            super().deliver(request, replica)
        else:
            self.route(request)

    def follow(self, replica: Replica) -> None:
        """As Router; a replica that holds nothing rests."""
        super().follow(replica)
        idle = replica.instance.next_s is None and replica.instance.empty and not self.coming.get(replica)
        if idle and replica in replica.server.replicas:
            self.cluster.fleet.set_clock(replica, self.plan.rest)

    def _wake_s(self, replica: Replica) -> float:
        """Return how long until it can begin, s, and see to it that it can: the clock first, then the work."""
        now_s = self.agenda.now_s
        if replica.clock != self.plan.clock:
            self.cluster.fleet.set_clock(replica, self.plan.clock)
            self._ready_s[replica] = now_s + self.settings.clock_latency_s
        return max(0.0, self._ready_s.get(replica, 0.0) - now_s)


class LeastRequests(_Fixed):
    """To the replica that holds the fewest requests, of those the first."""

    def expected_tokens(self, request: Request) -> float:
        """Return one: requests are counted, not tokens."""
        return 1.0

    def cost(self, replica: Replica, request: Request) -> float:
        """Return how many requests it holds."""
        return replica.outstanding


class EarliestFirst(_Fixed):
    """To the replica where its first token is expected first."""

    def expected_tokens(self, request: Request) -> float:
        """Return the tokens of the prompt and the service's mean answer."""
        return request.input + self.plan.answer_tokens

    def cost(self, replica: Replica, request: Request) -> float:
        """Return the estimated time until the request is read there behind what is unread, s."""
        instance, plan = replica.instance, self.plan
        resting = replica.clock != plan.clock
        engine = self.machine.engine(plan.tp, plan.clock)
        chunk, batch, context = plan.step_tokens, instance.decoding, instance.context_tokens
        tokens = instance.unread + self.coming.get(replica, 0) + request.input
        whole, rest = divmod(tokens, max(1, chunk - batch))
        estimate_s = self.settings.clock_latency_s if resting else 0.0
        if rest:
            estimate_s += engine.step(rest + batch, rest * PAIR_TOKENS, context, batch + 1)[0]
        if whole:
            estimate_s += whole * engine.step(chunk, chunk * PAIR_TOKENS, context, batch + 1)[0]
        if replica.outstanding + self.expected_tokens(request) > FULL * instance.kv_tokens:
            estimate_s += FULL_S
        return estimate_s
