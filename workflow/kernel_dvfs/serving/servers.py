"""Servers of 8 GPUs and the replicas that they hold: off, starting, on, divided into other instances, draining."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from kernel_dvfs.serving.instance import Instance
from kernel_dvfs.serving.outcome import Account
from kernel_dvfs.serving.requests import Request
from kernel_dvfs.serving.resharding import SERVER_GPUS, Layout, units

if TYPE_CHECKING:
    from kernel_dvfs.serving.cluster import Cluster
    from kernel_dvfs.serving.pools import Sizing

OFF, STARTING, ON, SWITCHING, DRAINING = "off", "starting", "on", "switching", "draining"


@dataclass(slots=True, eq=False)
class Replica:
    """An instance in a pool: what routing and controllers know about it."""

    server: Server
    tp: int  # GPUs
    clock: str  # last asked for
    instance: Instance
    capacity: float  # tokens/s at the highest clock, of its pool's class
    serving: bool = True  # whether it takes requests
    ticket: int = 0  # of its event on the agenda: older ones are void
    outstanding: float = 0.0  # expected tokens of the requests it holds
    arrived: float = 0.0  # expected tokens routed to it since the clock was last set
    processed: int = 0  # tokens, when the clock was last set
    clock_tokens: float = inf  # that the clock last asked for carries in an epoch
    stage: int = 0  # of the emergency ladder
    watched: bool = False  # whether the ladder looks at its queue
    held_until_s: float = 0.0  # highest clock until then

    @property
    def relative_load(self) -> float:
        """Tokens it holds, of those it may carry in a second."""
        return self.outstanding / self.capacity


@dataclass(slots=True, eq=False)
class Server:
    """8 GPUs."""

    number: int
    account: Account  # of its energy
    state: str = OFF
    pool: int | None = None  # place of its pool
    layout: Layout = ()
    replicas: list[Replica] = field(default_factory=list)
    parked_since_s: float = 0.0  # GPUs without instance are accounted for until then
    since_s: float = 0.0  # when it was taken

    @property
    def parked(self) -> int:
        """GPUs without an instance, of a server that is on."""
        return SERVER_GPUS - sum(self.layout) if self.state in (ON, DRAINING) else 0

    @property
    def empty(self) -> bool:
        """Whether it holds no request."""
        return all(replica.instance.empty for replica in self.replicas)


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
        self.joined = False  # whether a server has come to a pool since the last epoch
        self.server_s = 0.0  # servers' time, from taken to released

    def close(self, end_s: float) -> None:
        """Account for everything until the end of the simulation."""
        for server in self.servers:
            self._count_time(server, end_s)
            self.park(server, end_s)
            for replica in server.replicas:
                replica.instance.close(end_s)

    def set_layout(self, server: Server, layout: Layout) -> None:
        """Put replicas on a server that is on, in a pool, and holds none."""
        assert server.pool is not None
        self.park(server, self.agenda.now_s)
        server.layout = tuple(layout)
        for tp in layout:
            clock = self.columns.top(tp)
            instance = Instance(
                self.machine.engine(tp, clock),
                self.machine.kv_tokens(tp),
                self.agenda.now_s,
                self.settings.max_batch,
                self.settings.chunk_tokens,
                server.account,
            )
            replica = Replica(server, tp, clock, instance, self._capacity(server.pool, tp))
            server.replicas.append(replica)
            self.router.serving[server.pool].append(replica)

    def _capacity(self, pool: int, tp: int) -> float:
        # a degree that cannot keep the class's promises is loaded by its GPUs: what it carries at all is not profiled
        return self.offers[pool].largest(tp) or float(tp)

    def on_by_pool(self) -> list[int]:
        """Servers of each pool that serve, or will once they are divided."""
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
            self.set_layout(server, (max(self.columns.degrees),))
            self.joined = True
            self.router.retry_backlog()

    def move(self, server: Server, pool: int) -> None:
        """Give a server, with what it holds, to a pool."""
        if server.pool is not None:
            for replica in server.replicas:
                if replica.serving:
                    self.router.serving[server.pool].remove(replica)
        server.pool = pool
        if server.state == ON and not server.replicas:
            self.set_layout(server, (max(self.columns.degrees),))
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
        self.joined = True

    def release(self, server: Server) -> None:
        """The server is off, and no longer ours to feed."""
        self.park(server, self.agenda.now_s)
        for replica in server.replicas:
            replica.instance.close(self.agenda.now_s)
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
        kept = server.layout
        for replica in server.replicas:
            replica.instance.close(self.agenda.now_s)
            requests += replica.instance.take_running(self.agenda.now_s)
            replica.ticket += 1
        server.replicas = []
        # GPUs of the old layout without instance, while the last steps ended
        self._park_rest(server, kept)
        moved = units(kept, layout)
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
        for request in sorted(requests, key=lambda each: (not each.started, each.number)):
            own = [each for each in server.replicas if each.instance.fits(request)]
            if own and request.started:
                # its KV cache is on these GPUs
                self.router.deliver(request, min(own, key=lambda each: each.relative_load))
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
            carried = self.offers[replica.server.pool or 0].capacity.get((replica.tp, clock), 0.0)
            replica.clock_tokens = (
                inf if clock == self.columns.top(replica.tp) else carried * self.settings.clock_epoch_s
            )
            self.events["clock changes"] += 1
            self.agenda.at(self.agenda.now_s + self.settings.clock_latency_s, self._apply_clock, replica, clock)

    def _apply_clock(self, replica: Replica, clock: str) -> None:
        # another has been asked for meanwhile, or the replica is gone
        if replica.clock == clock and replica in replica.server.replicas:
            replica.instance.set_engine(self.machine.engine(replica.tp, clock), self.agenda.now_s)
            self.router.follow(replica)
