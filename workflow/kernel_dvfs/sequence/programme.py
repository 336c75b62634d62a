"""Least energy of an iteration within a total time, where changes of clocks take time: a choice and how far from best.

price of time           Lagrange: for any price, least of (energy + price x time) - price x limit is a lower bound;
                        a dynamic programme (chains.py) finds it exactly, a line search the best price
mixing                  the choices found at this and at neighbouring prices agree at many boundaries; the best
                        mixture of them uses the time up (mixing.py)
exact search            while the gap is wide: every choice that the bound does not exclude (exact.py); where it was
                        complete, the best known is optimal and the gap nothing
gap                     energy of the choice - lower bound
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_dvfs.choice.problem import TOLERANCE
from kernel_dvfs.errors import InputError
from kernel_dvfs.sequence.chains import chain_of
from kernel_dvfs.sequence.changes import Changes
from kernel_dvfs.sequence.exact import search
from kernel_dvfs.sequence.launches import Sequence
from kernel_dvfs.sequence.mixing import best_mixture
from kernel_dvfs.sequence.timing import Timing

_PRICES = 60  # finite by itself; the cap guards against float cycling
# what is held to be narrow: gap as a share of the saving; and prices to mix with while it is not
_NARROW = 0.002
_STEPS = (0.003, 0.03)
_NEIGHBOURS = ((0.97, 1.03), (0.9, 1.1))
# where it is wider than that: labels kept at a boundary and pair in turns of the exact search
_WIDE = 0.005
_LABELS = (20, 60)
# ways on that it looks at in all, about a CPU second
EFFORT = 6_000_000


@dataclass(frozen=True, eq=False)
class Choice:
    """changes: what to play. time_s, energy_j: of an iteration, expected over the jitter. bound_j: no choice within the
    limit has less energy. price_w: of time at the bound. prices: how many were tried."""

    changes: Changes
    time_s: float
    energy_j: float
    bound_j: float
    price_w: float
    prices: int
    limit_s: float

    @property
    def gap_j(self) -> float:
        return max(0.0, self.energy_j - self.bound_j)


def choose_changes(sequence: Sequence, timing: Timing, slack: float = 0.0, chain=None, effort: int = EFFORT) -> Choice:
    """The best changes found with total time <= (1 + slack) x that of the baseline, and a bound on any.

    slack: fraction of the baseline time. chain: of this sequence and timing, where it is at hand. effort: of the
    exact search. Raises InputError for
    a slack that no choice can meet.
    """
    if not (np.isfinite(slack) and slack > -1):
        raise InputError(f"sequence: slack {slack!r} (as a fraction); use a number above -1")
    limit = (1 + slack) * sequence.baseline_time_s * (1 + TOLERANCE)
    chain = chain or chain_of(sequence, timing)
    known = _Known(chain, limit)
    for pair in range(len(sequence.pairs)):
        known.offer(Changes(pair, (), ()))
    bound, _, slow = chain.best(0.0)
    known.offer(slow)
    price, tried = 0.0, 1
    if not known.fits(slow):
        bound, price, tried = _line_search(chain, known, slow, limit)
        tried += _mix(chain, known, bound, price, limit)
        bound = _search(chain, known, bound, price, limit, effort)
    if known.best is None:
        raise InputError(
            f"sequence: no choice keeps {100 * slack:g} % slowdown: the fastest found takes"
            f" {100 * (known.fastest_s / sequence.baseline_time_s - 1):+.3g} %; raise the slack"
        )
    energy, time, changes = known.best
    return Choice(changes, time, energy, min(bound, energy), price, tried, limit)


class _Known:
    """The choices looked at: the best in time, and the fastest."""

    def __init__(self, chain, limit: float):
        self.chain, self.limit = chain, limit
        self.best = None
        self.fastest_s = np.inf
        self.all = {}

    def offer(self, changes: Changes) -> tuple:
        time, energy = self.chain.totals(changes)
        self.all[changes] = (time, energy)
        self.fastest_s = min(self.fastest_s, time)
        if time <= self.limit and (self.best is None or (energy, time) < self.best[:2]):
            self.best = (energy, time, changes)
        return time, energy

    def is_within(self, share: float, bound: float) -> bool:
        """Whether the gap is at most a share of the saving."""
        saving = self.chain.sequence.baseline_energy_j - self.best[0]
        return self.best[0] - bound <= share * max(0.0, saving)

    def fits(self, changes: Changes) -> bool:
        return self.chain.totals(changes)[0] <= self.limit


def _line_search(chain, known: _Known, slow: Changes, limit: float) -> tuple:
    """(bound, price, prices tried); the choices found are offered.

    Walks the lower hull of all (time, energy): cut the line through a too slow and a fitting vertex, look for a vertex
    below it. A choice within the limit to begin with comes from a price so high that only time counts.
    """
    scale = chain.sequence.baseline_energy_j / chain.sequence.baseline_time_s
    fast, tried = None, 1
    bound, best_price = -np.inf, 0.0
    for power in (1, 100, 10**4, 10**7):
        price = scale * power
        least, cost, found = chain.best(price, quick=True)
        tried += 1
        if least - price * limit > bound:
            bound, best_price = least - price * limit, price
        known.offer(found)
        if known.fits(found):
            fast = found
            break
        slow = found
    if fast is None:
        # the best that is known may still fit by itself
        if known.best is None:
            return bound, best_price, tried
        fast = known.best[2]
    quick = True
    for _ in range(_PRICES):
        (fast_s, fast_j), (slow_s, slow_j) = chain.totals(fast), chain.totals(slow)
        if slow_s <= fast_s:
            break
        price = (fast_j - slow_j) / (slow_s - fast_s)
        if price < 0:
            break
        line = slow_j + price * slow_s
        least, cost, found = chain.best(price, quick)
        tried += 1
        if least - price * limit > bound:
            bound, best_price = least - price * limit, price
        time, _ = known.offer(found)
        if cost >= line - 1e-12 * abs(line):
            if not quick:
                break
            quick = False  # once more with all first pairs: the bound counts now
            continue
        if time <= limit:
            fast = found
        else:
            slow = found
    return bound, best_price, tried


def _mix(chain, known: _Known, bound: float, price: float, limit: float) -> int:
    """Offer mixtures of what is known, then choices at prices that step within the iteration and at neighbouring
    prices, and mixtures with them, until the gap is narrow; returns how many prices were tried."""
    if known.best is None or price <= 0:
        return 0

    def is_narrow() -> bool:
        return known.is_within(_NARROW, bound)

    if is_narrow():
        return 0
    # all begin with the pair that is best at the price, as the line search has found it
    first = min(known.all, key=lambda own: known.all[own][1] + price * known.all[own][0]).first
    values = chain.values(price, first)
    choices = {own: None for own in known.all if own.first == first}

    def mix() -> None:
        mixed = best_mixture(chain, list(choices), price, values, limit, known.best[0] - bound) if choices else None
        if mixed is not None:
            known.offer(mixed)
            choices[mixed] = None

    mix()
    tried = 0
    for make in (*(_stepped(step) for step in _STEPS), *(_beside(factors) for factors in _NEIGHBOURS)):
        if is_narrow():
            break
        for own in make(chain, known, price, first, limit):
            choices[own] = None
            known.offer(own)
            tried += 1
        mix()
    return tried


def _search(chain, known: _Known, bound: float, price: float, limit: float, effort: int) -> float:
    """Offer what the exact search finds; the bound, which is the best energy where the search was complete."""
    if known.best is None or price <= 0:
        return bound
    for labels in _LABELS:
        if known.is_within(_WIDE, bound):
            break
        low = chain.starts(price)
        complete = True
        for first in np.argsort(low, kind="stable").tolist():
            if low[first] - price * limit >= known.best[0]:
                break
            if effort <= 0:
                return bound
            found, whole, spent = search(chain, price, first, limit, known.best[0], labels, effort)
            effort -= spent
            complete &= whole
            if found is not None:
                known.offer(found)
        if complete:
            return known.best[0]
    return bound


def _beside(factors: tuple):
    """Choices at neighbouring prices."""

    def make(chain, known, price, first, limit):
        return [chain.closed(price * factor, first)[1] for factor in factors]

    return make


def _stepped(step: float):
    """Choices at a price that is lower in the first part of the iteration than in the rest, the end of that part sought
    by halving: time rises with it, little by little."""

    def make(chain, known, price, first, limit):
        found = []
        begin, end = 0, chain.count
        while end - begin > 1:
            middle = (begin + end) // 2
            prices = np.full(chain.count, price * (1 + step))
            prices[:middle] = price * (1 - step)
            _, own = chain.closed(prices, first)
            found.append(own)
            if known.fits(own):
                begin = middle
            else:
                end = middle
        return found

    return make
