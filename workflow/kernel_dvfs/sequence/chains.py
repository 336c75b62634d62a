"""The least of (energy + price x time) over all choices of one iteration: dynamic programmes over its boundaries.

A state is a boundary and the pair in force there, with no change under way. An iteration begins and ends at the same
pair, since what follows it (the optimizer, a data loader) is not part of the sequence. Each programme runs backwards
over N boundaries and P pairs; its costs are exact expectations over the jitter.

For a boundary i and a pair a, V[i, a] is the cost of the launches from i on. With w = energy + price x time of a
launch:

wait   V[i, a] = min over b of (b = a: 0, else latency x (stall power of a + price)) + w[i, b] + V[i + 1, b]
lag    V[i, a] = min(w[i, a] + V[i + 1, a],
                     min over b of cost from i to the first boundary m after the landing + V[m, b])
ahead  V[i, a] = min(w[i, a] + V[i + 1, a],
                     min over b of jitter's cost + w of b from i to m + V[m, b]), m the first boundary after the dwell
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_dvfs.sequence.changes import Changes, Timing
from kernel_dvfs.sequence.launches import Sequence, cumulated
from kernel_dvfs.sequence.progress import Progress

if TYPE_CHECKING:
    from typing import TypeAlias

    Price: TypeAlias = float | np.ndarray  # of time, W: one for all launches, or (N,) one for each
    # what a programme finds: cost from each first pair (P,), decisions (N, P), cost from every state (N + 1, P)
    Values: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
    # (boundary, cost (P,) of staying, goal (N + 2, P) or None) -> (best pair to change to, its cost), for each pair
    Move: TypeAlias = Callable[[int, np.ndarray, Any], tuple[Any, Any]]

# costs within this share count as equal, which is far below any gap that matters
_NOTICEABLE = 1e-6
# share, for sums of floats: a dwell that is met up to rounding counts as met
_HAIR = 1e-12


def chain_of(sequence: Sequence, timing: Timing) -> Chain:
    """The programme of a behaviour."""
    if timing.is_free or timing.behaviour == "wait":
        return Waiting(sequence, timing)
    return Lagging(sequence, timing) if timing.behaviour == "lag" else Ahead(sequence, timing)


class Chain(ABC):
    """What the programmes share. A closed choice is one that ends at the pair that it begins with."""

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        self.sequence, self.timing = sequence, timing
        self.count, self.size = len(sequence), len(sequence.pairs)
        self._kept: tuple[Any, Any] = (None, None)

    @abstractmethod
    def _run(self, price: Price, end: np.ndarray) -> Values:
        """The programme at a price. end: (P,) cost of each last pair; 0 for all of them gives what no choice from a
        first pair can cost less than."""

    @abstractmethod
    def _moves(self, place: int, pair: Any, to: Any) -> tuple[Any, Any, Any]:
        """(boundary at which nothing is under way any more, time s, energy J until then) of changes at a boundary; a
        boundary beyond the last where that is not in this iteration."""

    def starts(self, price: Price) -> np.ndarray:
        """(P,) what no choice from a first pair can cost less than."""
        return self._run(price, np.zeros(self.size))[0]

    def closed(self, price: Price, first: int) -> tuple[float, Changes]:
        """(cost, choice): the best closed choice that begins with the pair `first`."""
        value, decision, _ = self._run(price, self._only(first))
        return float(value[first]), self._forward(decision, first)

    def values(self, price: Price, first: int) -> np.ndarray:
        """(N + 1, P) least cost at a price from each state to the iteration's end at the pair `first`."""
        return self._run(price, self._only(first))[2]

    def values_s(self, first: int) -> np.ndarray:
        """(N + 1, P) least time from each state to the iteration's end at the pair `first`."""
        # at a price at which energy does not count
        high = 1e6 * self.sequence.baseline_energy_j / self.sequence.baseline_time_s
        return self._run(high, self._only(first))[2] / high * (1 - 1e-5)

    def steps(
        self, place: int, pair: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Ways on from states at a boundary: (boundary after, index into `pair`, pair there, time s, energy J)."""
        own = self.sequence
        every = np.arange(len(pair))
        yield (
            np.full(len(pair), place + 1),
            every,
            pair,
            own.launch_time_s[place, pair],
            own.launch_energy_j[place, pair],
        )
        source, to = np.repeat(every, self.size), np.tile(np.arange(self.size), len(pair))
        moves = to != pair[source]
        source, to = source[moves], to[moves]
        after, time, energy = self._moves(place, pair[source], to)
        ends = np.flatnonzero(after <= self.count)
        yield after[ends], source[ends], to[ends], time[ends], energy[ends]

    def _only(self, first: int) -> np.ndarray:
        end = np.full(self.size, np.inf)
        end[first] = 0.0
        return end

    def best(self, price: Price, quick: bool = False) -> tuple[float, float, Changes]:
        """(bound, cost, choice) of a best closed choice at a price; no closed choice costs less than the bound.

        First pairs are tried in order of what they cost at least, until the others cannot cost noticeably less. quick:
        only the likely first pair is tried, so the bound is loose.
        """
        low, decision, _ = self._run(price, np.zeros(self.size))
        order = np.argsort(low, kind="stable").tolist()
        # where the cheapest of all goes is likely where the cheapest closed one begins
        cheapest = self._forward(decision, order[0])
        likely = cheapest.to[-1] if cheapest.to else order[0]
        best, found = self.closed(price, likely)
        if quick:
            return float(low[order[0]]), best, found
        for first in order:
            if first == likely:
                continue
            if low[first] >= best - _NOTICEABLE * abs(best):
                return min(best, float(low[first])), best, found
            cost, changes = self.closed(price, first)
            if cost < best:
                best, found = cost, changes
        return best, best, found

    def _prices(self, price: Price) -> np.ndarray:
        """(N, 1) the price of each launch."""
        return np.broadcast_to(price, self.count)[:, None]

    def _weights(self, price: Price) -> tuple[np.ndarray, np.ndarray]:
        """w (N, P) and its sums up to each boundary (N + 1, P)."""
        own = self.sequence
        weight = own.launch_energy_j + self._prices(price) * own.launch_time_s
        return weight, cumulated(weight)

    def _at_price(self, price: Price, make: Callable[[Price], Any]) -> Any:
        """What `make` returns for a price, kept for further runs at the same price."""
        if self._kept[0] is not price:
            self._kept = (price, make(price))
        return self._kept[1]

    def _backward(self, weight: np.ndarray, end: np.ndarray, move: Move, until: np.ndarray | None = None) -> Values:
        """The recursion, last launch first.

        weight: (N, P) w of each launch. end: (P,) V at the end. move(place, run, goal): the best pair to change to at a
        boundary and the V of it, for each pair. until: (N + 1, P) sums of w; with them, `move` gets goal (N + 2, P):
        V + w up to each boundary, infinite beyond the end, where no change may land.
        """
        decision = np.empty((self.count, self.size), dtype=np.int32)
        stay = np.arange(self.size)
        goal = None
        if until is not None:
            goal = np.full((self.count + 2, self.size), np.inf)
            goal[self.count] = end + until[self.count]
        values = np.empty((self.count + 1, self.size))
        values[-1] = value = end
        for place in range(self.count - 1, -1, -1):
            run = weight[place] + value
            best, moved = move(place, run, goal)
            keep = run <= moved
            decision[place] = np.where(keep, stay, best)
            values[place] = value = np.where(keep, run, moved)
            if goal is not None and until is not None:
                goal[place] = value + until[place]
        return value, decision, values

    def _forward(self, decision: np.ndarray, first: int) -> Changes:
        at: list[int] = []
        to: list[int] = []
        pair, place = first, 0
        while place < self.count:
            chosen = int(decision[place, pair])
            if chosen == pair:
                place += 1
                continue
            at.append(place)
            to.append(chosen)
            place, pair = int(self._moves(place, pair, chosen)[0]), chosen
        return Changes(first, tuple(at), tuple(to))

    def states(self, changes: Changes) -> np.ndarray:
        """(N + 1,) the pair at each boundary, -1 where a change is under way."""
        state = np.full(self.count + 1, -1, dtype=np.intp)
        pair, settled = changes.first, 0
        for at, to in zip(changes.at, changes.to):
            state[settled : at + 1] = pair
            settled, pair = int(self._moves(at, pair, to)[0]), to
        state[settled:] = pair
        return state

    def totals(self, changes: Changes) -> tuple[float, float]:
        """(time s, energy J) of an iteration, expected over the jitter. Infinite where the choice cannot be played."""
        sums = self.until(changes)
        return (sums[-1, 0], sums[-1, 1]) if sums is not None else (np.inf, np.inf)

    def until(self, changes: Changes) -> np.ndarray | None:
        """(N + 1, 2) time and energy up to each boundary, nan where a change is under way; None where the choice cannot
        be played."""
        sums = np.full((self.count + 1, 2), np.nan)
        sums[0] = 0.0
        pair, settled = changes.first, 0
        for at, to in zip(changes.at, changes.to):
            if at < settled or to == pair:
                return None
            self._stay(sums, settled, at, pair)
            after, *cost = self._moves(at, pair, to)
            if after > self.count:
                return None
            sums[after] = sums[at] + cost
            settled, pair = int(after), to
        self._stay(sums, settled, self.count, pair)
        return sums if pair == changes.first else None

    def _stay(self, sums: np.ndarray, begin: int, end: int, pair: int) -> None:
        own = self.sequence
        sums[begin : end + 1, 0] = sums[begin, 0] + own.until_s[begin : end + 1, pair] - own.until_s[begin, pair]
        sums[begin : end + 1, 1] = sums[begin, 1] + own.until_j[begin : end + 1, pair] - own.until_j[begin, pair]


class Waiting(Chain):
    """The programme of `wait`, and of any behaviour at latency 0."""

    def _run(self, price: Price, end: np.ndarray) -> Values:
        def make(price: Price) -> tuple[np.ndarray, np.ndarray]:
            weight, _ = self._weights(price)
            return weight, self.timing.latency_s * (self.sequence.stall_w + self._prices(price))

        weight, leave = self._at_price(price, make)

        def move(place: int, run: np.ndarray, goal: Any) -> tuple[Any, Any]:
            best = run.argmin()
            return best, leave[place] + run[best]

        return self._backward(weight, end, move)

    def _moves(self, place: int, pair: Any, to: Any) -> tuple[Any, Any, Any]:
        own, latency_s = self.sequence, self.timing.latency_s
        # the change is over before the launch, which then runs; another change right there would be absurd
        return (
            np.full(np.shape(to), place + 1),
            latency_s + own.launch_time_s[place, to],
            latency_s * own.stall_w[pair] + own.launch_energy_j[place, to],
        )


class Lagging(Chain):
    """The programme of `lag`."""

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        super().__init__(sequence, timing)
        self.progress = Progress(sequence, timing.latency_s, timing.spread_s)
        self.after = _reach(sequence, timing.latest_s)

    def _run(self, price: Price, end: np.ndarray) -> Values:
        def make(price: Price) -> tuple[Any, ...]:
            weight, until = self._weights(price)
            # at the other pair: all from the boundary on, less what was done at the own pair
            return weight, until, self.progress.exchanged(self._prices(price)) - until[:-1, None, :]

        weight, until, moving = self._at_price(price, make)
        stay = np.arange(self.size)

        def move(place: int, run: np.ndarray, goal: Any) -> tuple[Any, Any]:
            cost = moving[place] + goal[self.after[place]]
            best = cost.argmin(axis=1)
            return best, cost[stay, best]

        return self._backward(weight, end, move, until)

    def _moves(self, place: int, pair: Any, to: Any) -> tuple[Any, Any, Any]:
        own, at, after = self.sequence, self.progress, self.after[place, pair]
        done = np.minimum(after, self.count)
        return (
            after,
            at.own_s[place, pair] - at.other_s[place, pair, to] + own.until_s[done, to] - own.until_s[place, to],
            at.own_j[place, pair] - at.other_j[place, pair, to] + own.until_j[done, to] - own.until_j[place, to],
        )


class Ahead(Chain):
    """The programme of `ahead`."""

    progress: Progress | None  # None without jitter

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        super().__init__(sequence, timing)
        if timing.jitter:
            self.progress = Progress(sequence, 0.0, timing.spread_s)
            self.after = self._after_jitter()
        else:
            self.progress = None
            # the same from whatever pair the change is: [boundary, one, other pair]
            self.after = _reach(sequence, timing.latency_s)[:, None, :]

    def _after_jitter(self) -> np.ndarray:
        """(N, P, P) [boundary of a change, from pair, to pair] the first boundary where the next change can land.

        That one is asked for a latency ahead, and not before this one has landed, however late. Launches may get far
        until then where the pair to be left is much the faster one.
        """
        own, timing = self.sequence, self.timing
        late = Progress.others_s(own, timing.spread_s)
        wanted = np.maximum(own.until_s[:-1, None, :] + timing.latest_s, late + timing.latency_s) * (1 - _HAIR)
        found = np.empty(wanted.shape, dtype=np.intp)
        for pair in range(self.size):
            found[:, :, pair] = np.searchsorted(own.until_s[:, pair], wanted[:, :, pair], side="left")
        return np.maximum(found, np.arange(1, self.count + 1)[:, None, None])

    def _run(self, price: Price, end: np.ndarray) -> Values:
        def make(price: Price) -> tuple[Any, ...]:
            weight, until = self._weights(price)
            jitter = self.progress.exchanged(self._prices(price)) if self.progress else None
            return weight, until, jitter

        weight, until, jitter = self._at_price(price, make)
        stay = np.arange(self.size)

        def move(place: int, run: np.ndarray, goal: Any) -> tuple[Any, Any]:
            landed = goal[self.after[place], stay] - until[place]
            if jitter is None:
                best = landed[0].argmin()
                return best, landed[0, best]
            cost = jitter[place] + landed
            best = cost.argmin(axis=1)
            return best, cost[stay, best]

        return self._backward(weight, end, move, until)

    def _moves(self, place: int, pair: Any, to: Any) -> tuple[Any, Any, Any]:
        own, after = self.sequence, self.after[place, pair if self.progress else 0, to]
        done = np.minimum(after, self.count)
        extra_s = extra_j = 0.0
        if self.progress:
            at = self.progress
            extra_s = at.own_s[place, pair] - at.other_s[place, pair, to]
            extra_j = at.own_j[place, pair] - at.other_j[place, pair, to]
        return (
            after,
            extra_s + own.until_s[done, to] - own.until_s[place, to],
            extra_j + own.until_j[done, to] - own.until_j[place, to],
        )


def _reach(sequence: Sequence, seconds: float) -> np.ndarray:
    """(N, P) the first boundary at least `seconds` after each, all at one pair; N + 1 where there is none."""
    until = sequence.until_s
    found = np.empty((len(sequence), until.shape[1]), dtype=np.intp)
    for pair in range(until.shape[1]):
        wanted = (until[:-1, pair] + seconds) * (1 - _HAIR)
        found[:, pair] = np.searchsorted(until[:, pair], wanted, side="left")
    return np.maximum(found, np.arange(1, len(sequence) + 1)[:, None])
