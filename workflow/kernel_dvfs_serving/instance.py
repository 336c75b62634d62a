"""One model replica on its GPUs: continuous batching, from event to event; and the engine that it runs on.

An engine tells time and energy of steps at one setting of the clocks. Two kinds exist: steps added up from kernels on a
simulated GPU (steps.py), and steps worked out of a measured profile (measured.py).

Which requests a step has is the scheduler's (scheduler.py). Steps without prompt work differ only in the growing
context, so a whole run of them up to the next completion is one event (the engine has its closed form); whatever comes
in meanwhile cuts the run at the end of the step in progress.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf, sqrt
from typing import TYPE_CHECKING, NamedTuple

from kernel_dvfs_serving.scheduler import BLOCK_TOKENS, EngineScheduler, Limits

if TYPE_CHECKING:
    from kernel_dvfs_serving.requests import Request


LIMITS = Limits()


class Linear(NamedTuple):
    """Step of a decoding batch as a line over its context, whole instance: s = time_s + time_per_token_s x tokens."""

    time_s: float
    time_per_token_s: float
    energy_j: float
    energy_per_token_j: float


class Engine(ABC):
    """Plain floats in and out, about a microsecond a call. idle_w: of the whole instance without a request."""

    idle_w: float

    @property
    def least_w(self) -> float:
        """Return the least that any step, or none, draws, W."""
        return self.idle_w

    @abstractmethod
    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, float]:
        """Return (s, J of the whole instance) of one step of continuous batching.

        new_tokens: prompt tokens of this step and one for each decoding sequence, at least 1. prompt_pairs: n s +
        n (n + 1) / 2 summed over prompt chunks of n tokens that start at position s. context_tokens: cached tokens of
        all decoding sequences together. sequences: that the step is of, prompts included, which take the host's time.
        """

    @abstractmethod
    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """Return a decode step of `batch` as a line over context that holds near `context_tokens`."""

    def least_j(self, floor_w: float, most_tokens: int) -> tuple[float, float, float]:
        """Return the least energy, J, beyond `floor_w` for each new token of steps of up to `most_tokens`, each prompt
        pair, and each cached token that is attended over; zeros where nothing is known. floor_w: no more than
        `least_w`, so none is negative."""
        return 0.0, 0.0, 0.0

    def run(self, batch: int, context_tokens: float, steps: int) -> tuple[float, float]:
        """Return (s, J) of `steps` decode steps in a row, each adding `batch` to the context, in closed form."""
        line = self.linear(batch, context_tokens)
        context = steps * context_tokens + batch * steps * (steps - 1) / 2
        return (
            steps * line.time_s + line.time_per_token_s * context,
            steps * line.energy_j + line.energy_per_token_j * context,
        )

    def steps_within(self, batch: int, context_tokens: float, seconds: float) -> int:
        """Return how many whole decode steps of such a run end within `seconds`."""
        line = self.linear(batch, context_tokens)
        # n t0 + t1 (n c + b n (n - 1) / 2) = seconds, for n
        square = line.time_per_token_s * batch / 2
        once = line.time_s + line.time_per_token_s * context_tokens - square
        steps = int(2 * seconds / (once + sqrt(once * once + 4 * square * seconds)))
        # rounding may miss a boundary by one
        limit = seconds * (1 + 1e-12)
        if self.run(batch, context_tokens, steps + 1)[0] <= limit:
            return steps + 1
        if steps and self.run(batch, context_tokens, steps)[0] > limit:
            return steps - 1
        return steps


class Slower(Engine):
    """An engine whose steps take `factor` times as long, at the same energy."""

    def __init__(self, engine: Engine, factor: float):
        self._engine, self._factor, self.idle_w = engine, factor, engine.idle_w

    def step(
        self, new_tokens: int, prompt_pairs: float, context_tokens: float, sequences: int = 0
    ) -> tuple[float, float]:
        """See Engine."""
        time_s, energy_j = self._engine.step(new_tokens, prompt_pairs, context_tokens, sequences)
        return time_s * self._factor, energy_j

    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """See Engine."""
        line = self._engine.linear(batch, context_tokens)
        return Linear(line.time_s * self._factor, line.time_per_token_s * self._factor, *line[2:])

    def run(self, batch: int, context_tokens: float, steps: int) -> tuple[float, float]:
        """See Engine."""
        time_s, energy_j = self._engine.run(batch, context_tokens, steps)
        return time_s * self._factor, energy_j

    def steps_within(self, batch: int, context_tokens: float, seconds: float) -> int:
        """See Engine."""
        return self._engine.steps_within(batch, context_tokens, seconds / self._factor)


class InstanceObserver:
    """What an Instance tells of itself; this one keeps nothing."""

    def busy(self, start_s: float, end_s: float, energy_j: float) -> None:
        """A span of work and its energy, of the whole instance."""

    def idle(self, start_s: float, end_s: float, energy_j: float) -> None:
        """A span without work."""

    def gap(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after the token before them."""


class Instance:
    """Times in s. The owner calls `event` at `next_s`; every call's `now_s` is >= those before it.

    engine: what it runs on. limits: of its scheduler. kv_tokens: KV cache of the whole instance. slow_gap_s: steps that
    take longer are counted in the requests' `slow`.
    """

    def __init__(
        self,
        engine: Engine,
        kv_tokens: int,
        limits: Limits = LIMITS,
        now_s: float = 0.0,
        recorder: InstanceObserver | None = None,
        slow_gap_s: float = inf,
    ):
        self.engine = engine
        # one block is the engine's own
        self.scheduler = EngineScheduler(limits, kv_tokens // BLOCK_TOKENS - 1)
        self.kv_tokens = BLOCK_TOKENS * self.scheduler.blocks.count
        self.recorder = recorder or InstanceObserver()
        self.slow_gap_s = slow_gap_s
        self.preempted = 0  # how often a request gave its cache up
        self.next_s: float | None = None  # end of the run in progress
        self.halted = False
        self._interrupted: set[Request] = set()  # decoding requests whose gap is longer than the step
        self._slow_steps = 0  # that took longer than slow_gap_s
        self._processed = 0
        self._run_steps = 0
        self._run_start_s = now_s  # of the run, or of idleness
        self._run_energy_j = 0.0
        self._pending_engine: Engine | None = None

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[Request]:
        """Return the requests that nothing has been done for."""
        return self.scheduler.waiting

    @property
    def unread(self) -> int:
        """Return how many tokens of what it holds no finished step has read."""
        return self.scheduler.unread

    @property
    def decoding(self) -> int:
        """Return how many sequences each step gives a token."""
        return self.scheduler.decoding

    @property
    def context_tokens(self) -> int:
        """Return the cached tokens of the step in progress."""
        return self.scheduler.context

    @property
    def reading(self) -> bool:
        """Return whether the step in progress reads prompts."""
        return bool(self.scheduler.chunks)

    @property
    def empty(self) -> bool:
        """Return whether it holds no request at all."""
        return self.scheduler.empty

    def fits(self, request: Request) -> bool:
        """Return whether it could ever hold the request."""
        return self.scheduler.fits(request)

    def processed(self, now_s: float) -> int:
        """Return how many tokens it has read or generated so far."""
        if self.next_s is None or self.reading:
            return self._processed
        batch = self.scheduler.batch
        done = self.engine.steps_within(batch, self.scheduler.context, now_s - self._run_start_s)
        return self._processed + batch * min(done, self._run_steps)

    # -- what happens to it -------------------------------------------------------------------------------------------

    def submit(self, request: Request, now_s: float) -> None:
        """A new request, or one whose prompt or answer was begun elsewhere (its KV cache has come along)."""
        if not self.fits(request):
            raise RuntimeError(f"request {request.number} can never fit into {self.kv_tokens} tokens of KV cache")
        self.scheduler.add(request)
        self._interrupt(now_s)

    def set_engine(self, engine: Engine, now_s: float) -> None:
        """Another clock, from the end of the step in progress."""
        self._interrupt(now_s)
        if self.next_s is None:
            self._account_idle(now_s)
            self.engine = engine
        else:
            self._pending_engine = engine

    def take_waiting(self) -> list[Request]:
        """Take out all requests that nothing has been done for, and return them."""
        return self.scheduler.take_waiting()

    def order_by_deadline(self) -> None:
        """The queue, earliest deadline first."""
        self.waiting.sort(key=lambda request: (request.deadline_s, request.number))

    def halt(self, now_s: float) -> float:
        """Begin nothing after the step in progress; return the moment it ends (now, if there is none)."""
        self.halted = True
        self._interrupt(now_s)
        if self.next_s is None:
            self._account_idle(now_s)
            return now_s
        return self.next_s

    def take_running(self, now_s: float) -> list[Request]:
        """Take all admitted and returning requests from a halted instance, between steps, and return them."""
        if self.next_s is not None:
            raise RuntimeError("requests can only be taken between steps")
        decoding = [request for request in self.scheduler.running if request.decodes]
        taken = self.scheduler.take_running()
        for request in decoding:
            self._suspend(request, now_s)
        return taken

    def _suspend(self, request: Request, now_s: float) -> None:
        """A request that decodes does so no more."""
        if request in self._interrupted:
            self._interrupted.remove(request)
        else:
            request.last_s = now_s
            request.slow += self._slow_steps - request.slow_from

    def close(self, now_s: float) -> None:
        """Account for idleness until now, at the end of its life or of the simulation."""
        if self.next_s is None:
            self._account_idle(now_s)

    def event(self, now_s: float) -> list[Request]:
        """End the run in progress; return the requests that leave, finished (generated == output) or handed on."""
        left = self._end_run(now_s)
        self._begin_run(now_s)
        return left

    # -- steps --------------------------------------------------------------------------------------------------------

    def _interrupt(self, now_s: float) -> None:
        """Cut a run of plain decode steps at the end of the step in progress; begin one if idle."""
        if self.next_s is None:
            if not self.halted:
                self._begin_run(now_s)
        elif self._run_steps > 1:
            batch, context = self.scheduler.batch, self.scheduler.context
            steps = self.engine.steps_within(batch, context, now_s - self._run_start_s) + 1
            if steps < self._run_steps:
                self._plan_run(steps)

    def _plan_run(self, steps: int) -> None:
        time_s, self._run_energy_j = self.engine.run(self.scheduler.batch, self.scheduler.context, steps)
        self._run_steps = steps
        self.next_s = self._run_start_s + time_s

    def _begin_run(self, now_s: float) -> None:
        if self._pending_engine is not None:
            self.engine, self._pending_engine = self._pending_engine, None
        scheduler = self.scheduler
        if not self.halted:
            scheduler.schedule()
            self.preempted += len(scheduler.preempted)
            for request in scheduler.suspended:
                self._suspend(request, now_s)
            for request in scheduler.skipped:
                if request not in self._interrupted:
                    self._suspend(request, now_s)
                    self._interrupted.add(request)
            self._interrupted.update(scheduler.returned)
        if self.halted or not (scheduler.batch or scheduler.chunks):
            if self.next_s is not None:
                self.next_s, self._run_start_s = None, now_s
            return
        if self.next_s is None:
            self._account_idle(now_s)
        self._run_start_s = now_s
        if scheduler.chunks:
            prompt = pairs = 0
            for request, tokens in scheduler.chunks:
                prompt += tokens
                pairs += tokens * request.computed + tokens * (tokens + 1) // 2
            time_s, self._run_energy_j = self.engine.step(
                prompt + scheduler.batch, pairs, scheduler.context, scheduler.batch + len(scheduler.chunks)
            )
            self._run_steps = 1
            self.next_s = now_s + time_s
        else:
            # a request that was interrupted ends its own long gap with its next step, so that one stands alone
            self._plan_run(1 if self._interrupted else scheduler.alike())

    def _end_run(self, now_s: float) -> list[Request]:
        scheduler, start_s, steps = self.scheduler, self._run_start_s, self._run_steps
        self.recorder.busy(start_s, now_s, self._run_energy_j)
        gap_s = (now_s - start_s) / steps
        self._slow_steps += steps * (gap_s > self.slow_gap_s)
        resumed = self._interrupted.difference(scheduler.skipped)
        if scheduler.batch > len(resumed):
            self.recorder.gap(gap_s, (scheduler.batch - len(resumed)) * steps)
        for request in resumed:
            self._late_gap(request, now_s)
            request.slow_from = self._slow_steps
        self._interrupted -= resumed
        self._processed += scheduler.batch * steps + sum(tokens for _, tokens in scheduler.chunks)
        got, left = scheduler.advance(steps)
        self._processed += len(got)
        for request in got:
            if request.generated == 1:
                request.first_s = now_s
            else:  # it was pre-empted
                self._late_gap(request, now_s)
            request.slow_from = self._slow_steps
        for request in left:
            request.last_s = now_s
            request.slow += self._slow_steps - request.slow_from
            if request.generated == request.output:
                request.finish_s = now_s
        return left

    def _late_gap(self, request: Request, now_s: float) -> None:
        """The first token after an interruption."""
        self.recorder.gap(now_s - request.last_s, 1)
        request.slow += now_s - request.last_s > self.slow_gap_s

    def _account_idle(self, now_s: float) -> None:
        if now_s > self._run_start_s:
            self.recorder.idle(self._run_start_s, now_s, self.engine.idle_w * (now_s - self._run_start_s))
            self._run_start_s = now_s
