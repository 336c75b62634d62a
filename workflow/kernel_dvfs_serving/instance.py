"""One model replica on its GPUs: continuous batching, from event to event; and the engine that it runs on.

An engine tells time and energy of steps at one setting of the clocks. Two kinds exist: steps added up from kernels on a
simulated GPU (steps.py), and steps worked out of a measured profile (measured.py).

A step of the engine decodes one token of every running request and, first come first served, prompt chunks until
`chunk_tokens` are in it. Steps without prompt work differ only in the growing context, so a whole run of them
up to the next completion is one event (the engine has its closed form); whatever comes in meanwhile cuts the run at
the end of the step in progress. KV cache is reserved for prompt and answer when a request is admitted, as if the
answer's length were known, or (`preempts`) for the prompt, and grows with the answer: where it is full, the latest
request gives its cache up, goes back to the queue, and has prompt and answer read again (as vLLM recomputes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from heapq import heapify, heappop, heappush
from math import inf, sqrt
from typing import NamedTuple

from kernel_dvfs_serving.requests import Request
from kernel_dvfs_serving.system import CHUNK_TOKENS, MAX_BATCH


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
        """The least that any step, or none, draws, W."""
        return self.idle_w

    @abstractmethod
    def step(self, new_tokens: int, prompt_pairs: float, context_tokens: float) -> tuple[float, float]:
        """(s, J of the whole instance) of one step of continuous batching.

        new_tokens: prompt tokens of this step and one for each decoding sequence, at least 1. prompt_pairs: n s +
        n (n + 1) / 2 summed over prompt chunks of n tokens that start at position s. context_tokens: cached tokens of
        all decoding sequences together.
        """

    @abstractmethod
    def linear(self, batch: int, context_tokens: float = 0) -> Linear:
        """A decode step of `batch` as a line over context that holds near `context_tokens`."""

    def least_j(self, floor_w: float, most_tokens: int) -> tuple[float, float, float]:
        """J beyond `floor_w`, at least, for each new token of steps of up to `most_tokens`, each prompt pair, and each
        cached token that is attended over; zeros where nothing is known. floor_w: no more than
        `least_w`, so none is negative."""
        return 0.0, 0.0, 0.0

    def run(self, batch: int, context_tokens: float, steps: int) -> tuple[float, float]:
        """(s, J) of `steps` decode steps in a row, each adding `batch` to the context: their sum in closed form."""
        line = self.linear(batch, context_tokens)
        context = steps * context_tokens + batch * steps * (steps - 1) / 2
        return (
            steps * line.time_s + line.time_per_token_s * context,
            steps * line.energy_j + line.energy_per_token_j * context,
        )

    def steps_within(self, batch: int, context_tokens: float, seconds: float) -> int:
        """How many whole decode steps of such a run end within `seconds`."""
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


class Recorder:
    """What an Instance tells of itself; this one keeps nothing."""

    def busy(self, start_s: float, end_s: float, energy_j: float) -> None:
        """A span of work and its energy, of the whole instance."""

    def idle(self, start_s: float, end_s: float, energy_j: float) -> None:
        """A span without work."""

    def gap(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after the token before them."""


class Instance:
    """Times in s. The owner calls `event` at `next_s`; every call's `now_s` is >= those before it.

    engine: what it runs on. kv_tokens: KV cache of the whole instance. deadline_first: prompts are read by the earliest
    deadline, those already late last, instead of first come first served (as engines do that schedule by priority).
    slow_gap_s: steps that take longer are counted in the requests' `slow`. preempts: see the module.
    """

    def __init__(
        self,
        engine: Engine,
        kv_tokens: int,
        now_s: float = 0.0,
        max_batch: int = MAX_BATCH,
        chunk_tokens: int = CHUNK_TOKENS,
        recorder: Recorder | None = None,
        deadline_first: bool = False,
        slow_gap_s: float = inf,
        preempts: bool = False,
    ):
        self.engine = engine
        self.kv_tokens = kv_tokens
        self.max_batch = max_batch
        self.chunk_tokens = chunk_tokens
        self.recorder = recorder or Recorder()
        self.deadline_first = deadline_first
        self.slow_gap_s, self.preempts = slow_gap_s, preempts
        self.preempted = 0  # how often a request gave its cache up
        self.unread = 0  # prompt tokens of what it holds that no finished step has read
        self.waiting: deque[Request] = deque()  # nothing done yet
        self.resuming: deque[Request] = deque()  # from elsewhere, their KV cache with them
        self.next_s: float | None = None  # end of the run in progress
        self.kv_used = 0
        self.halted = False
        self._prefilling: deque[Request] = deque()
        self._heap: list[tuple[int, int, Request]] = []  # (step at whose end it leaves, number, request)
        self._returned: list[Request] = []  # decoding requests whose gap is longer than the step
        self._steps = 0
        self._slow_steps = 0  # of them, that took longer than slow_gap_s
        self._context = 0
        self._processed = 0
        self._run_steps = 0
        self._run_start_s = now_s  # of the run, or of idleness
        self._run_energy_j = 0.0
        self._chunks: list[tuple[Request, int]] = []  # (request, tokens) of the step in progress
        self._pending_engine: Engine | None = None

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Requests admitted."""
        return len(self._heap) + len(self._prefilling)

    @property
    def decoding(self) -> int:
        """Sequences that each step gives a token."""
        return len(self._heap)

    @property
    def context_tokens(self) -> int:
        """Cached tokens of those sequences, when the run in progress began."""
        return self._context

    @property
    def reading(self) -> bool:
        """Whether the step in progress reads prompts."""
        return bool(self._chunks)

    def to_read(self) -> list[Request]:
        """Requests whose prompts are not wholly read, in the order of reading."""
        own = [*self._prefilling, *self.waiting]
        return sorted(own, key=lambda request: (request.deadline_s, request.number)) if self.deadline_first else own

    @property
    def empty(self) -> bool:
        """Whether it holds no request at all."""
        return not (self._heap or self._prefilling or self.waiting or self.resuming)

    def fits(self, request: Request) -> bool:
        """Whether it could ever hold the request."""
        return request.input + request.output <= self.kv_tokens

    def processed(self, now_s: float) -> int:
        """Tokens, read or generated, so far."""
        if self.next_s is None or self._chunks:
            return self._processed
        done = self.engine.steps_within(len(self._heap), self._context, now_s - self._run_start_s)
        return self._processed + len(self._heap) * min(done, self._run_steps)

    # -- what happens to it -------------------------------------------------------------------------------------------

    def submit(self, request: Request, now_s: float) -> None:
        """A new request, or one whose prompt or answer was begun elsewhere (its KV cache has come along)."""
        if not self.fits(request):
            raise RuntimeError(f"request {request.number} can never fit into {self.kv_tokens} tokens of KV cache")
        (self.resuming if request.started else self.waiting).append(request)
        self.unread += request.prompt - request.prefilled
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
        """All requests that nothing has been done for; they are the caller's now."""
        taken = list(self.waiting)
        self.unread -= sum(request.prompt for request in taken)
        self.waiting.clear()
        return taken

    def order_by_deadline(self) -> None:
        """The queue, earliest deadline first."""
        self.waiting = deque(sorted(self.waiting, key=lambda request: (request.deadline_s, request.number)))

    def halt(self, now_s: float) -> float:
        """Begin nothing after the step in progress; the moment it ends (now, if there is none)."""
        self.halted = True
        self._interrupt(now_s)
        if self.next_s is None:
            self._account_idle(now_s)
            return now_s
        return self.next_s

    def take_running(self, now_s: float) -> list[Request]:
        """All admitted and returning requests of a halted instance, between steps; they are the caller's now."""
        if self.next_s is not None:
            raise RuntimeError("requests can only be taken between steps")
        taken = list(self._prefilling) + list(self.resuming)
        self.unread -= sum(request.prompt - request.prefilled for request in taken)
        for leaves, _, request in self._heap:
            self._suspend(leaves, request, now_s)
            taken.append(request)
        self._prefilling.clear()
        self.resuming.clear()
        self._heap.clear()
        self._returned.clear()
        self._context = self.kv_used = 0
        return taken

    def _suspend(self, leaves: int, request: Request, now_s: float) -> None:
        """Bring up to date what a decoding request has."""
        request.generated = (request.stop_at or request.output) - (leaves - self._steps)
        if request not in self._returned:
            request.last_s = now_s
            request.slow += self._slow_steps - request.slow_from

    def close(self, now_s: float) -> None:
        """Account for idleness until now, at the end of its life or of the simulation."""
        if self.next_s is None:
            self._account_idle(now_s)

    def event(self, now_s: float) -> list[Request]:
        """The run in progress ends: requests that leave, finished (generated == output) or to be handed on."""
        left = self._end_run(now_s)
        self._begin_run(now_s)
        return left

    # -- steps --------------------------------------------------------------------------------------------------------

    def _interrupt(self, now_s: float) -> None:
        """Cut a run of plain decode steps at the end of the step in progress; begin one if idle."""
        if self.next_s is None:
            if not self.halted:
                self._begin_run(now_s)
        elif not self._chunks and self._run_steps > 1:
            batch = len(self._heap)
            steps = self.engine.steps_within(batch, self._context, now_s - self._run_start_s) + 1
            if steps < self._run_steps:
                self._plan_run(batch, steps)

    def _plan_run(self, batch: int, steps: int) -> None:
        time_s, self._run_energy_j = self.engine.run(batch, self._context, steps)
        self._run_steps = steps
        self.next_s = self._run_start_s + time_s

    def _begin_run(self, now_s: float) -> None:
        if self._pending_engine is not None:
            self.engine, self._pending_engine = self._pending_engine, None
        if self.preempts and not self.halted:
            self._make_room(now_s)
        batch = len(self._heap)
        if not self.halted and (self._prefilling or self.waiting or self.resuming):
            batch = self._admit(batch, now_s)
        if self.halted or not (batch or self._chunks):
            if self.next_s is not None:
                self.next_s, self._run_start_s = None, now_s
            return
        if self.next_s is None:
            self._account_idle(now_s)
        self._run_start_s = now_s
        if self._chunks:
            prompt = pairs = 0
            for request, tokens in self._chunks:
                prompt += tokens
                pairs += tokens * request.prefilled + tokens * (tokens + 1) // 2
            time_s, self._run_energy_j = self.engine.step(prompt + batch, pairs, self._context)
            self._run_steps = 1
            self.next_s = now_s + time_s
        else:
            # a request that comes back ends its own long gap with its first step, so that one stands alone
            steps = 1 if self._returned else self._heap[0][0] - self._steps
            self._plan_run(batch, min(steps, (self.kv_tokens - self.kv_used) // batch) if self.preempts else steps)

    def _admit(self, batch: int, now_s: float) -> int:
        """Fill the step with prompt chunks; the decoding batch, with those that have come back."""
        while self.resuming and self.running < self.max_batch:
            request = self.resuming[0]
            if not self._has_room(request):
                break
            self.resuming.popleft()
            self.kv_used += self._taken_by(request)
            if request.prefilled < request.prompt:
                self._prefilling.append(request)
            else:
                self._returned.append(request)
                self._decode(request)
                batch += 1
        budget = self.chunk_tokens - batch
        if self.deadline_first:
            self._read_by_deadline(budget, now_s)
            return batch
        for request in self._prefilling:
            if budget <= 0:
                return batch
            tokens = min(budget, request.prompt - request.prefilled)
            self._chunks.append((request, tokens))
            budget -= tokens
        while budget > 0 and self.waiting and not self.resuming and self.running < self.max_batch:
            request = self.waiting[0]
            if not self._has_room(request):
                break
            self.waiting.popleft()
            self.kv_used += self._taken_by(request)
            self._prefilling.append(request)
            tokens = min(budget, request.prompt)
            self._chunks.append((request, tokens))
            budget -= tokens
        return batch

    def _read_by_deadline(self, budget: int, now_s: float) -> None:
        """Fill the step by deadline; what does not fit into the KV cache is passed over, not waited for."""
        begun = set(map(id, self._prefilling))
        # one that was pre-empted has had its first token and is late with the next
        for request in sorted(
            [*self._prefilling, *self.waiting],
            key=lambda each: (each.deadline_s < now_s and not each.again, each.deadline_s, each.number),
        ):
            if budget <= 0:
                return
            if id(request) not in begun:
                if self.resuming or self.running >= self.max_batch or not self._has_room(request):
                    continue
                self.waiting.remove(request)
                self.kv_used += self._taken_by(request)
                self._prefilling.append(request)
            tokens = min(budget, request.prompt - request.prefilled)
            self._chunks.append((request, tokens))
            budget -= tokens

    def _decode(self, request: Request) -> None:
        leaves = self._steps + (request.stop_at or request.output) - request.generated
        heappush(self._heap, (leaves, request.number, request))
        self._context += request.input + request.generated
        request.slow_from = self._slow_steps

    # -- KV cache -----------------------------------------------------------------------------------------------------

    def _taken_by(self, request: Request) -> int:
        """KV cache, tokens, that is set aside for a request which is admitted."""
        if not self.preempts:
            return request.input + request.output
        return request.input + request.generated if request.prefilled == request.prompt else request.prompt + 1

    def _has_room(self, request: Request) -> bool:
        """Whether a request can be admitted; where caches grow, with a step's growth of all that decode."""
        growth = len(self._heap) + 1 if self.preempts and (self._heap or self._prefilling) else 0
        return self.kv_used + self._taken_by(request) + growth <= self.kv_tokens

    def _make_room(self, now_s: float) -> None:
        """Requests give their cache up, the latest first, until all that decode can have their next token."""
        while self._heap and self.kv_used + len(self._heap) > self.kv_tokens:
            own = [*self._prefilling, *(request for _, _, request in self._heap)]
            victim = max(own, key=lambda each: (each.deadline_s if self.deadline_first else 0.0, each.number))
            self.preempted += 1
            if victim in self._prefilling:
                self._prefilling.remove(victim)
                self.kv_used -= victim.prompt + 1
                self.unread += victim.prefilled
            else:
                place = next(place for place, each in enumerate(self._heap) if each[2] is victim)
                self._suspend(self._heap.pop(place)[0], victim, now_s)
                heapify(self._heap)
                if victim in self._returned:
                    self._returned.remove(victim)
                self._context -= victim.input + victim.generated
                self.kv_used -= victim.input + victim.generated
                victim.again = victim.generated
                self.unread += victim.prompt
            victim.prefilled = 0
            self.waiting.appendleft(victim)

    def _end_run(self, now_s: float) -> list[Request]:
        start_s, steps, batch = self._run_start_s, self._run_steps, len(self._heap)
        self.recorder.busy(start_s, now_s, self._run_energy_j)
        self._steps += steps
        self._context += batch * steps
        self._processed += batch * steps
        gap_s = (now_s - start_s) / steps
        if self.preempts:
            self.kv_used += batch * steps
        self._slow_steps += steps * (gap_s > self.slow_gap_s)
        if batch > len(self._returned):
            self.recorder.gap(gap_s, (batch - len(self._returned)) * steps)
        for request in self._returned:
            self._late_gap(request, now_s)
            request.slow_from = self._slow_steps
        self._returned.clear()
        left = []
        heap = self._heap
        while heap and heap[0][0] <= self._steps:
            left.append(self._leave(heappop(heap)[2], now_s))
        for request, tokens in self._chunks:
            request.prefilled += tokens
            self.unread -= tokens
            self._processed += tokens
            if request.prefilled == request.prompt:
                # the last chunk yields the first token, or after a pre-emption the next
                self._prefilling.remove(request)
                if request.again:
                    self._late_gap(request, now_s)
                else:
                    request.first_s = now_s
                request.generated, request.again = request.again + 1, 0
                request.prefilled = request.input
                self._processed += 1
                if request.generated >= (request.stop_at or request.output):
                    self._context += request.input + request.generated
                    request.slow_from = self._slow_steps
                    left.append(self._leave(request, now_s))
                else:
                    self._decode(request)
        self._chunks.clear()
        return left

    def _late_gap(self, request: Request, now_s: float) -> None:
        """The first token after an interruption."""
        self.recorder.gap(now_s - request.last_s, 1)
        request.slow += now_s - request.last_s > self.slow_gap_s

    def _leave(self, request: Request, now_s: float) -> Request:
        request.generated = request.stop_at or request.output
        request.last_s = now_s
        request.slow += self._slow_steps - request.slow_from
        self._context -= request.input + request.generated
        self.kv_used -= request.input + (request.generated if self.preempts else request.output)
        if request.generated == request.output:
            request.finish_s = now_s
        return request

    def _account_idle(self, now_s: float) -> None:
        if now_s > self._run_start_s:
            self.recorder.idle(self._run_start_s, now_s, self.engine.idle_w * (now_s - self._run_start_s))
            self._run_start_s = now_s
