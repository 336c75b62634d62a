"""A cluster under a trace, event by event: requests handed round, servers that come and go. What is decided is in
the modules that a system names (dynamollm.py, static.py).

Nothing is lost: a request ends finished or rejected, and `run` raises RuntimeError if one does neither.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import simpy

from kernel_dvfs_serving.instance import Instance
from kernel_dvfs_serving.pools import carry_target, home, larger, pool_kinds
from kernel_dvfs_serving.requests import (
    CLASSES,
    OUTPUT_BOUNDS,
    OUTPUT_LIMIT,
    TBT_SLO_S,
    Request,
    classify,
    ttft_slo_s,
)
from kernel_dvfs_serving.resharding import SERVER_GPUS, Layout, units
from kernel_dvfs_serving.scheduler import BLOCK_TOKENS, Limits
from kernel_dvfs_serving.servers import DRAINING, OFF, ON, STARTING, SWITCHING, Account, Accounts, Replica, Server

if TYPE_CHECKING:
    from kernel_dvfs_serving.columns import Columns
    from kernel_dvfs_serving.machine import Machine
    from kernel_dvfs_serving.pools import Sizing
    from kernel_dvfs_serving.prediction import LoadForecast
    from kernel_dvfs_serving.system import ClusterSettings, System
    from kernel_dvfs_serving.trace import Trace


class Agenda:
    """What happens when: calls in order of time, those of the same moment in the order they were asked for, by SimPy.

    Plain callbacks on its timeouts: a process (a generator) per event took 1.5 times as long, and a bare heap saved a
    seventh, too little to go without the library.
    """

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self._timeout = self._environment.timeout

    @property
    def now_s(self) -> float:
        """Return the moment, s."""
        return self._environment.now

    def at(self, moment_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call `call(*arguments)` at `moment_s`, now if that has passed."""
        delay_s = moment_s - self._environment.now
        self._timeout(delay_s if delay_s > 0 else 0).callbacks.append(lambda _: call(*arguments))

    def run(self) -> None:
        """Until nothing is left."""
        self._environment.run()


class Decisions(Protocol):
    """What is decided while a cluster runs: the module dynamollm.py, or a static.Static."""

    def router(self, cluster: Cluster) -> Router:
        """Return who hands requests to replicas."""
        ...

    def begin(self, cluster: Cluster) -> None:
        """Begin with servers and instances for the first moment, and on the agenda what is decided later."""
        ...

    def watch_queue(self, cluster: Cluster, replica: Replica) -> None:
        """Requests wait at a replica whose queue nobody watches yet."""
        ...


class Hopeless(Exception):
    """More promises are broken, or more is spent, than may be: what follows cannot mend it. late: promises broken."""

    def __init__(self, late: int):
        super().__init__(f"{late} promises broken")
        self.late = late


class Cluster:
    """One run of one system: arrivals, and the end of every request.

    machine: engines, KV cache, parked power. columns: those of the machine's profile. predicted: (n,) class index that
    each request of the trace is taken for. decisions: what sets the knobs (dynamollm.py, static.py).
    most_late, most_j: `run` raises Hopeless as soon as more requests broke a promise, or more energy is spent, or
    must be: never less than `floor_w` is drawn, and all requests from a number on, less those that are rejected, take
    at least `rest_j[number]` more.
    """

    def __init__(
        self,
        trace: Trace,
        system: System,
        machine: Machine,
        columns: Columns,
        forecast: LoadForecast,
        settings: ClusterSettings,
        predicted: np.ndarray,
        decisions: Decisions,
        most_late: float = inf,
        most_j: float = inf,
        floor_w: float = 0.0,
        rest_j: Sequence[float] | None = None,
    ):
        self.most_late, self.most_j, self.floor_w = most_late, most_j, floor_w
        self._rest_j = rest_j or [0.0] * (len(trace.arrival_s) + 1)
        self.trace, self.system, self.machine, self.columns = trace, system, machine, columns
        self.forecast, self.settings, self.decisions = forecast, settings, decisions
        self.pools = pool_kinds(settings.pools if system.pooled else 1)
        self.agenda = Agenda()
        self.accounts = Accounts(settings.bin_s)
        self.events: Counter[str] = Counter()
        self.prepared: dict[float, Sizing] = {}  # what was planned for a cluster epoch, by its start
        self.short_tps = 0.0  # largest load that an epoch's servers could not carry
        self.solve_s: list[float] = []  # CPU seconds of each allocation
        self.kinds = classify(trace.input_tokens, trace.output_tokens)
        # plain numbers, which are read one by one: (arrival, prompt, answer, class, class it is taken for)
        columns_ = (trace.arrival_s, trace.input_tokens, trace.output_tokens, self.kinds, predicted)
        self._coming = list(zip(*(column.tolist() for column in columns_)))
        self._slo_s = [columns.slo_scale * ttft_slo_s(name) for name in CLASSES]
        self.tbt_slo_s = columns.slo_scale * TBT_SLO_S
        count = len(trace.arrival_s)
        self.ttft_s = np.full(count, np.nan, dtype=np.float32)
        self.rejected = np.zeros(count, dtype=bool)
        self.finished = np.zeros(count, dtype=bool)
        self.first_kept = np.zeros(count, dtype=bool)  # whether the first token was in time
        self.gaps_kept = np.zeros(count, dtype=bool)  # whether the tokens after it were
        self.late = 0  # finished requests that broke a promise
        # open requests by promised time to the first token, as they came, and those that are past it: a queue that
        # grows is seen long before its requests end
        self._due: dict[float, deque[Request]] = {}
        self._overdue: set[int] = set()
        self.tokens_out = 0
        self.tokens_in = 0
        self.end_s = 0.0
        self.open = 0  # requests that have come and not left
        self._arrived = 0
        self._last_finish_s = 0.0
        self.limits = Limits(settings.chunk_tokens, settings.max_batch)
        self.router = decisions.router(self)
        self.fleet = Fleet(self)

    @property
    def now_s(self) -> float:
        """Return the moment."""
        return self.agenda.now_s

    @property
    def active(self) -> bool:
        """Return whether anything is still to come or to be finished."""
        return self._arrived < len(self._coming) or self.open > len(self.router.backlog)

    def run(self) -> Cluster:
        """Serve the whole trace; returns self. Raises RuntimeError if a request is lost."""
        self._check_hope()
        self.decisions.begin(self)
        self._next_arrival()
        self.agenda.run()
        self.end_s = max(self._last_finish_s, self.trace.span_s)
        # whom no replica ever could take
        for request in self.router.backlog:
            self.reject(request)
        self.fleet.close(self.end_s)
        lost = int((~self.finished & ~self.rejected).sum())
        if lost or self.open:
            raise RuntimeError(f"{lost} requests neither finished nor were rejected")
        return self

    def _next_arrival(self) -> None:
        if self._arrived < len(self._coming):
            self.agenda.at(self._coming[self._arrived][0], self._arrive)

    def _arrive(self) -> None:
        number = self._arrived
        arrival_s, prompt, answer, kind, predicted = self._coming[number]
        request = Request(number, arrival_s, prompt, answer, kind, predicted, self._slo_s[kind])
        self._arrived += 1
        self.open += 1
        if self.most_late < inf:
            self._due.setdefault(request.slo_s, deque()).append(request)
            self._count_overdue()
        self._next_arrival()
        self.router.arrive(request)

    def finish(self, request: Request) -> None:
        """Note the end of a request that has all its tokens."""
        number = request.number
        if self.finished[number] or self.rejected[number]:
            raise RuntimeError(f"request {number} ends twice")
        assert request.first_s is not None and request.finish_s is not None
        self.finished[number] = True
        self.ttft_s[number] = request.first_s - request.arrival_s
        gaps = request.output - 1
        by_mean = self.settings.gaps == "mean"
        rest_s = request.finish_s - request.first_s
        gaps_kept = rest_s <= self.tbt_slo_s * gaps if by_mean else 100 * request.slow <= gaps
        self.first_kept[number], self.gaps_kept[number] = self.ttft_s[number] <= request.slo_s, gaps_kept
        in_time = bool(self.first_kept[number]) and gaps_kept
        self.late += not in_time
        self._overdue.discard(number)
        self._check_hope()
        self._last_finish_s = request.finish_s
        self.tokens_out += request.generated
        self.tokens_in += request.input
        self.open -= 1

    def _check_hope(self) -> None:
        """Raise Hopeless where there is none."""
        least_j = sum(self.accounts.energy_j.values()) + self.floor_w * (self.trace.span_s - self.now_s)
        late = self.late + len(self._overdue)
        if late > self.most_late or least_j + self._rest_j[self._arrived] > self.most_j:
            raise Hopeless(late)

    def _count_overdue(self) -> None:
        """Note the open requests whose first token has not come in time. Raises Hopeless."""
        for due in self._due.values():
            # a hair of tolerance: times to the first token are kept in fewer digits
            while due and (last_s := due[0].deadline_s + 1e-5) < self.now_s:
                request = due.popleft()
                if request.finish_s is None and (request.first_s is None or request.first_s > last_s):
                    self._overdue.add(request.number)
        if (late := self.late + len(self._overdue)) > self.most_late:
            raise Hopeless(late)

    def fits(self, request: Request) -> bool:
        """Return whether any instance there may be could hold the request, as its engine is told."""
        tokens = request.input + request.output
        return tokens <= min(self.limits.context, self.machine.kv_tokens(max(self.columns.degrees)) - 2 * BLOCK_TOKENS)

    def reject(self, request: Request) -> None:
        """Give a request up, for good."""
        self.rejected[request.number] = True
        self.open -= 1
        self.events["rejected"] += 1


class Router:
    """Hands requests to replicas and follows them until they leave.

    A request goes to the pool of the class it is taken for; what a pool's servers were not counted for goes on to the
    pool whose servers were. Within a pool the least loaded replica takes it.
    """

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.agenda, self.settings, self.events = cluster.agenda, cluster.settings, cluster.events
        self.machine, self.columns = cluster.machine, cluster.columns
        pools = cluster.pools
        self.serving: list[list[Replica]] = [[] for _ in pools]  # replicas that take requests, by pool
        self.shares = [1.0] * len(pools)  # of its load that a pool serves itself
        self.backlog: deque[Request] = deque()  # requests that no replica could take when they came
        self._homes = [home(pools, kind) for kind in range(len(CLASSES))]
        self._chains = [larger(pools, place) for place in range(len(pools))]
        self._carry = [carry_target(pools, place) for place in range(len(pools))]
        self._expected_output = _mean_answers(cluster.trace.output_tokens)
        self._credit = [0.0] * len(pools)
        self._pooled = cluster.system.pooled
        self._ladder = cluster.settings.emergencies and self._pooled

    def arrive(self, request: Request) -> None:
        """A request from outside."""
        self.expect(request)
        self.route(request)

    def expect(self, request: Request) -> None:
        """Where the request is handed on, should its answer outgrow the class it is taken for."""
        limit = OUTPUT_LIMIT[request.predicted % 3] if self._pooled else None
        request.stop_at = limit if limit is not None and limit < request.output else None

    def expected_tokens(self, request: Request) -> float:
        """Return what a request is expected to take in all, prompt and answer."""
        return request.input + self._expected_output[request.predicted % 3]

    def route(self, request: Request) -> None:
        """To the least loaded replica of the pool that is to serve it, else of the next larger one that has any.

        Where no replica can hold it, it waits in the backlog; if none of the cluster's ever could, it is rejected.
        """
        replica = self.choose(request)
        if replica is not None:
            self.deliver(request, replica)
        elif not self.cluster.fits(request):
            self.cluster.reject(request)
        else:
            self.events["held back"] += 1
            self.backlog.append(request)

    def choose(self, request: Request, above: int | None = None) -> Replica | None:
        """Return the replica that a request should go to, or None. above: in no pool but those larger."""
        if above is not None:
            places = self._chains[above]
        else:
            place = self._destination(self._homes[request.predicted])
            places = [place, *self._chains[place]]
        for pool in places:
            best, least = None, inf
            for replica in self.serving[pool]:
                if replica.instance.fits(request) and (load := replica.relative_load) < least:
                    best, least = replica, load
            if best is not None:
                return best
        if above is None:
            # nothing at least as able: better a smaller pool's than none
            able = [replica for replicas in self.serving for replica in replicas if replica.instance.fits(request)]
            return min(able, key=lambda replica: replica.relative_load, default=None)
        return None

    def _destination(self, place: int) -> int:
        """Return the pool that is to serve a request of pool `place`: on, pool by pool, as its servers were counted.

        Any other way would fill a pool whose servers do not count on it, and leave idle the one whose servers do.
        """
        while self.shares[place] < 1.0 and (following := self._carry[place]) is not None:
            # so many of a hundred stay, evenly spread
            self._credit[place] += self.shares[place]
            if self._credit[place] >= 1.0:
                self._credit[place] -= 1.0
                break
            place = following
        return place

    def deliver(self, request: Request, replica: Replica) -> None:
        """Hand a request to a replica."""
        tokens = self.expected_tokens(request)
        replica.outstanding += tokens
        replica.arrived += tokens
        replica.instance.submit(request, self.agenda.now_s)
        self.follow(replica)
        if self._ladder and not replica.watched and replica.instance.waiting:
            self.cluster.decisions.watch_queue(self.cluster, replica)

    def retry_backlog(self) -> None:
        """Requests that were held back, once a replica has come up."""
        waiting, self.backlog = self.backlog, deque()
        for request in waiting:
            self.route(request)

    def follow(self, replica: Replica) -> None:
        """Put the replica's next event on the agenda, in place of any before."""
        replica.ticket += 1
        if replica.instance.next_s is not None:
            self.agenda.at(replica.instance.next_s, self._step, replica, replica.ticket)

    def _step(self, replica: Replica, ticket: int) -> None:
        if ticket != replica.ticket:
            return
        for request in replica.instance.event(self.agenda.now_s):
            replica.outstanding -= self.expected_tokens(request)
            if request.finish_s is not None:
                self.cluster.finish(request)
            else:
                self._hand_on(request, replica)
        self.follow(replica)
        if replica.server.state == DRAINING and replica.server.empty:
            self.cluster.fleet.release(replica.server)

    def _hand_on(self, request: Request, replica: Replica) -> None:
        """Its answer has outgrown the class it was taken for: on to the next class's pool, its KV cache along."""
        self.events["mispredicted"] += 1
        pool = self._homes[request.predicted]
        request.predicted += 1
        self.expect(request)
        same = self._homes[request.predicted] == pool and replica.serving
        target = replica if same else self.choose(request)
        if target is None or (replica.serving and target.server.pool == replica.server.pool):
            # no better place: it stays (a draining one finishes it)
            self.put_back(request, replica)
        else:
            self.agenda.at(self.agenda.now_s + self.transfer_s([request]), self.route, request)

    def put_back(self, request: Request, replica: Replica) -> None:
        """A request stays where it has been."""
        replica.outstanding += self.expected_tokens(request)
        replica.instance.submit(request, self.agenda.now_s)

    def transfer_s(self, requests: Iterable[Request]) -> float:
        """Return how long the KV cache of requests takes over the links between GPUs, s."""
        tokens = sum(request.computed for request in requests)
        return tokens * self.machine.kv_byte_per_token / (self.settings.kv_gb_per_s * 1e9)

    def withdraw(self, server: Server) -> list[Request]:
        """Send no more requests to a server; return those that it has not begun."""
        assert server.pool is not None
        waiting: list[Request] = []
        for replica in server.replicas:
            if replica.serving:
                replica.serving = False
                self.serving[server.pool].remove(replica)
            taken = replica.instance.take_waiting()
            replica.outstanding -= sum(map(self.expected_tokens, taken))
            waiting += taken
        return waiting


class Fleet:
    """All servers of a cluster: what they hold, when they start, change and go, and what that takes."""

    def __init__(self, cluster: Cluster):
        self.router, self.agenda, self.settings = cluster.router, cluster.agenda, cluster.settings
        self.machine, self.columns = cluster.machine, cluster.columns
        self.events = cluster.events
        self.servers = [Server(number, Account(cluster.accounts)) for number in range(cluster.settings.servers)]
        self.offers = [cluster.columns.pool(pool.kind, pool.members) for pool in cluster.pools]
        # (server, layout) still to be changed, one at a time, and the server that is being changed, by pool
        self.plans: list[deque[tuple[Server, Layout]]] = [deque() for _ in cluster.pools]
        self.changing: list[Server | None] = [None] * len(cluster.pools)
        for server in self.servers:
            server.fresh = (max(cluster.columns.degrees),)
        self._gap_s = cluster.tbt_slo_s
        self._pooled = cluster.system.pooled
        self.limits = cluster.limits
        self.server_s = 0.0  # servers' time, from taken to released

    def close(self, end_s: float) -> None:
        """Account for everything until the end of the simulation."""
        for server in self.servers:
            self._count_time(server, end_s)
            self.park(server, end_s)
            for replica in server.replicas:
                replica.instance.close(end_s)
                self._count_preempted(replica)

    def _count_preempted(self, replica: Replica) -> None:
        if replica.instance.preempted:
            self.events["pre-empted"] += replica.instance.preempted

    def set_layout(self, server: Server, layout: Layout) -> None:
        """Put replicas on a server that is on, in a pool, and holds none."""
        assert server.pool is not None
        self.park(server, self.agenda.now_s)
        server.layout = tuple(layout)
        fresh = server.fresh_clocks if server.layout == server.fresh else ()
        for place, tp in enumerate(layout):
            clock = fresh[place] if fresh else self.columns.top(tp)
            instance = Instance(
                self.machine.engine(tp, clock),
                self.machine.kv_tokens(tp),
                self.limits,
                self.agenda.now_s,
                server.account,
                self._gap_s,
            )
            replica = Replica(server, tp, clock, instance, self._capacity(server.pool, tp))
            server.replicas.append(replica)
            self.router.serving[server.pool].append(replica)
        for replica in server.replicas:
            self.router.follow(replica)

    def _capacity(self, pool: int, tp: int) -> float:
        if not self._pooled:
            # all requests alike: by how fast it reads prompts
            chunk = self.settings.chunk_tokens
            return chunk / self.machine.engine(tp, self.columns.top(tp)).step(chunk, chunk * chunk / 2, 0.0)[0]
        # a degree that cannot keep the class's promises is loaded by its GPUs: what it carries at all is not profiled
        return self.offers[pool].largest(tp) or float(tp)

    def on_by_pool(self) -> list[int]:
        """Return how many servers of each pool serve, or will once they are divided."""
        counts = [0] * len(self.plans)
        for server in self.servers:
            if server.pool is not None and server.state in (ON, SWITCHING):
                counts[server.pool] += 1
        return counts

    def adopt(self, sizing: Sizing) -> None:
        """Who serves what, from now on."""
        self.router.shares, self.offers = sizing.shares, sizing.offers

    def park(self, server: Server, now_s: float) -> None:
        """Account for the GPUs without instance until now."""
        if server.parked and now_s > server.parked_since_s:
            energy_j = server.parked * self.machine.parked_w * (now_s - server.parked_since_s)
            server.account.idle(server.parked_since_s, now_s, energy_j)
        server.parked_since_s = now_s

    def stand_by(self, server: Server, state: str, seconds: float) -> None:
        """Account for a span in which all of a server's GPUs do nothing useful."""
        energy_j = SERVER_GPUS * self.machine.parked_w * seconds
        server.account.add(state, self.agenda.now_s, self.agenda.now_s + seconds, energy_j)

    def take(self, server: Server, pool: int, layout: Layout) -> None:
        """A server that is off is on, at once: only before the first request."""
        now_s = self.agenda.now_s
        server.state, server.pool, server.since_s, server.parked_since_s = ON, pool, now_s, now_s
        self.set_layout(server, layout)

    def start(self, server: Server, pool: int | None = None) -> None:
        """Begin to bring a server up; without a pool it waits for the cluster manager to give it one."""
        server.state, server.pool, server.since_s = STARTING, pool, self.agenda.now_s
        self.events["servers started"] += 1
        self.stand_by(server, "starting", self.settings.start_s)
        self.agenda.at(self.agenda.now_s + self.settings.start_s, self._started, server)

    def _started(self, server: Server) -> None:
        server.state, server.parked_since_s = ON, self.agenda.now_s
        if server.pool is not None:
            self.set_layout(server, server.fresh)
            self.router.retry_backlog()

    def move(self, server: Server, pool: int) -> None:
        """Give a server, with what it holds, to a pool."""
        if server.pool is not None:
            for replica in server.replicas:
                if replica.serving:
                    self.router.serving[server.pool].remove(replica)
        server.pool = pool
        if server.state == ON and not server.replicas:
            self.set_layout(server, server.fresh)
        else:
            for replica in server.replicas:
                replica.capacity = self._capacity(pool, replica.tp)
                if replica.serving:
                    self.router.serving[pool].append(replica)

    def drain(self, server: Server) -> None:
        """Let a server finish what it has begun, then release it."""
        server.state = DRAINING
        waiting = self.router.withdraw(server)
        for request in waiting:
            self.router.route(request)
        if server.empty:
            self.release(server)

    def keep(self, server: Server) -> None:
        """Take back a server that was draining."""
        assert server.pool is not None
        server.state = ON
        for replica in server.replicas:
            replica.serving = True
            self.router.serving[server.pool].append(replica)

    def fail(self, server: Server) -> None:
        """A server is lost after the steps in progress, and brought up again: what it held begins anew elsewhere."""
        if server.state != ON or server.pool is None:
            return
        pool, server.state = server.pool, DRAINING
        held = self.router.withdraw(server)
        ends_s = self.agenda.now_s
        for replica in server.replicas:
            ends_s = max(ends_s, replica.instance.halt(self.agenda.now_s))
            self.router.follow(replica)
        self.events["servers failed"] += 1
        self.agenda.at(ends_s, self._lost, server, pool, held)

    def _lost(self, server: Server, pool: int, held: list[Request]) -> None:
        unfinished = [replica.instance.next_s for replica in server.replicas if replica.instance.next_s is not None]
        if unfinished:
            self.agenda.at(max(unfinished) + 1e-9, self._lost, server, pool, held)
            return
        requests = list(held)
        for replica in server.replicas:
            requests += replica.instance.take_running(self.agenda.now_s)
        if server.state == DRAINING:
            # else its last step emptied it, and it is off already
            self.release(server)
        self.start(server, pool)
        for request in requests:
            request.begin_again()
            self.router.route(request)

    def release(self, server: Server) -> None:
        """The server is off, and no longer ours to feed."""
        self.park(server, self.agenda.now_s)
        for replica in server.replicas:
            replica.instance.close(self.agenda.now_s)
            self._count_preempted(replica)
            replica.ticket += 1
        self.events["servers released"] += 1
        self._count_time(server, self.agenda.now_s)
        server.state, server.layout, server.replicas, server.pool = OFF, (), [], None

    def _count_time(self, server: Server, now_s: float) -> None:
        if server.state != OFF:
            self.server_s += now_s - server.since_s

    # -- dividing a server into other instances ------------------------------------------------------------------------

    def change_next(self, pool: int) -> None:
        """Begin the next change of a pool's plan, if none is going on: one server at a time."""
        while self.changing[pool] is None and self.plans[pool]:
            server, layout = self.plans[pool].popleft()
            if server.state == ON and server.pool == pool and server.layout != layout:
                self._change(server, layout)

    def _change(self, server: Server, layout: Layout) -> None:
        assert server.pool is not None
        self.changing[server.pool] = server
        self.events["servers divided again"] += 1
        self.park(server, self.agenda.now_s)
        server.state = SWITCHING
        waiting = self.router.withdraw(server)
        ends_s = self.agenda.now_s
        for replica in server.replicas:
            ends_s = max(ends_s, replica.instance.halt(self.agenda.now_s))
            self.router.follow(replica)
        held: list[Request] = []
        for request in waiting:
            # without another replica it waits for this server's new ones
            target = self.router.choose(request)
            if target is None:
                held.append(request)
            else:
                self.router.deliver(request, target)
        # after the last steps, which end at that very moment at the latest
        self.agenda.at(ends_s, self._switch, server, layout, held)

    def _switch(self, server: Server, layout: tuple, held: list[Request]) -> None:
        unfinished = [replica.instance.next_s for replica in server.replicas if replica.instance.next_s is not None]
        if unfinished:
            # moments are sums of floats: a step that ends now may be a last digit later
            self.agenda.at(max(unfinished) + 1e-9, self._switch, server, layout, held)
            return
        requests = list(held)
        layout_before = server.layout
        for replica in server.replicas:
            replica.instance.close(self.agenda.now_s)
            requests += replica.instance.take_running(self.agenda.now_s)
            self._count_preempted(replica)
            replica.ticket += 1
        server.replicas = []
        # GPUs of the old layout without instance, while the last steps ended
        self._park_rest(server, layout_before)
        moved = units(layout_before, layout)
        seconds = self.settings.reload_s if moved is None else moved * self.settings.reshard_unit_s
        seconds += self.settings.reshard_gap_s + self.router.transfer_s(requests) if layout else 0.0
        self.stand_by(server, "switching", seconds)
        server.layout = ()
        self.agenda.at(self.agenda.now_s + seconds, self._switched, server, tuple(layout), requests)

    def _park_rest(self, server: Server, layout: Layout) -> None:
        rest = SERVER_GPUS - sum(layout)
        if rest and self.agenda.now_s > server.parked_since_s:
            energy_j = rest * self.machine.parked_w * (self.agenda.now_s - server.parked_since_s)
            server.account.idle(server.parked_since_s, self.agenda.now_s, energy_j)

    def _switched(self, server: Server, layout: tuple, requests: list[Request]) -> None:
        pool = server.pool
        assert pool is not None
        server.state, server.parked_since_s = ON, self.agenda.now_s
        self.set_layout(server, layout)
        for request in sorted(requests, key=lambda request: (not request.started, request.number)):
            able = [replica for replica in server.replicas if replica.instance.fits(request)]
            if able and request.started:
                # its KV cache is on these GPUs
                self.router.deliver(request, min(able, key=lambda replica: replica.relative_load))
            else:
                self.router.route(request)
        self.router.retry_backlog()
        self.changing[pool] = None
        self.change_next(pool)

    # -- clocks --------------------------------------------------------------------------------------------------------

    def set_clock(self, replica: Replica, clock: str) -> None:
        """Ask for a clock: in effect after the latency, from the end of the step then in progress."""
        if clock != replica.clock:
            replica.clock = clock
            self.events["clock changes"] += 1
            self.agenda.at(self.agenda.now_s + self.settings.clock_latency_s, self._apply_clock, replica, clock)

    def _apply_clock(self, replica: Replica, clock: str) -> None:
        # another has been asked for meanwhile, or the replica is gone
        if replica.clock == clock and replica in replica.server.replicas:
            replica.instance.set_engine(self.machine.engine(replica.tp, clock), self.agenda.now_s)
            self.router.follow(replica)


def _mean_answers(output_tokens: np.ndarray) -> list[float]:
    """Return the mean answer's tokens by letter, which an operator knows of the service; a bound where none came."""
    letters = np.digitize(output_tokens, OUTPUT_BOUNDS)
    answers_by_letter = [output_tokens[letters == letter] for letter in range(3)]
    bounds = (*OUTPUT_BOUNDS, OUTPUT_BOUNDS[-1])
    return [float(answers.mean()) if answers.size else bound for answers, bound in zip(answers_by_letter, bounds)]
