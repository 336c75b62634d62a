"""A cluster under a trace, event by event. What is decided is in controllers.py, what happens when queues grow in
emergencies.py; requests are handed round by routing.py, servers come and go in servers.py.

Nothing is lost: a request ends finished or rejected, and `run` raises RuntimeError if one does neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from kernel_dvfs.serving import controllers
from kernel_dvfs.serving.outcome import Accounts
from kernel_dvfs.serving.pools import home, pool_kinds
from kernel_dvfs.serving.requests import CLASSES, TBT_SLO_S, Request, classify, ttft_slo_s
from kernel_dvfs.serving.routing import Router
from kernel_dvfs.serving.servers import Fleet

if TYPE_CHECKING:
    from kernel_dvfs.serving.columns import Columns
    from kernel_dvfs.serving.pools import Sizing
    from kernel_dvfs.serving.prediction import LoadForecast
    from kernel_dvfs.serving.replayer import Machine
    from kernel_dvfs.serving.system import Settings, System
    from kernel_dvfs.serving.trace import Trace


class Agenda:
    """What happens when: calls in order of time, those of the same moment in the order they were asked for, by SimPy.

    Plain callbacks on its timeouts: a process (a generator) per event took 1.5 times as long, and a bare heap saved a
    seventh (experiments/benchmarks/serving_event_loop.py), too little to go without the library.
    """

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self._timeout = self._environment.timeout

    @property
    def now_s(self) -> float:
        """The moment, s."""
        return self._environment.now

    def at(self, moment_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call `call(*arguments)` at `moment_s`, now if that has passed."""
        delay_s = moment_s - self._environment.now
        self._timeout(delay_s if delay_s > 0 else 0).callbacks.append(lambda _: call(*arguments))

    def run(self) -> None:
        """Until nothing is left."""
        self._environment.run()


class Cluster:
    """One run of one system: arrivals, and the end of every request.

    machine: engines, KV cache, parked power. columns: those of the machine's profile. predicted: (n,) class index that
    each request of the trace is taken for.
    """

    def __init__(
        self,
        trace: Trace,
        system: System,
        machine: Machine,
        columns: Columns,
        forecast: LoadForecast,
        settings: Settings,
        predicted: np.ndarray,
    ):
        self.trace, self.system, self.machine, self.columns = trace, system, machine, columns
        self.forecast, self.settings = forecast, settings
        self.pools = pool_kinds(settings.pools if system.pooled else 1)
        self.agenda = Agenda()
        self.accounts = Accounts(settings.bin_s)
        self.events: Counter[str] = Counter()
        self.router = Router(self)
        self.fleet = Fleet(self)
        self.samples: list[dict] = []  # what the knobs stood at
        # load of the last slot, by class, with the margin, where it was more than planned for; else 0
        self.unplanned_tps = np.zeros(len(CLASSES))
        self.prepared: dict[float, Sizing] = {}  # what was planned for a cluster epoch, by its start
        # what a pool leaves room for: its clocks, as a share of what its instances carry at the highest clock, and its
        # division, as a share of the load
        self.reserves = [0.0] * len(self.pools)
        self.short_tps = 0.0  # largest load that an epoch's servers could not carry
        self.solve_s: list[float] = []  # CPU seconds of each allocation
        self.kinds = classify(trace.input_tokens, trace.output_tokens)
        self._predicted = predicted
        self._slo_s = [columns.slo_scale * ttft_slo_s(name) for name in CLASSES]
        self._tbt_slo_s = columns.slo_scale * TBT_SLO_S
        self._reacts = settings.react and (system.scale_clock or system.scale_sharding)
        count = len(trace.arrival_s)
        self.ttft_s = np.full(count, np.nan, dtype=np.float32)
        self.mean_tbt_s = np.full(count, np.nan, dtype=np.float32)
        self.rejected = np.zeros(count, dtype=bool)
        self.finished = np.zeros(count, dtype=bool)
        self.tokens_out = 0
        self.tokens_in = 0
        self.end_s = 0.0
        self.open = 0  # requests that have come and not left
        self._arrived = 0
        self._last_finish_s = 0.0

    @property
    def now_s(self) -> float:
        """The moment."""
        return self.agenda.now_s

    @property
    def active(self) -> bool:
        """Whether anything is still to come or to be finished."""
        return self._arrived < len(self.trace.arrival_s) or self.open > len(self.router.backlog)

    def run(self) -> Cluster:
        """Serve the whole trace; returns self. Raises RuntimeError if a request is lost."""
        controllers.begin(self)
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
        if self._arrived < len(self.trace.arrival_s):
            self.agenda.at(float(self.trace.arrival_s[self._arrived]), self._arrive)

    def _arrive(self) -> None:
        number = self._arrived
        trace, kind, predicted = self.trace, int(self.kinds[number]), int(self._predicted[number])
        tokens = int(trace.input_tokens[number]), int(trace.output_tokens[number])
        request = Request(number, float(trace.arrival_s[number]), *tokens, kind, predicted, self._slo_s[kind])
        self._arrived += 1
        self.open += 1
        self._next_arrival()
        self.router.arrive(request)

    def finish(self, request: Request, pool: int | None) -> None:
        """Note the end of a request that has all its tokens, in a pool."""
        number = request.number
        if self.finished[number] or self.rejected[number]:
            raise RuntimeError(f"request {number} ends twice")
        assert request.first_s is not None and request.finish_s is not None
        self.finished[number] = True
        self.ttft_s[number] = request.first_s - request.arrival_s
        if request.output > 1:
            self.mean_tbt_s[number] = (request.finish_s - request.first_s) / (request.output - 1)
        if pool is not None and self._reacts:
            self._track(pool, self.ttft_s[number] <= request.slo_s and not self.mean_tbt_s[number] > self._tbt_slo_s)
        self._last_finish_s = request.finish_s
        self.tokens_out += request.generated
        self.tokens_in += request.prefilled
        self.open -= 1

    def _track(self, pool: int, kept: bool) -> None:
        """Follow the quantile: the reserve rises with each broken promise and falls with each kept one.

        It stands still where half of the promises that may be broken are (Robbins and Monro, 1951: the step that keeps
        a share of events at its target).
        """
        own = self.settings
        allowed = 0.5 * (1 - own.promise_percent / 100)
        step = own.reserve_step * (-allowed if kept else 1 - allowed)
        self.reserves[pool] = min(1.0, max(0.0, self.reserves[pool] + step))

    def reject(self, request: Request) -> None:
        """Give a request up, for good."""
        self.rejected[request.number] = True
        if self._reacts:
            self._track(home(self.pools, request.predicted), kept=False)
        self.open -= 1
        self.events["rejected"] += 1
