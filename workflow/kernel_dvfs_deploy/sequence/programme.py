"""Least energy of an iteration within a total time, where changes of clocks take time: a choice, and how far from best.

price of time           Lagrange: for any price, least of (energy + price x time) - price x limit is a lower bound;
                        a dynamic programme (chains.py) finds it exactly, a line search the best price
mixing                  the choices found at this and at neighbouring prices agree at many boundaries; the best
                        mixture of them uses the whole limit (label_search.py)
search among few pairs  while the gap is wide: choices of the pairs that the best ones use (label_search.py), such
                        as where stalls are long and choices at neighbouring prices have no boundary in common
exact search            while the gap is still wide: every choice that the bound does not exclude (label_search.py);
                        where it was complete, the best known choice is optimal and the gap is zero
gap                     energy of the choice - lower bound
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_dvfs.choice.problem import TOLERANCE
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_deploy.sequence.chains import Chain, chain_of
from kernel_dvfs_deploy.sequence.changes import Changes, Timing
from kernel_dvfs_deploy.sequence.label_search import best_mixture, search, ways_to_the_end
from kernel_dvfs_deploy.sequence.launches import Sequence

if TYPE_CHECKING:
    from kernel_dvfs_deploy.sequence.label_search import Ways

_PRICES = 60  # the search ends by itself; the cap only guards against float cycling
# a gap up to this share of the saving is narrow; until then, prices to mix with
_NARROW = 0.002
_STEPS = (0.003, 0.03)
_NEIGHBOURS = ((0.97, 1.03), (0.9, 1.1))
# above this share the exact search runs
WIDE = 0.005
# in turns with so many labels kept at a boundary and pair
_LABELS = (20, 60)
_KEPT_BYTE = 256 << 20  # of the ways to the end that one turn leaves for the next
_AT_ONCE = 16  # first pairs whose ways to the end are worked out together, where they are no larger
# pairs that a search among few takes, from so many choices, labels that it keeps, and steps that it may look at
_FEW = 8
_BEST = 12
_FEW_LABELS = 50
_FEW_EFFORT = 10_000_000
# how many steps from labels the exact search looks at in all, about a CPU second
EFFORT = 6_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Choice:
    """The best choice found for an iteration."""

    changes: Changes  # what to play
    time_s: float  # of an iteration, expected over the jitter
    energy_j: float  # likewise
    bound_j: float  # no choice within the limit has less energy

    @property
    def gap_j(self) -> float:
        """Return how much energy a better choice could save at most."""
        return max(0.0, self.energy_j - self.bound_j)


def choose_changes(
    sequence: Sequence,
    timing: Timing,
    slack: float = 0.0,
    chain: Chain | None = None,
    effort: int = EFFORT,
    wide: float = WIDE,
    others: Iterable[Changes] = (),
) -> Choice:
    """Return the best changes found with total time <= (1 + slack) x that of the baseline, and a bound on any.

    slack: fraction of the baseline time. chain: of this sequence and timing, where it is at hand. effort: of the
    exact search. wide: it runs where more than this share of the saving is unproven; 0: wherever anything is. others:
    choices to start from, such as those of a longer latency. Raises InputError for a slack that no choice can keep.
    """
    return _chosen(sequence, timing, slack, chain or chain_of(sequence, timing), effort, wide, others)[0]


def choose_path(sequence: Sequence, timing: Timing, slacks: List[float], chain: Chain) -> tuple[list[Changes], float]:
    """Return (the best choices found within each of the ascending limits, each once; the energy in J that none within
    the last goes below).

    Searched for is the last limit; of the others, mixtures of what was looked at meanwhile. Limits that no choice keeps
    have none. Raises InputError where that is the last one.
    """
    last, known, price = _chosen(sequence, timing, slacks[-1], chain)
    first = last.changes.first
    alike = [changes for changes in known.all if changes.first == first]
    values = chain.values(price, [first])[0]
    choices: dict[Changes, None] = {}
    for slack in slacks:
        limit = (1 + slack) * sequence.baseline_time_s * (1 + TOLERANCE)
        fitting = [(energy, time, changes) for changes, (time, energy) in known.all.items() if time <= limit]
        if not fitting:
            continue
        energy, _, best = min(fitting)
        gap_j = energy + price * limit - float(values[0, first])
        mixed = best_mixture(chain, alike, price, values, limit, gap_j) if best != last.changes and price else None
        if mixed is not None and chain.totals(mixed)[1] < energy:
            best = mixed
        choices[best] = None
    return list(choices), last.bound_j


def _chosen(
    sequence: Sequence,
    timing: Timing,
    slack: float,
    chain: Chain,
    effort: int = EFFORT,
    wide: float = WIDE,
    others: Iterable[Changes] = (),
) -> tuple[Choice, _Known, float]:
    """Return (the choice, every one that was looked at, the price of time that bounds it, W)."""
    if not (np.isfinite(slack) and slack > -1):
        raise InputError(f"sequence: slack {slack!r} (as a fraction); use a number above -1")
    limit = (1 + slack) * sequence.baseline_time_s * (1 + TOLERANCE)
    known = _Known(chain, limit)
    for pair in range(len(sequence.pairs)):
        known.offer(Changes(pair, (), ()))
    for changes in others:
        known.offer(changes)
    bound, _, slow = chain.best(0.0)
    price = 0.0
    known.offer(slow)
    if not known.fits(slow):
        bound, price = _line_search(chain, known, slow, limit)
        _mix(chain, known, bound, price, limit)
        _search_few(chain, known, bound, price, limit, wide)
        bound = _search(chain, known, bound, price, limit, effort, wide)
    if known.best is None:
        raise InputError(
            f"sequence: no choice keeps {100 * slack:g} % slowdown: the fastest found takes"
            f" {100 * (known.fastest_s / sequence.baseline_time_s - 1):+.3g} %; raise the slack"
        )
    energy, time, changes = known.best
    return Choice(changes, time, energy, min(bound, energy)), known, price


class _Known:
    """The choices looked at so far."""

    def __init__(self, chain: Chain, limit: float) -> None:
        self.chain, self.limit = chain, limit
        # (energy J, time s, changes) of the best that keeps the limit
        self.best: tuple[float, float, Changes] | None = None
        self.fastest_s: float = np.inf
        self.all: dict[Changes, tuple[float, float]] = {}  # (time s, energy J) of each

    def offer(self, changes: Changes) -> tuple[float, float]:
        """Return (time s, energy J) of a choice, which becomes the best known one if it is better."""
        time, energy = self.chain.totals(changes)
        self.all[changes] = (time, energy)
        self.fastest_s = min(self.fastest_s, time)
        if time <= self.limit and (self.best is None or (energy, time) < self.best[:2]):
            self.best = (energy, time, changes)
        return time, energy

    def is_within(self, share: float, bound: float) -> bool:
        """Return whether the gap of the best is at most a share of its saving."""
        assert self.best is not None
        saving = self.chain.sequence.baseline_energy_j - self.best[0]
        return self.best[0] - bound <= share * max(0.0, saving)

    def fits(self, changes: Changes) -> bool:
        """Return whether a choice keeps the limit."""
        return self.chain.totals(changes)[0] <= self.limit


def _line_search(chain: Chain, known: _Known, slow: Changes, limit: float) -> tuple[float, float]:
    """Return (bound, price); the choices found are offered.

    Walks the lower hull of all (time, energy): take the line through a vertex that is too slow and one that fits, and
    look for a vertex below it. The first choice within the limit comes from a price so high that only time counts.
    """
    scale = chain.sequence.baseline_energy_j / chain.sequence.baseline_time_s
    fast = None
    bound: float = -np.inf
    best_price = 0.0
    for power in (1, 100, 10**4, 10**7):
        price = scale * power
        least, _, changes = chain.best(price)
        if least - price * limit > bound:
            bound, best_price = least - price * limit, price
        known.offer(changes)
        if known.fits(changes):
            fast = changes
            break
        slow = changes
    if fast is None:
        # the best known choice may fit although none of these does
        if known.best is None:
            return bound, best_price
        fast = known.best[2]
    for _ in range(_PRICES):
        (fast_s, fast_j), (slow_s, slow_j) = chain.totals(fast), chain.totals(slow)
        if slow_s <= fast_s:
            break
        price = (fast_j - slow_j) / (slow_s - fast_s)
        if price < 0:
            break
        line = slow_j + price * slow_s
        least, cost, changes = chain.best(price)
        if least - price * limit > bound:
            bound, best_price = least - price * limit, price
        time, _ = known.offer(changes)
        if cost >= line - 1e-12 * abs(line):
            break
        if time <= limit:
            fast = changes
        else:
            slow = changes
    return bound, best_price


def _mix(chain: Chain, known: _Known, bound: float, price: float, limit: float) -> None:
    """Offer mixtures of the known choices, then choices at prices that step within the iteration and at neighbouring
    prices, and mixtures with them, until the gap is narrow."""
    if known.best is None or price <= 0:
        return

    def is_narrow() -> bool:
        return known.is_within(_NARROW, bound)

    if is_narrow():
        return
    # all begin with the pair that is best at the price, as the line search has found it
    first = min(known.all, key=lambda choice: known.all[choice][1] + price * known.all[choice][0]).first
    values = chain.values(price, [first])[0]
    choices: dict[Changes, None] = {choice: None for choice in known.all if choice.first == first}

    def mix() -> None:
        if not choices or known.best is None:
            return
        mixed = best_mixture(chain, list(choices), price, values, limit, known.best[0] - bound)
        if mixed is not None:
            known.offer(mixed)
            choices[mixed] = None

    mix()
    for make in (*(_stepped(step) for step in _STEPS), *(_neighbouring(factors) for factors in _NEIGHBOURS)):
        if is_narrow():
            break
        for changes in make(chain, known, price, first):
            choices[changes] = None
            known.offer(changes)
        mix()


def _search_few(chain: Chain, known: _Known, bound: float, price: float, limit: float, wide: float) -> None:
    """Offer the best of the choices among a few pairs: those that the choices of least cost at the price use most."""
    if known.best is None or price <= 0 or known.is_within(wide, bound):
        return
    sequence = chain.sequence
    ordered = sorted(known.all, key=lambda choice: known.all[choice][1] + price * known.all[choice][0])[:_BEST]
    used = np.zeros(chain.size)
    for changes in ordered:
        wanted = changes.pairs(chain.count)
        np.add.at(used, wanted, sequence.launch_time_s[np.arange(chain.count), wanted])
    pairs = np.unique(
        [*np.argsort(-used, kind="stable")[:_FEW], *([] if sequence.baseline is None else [sequence.baseline])]
    )
    few = chain_of(sequence.only(pairs), chain.timing)
    ways = _Ways(few, price)
    for first in ways.order:
        if known.is_within(wide, bound) or ways.low[first] - price * limit >= known.best[0]:
            break
        better, _, _ = search(few, price, first, limit, known.best[0], _FEW_LABELS, _FEW_EFFORT, ways.of(first))
        if better is not None:
            known.offer(Changes(int(pairs[better.first]), better.at, tuple(int(pairs[to]) for to in better.to)))


class _Ways:
    """What searches know of the ways to the end: worked out for several first pairs at once, which takes little longer
    than for one, and kept for the next turn."""

    def __init__(self, chain: Chain, price: float) -> None:
        self._chain, self._price = chain, price
        # (P,) what no closed choice from each first pair can cost less than
        self.low = chain.starts(price)
        pair_byte = 2 * 8 * (chain.count + 1) * chain.size
        self._at_once = max(1, min(_AT_ONCE, _KEPT_BYTE // pair_byte))
        # first pairs, those first whose choices may cost least
        self.order: list[int] = np.argsort(self.low, kind="stable").tolist()
        self._kept: dict[int, Ways] = {}

    def of(self, first: int) -> Ways:
        """Return the ways to the end of a first pair; those after it in the order are likely asked for next."""
        if first not in self._kept:
            if sum(2 * cost.nbytes for cost, _ in self._kept.values()) > _KEPT_BYTE:
                self._kept.clear()
            place = self.order.index(first)
            self._kept |= ways_to_the_end(self._chain, self._price, self.order[place : place + self._at_once])
        return self._kept[first]


def _search(chain: Chain, known: _Known, bound: float, price: float, limit: float, effort: int, wide: float) -> float:
    """Offer what the exact search finds. Returns the bound, which is the best energy where the search was complete."""
    if known.best is None or price <= 0 or known.is_within(wide, bound):
        return bound
    ways = _Ways(chain, price)
    for labels in _LABELS:
        complete = True
        for first in ways.order:
            if ways.low[first] - price * limit >= known.best[0]:
                break
            if effort <= 0:
                return bound
            better, whole, spent = search(chain, price, first, limit, known.best[0], labels, effort, ways.of(first))
            effort -= spent
            complete &= whole
            if better is not None:
                known.offer(better)
        if complete:
            return known.best[0]
        if known.is_within(wide, bound):
            break
    return bound


# (chain, known, price, first pair) -> choices
_Make = Callable[[Chain, _Known, float, int], list[Changes]]


def _neighbouring(factors: tuple[float, ...]) -> _Make:
    """Return choices at neighbouring prices."""

    def make(chain: Chain, known: _Known, price: float, first: int) -> list[Changes]:
        return [chain.closed(price * factor, first)[1] for factor in factors]

    return make


def _stepped(step: float) -> _Make:
    """Return choices at a price that is lower in the first part of the iteration than in the rest. The end of that part
    is sought by halving: time rises with it, little by little."""

    def make(chain: Chain, known: _Known, price: float, first: int) -> list[Changes]:
        choices = []
        begin, end = 0, chain.count
        while end - begin > 1:
            middle = (begin + end) // 2
            prices = np.full(chain.count, price * (1 + step))
            prices[:middle] = price * (1 - step)
            _, changes = chain.closed(prices, first)
            choices.append(changes)
            if known.fits(changes):
                begin = middle
            else:
                end = middle
        return choices

    return make
