"""Requests inside a cluster: which replica takes each, what happens when one leaves, and whom nobody can take.

A request goes to the pool of the class it is taken for; what a pool's servers were not counted for goes on to the pool
whose servers were. Within a pool the least loaded replica takes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs.serving import controllers, emergencies
from kernel_dvfs.serving.pools import carry_target, home, larger
from kernel_dvfs.serving.requests import CLASSES, OUTPUT_BOUNDS, OUTPUT_LIMIT, Request
from kernel_dvfs.serving.servers import DRAINING, Replica, Server

if TYPE_CHECKING:
    from kernel_dvfs.serving.cluster import Cluster


def _mean_answers(output_tokens: np.ndarray) -> list[float]:
    """Tokens of the mean answer of each letter: what an operator knows of the own service. A bound where none came."""
    letters = np.digitize(output_tokens, OUTPUT_BOUNDS)
    own = [output_tokens[letters == letter] for letter in range(3)]
    return [float(each.mean()) if each.size else bound for each, bound in zip(own, (*OUTPUT_BOUNDS, OUTPUT_BOUNDS[-1]))]


class Router:
    """Hands requests to replicas and follows them until they leave."""

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
        self._arrived = np.zeros(len(CLASSES))  # expected tokens of the requests that came, by class
        self._reacts = cluster.settings.react
        self._ladder = cluster.settings.emergencies and self._pooled

    def arrive(self, request: Request) -> None:
        """A request from outside."""
        self._arrived[request.predicted] += self.expected_tokens(request)
        self.expect(request)
        self.route(request)

    def expect(self, request: Request) -> None:
        """Where the request is handed on, should its answer outgrow the class it is taken for."""
        limit = OUTPUT_LIMIT[request.predicted % 3] if self._pooled else None
        request.stop_at = limit if limit is not None and limit < request.output else None

    def arrived_tps(self, seconds: float) -> np.ndarray:
        """Tokens/s of each class that came in the last `seconds`, answers as expected; counts from zero again."""
        loads = self._arrived / seconds
        self._arrived = np.zeros(len(CLASSES))
        return loads

    def expected_tokens(self, request: Request) -> float:
        """What a request is expected to take in all, prompt and answer."""
        return request.input + self._expected_output[request.predicted % 3]

    def route(self, request: Request) -> None:
        """To the least loaded replica of the pool that is to serve it, else of the next larger one that has any.

        Where no replica can hold it, it waits in the backlog; if none of the cluster's ever could, it is rejected.
        """
        replica = self.choose(request)
        if replica is not None:
            self.deliver(request, replica)
        elif request.input + request.output > self.machine.kv_tokens(max(self.columns.degrees)):
            self.cluster.reject(request)
        else:
            self.events["held back"] += 1
            self.backlog.append(request)

    def choose(self, request: Request, above: int | None = None) -> Replica | None:
        """The replica that a request should go to, None where there is none. above: in no pool but those larger."""
        if above is not None:
            places = self._chains[above]
        else:
            place = self._destination(self._homes[request.predicted])
            places = [place, *self._chains[place]]
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
        if replica.arrived > replica.clock_tokens and self._reacts:
            controllers.raise_clock(self.cluster, replica)
        replica.instance.submit(request, self.agenda.now_s)
        self.follow(replica)
        if self._ladder and not replica.watched and replica.instance.waiting:
            emergencies.watch(self.cluster, replica)

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
                self.cluster.finish(request, replica.server.pool)
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
        """How long the KV cache of requests takes over the links between GPUs, s."""
        tokens = sum(request.prefilled + request.generated for request in requests)
        return tokens * self.machine.kv_byte_per_token / (self.settings.kv_gb_per_s * 1e9)

    def withdraw(self, server: Server) -> list[Request]:
        """No more requests to a server; those it has not begun."""
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
