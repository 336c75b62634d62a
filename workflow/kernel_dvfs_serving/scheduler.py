"""Which request gets how many tokens of a step: the rules of vLLM V1's scheduler, without time.

A step holds up to `step_tokens` tokens of up to `sequences` requests. Requests that run come first, in the order of
their admission: a token for each that decodes, then the one whose prompt was begun. Then the queue, first come first
served or by priority (the lowest first), as long as tokens are left and the KV cache holds the whole prompt of the
next; the one that does not fit blocks those behind it. Caches grow block by block with the answers. Where none is left,
a request gives its blocks up, the latest admitted or the one of the lowest priority, goes back to the queue and has its
tokens read again; in such a step nobody is admitted. With the prefix cache on, full blocks are kept by content until
they are needed, the longest unused first.

Requests that decode advance in lockstep, so they are counted, not visited: blocks that n steps need have a closed form.
tests/serving/test_vllm_scheduler.py holds every step against vLLM's own class.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kernel_dvfs_serving.requests import Request

BLOCK_TOKENS = 16  # vLLM's block size


class Limits(NamedTuple):
    """Of an engine; each is a flag of vLLM (deployment.py prints them)."""

    step_tokens: int = 2048  # --max-num-batched-tokens
    sequences: int = 256  # --max-num-seqs; no more than step_tokens
    priority: bool = False  # --scheduling-policy priority: by deadline
    prefix_cache: bool = False  # --enable-prefix-caching
    context: int = 2**40  # --max-model-len


def blocks_of(tokens: int) -> int:
    """Return how many blocks hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


class Blocks:
    """A KV cache of `count` blocks, counted. `blocks` of a request: how many it holds."""

    def __init__(self, count: int):
        self.count = self.free = count

    def hits(self, request: Request) -> int:
        """Return how many blocks of a request that waits are there already."""
        return 0

    def needed(self, request: Request, tokens: int, hits: int) -> int:
        """Return how many free blocks it takes to hold so many of its tokens, `hits` of its blocks found."""
        return blocks_of(tokens) - hits

    def take(self, request: Request, tokens: int, hits: int = 0) -> None:
        """Blocks for so many tokens of a request in all; hits: found for one that is admitted."""
        self.grow(blocks_of(tokens) - request.blocks)
        request.blocks = blocks_of(tokens)

    def grow(self, blocks: int) -> None:
        """So many blocks more, of requests that decode."""
        self.free -= blocks

    def release(self, request: Request, tokens: int) -> None:
        """All blocks of a request that has so many tokens in them."""
        self.free += blocks_of(tokens)
        request.blocks = 0


class CachedBlocks(Blocks):
    """With the prefix cache: a full block is known by its content, and stays until another takes its place.

    Contents are `Request.contents` of a prompt's full blocks; of all else, the request's own. Free blocks: `_plain`
    without content, and `_unused`, {block: content}, the longest unused first.
    """

    def __init__(self, count: int):
        super().__init__(count)
        self._plain = count
        self._unused: dict[int, object] = {}
        self._known: dict[object, dict[int, None]] = {}  # content: blocks that have it
        self._users: dict[int, int] = {}
        self._numbers = 0

    def hits(self, request: Request) -> int:
        """See Blocks. The last token is always read."""
        most, hits = (request.length - 1) // BLOCK_TOKENS, 0
        while hits < most and self._content(request, hits) in self._known:
            hits += 1
        return hits

    def needed(self, request: Request, tokens: int, hits: int) -> int:
        """See Blocks; a block that nobody uses is a free one."""
        unused = sum(self._first(request, place) in self._unused for place in range(hits))
        return super().needed(request, tokens, hits) + unused

    def take(self, request: Request, tokens: int, hits: int = 0) -> None:
        """See Blocks."""
        held = request.held
        for place in range(hits):
            block = self._first(request, place)
            if self._unused.pop(block, None) is not None:
                self.free -= 1
            self._users[block] = self._users.get(block, 0) + 1
            held.append(block)
        new = blocks_of(tokens) - len(held)
        if new > 0:
            self.grow(new)
            for _ in range(new):
                self._numbers += 1
                self._users[self._numbers] = 1
                held.append(self._numbers)
        for place in range(tokens // BLOCK_TOKENS):
            self._known.setdefault(self._content(request, place), {}).setdefault(held[place])
        request.blocks = len(held)

    def grow(self, blocks: int) -> None:
        """See Blocks: first those without content."""
        self.free -= blocks
        plain = min(self._plain, blocks)
        self._plain -= plain
        for _ in range(blocks - plain):
            block = next(iter(self._unused))
            self._forget(block, self._unused.pop(block))

    def release(self, request: Request, tokens: int) -> None:
        """See Blocks. The last block is the first to go."""
        held, full = request.held, tokens // BLOCK_TOKENS
        for place in reversed(range(blocks_of(tokens))):
            if place < len(held):
                block = held[place]
                self._users[block] -= 1
                if self._users[block]:
                    continue
                del self._users[block]
            else:  # it grew while the request decoded
                self._numbers += 1
                block = self._numbers
            self.free += 1
            if place < full:
                content = self._content(request, place)
                self._known.setdefault(content, {}).setdefault(block)
                self._unused[block] = content
            else:
                self._plain += 1
        held.clear()
        request.blocks = 0

    def _content(self, request: Request, place: int) -> object:
        return request.contents[place] if place < len(request.contents) else (request.number, place)

    def _first(self, request: Request, place: int) -> int:
        return next(iter(self._known[self._content(request, place)]))

    def _forget(self, block: int, content: object) -> None:
        known = self._known[content]
        del known[block]
        if not known:
            del self._known[content]


class EngineScheduler:
    """The requests of one engine, step by step: `schedule` one, then `advance` by it, or by `alike` steps as it is.

    blocks: of the KV cache. After `schedule`: `chunks` (request, prompt tokens), `batch` requests that get a token each
    and their `context`, cached tokens; who was `preempted` before, and of those who decoded (`suspended`); who
    `returned` with a cache and decodes; and who is `skipped`, which decodes and gets no token.
    """

    def __init__(self, limits: Limits, blocks: int):
        self.limits = limits
        self.blocks = CachedBlocks(blocks) if limits.prefix_cache else Blocks(blocks)
        self.waiting: list[Request] = []  # nothing of it is in the cache, in the order that it is admitted
        self.arrived: deque[Request] = deque()  # from elsewhere, their caches with them
        self.running: dict[Request, None] = {}  # in the order of admission
        self.partial: Request | None = None  # whose prompt was begun: the last of these
        self.chunks: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.suspended: list[Request] = []
        self.returned: list[Request] = []
        self.skipped: list[Request] = []
        self.batch = self.context = 0
        self.unread = 0  # tokens that must be read before their requests decode
        self._steps = 0  # done
        self._leaving: list[tuple[int, int, Request]] = []  # who decode: (steps when it leaves, admission, request)
        self._phases = [0] * BLOCK_TOKENS  # how many of those hold so many tokens less the steps done, to a block
        self._whole_context = 0
        self._admissions = 0

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def decoding(self) -> int:
        """Return how many requests' prompts are read."""
        return len(self._leaving)

    @property
    def empty(self) -> bool:
        """Return whether it holds no request at all."""
        return not (self.running or self.waiting or self.arrived)

    def fits(self, request: Request) -> bool:
        """Return whether it could ever hold the request."""
        tokens = request.input + request.output
        return tokens <= self.limits.context and blocks_of(tokens) <= self.blocks.count

    def to_read(self) -> list[Request]:
        """Return the requests that are not wholly read, in the order of reading."""
        return [*([self.partial] if self.partial else []), *self.arrived, *self.waiting]

    def computed(self, request: Request) -> int:
        """Return how many tokens of a request that runs are in its cache."""
        return request.since + self._steps if request.decodes else request.computed

    # -- what comes and goes ------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request, at the end of the queue; one whose cache has come along goes before all that wait."""
        self.unread += _missing(request)
        if request.computed:
            self.arrived.append(request)
        else:
            self._queue(request, first=False)

    def _queue(self, request: Request, first: bool) -> None:
        if self.limits.priority:
            insort(self.waiting, request, key=_rank)
        elif first:
            self.waiting.insert(0, request)
        else:
            self.waiting.append(request)

    def take_waiting(self) -> list[Request]:
        """Take out all that nothing was done for, and return them."""
        taken, self.waiting = self.waiting, []
        self.unread -= sum(map(_missing, taken))
        return taken

    def take_running(self) -> list[Request]:
        """Take out all others, between two steps, with what they have, and return them."""
        taken = [*self.running, *self.arrived]
        for request in list(self.running):
            self._drop(request)
        self.unread = sum(map(_missing, self.waiting))
        self.arrived.clear()
        self._gather()
        return taken

    # -- one step -----------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Settle the next step."""
        self.chunks, self.preempted, self.suspended, self.returned, self.skipped = [], [], [], [], []
        left = self.limits.step_tokens - self.decoding
        blocks, part = self._phases[-self._steps % BLOCK_TOKENS], self.partial
        read = min(part.length - part.computed, left) if part else 0
        more = blocks_of(part.computed + read) - part.blocks if part else 0
        if blocks + more > self.blocks.free:
            left = self._schedule_tightly()
        else:
            self.blocks.grow(blocks)
            self.batch, self.context = self.decoding, self._whole_context
            if part and read:
                self.blocks.take(part, part.computed + read)
                self.chunks.append((part, read))
                left -= read
        if not self.preempted:
            self._admit(left)

    def _admit(self, left: int) -> None:
        """Fill the step with `left` tokens from the queue."""
        limits, blocks = self.limits, self.blocks
        while left > 0 and len(self.running) < limits.sequences and (self.arrived or self.waiting):
            request = self.arrived[0] if self.arrived else self.waiting[0]
            decodes = not _missing(request)
            hits = 0 if request.computed else blocks.hits(request)
            if blocks.needed(request, request.length, hits) > blocks.free:
                return
            if self.arrived:
                self.arrived.popleft()
            else:
                self.waiting.pop(0)
            if hits:
                request.computed = hits * BLOCK_TOKENS
                self.unread -= request.computed
            read = min(request.length - request.computed, left)
            blocks.take(request, request.computed + read, hits)
            left -= read
            self._admissions += 1
            request.admission = self._admissions
            self.running[request] = None
            if not decodes:
                self.chunks.append((request, read))
                self.partial = request
            else:
                self._decode(request)
                self.returned.append(request)
                self.batch += 1
                self.context += request.computed + 1

    def _schedule_tightly(self) -> int:
        """Settle the step as vLLM does, one by one, where blocks do not suffice; return the tokens that are left."""
        given: dict[Request, int]
        order, given, left, place = list(self.running), {}, self.limits.step_tokens, 0
        while place < len(order) and left > 0:
            request = order[place]
            had = self.computed(request)
            tokens = 1 if request.decodes else min(request.length - had, left)
            while blocks_of(had + tokens) - blocks_of(had) > self.blocks.free:
                victim = max(order, key=_priority) if self.limits.priority else order[-1]
                if order.index(victim) < place:
                    place -= 1
                order.remove(victim)
                unused = given.pop(victim, 0)
                left += unused
                self._preempt(victim, unused)
                if victim is request:
                    break
            else:
                if request.decodes:
                    self.blocks.grow(blocks_of(had + 1) - blocks_of(had))
                else:
                    self.blocks.take(request, had + tokens)
                    self.chunks.append((request, tokens))
                given[request] = tokens
                left -= tokens
                place += 1
                continue
            break
        self.skipped = [request for request in order if request.decodes and request not in given]
        self.chunks = [chunk for chunk in self.chunks if chunk[0] in given]
        decoding = [request for request in order if request.decodes and request in given]
        self.batch, self.context = len(decoding), sum(self.computed(request) + 1 for request in decoding)
        for request in self.skipped:
            request.since -= 1  # a step goes by without it
        self._gather()
        self._whole_context += len(self.skipped)
        return left

    def _preempt(self, request: Request, given: int) -> None:
        """Its blocks go, `given` tokens of this step among them, and it waits again."""
        tokens = self.computed(request) + given
        if request.decodes:
            self.suspended.append(request)
        else:
            self.unread -= request.length - request.computed
        self._drop(request, tokens)
        request.computed = 0
        self.unread += request.length
        self._queue(request, first=True)
        self.preempted.append(request)

    def _drop(self, request: Request, tokens: int | None = None) -> None:
        """It runs no more; what it has is kept in it."""
        del self.running[request]
        if request is self.partial:
            self.partial = None
        if request.decodes:
            request.computed = self.computed(request)
            request.generated = request.computed - request.input + 1
            request.decodes = False
        self.blocks.release(request, request.computed if tokens is None else tokens)

    def _gather(self) -> None:
        """Count those that decode anew."""
        decoding = [request for request in self.running if request.decodes]
        self._phases = [0] * BLOCK_TOKENS
        for request in decoding:
            self._phases[request.since % BLOCK_TOKENS] += 1
        self._leaving = [(_leaves(request), request.admission, request) for request in decoding]
        heapify(self._leaving)
        self._whole_context = sum(self.computed(request) + 1 for request in decoding)

    def _decode(self, request: Request) -> None:
        """From now on a token a step."""
        request.decodes, request.since = True, request.computed - self._steps
        heappush(self._leaving, (_leaves(request), request.admission, request))
        self._phases[request.since % BLOCK_TOKENS] += 1
        self._whole_context += request.computed + 1

    # -- time goes on -------------------------------------------------------------------------------------------------

    def alike(self) -> int:
        """Return how many steps from this one are alike if nothing comes: until a request ends, or blocks may be too
        few."""
        if self.chunks or self.preempted or self.skipped or self.returned or not self._leaving:
            return 1
        most, free, batch = self._leaving[0][0] - self._steps, self.blocks.free, self.batch
        rounds = min(most - 1, BLOCK_TOKENS * (free // batch))
        if rounds == most - 1:
            return most
        steps, free = 1 + rounds, free - batch * (rounds // BLOCK_TOKENS)
        while steps < most and free >= self._phases[-(self._steps + steps) % BLOCK_TOKENS]:
            free -= self._phases[-(self._steps + steps) % BLOCK_TOKENS]
            steps += 1
        return steps

    def advance(self, steps: int = 1) -> tuple[list[Request], list[Request]]:
        """Count steps as done; return (requests that got a token with the last of their prompts, requests that leave).

        Who leaves has its answer, or as much of it as `stop_at` allows, and is in order of admission.
        """
        if steps > 1:
            rounds, rest = divmod(steps - 1, BLOCK_TOKENS)
            rest_of = sum(self._phases[-(self._steps + 1 + place) % BLOCK_TOKENS] for place in range(rest))
            self.blocks.grow(rounds * self.batch + rest_of)
        self._steps += steps
        self._whole_context += steps * self.batch
        got, left = [], []
        while self._leaving and self._leaving[0][0] <= self._steps:
            request = heappop(self._leaving)[2]
            self._phases[request.since % BLOCK_TOKENS] -= 1
            self._whole_context -= self.computed(request) + 1
            self._drop(request)
            left.append(request)
        for request, tokens in self.chunks:
            request.computed += tokens
            self.unread -= tokens
            if request.computed < request.length:
                continue
            if request is self.partial:
                self.partial = None
            request.generated += 1
            got.append(request)
            if request.generated >= request.goal:
                self._drop(request)
                left.append(request)
            else:
                self._decode(request)
        self.chunks = []
        return got, left


def _missing(request: Request) -> int:
    """Return how many tokens are to be read before it decodes, of one that waits or has come with its cache."""
    missing = request.length - request.computed
    return 0 if request.computed and request.generated and missing == 1 else missing


def _leaves(request: Request) -> int:
    """Return the steps done when a request that decodes has its answer."""
    return request.goal + request.input - 1 - request.since


def _priority(request: Request) -> tuple[float, float]:
    return request.deadline_s, request.arrival_s


def _rank(request: Request) -> tuple[float, float, int]:
    return request.deadline_s, request.arrival_s, request.number
