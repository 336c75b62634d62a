"""A cluster under a trace, event by event: arrivals, routing, engine steps, hand-overs, changes of servers.

What the controllers decide is in controllers.py, what happens when queues grow in emergencies.py. Nothing is lost:
a request ends finished or rejected, and `run` raises RuntimeError if one does neither.
"""

from collections import Counter, deque

import numpy as np

from kernel_dvfs.serving import controllers, emergencies
from kernel_dvfs.serving.accounts import Accounts
from kernel_dvfs.serving.agenda import Agenda
from kernel_dvfs.serving.classes import CLASSES, OUTPUT_LIMIT, classify, ttft_slo_s
from kernel_dvfs.serving.instance import Instance
from kernel_dvfs.serving.pools import carry_target, home, larger, pool_kinds
from kernel_dvfs.serving.request import Request
from kernel_dvfs.serving.resharding import SERVER_GPUS, units
from kernel_dvfs.serving.server import DRAINING, OFF, ON, STARTING, SWITCHING, Replica, Server

# what a request of a class is expected to generate, by answer letter: middle of its class
_EXPECTED_OUTPUT = (60, 160, 450)


class Cluster:
    """One run of one system.

    machine: machine.Machine (engines, KV cache, parked power). columns: Columns of the machine's profile. forecast:
    LoadForecast. predicted: class index per request of the trace.
    """

    def __init__(self, trace, system, machine, columns, forecast, settings, predicted):
        self.trace, self.system, self.machine, self.columns = trace, system, machine, columns
        self.forecast, self.settings = forecast, settings
        self.pools = pool_kinds(settings.pools if system.pooled else 1)
        self.homes = [home(self.pools, kind) for kind in range(len(CLASSES))]
        self.chains = [larger(self.pools, place) for place in range(len(self.pools))]
        self._carry = [carry_target(self.pools, place) for place in range(len(self.pools))]
        self.agenda = Agenda()
        self.accounts = Accounts(settings.bin_s)
        self.servers = [Server(number) for number in range(settings.servers)]
        self.serving = [[] for _ in self.pools]  # replicas that take requests, by pool
        self.shares = [1.0] * len(self.pools)  # of its load that a pool serves itself
        self.offers = [columns.pool(pool.kind, pool.members) for pool in self.pools]
        self._credit = [0.0] * len(self.pools)
        self.backlog = deque()  # requests that no replica could take when they came
        self.plans = [deque() for _ in self.pools]  # (server, layout) still to be changed, one at a time
        self.changing = [None] * len(self.pools)
        self.events = Counter()
        self.samples = []
        self.short_tps = 0.0  # largest load that an epoch's servers could not carry
        self.server_s = 0.0  # servers' time, from taken to released
        self.solve_s = []
        self.ladder = settings.emergencies and system.pooled
        self.kinds = classify(trace.input_tokens, trace.output_tokens)
        self._predicted = predicted
        self._slo_s = [columns.slo_scale * ttft_slo_s(name) for name in CLASSES]
        count = len(trace.arrival_s)
        self.ttft_s = np.full(count, np.nan, dtype=np.float32)
        self.mean_tbt_s = np.full(count, np.nan, dtype=np.float32)
        self.rejected = np.zeros(count, dtype=bool)
        self.finished = np.zeros(count, dtype=bool)
        self.tokens_out = 0
        self.tokens_in = 0
        self.last_finish_s = 0.0
        self.open = 0  # requests that have come and not left
        self.arrived = 0

    @property
    def now_s(self) -> float:
        """The moment."""
        return self.agenda.now_s

    @property
    def active(self) -> bool:
        """Whether anything is still to come or to be finished."""
        return self.arrived < len(self.trace.arrival_s) or self.open > len(self.backlog)

    def run(self):
        """Serve the whole trace; returns self. Raises RuntimeError if a request is lost."""
        controllers.begin(self)
        self._next_arrival()
        self.agenda.run()
        self.end_s = end_s = max(self.last_finish_s, self.trace.span_s)
        # whom no replica ever could take
        for request in self.backlog:
            self.reject(request)
        for server in self.servers:
            self._count_time(server, end_s)
            self.park(server, end_s)
            for replica in server.replicas:
                replica.instance.close(end_s)
        lost = int((~self.finished & ~self.rejected).sum())
        if lost or self.open:
            raise RuntimeError(f"{lost} requests neither finished nor were rejected")
        return self

    # -- requests -----------------------------------------------------------------------------------------------------

    def _next_arrival(self) -> None:
        if self.arrived < len(self.trace.arrival_s):
            self.agenda.at(float(self.trace.arrival_s[self.arrived]), self._arrive)

    def _arrive(self) -> None:
        number = self.arrived
        trace, kind, predicted = self.trace, int(self.kinds[number]), int(self._predicted[number])
        tokens = int(trace.input_tokens[number]), int(trace.output_tokens[number])
        request = Request(number, float(trace.arrival_s[number]), *tokens, kind, predicted, self._slo_s[kind])
        self.arrived += 1
        self.open += 1
        self._next_arrival()
        self._expect(request)
        self.route(request)

    def _expect(self, request: Request) -> None:
        """Where the request is handed on, should its answer outgrow the class it is taken for."""
        limit = OUTPUT_LIMIT[request.predicted % 3] if self.system.pooled else None
        request.stop_at = limit if limit is not None and limit < request.output else None

    def expected_tokens(self, request: Request) -> float:
        """What a request is expected to take in all, prompt and answer."""
        return request.input + _EXPECTED_OUTPUT[request.predicted % 3]

    def route(self, request: Request, above: int | None = None) -> None:
        """To the least loaded replica of the pool that is to serve it, else of the next larger one that has any.

        above: not in this pool but beyond it. Without any replica that could ever hold it: the backlog, and if none of
        the cluster's ever could, it is rejected.
        """
        replica = self.choose(request, above)
        if replica is not None:
            self.deliver(request, replica)
        elif request.input + request.output > self.machine.kv_tokens(max(self.columns.degrees)):
            self.reject(request)
        else:
            self.events["held back"] += 1
            self.backlog.append(request)

    def choose(self, request: Request, above: int | None = None) -> Replica | None:
        """The replica that a request should go to, None where there is none."""
        if above is not None:
            places = self.chains[above]
        else:
            place = self._destination(self.homes[request.predicted])
            places = [place, *self.chains[place]]
        need = request.input + request.output
        for each in places:
            best = None
            for replica in self.serving[each]:
                if replica.instance.kv_tokens >= need and (best is None or replica.relative_load < best.relative_load):
                    best = replica
            if best is not None:
                return best
        if above is None:
            # nothing at least as able: better a smaller pool's than none
            able = [each for pool in self.serving for each in pool if each.instance.kv_tokens >= need]
            return min(able, key=lambda each: each.relative_load, default=None)
        return None

    def _destination(self, place: int) -> int:
        """The pool that is to serve a request of pool `place`: on, pool by pool, the way its servers were counted.

        Any other way would fill a pool whose servers do not count on it, and leave idle the one whose servers do.
        """
        while self.shares[place] < 1.0 and self._carry[place] is not None:
            # so many of a hundred stay, evenly spread
            self._credit[place] += self.shares[place]
            if self._credit[place] >= 1.0:
                self._credit[place] -= 1.0
                break
            place = self._carry[place]
        return place

    def deliver(self, request: Request, replica: Replica) -> None:
        """Hand a request to a replica."""
        tokens = self.expected_tokens(request)
        replica.outstanding += tokens
        replica.arrived += tokens
        replica.instance.submit(request, self.now_s)
        self.follow(replica)
        if self.ladder and not replica.watched and replica.instance.waiting:
            emergencies.watch(self, replica)

    def reject(self, request: Request) -> None:
        """Give a request up, for good."""
        request.rejected = True
        self.rejected[request.number] = True
        self.open -= 1
        self.events["rejected"] += 1

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
        for request in replica.instance.event(self.now_s):
            replica.outstanding -= self.expected_tokens(request)
            if request.finish_s is not None:
                self._finish(request)
            else:
                self._hand_on(request, replica)
        self.follow(replica)
        if replica.server.state == DRAINING and replica.server.empty:
            self.release(replica.server)

    def _finish(self, request: Request) -> None:
        number = request.number
        if self.finished[number] or self.rejected[number]:
            raise RuntimeError(f"request {number} ends twice")
        self.finished[number] = True
        self.ttft_s[number] = request.first_s - request.arrival_s
        if request.output > 1:
            self.mean_tbt_s[number] = (request.finish_s - request.first_s) / (request.output - 1)
        self.last_finish_s = request.finish_s
        self.tokens_out += request.generated
        self.tokens_in += request.prefilled
        self.open -= 1

    def _hand_on(self, request: Request, replica: Replica) -> None:
        """Its answer has outgrown the class it was taken for: on to the next class's pool, its KV cache along."""
        self.events["mispredicted"] += 1
        pool = self.homes[request.predicted]
        request.predicted += 1
        self._expect(request)
        same = self.homes[request.predicted] == pool and replica.serving
        target = replica if same else self.choose(request)
        if target is None or (replica.serving and target.server.pool == replica.server.pool):
            # no better place: it stays (a draining one finishes it)
            self.put_back(request, replica)
        else:
            self.agenda.at(self.now_s + self.transfer_s([request]), self.route, request)

    def put_back(self, request: Request, replica: Replica) -> None:
        """A request stays where it has been."""
        replica.outstanding += self.expected_tokens(request)
        replica.instance.submit(request, self.now_s)

    def set_clock(self, replica: Replica, clock) -> None:
        """Ask for a clock: in effect after the latency, from the end of the step then in progress."""
        if clock != replica.clock:
            replica.clock = clock
            self.events["clock changes"] += 1
            self.agenda.at(self.now_s + self.settings.clock_latency_s, self._apply_clock, replica, clock)

    def _apply_clock(self, replica: Replica, clock) -> None:
        # another has been asked for meanwhile, or the replica is gone
        if replica.clock == clock and replica in replica.server.replicas:
            replica.instance.set_engine(self.machine.engine(replica.tp, clock), self.now_s)
            self.follow(replica)

    def transfer_s(self, requests) -> float:
        """How long the KV cache of requests takes over the links between GPUs, s."""
        tokens = sum(request.prefilled + request.generated for request in requests)
        return tokens * self.machine.kv_byte_per_token / (self.settings.kv_gb_per_s * 1e9)

    # -- servers ------------------------------------------------------------------------------------------------------

    def set_layout(self, server: Server, layout: tuple) -> None:
        """Put replicas on a server that is on and holds none."""
        self.park(server, self.now_s)
        server.layout = tuple(layout)
        for tp in layout:
            clock = self.columns.top(tp)
            instance = Instance(
                self.machine.engine(tp, clock),
                self.machine.kv_tokens(tp),
                self.now_s,
                self.settings.max_batch,
                self.settings.chunk_tokens,
                self.accounts,
            )
            replica = Replica(server, tp, clock, instance, self._capacity(server.pool, tp))
            server.replicas.append(replica)
            self.serving[server.pool].append(replica)

    def _capacity(self, pool: int, tp: int) -> float:
        # a degree that cannot keep the class's promises still has some capacity to be loaded by
        return self.offers[pool].largest(tp) or 100.0 * tp

    def adopt(self, sizing) -> None:
        """Who serves what, from now on."""
        self.shares, self.offers = sizing.shares, sizing.offers

    def park(self, server: Server, now_s: float) -> None:
        """Account for the GPUs without instance until now."""
        if server.parked and now_s > server.parked_since_s:
            energy_j = server.parked * self.machine.parked_w * (now_s - server.parked_since_s)
            self.accounts.idle(server.parked_since_s, now_s, energy_j)
        server.parked_since_s = now_s

    def stand_by(self, server: Server, state: str, seconds: float) -> None:
        """Account for a span in which all of a server's GPUs do nothing useful."""
        energy_j = SERVER_GPUS * self.machine.parked_w * seconds
        self.accounts.add(state, self.now_s, self.now_s + seconds, energy_j)

    def take(self, server: Server, pool: int, layout: tuple) -> None:
        """A server that is off is on, at once: only before the first request."""
        server.state, server.pool, server.since_s, server.parked_since_s = ON, pool, self.now_s, self.now_s
        self.set_layout(server, layout)

    def start(self, server: Server) -> None:
        """Begin to bring a server up; it has no pool until the cluster manager gives it one."""
        server.state, server.pool, server.since_s = STARTING, None, self.now_s
        self.events["servers started"] += 1
        self.stand_by(server, "starting", self.settings.start_s)
        self.agenda.at(self.now_s + self.settings.start_s, self._started, server)

    def _started(self, server: Server) -> None:
        server.state, server.parked_since_s = ON, self.now_s
        if server.pool is not None:
            self.set_layout(server, (max(self.columns.degrees),))
            self.retry_backlog()

    def move(self, server: Server, pool: int) -> None:
        """Give a server, with what it holds, to a pool."""
        if server.pool is not None:
            for replica in server.replicas:
                if replica.serving:
                    self.serving[server.pool].remove(replica)
        server.pool = pool
        if server.state == ON and not server.replicas:
            self.set_layout(server, (max(self.columns.degrees),))
        else:
            for replica in server.replicas:
                replica.capacity = self._capacity(pool, replica.tp)
                if replica.serving:
                    self.serving[pool].append(replica)

    def drain(self, server: Server) -> None:
        """Let a server finish what it has begun, then release it."""
        server.state = DRAINING
        waiting = self._withdraw(server)
        for request in waiting:
            self.route(request)
        if server.empty:
            self.release(server)

    def keep(self, server: Server) -> None:
        """Take back a server that was draining."""
        server.state = ON
        for replica in server.replicas:
            replica.serving = True
            self.serving[server.pool].append(replica)

    def release(self, server: Server) -> None:
        """The server is off, and no longer ours to feed."""
        self.park(server, self.now_s)
        for replica in server.replicas:
            replica.instance.close(self.now_s)
            replica.ticket += 1
        self.events["servers released"] += 1
        self._count_time(server, self.now_s)
        server.state, server.layout, server.replicas, server.pool = OFF, (), [], None

    def _count_time(self, server: Server, now_s: float) -> None:
        if server.state != OFF:
            self.server_s += now_s - server.since_s

    def _withdraw(self, server: Server) -> list:
        """No more requests to a server; those it has not begun."""
        waiting = []
        for replica in server.replicas:
            if replica.serving:
                replica.serving = False
                self.serving[server.pool].remove(replica)
            taken = replica.instance.take_waiting()
            replica.outstanding -= sum(map(self.expected_tokens, taken))
            waiting += taken
        return waiting

    # -- dividing a server anew ----------------------------------------------------------------------------------------

    def change_next(self, pool: int) -> None:
        """Begin the next change of a pool's plan, if none is going on: one server at a time."""
        while self.changing[pool] is None and self.plans[pool]:
            server, layout = self.plans[pool].popleft()
            if server.state == ON and server.pool == pool and server.layout != layout:
                self._change(server, layout)

    def _change(self, server: Server, layout: tuple) -> None:
        self.changing[server.pool] = server
        self.events["servers divided anew"] += 1
        self.park(server, self.now_s)
        server.state = SWITCHING
        waiting = self._withdraw(server)
        ends_s = self.now_s
        for replica in server.replicas:
            ends_s = max(ends_s, replica.instance.halt(self.now_s))
            self.follow(replica)
        held = []
        for request in waiting:
            # without another replica it waits for this server's new ones
            target = self.choose(request)
            if target is None:
                held.append(request)
            else:
                self.deliver(request, target)
        # after the last steps, which end at that very moment at the latest
        self.agenda.at(ends_s, self._switch, server, layout, held)

    def _switch(self, server: Server, layout: tuple, held: list) -> None:
        unfinished = [replica.instance.next_s for replica in server.replicas if replica.instance.next_s is not None]
        if unfinished:
            # moments are sums of floats: a step that ends now may be a last digit later
            self.agenda.at(max(unfinished) + 1e-9, self._switch, server, layout, held)
            return
        requests = list(held)
        kept = server.layout
        for replica in server.replicas:
            replica.instance.close(self.now_s)
            requests += replica.instance.take_running(self.now_s)
            replica.ticket += 1
        server.replicas = []
        # GPUs of the old layout without instance, while the last steps ended
        self._park_rest(server, kept)
        moved = units(kept, layout)
        seconds = self.settings.reload_s if moved is None else moved * self.settings.reshard_unit_s
        seconds += self.settings.reshard_gap_s + self.transfer_s(requests) if layout else 0.0
        self.stand_by(server, "switching", seconds)
        server.layout = ()
        self.agenda.at(self.now_s + seconds, self._switched, server, tuple(layout), requests)

    def _park_rest(self, server: Server, layout: tuple) -> None:
        rest = SERVER_GPUS - sum(layout)
        if rest and self.now_s > server.parked_since_s:
            energy_j = rest * self.machine.parked_w * (self.now_s - server.parked_since_s)
            self.accounts.idle(server.parked_since_s, self.now_s, energy_j)

    def _switched(self, server: Server, layout: tuple, requests: list) -> None:
        pool = server.pool
        server.state, server.parked_since_s = ON, self.now_s
        self.set_layout(server, layout)
        for request in sorted(requests, key=lambda each: (not each.started, each.number)):
            own = [each for each in server.replicas if each.instance.fits(request)]
            if own and request.started:
                # its KV cache is on these GPUs
                self.deliver(request, min(own, key=lambda each: each.relative_load))
            else:
                self.route(request)
        self.retry_backlog()
        self.changing[pool] = None
        self.change_next(pool)
