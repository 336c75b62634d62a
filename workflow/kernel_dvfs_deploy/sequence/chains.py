"""The least of (energy + price x time) over all choices of one iteration: dynamic programmes over its boundaries.

A state is a boundary and the pair in force there, with no change under way. An iteration begins and ends at the same
pair, since what lies between two iterations (the optimizer, a data loader) is not part of the sequence; with `ahead`
that pair is kept for the latency, since nothing is asked for before the begin. Each programme runs backwards over N
boundaries and P pairs; its costs are exact expectations over the jitter.

For a boundary i and a pair a, V[i, a] is the cost of the launches from i on: the least of going on at a, and of
changing to another pair b. With w = energy + price x time of a launch, U[m, b] = V[m, b] + w of b up to m, and
stall = (stall power of a + price) x (stall of the clocks that differ):

ahead  stall + U[m, b] - w of b up to i, m the first boundary after the dwell at b
ahead with jitter, and lag: what is done by the landing costs what it costs at a instead of b, and m of lag is the first
       boundary after the landing

Without jitter, the best b depends on a only through the stall, which has four values: the least of each core clock, of
each memory clock and of all pairs are enough, so a boundary takes time and memory in proportion to P. With it, a
boundary's P x P costs are made when it is their turn, of the few b that can be the best; none are kept.

A programme keeps costs alone: which b is the best is worked out again where a choice passes. One for several ends takes
little longer than for one (B of them, the last axis of its arrays).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kernel_dvfs_deploy.sequence.changes import KINDS, Changes, Timing, kind_of
from kernel_dvfs_deploy.sequence.launches import Sequence, cumulated
from kernel_dvfs_deploy.sequence.progress import Progress, positions

if TYPE_CHECKING:
    from typing import TypeAlias

    Price: TypeAlias = float | np.ndarray  # of time, W: one for all launches, or (N,) one for each


class Moves(NamedTuple):
    """What changes cost at a price, by U (N + 2, P, B)."""

    # (boundary, U) -> (P, B) V after the best change from each pair
    cost: Callable[[int, np.ndarray], np.ndarray]
    # (boundary, pair, U (N + 2, P)) -> the pair that it is best to change to
    best: Callable[[int, int, np.ndarray], int]


class Values(NamedTuple):
    """What a programme finds."""

    begin: np.ndarray  # (P, B) cost from the begin of each first pair
    least: np.ndarray  # (N + 1, P, B) cost from every state to the end
    chosen: Callable[[int, int], int]  # (boundary, pair) -> the pair to go on at, where B = 1


# of values, for the bound on closed choices
_ITERATIONS = 2
# share, for sums of floats: a dwell that is met up to rounding counts as met
_HAIR = 1e-12


def chain_of(sequence: Sequence, timing: Timing) -> Chain:
    """Return the programme of a behaviour."""
    if timing.latency_s == 0 or (timing.behaviour == "ahead" and not timing.jitter and timing.spreads is None):
        return Prompt(sequence, timing)
    return Lagging(sequence, timing) if timing.behaviour == "lag" else Jittering(sequence, timing)


class Chain(ABC):
    """What the programmes share. A closed choice is one that ends at the pair that it begins with.

    In all of them `after` is the boundary at which nothing is under way any more after a change at each boundary,
    (N, 1, P) by the pair that is changed to or (N, P, 1) by the one that is left; N + 1 where that is not in this
    iteration.
    """

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        self.sequence, self.timing = sequence, timing
        self.count, self.size = len(sequence), len(sequence.pairs)
        self._every = np.arange(self.size)
        # (P,) the first boundary where a first pair may be left; N + 1 where that is not in this iteration
        self.begin = reach(sequence, timing.settles_s)[0] if timing.settles_s else np.zeros(self.size, dtype=np.intp)
        core, mem = (_numbered([pair[domain] for pair in sequence.pairs]) for domain in (0, 1))
        self._core, self._mem = core, mem
        # (P, P) how long the GPU stands still as it changes
        self.stall_s = timing.core_stall_s * (core[:, None] != core) + timing.mem_stall_s * (mem[:, None] != mem)
        # of single changes, since choices at like prices share most of theirs
        self._spent: dict[tuple[int, int, int], tuple[float, float]] = {}

    @abstractmethod
    def _moves(self, weight: np.ndarray, until: np.ndarray, price: np.ndarray) -> Moves:
        """Return what changes cost at a price. weight, until: w (N, P) and its sums up to each boundary (N + 1, P).
        price: (N,) of each launch."""

    @abstractmethod
    def _spends(self, place: int, pair: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (time s, energy J) of changes at a boundary, `pair` and `to` of each, until nothing is under way any
        more; of no use where that is not in this iteration."""

    # --- the programme ------------------------------------------------------------------------------------------------

    def starts(self, price: Price) -> np.ndarray:
        """Return (P,) what no closed choice from each first pair can cost less than (see `best`)."""
        end = self._run(price, np.zeros(self.size)).begin[:, 0]
        return self._run(price, end).begin[:, 0] - end

    def closed(self, price: Price, first: int) -> tuple[float, Changes]:
        """Return (cost, choice): the best closed choice that begins with the pair `first`."""
        values = self._run(price, self._only([first]))
        return float(values.begin[first, 0]), self._forward(values, first)

    def values(self, price: Price, firsts: Several[int]) -> np.ndarray:
        """Return (B, N + 1, P) least cost at a price from each state to the iteration's end at each of the pairs
        `firsts`; at boundary 0, where each pair begins."""
        values = self._run(price, self._only(firsts))
        values.least[0] = values.begin
        return np.ascontiguousarray(np.moveaxis(values.least, 2, 0))

    def values_s(self, firsts: Several[int]) -> np.ndarray:
        """Return (B, N + 1, P) least time from each state to the iteration's end at each of the pairs `firsts`."""
        # at a price at which energy does not count
        high = 1e6 * self.sequence.baseline_energy_j / self.sequence.baseline_time_s
        return self.values(high, firsts) / high * (1 - 1e-5)

    def best(self, price: Price) -> tuple[float, float, Changes]:
        """Return (bound, cost, choice) of a good closed choice at a price; no closed choice costs less than the bound.

        The bound is one of value iteration: where T(end) is what the programme makes of the costs of its last pairs, a
        closed choice from f costs at least T(end)[f] - end[f], for any `end`. An iteration forgets how it ends after a
        few launches, so the first T(0), put in again, gives nearly the same difference for every f.
        """
        end, bound = np.zeros(self.size), -np.inf
        for _ in range(_ITERATIONS):
            values = self._run(price, end)
            begin = values.begin[:, 0]
            low = begin - end
            bound, end = max(bound, float(low.min())), begin - begin.min()
        cheapest = self._forward(values, int(low.argmin()))
        # where the cheapest of all goes is likely where the cheapest closed one begins
        cost, closed = self.closed(price, cheapest.to[-1] if cheapest.to else cheapest.first)
        return min(bound, cost), cost, closed

    def _only(self, firsts: Several[int]) -> np.ndarray:
        end = np.full((self.size, len(firsts)), np.inf)
        end[firsts, np.arange(len(firsts))] = 0.0
        return end

    def _run(self, price: Price, end: np.ndarray) -> Values:
        """Run the programme at a price, last launch first, and return what it finds. end: (P,) or (P, B) cost of each
        last pair."""
        sequence, prices = self.sequence, np.broadcast_to(np.asarray(price, dtype=float), self.count)
        weight = sequence.launch_energy_j + prices[:, None] * sequence.launch_time_s
        until = cumulated(weight)
        moves = self._moves(weight, until, prices)
        weight, until, end = weight[:, :, None], until[:, :, None], end.reshape(self.size, -1)
        least = np.empty((self.count + 1, *end.shape))
        # U; infinite beyond the end, where no change may land
        goal = np.full((self.count + 2, *end.shape), np.inf)
        least[-1] = end
        goal[self.count] = end + until[self.count]
        for place in range(self.count - 1, -1, -1):
            cost = np.add(weight[place], least[place + 1], out=least[place])
            np.minimum(cost, moves.cost(place, goal), out=cost)
            np.add(cost, until[place], out=goal[place])

        def chosen(place: int, pair: int) -> int:
            stays = weight[place, pair, 0] + least[place + 1, pair, 0] <= least[place, pair, 0]
            return pair if stays else moves.best(place, pair, goal[:, :, 0])

        return Values(goal[np.minimum(self.begin, self.count), self._every], least, chosen)

    def _forward(self, values: Values, first: int) -> Changes:
        at: list[int] = []
        to: list[int] = []
        pair, place = first, int(self.begin[first])
        while place < self.count:
            chosen = values.chosen(place, pair)
            if chosen == pair:
                place += 1
                continue
            at.append(place)
            to.append(chosen)
            place, pair = int(self._settled(place, pair, chosen)), chosen
        return Changes(first, tuple(at), tuple(to))

    # --- a choice -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _settled(self, place: int, pair: Any, to: Any) -> Any:
        """Return `after` of changes at a boundary, `pair` and `to` of each."""

    def _move(self, place: int, pair: int, to: int) -> tuple[float, float]:
        spent = self._spent.get((place, pair, to))
        if spent is None:
            time, energy = self._spends(place, np.array([pair]), np.array([to]))
            spent = self._spent[place, pair, to] = float(time[0]), float(energy[0])
        return spent

    def steps(
        self, place: int, pair: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the ways on from states at a boundary: (boundary after, index into `pair`, pair there, time s, energy
        J)."""
        sequence = self.sequence
        every = np.arange(len(pair))
        yield (
            np.full(len(pair), place + 1),
            every,
            pair,
            sequence.launch_time_s[place, pair],
            sequence.launch_energy_j[place, pair],
        )
        source, to = np.repeat(every, self.size), np.tile(self._every, len(pair))
        moves = to != pair[source]
        source, to = source[moves], to[moves]
        after, (time, energy) = self._settled(place, pair[source], to), self._spends(place, pair[source], to)
        ends = np.flatnonzero(after <= self.count)
        yield after[ends], source[ends], to[ends], time[ends], energy[ends]

    def states(self, changes: Changes) -> np.ndarray:
        """Return (N + 1,) the pair at each boundary, -1 where a change is under way or none may be asked for yet."""
        state = np.full(self.count + 1, -1, dtype=np.intp)
        state[0] = pair = changes.first
        settled = min(int(self.begin[pair]), self.count)
        for at, to in zip(changes.at, changes.to):
            state[settled : at + 1] = pair
            settled, pair = int(self._settled(at, pair, to)), to
        state[settled:] = pair
        return state

    def totals(self, changes: Changes) -> tuple[float, float]:
        """Return (time s, energy J) of an iteration, expected over the jitter. Infinite where the choice cannot be
        played."""
        sums = self.until(changes)
        return (sums[-1, 0], sums[-1, 1]) if sums is not None else (np.inf, np.inf)

    def until(self, changes: Changes) -> np.ndarray | None:
        """Return (N + 1, 2) time and energy up to each boundary, nan where a change is under way or none may be asked
        for yet; None where the choice cannot be played."""
        sequence, pair = self.sequence, changes.first
        sums = np.full((self.count + 1, 2), np.nan)
        settled = min(int(self.begin[pair]), self.count)
        sums[0] = 0.0
        sums[settled] = sequence.until_s[settled, pair], sequence.until_j[settled, pair]
        for at, to in zip(changes.at, changes.to):
            if at < settled or to == pair:
                return None
            self._stay(sums, settled, at, pair)
            settled = int(self._settled(at, pair, to))
            if settled > self.count:
                return None
            sums[settled] = sums[at] + self._move(at, pair, to)
            pair = to
        self._stay(sums, settled, self.count, pair)
        return sums if pair == changes.first else None

    def _stay(self, sums: np.ndarray, begin: int, end: int, pair: int) -> None:
        sequence = self.sequence
        sums[begin : end + 1, 0] = (
            sums[begin, 0] + sequence.until_s[begin : end + 1, pair] - sequence.until_s[begin, pair]
        )
        sums[begin : end + 1, 1] = (
            sums[begin, 1] + sequence.until_j[begin : end + 1, pair] - sequence.until_j[begin, pair]
        )


class Prompt(Chain):
    """The programme of `ahead` without jitter, and of both behaviours at latency 0: changes land at boundaries."""

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        super().__init__(sequence, timing)
        # after a change a launch runs; another change right there would be absurd
        self.after = reach(sequence, timing.settles_s)[:, None, :]
        # (cores, memory clocks) the pair of each; P where there is none
        self._table = np.full((self._core.max() + 1, self._mem.max() + 1), self.size)
        self._table[self._core, self._mem] = self._every

    def _settled(self, place: int, pair: Any, to: Any) -> Any:
        return self.after[place, 0, to]

    def _moves(self, weight: np.ndarray, until: np.ndarray, price: np.ndarray) -> Moves:
        timing, every, table = self.timing, self._every, self._table
        rate = self.sequence.stall_w + price[:, None]
        core_s, mem_s = timing.core_stall_s, timing.mem_stall_s
        # of a stall of both clocks, of the memory clock alone, of the core clock alone
        both, mem, core = ((rate * stall_s)[:, :, None] for stall_s in (core_s + mem_s, mem_s, core_s))
        until = until[:, :, None]

        def cost(place: int, goal: np.ndarray) -> np.ndarray:
            known = np.full((self.size + 1, goal.shape[2]), np.inf)
            known[:-1] = goal[self.after[place, 0], every]
            known[:-1] -= until[place]
            least = known.min(axis=0) + both[place]
            if core_s or mem_s:
                tabled = known[table]
                np.minimum(least, tabled.min(axis=1)[self._core] + mem[place], out=least)
                np.minimum(least, tabled.min(axis=0)[self._mem] + core[place], out=least)
            return least

        def best(place: int, pair: int, goal: np.ndarray) -> int:
            known = np.append(goal[self.after[place, 0], every] - until[place, :, 0], np.inf)
            other = known.argmin()
            least = known[other] + both[place, pair, 0]
            same_core, same_mem = table[self._core[pair]], table[:, self._mem[pair]]
            for alike, stall in ((same_core, mem), (same_mem, core)) if core_s or mem_s else ():
                nearest = alike[known[alike].argmin()]
                if known[nearest] + stall[place, pair, 0] < least:
                    other, least = nearest, known[nearest] + stall[place, pair, 0]
            return int(other)

        return Moves(cost, best)

    def _spends(self, place: int, pair: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sequence, done = self.sequence, np.minimum(self._settled(place, pair, to), self.count)
        stall_s = self.stall_s[pair, to]
        return (
            stall_s + sequence.until_s[done, to] - sequence.until_s[place, to],
            stall_s * sequence.stall_w[pair] + sequence.until_j[done, to] - sequence.until_j[place, to],
        )


class Exchanging(Chain):
    """A programme whose changes land within launches: the work done until then costs what it costs at the old pair.

    kinds: (progress of the landings, `after`) of each kind of change, which differ in when they land. kind: (P, P)
    which one a change from one pair to another is of.
    """

    kinds: list[tuple[Progress, np.ndarray]]
    kind: np.ndarray

    def _settled(self, place: int, pair: Any, to: Any) -> Any:
        settled = [after[place][pair, 0] if after.shape[1] > 1 else after[place][0, to] for _, after in self.kinds]
        return settled[0] if len(settled) == 1 else np.choose(self.kind[pair, to], settled)

    def _moves(self, weight: np.ndarray, until: np.ndarray, price: np.ndarray) -> Moves:
        rate = self.sequence.stall_w + price[:, None]
        stalls = self.stall_s.any()
        lands = [after.reshape(self.count, -1).min(axis=1) <= self.count for _, after in self.kinds]

        def changed(number: int, place: int, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return (best pair to change to, its V), for each pair, by changes of one kind."""
            progress, after = self.kinds[number][0], self.kinds[number][1][place]
            shares, spent = progress.shares(place), weight[progress.window(place)]
            others = self._likely(number, place, goal, spent, until, rate)
            if after.shape[1] > 1:
                after = after[:, others]
            # (P, others) V after a change, less what the work until its landing would have cost there
            cost = goal[after, others] - until[place, others] - shares @ spent[:, others]
            if stalls:
                cost += rate[place][:, None] * self.stall_s[:, others]
            if len(self.kinds) > 1:
                cost = np.where(self.kind[:, others] == number, cost, np.inf)
            best = cost.argmin(axis=1)
            return others[best], cost[self._every, best] + np.einsum("pn,np->p", shares, spent)

        def all_changed(place: int, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            by_kind = [changed(number, place, goal) for number in range(len(self.kinds)) if lands[number][place]]
            least = np.argmin([value for _, value in by_kind], axis=0)
            return tuple(np.array(rows)[least, self._every] for rows in zip(*by_kind))

        def cost(place: int, goal: np.ndarray) -> np.ndarray:
            if not any(landing[place] for landing in lands):
                return np.full(goal.shape[1:], np.inf)
            return np.stack([all_changed(place, goal[:, :, end])[1] for end in range(goal.shape[2])], axis=1)

        def best(place: int, pair: int, goal: np.ndarray) -> int:
            return int(all_changed(place, goal)[0][pair])

        return Moves(cost, best)

    def _likely(
        self, number: int, place: int, goal: np.ndarray, spent: np.ndarray, until: np.ndarray, rate: np.ndarray
    ) -> np.ndarray:
        """Return the pairs that may be the best to change to: not those that cost more than another one does whatever
        pair is left. What is done until a landing lies between the least and the most of all pairs; U grows with the
        boundary.
        """
        if len(self.kinds) > 1:
            return self._every  # a pair that is better by another kind of change is no reason to leave one out
        progress, after = self.kinds[number][0], self.kinds[number][1][place]
        least_done, most_done = progress.extremes(place)
        least = goal[after.min(axis=0), self._every] - until[place] - most_done @ spent
        most = goal[after.max(axis=0), self._every] - until[place] - least_done @ spent
        return np.flatnonzero(least <= most.min() + rate[place].max() * self.stall_s.max())

    def _spends(self, place: int, pair: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sequence = self.sequence
        done, stall_s = np.minimum(self._settled(place, pair, to), self.count), self.stall_s[pair, to]
        time_s = stall_s + sequence.until_s[done, to] - sequence.until_s[place, to]
        energy_j = stall_s * sequence.stall_w[pair] + sequence.until_j[done, to] - sequence.until_j[place, to]
        for number, (progress, _) in enumerate(self.kinds):
            mine = np.flatnonzero(self.kind[pair, to] == number)
            if not len(mine):
                continue
            known, which = np.unique(pair[mine], return_inverse=True)
            window, shares = progress.window(place), progress.shares(place, known)
            for total, launch in ((time_s, sequence.launch_time_s), (energy_j, sequence.launch_energy_j)):
                # what is done until the landing, at the old pair instead of the new one
                old = np.einsum("pn,np->p", shares, launch[window][:, known])
                total[mine] += old[which] - (shares @ launch[window])[which, to[mine]]
        return time_s, energy_j


class Lagging(Exchanging):
    """The programme of `lag`."""

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        super().__init__(sequence, timing)
        stretch = timing.latency_s - timing.spread_s, timing.latest_s
        self.kinds = [(Progress(sequence, [stretch]), reach(sequence, timing.latest_s)[:, :, None])]
        self.kind = np.zeros((self.size, self.size), dtype=np.intp)


class Jittering(Exchanging):
    """The programme of `ahead` where landings are early or late: by jitter, or by a distribution for each clock."""

    def __init__(self, sequence: Sequence, timing: Timing) -> None:
        super().__init__(sequence, timing)
        pairs = sequence.pairs
        if timing.spreads is None:
            self.kind = np.zeros((self.size, self.size), dtype=np.intp)
            self.kinds = [self._of([(-timing.spread_s, timing.spread_s)], timing.latest_s)]
            return
        self.kind = np.array([[kind_of(before, after) for after in pairs] for before in pairs])
        self.kinds = []
        for kind in KINDS:
            landings_s = timing.landings_s(kind)
            lead_s = median(landings_s)
            self.kinds.append(
                self._of([(landing_s - lead_s, landing_s - lead_s) for landing_s in landings_s], landings_s[-1])
            )

    def _of(self, stretches_s: list[tuple[float, float]], latest_s: float) -> tuple[Progress, np.ndarray]:
        """Return (progress, `after`) of landings in these stretches of time about their boundary, whose latest one
        lands latest_s after its request."""
        sequence = self.sequence
        # The next change is asked for a latency ahead, and not before this one has landed, however late, and however
        # far the launches have come until then at the pair that is left: as far as at the fastest
        far = positions(sequence, max(high for _, high in stretches_s)).max(axis=1)
        place = np.minimum(far.astype(np.intp), len(sequence) - 1)
        late = sequence.until_s[place] + (far - place)[:, None] * sequence.launch_time_s[place]
        wanted = np.maximum(latest_s, late - sequence.until_s[:-1] + self.timing.latency_s)
        return Progress(sequence, stretches_s), reach(sequence, wanted)[:, None, :]


def reach(sequence: Sequence, seconds: float | np.ndarray) -> np.ndarray:
    """Return (N, P) the first boundary at least `seconds` (one number, or (N, P)) after each, all at one pair, and the
    next one at least; N + 1 where there is none."""
    until = sequence.until_s
    wanted = (until[:-1] + seconds) * (1 - _HAIR)
    boundaries = np.empty(wanted.shape, dtype=np.intp)
    for pair in range(wanted.shape[1]):
        boundaries[:, pair] = np.searchsorted(until[:, pair], wanted[:, pair], side="left")
    return np.maximum(boundaries, np.arange(1, len(sequence) + 1)[:, None])


def _numbered(values: list[float | None]) -> np.ndarray:
    """Return (P,) the number of each value among the different ones."""
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([known[value] for value in values], dtype=np.intp)
